"""The commands of the program pypy-alloc, one module each.

A module has the function run(), which gets the arguments after the command's name and
returns the exit code. ``program`` chooses the module, ``options`` has the options that
several commands share, and ``reading`` passes on the commands that read files.
"""
