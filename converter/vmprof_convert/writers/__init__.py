"""Writers of profiles in other formats, one module or package for each format.

cli/formats.py calls the writers. Each one returns lines that list the data which its
format cannot contain.
"""
