"""The commands of vmprof-convert, each of which is a module.

A module has `add_arguments(parser)`, which adds the options and an example, and
`run(options)`, which returns the exit code.  See cli/command.py.
"""
