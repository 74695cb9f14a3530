"""Find the layout of the GC's objects, which only a running process shows."""
