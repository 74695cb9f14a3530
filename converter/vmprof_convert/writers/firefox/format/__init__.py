"""The Firefox Profiler's processed format, version 64: what it is made of.

Nothing here knows where the samples come from.  `builder.ProfileBuilder` is handed
functions, stacks and samples, and returns what is to be written as JSON.
"""
