"""The writer of files for the Firefox Profiler.

convert.py and the modules that it uses read the model of a profile. The package format/
implements the Profiler's format and does not depend on the model.

The files have version 64 of the processed format, the first version that can contain
all that is shown. A Profiler reads every older version and no newer one. Packaged or
self-hosted Profilers are often months old. The versions up to 75 have no features that
are useful here. Versions 65, 67 and 68 changed nothing in a profile. Version 66 stores
a stack's distance to its caller instead of the caller. Versions 69, 72 and 73 are about
Firefox's own markers. Versions 70, 71, 74 and 75 have a new layout of the tables of
frames and functions.
"""
from __future__ import annotations

from vmprof_convert.writers.firefox.convert import (
    BYTES,
    TIME,
    convert,
    encode,
    query,
    write,
)

__all__ = ["BYTES", "TIME", "convert", "encode", "query", "write"]
