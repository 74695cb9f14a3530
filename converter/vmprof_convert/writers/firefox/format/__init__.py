"""The Firefox Profiler's processed format, version 64.

This package does not use the model of a profile. builder.ProfileBuilder gets
functions, stacks, threads and counters from writers/firefox, and returns a dict for
JSON. encoding.encoded() writes the dict.
"""
