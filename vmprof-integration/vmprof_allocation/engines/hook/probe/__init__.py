"""How the GC's objects look in memory: what only a process that runs tells."""
