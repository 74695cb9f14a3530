"""Sections of code that no fork and no signal handler may interrupt."""
