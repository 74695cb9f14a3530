"""The experiments of the study, one per file.

Each module has a `NAME` and three functions. `run(context)` measures and returns the
results as JSON. `report(results)` returns them as tables. `plot(results, path)` draws
them into a file. study.py calls these functions.
"""
from __future__ import annotations

import dataclasses
from pathlib import Path

from measuring import Json

__all__ = ["Context", "Json", "short"]


def short(program: str) -> str:
    """Return the name of a program in tables and plots."""
    return program.rpartition(":")[2]


@dataclasses.dataclass(frozen=True)
class Context:
    """The interpreters of a study, and whether the study is only a quick trial."""

    #: The path of a PyPy with the package and the programs' libraries.
    pypy: Path
    #: The PyPy of the plain runs.  It differs from `pypy` to compare two builds.
    baseline: Path
    #: The path of a CPython with the other profilers.
    cpython: Path
    #: Whether to do few and short runs, which only show whether the experiment works.
    quick: bool
