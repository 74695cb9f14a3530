"""From the command line to the program, and to its report."""
