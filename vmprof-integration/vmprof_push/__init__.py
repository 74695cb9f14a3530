"""Send the profiles of a running program to a server that stores profiles.

``start`` makes a folder, into which the program writes the segments of its rotated
profile (session/periodic_rotation.py).  ``start`` also starts a separate process, the
pusher, by ``python -m vmprof_push``.  The pusher sends each finished segment, and then
removes the segment.  The program's process loads only ``start`` and the modules that
``start`` imports, and only if its code or an option requests pushing.

The code calls a segment *window*, and the server *engine*.
"""
