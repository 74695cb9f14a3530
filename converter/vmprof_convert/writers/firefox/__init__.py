"""A file for the Firefox Profiler.

``convert`` and what it is made of walk a profile; ``format`` knows what the
Profiler reads, and no profile.
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
