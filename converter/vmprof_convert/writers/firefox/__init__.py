"""Build a profile for the Firefox Profiler (processed format, version 64).

Nothing here knows where the samples come from: a reader hands its functions,
stacks and samples to a `ProfileBuilder`, and `ProfileBuilder.build()` returns
what is to be written as JSON.
"""
from __future__ import annotations

from vmprof_convert.writers.firefox.builder import ProfileBuilder
from vmprof_convert.writers.firefox.categories import NATIVE, OTHER, PYTHON, Category
from vmprof_convert.writers.firefox.counters import Counter
from vmprof_convert.writers.firefox.extra import Entry
from vmprof_convert.writers.firefox.threads import Thread

__all__ = ["NATIVE", "OTHER", "PYTHON", "Category", "Counter", "Entry",
           "ProfileBuilder", "Thread"]
