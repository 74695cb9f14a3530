"""The report of leaks, as text and as JSON."""
