"""The Firefox Profiler's processed format, version 64.

``convert`` walks a profile; ``builder`` and what it is made of know the format,
and nothing of where the samples come from: they are handed functions, stacks
and samples, and `ProfileBuilder.build()` returns what is to be written as JSON.
"""
from __future__ import annotations

from vmprof_convert.writers.firefox.convert import convert, encode, write

__all__ = ["convert", "encode", "write"]
