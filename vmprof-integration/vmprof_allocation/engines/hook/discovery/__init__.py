"""Find the addresses of the nursery and the GC's functions in this build of PyPy.

lookup.py finds the build profile (layout.py) of this build: from another process, from
the cache, or by the search (search.py, which runs the probe).  process.py checks the
build profile against the memory of the running process.
"""
