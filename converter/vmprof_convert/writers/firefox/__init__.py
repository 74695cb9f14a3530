"""A file for the Firefox Profiler.

``convert`` and what it is made of walk a profile; ``format`` knows what the
Profiler reads, and no profile.

It is written in version 64 of the processed format, the first that can hold all that
is shown.  A Profiler reads every older version and no newer one, and those that are
packaged or served by somebody are often months old.  What came up to version 75 is no
use here: 65, 67 and 68 changed nothing in a profile; 66 has a stack's distance to its
caller instead of the caller; 69, 72 and 73 are about Firefox's own markers; 70, 71, 74
and 75 lay tables of frames and functions out anew.
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
