"""From the command line `python -m vmprof` to the program, and to its report."""
