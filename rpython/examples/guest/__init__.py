"""An interpreter for a small language; see ../README.rst."""
