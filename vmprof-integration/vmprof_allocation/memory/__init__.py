"""Counts of Linux, malloc and the garbage collector for this process's memory."""
