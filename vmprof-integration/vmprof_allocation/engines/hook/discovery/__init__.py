"""Where the nursery and the GC's functions are in this build of PyPy: looked up, or
found by what its code does, and checked against the running process."""
