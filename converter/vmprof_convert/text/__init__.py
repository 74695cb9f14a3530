"""Formatting of numbers, times and names for reports and messages."""
