"""The experiments of the study, one a file.

Each has a `NAME`, `run(context)`, which returns what is to be kept, as JSON,
`report(results)`, which puts it into tables, and `plot(results, path)`.
"""
from __future__ import annotations

import dataclasses
from pathlib import Path

from measuring import Json

__all__ = ["Context", "Json", "short"]


def short(program: str) -> str:
    """The name of a program in tables and plots."""
    return program.rpartition(":")[2]


@dataclasses.dataclass(frozen=True)
class Context:
    """What to measure with, and how thoroughly."""

    #: a PyPy with the package and the programs' libraries
    pypy: Path
    #: the one of the plain runs; another one than `pypy` to compare two
    baseline: Path
    #: a CPython with the other profilers
    cpython: Path
    #: few and short runs, to see whether it works
    quick: bool
