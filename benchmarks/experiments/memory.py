"""Measure how much memory of twelve programs `memory PID` does not explain.

Each program runs with and without huge pages.
"""
from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import ROOT, table

NAME = "memory"
PROGRAMS = ("cache", "buffers", "fragmentation", "numpy", "sympy", "lxml", "sqlite",
            "json", "zlib", "flask", "tornado", "gunicorn")
#: The setting with which glibc's malloc asks for huge pages.  The system must be
#: configured to give huge pages on request.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
#: The columns of the table.  Each is a sum of rows of `memory PID`.
COLUMNS = {"objects": ("objects", "gc_arenas"), "GC's room": ("gc_room", "nursery"),
           "C code": ("c", "c_or_free"), "malloc free": ("malloc_free",),
           "mapped": ("mapped",),
           "files": ("pypy", "libraries", "files"),
           "others": ("shared", "stacks", "code"), "absent": ("untouched", "swapped")}


def run(context: Context) -> Json:
    """Run the worker for each program, with and without huge pages."""
    rows = []
    for name in PROGRAMS[:2] if context.quick else PROGRAMS:
        for variables in ({}, HUGE):
            measuring.progress("%s: %s" % (NAME, name))
            found: Json = json.loads(measuring.run([
                context.pypy, ROOT / "benchmarks" / "memory_worker.py", name],
                variables=variables).out)
            rows.append({"program": name, "huge": bool(variables), **found})
    return {"programs": rows}


def _amounts(row: Json) -> dict[str, int]:
    """Return the bytes of each row of a memory report."""
    amounts: dict[str, int] = {one["row"]: one["bytes"] for one in row["rows"]}
    return amounts


def unexplained(row: Json) -> float:
    """Return the share of the resident memory that the report does not explain."""
    return _amounts(row)["not_explained"] / float(row["resident"])


def report(results: Json) -> str:
    """Return the table of the programs' memory, in MiB."""
    rows = results["programs"]
    lines = [["program", "pages", "resident", *COLUMNS, "not explained", "sentence"]]
    for row in rows:
        amounts = _amounts(row)
        lines.append([
            row["program"], "huge" if row["huge"] else "4 KiB",
            "%.1f" % (row["resident"] / 2**20),
            *("%.1f" % (sum(amounts.get(key, 0) for key in keys) / 2**20)
              for keys in COLUMNS.values()),
            "%.2f %%" % (100 * unexplained(row)), row["sentence"].partition(":")[0]])
    return (
        "%s\n\nMiB; mapped: without malloc; absent: of the columns before, what was "
        "never written to, or is\nswapped out; huge: malloc asks for huge pages (%s)\n"
        "worst: %.2f %% not explained" % (
            table(lines), " ".join(map("=".join, HUGE.items())),
            100 * max(abs(unexplained(row)) for row in rows)))


def plot(results: Json, path: Path) -> None:
    """Plot the resident memory of each program."""
    rows = [row for row in results["programs"] if not row["huge"]]
    names = [row["program"] for row in rows]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    left = [0.0] * len(rows)
    for title, keys in COLUMNS.items():
        if title == "absent":
            continue                # The values of this column are negative.
        values = [max(sum(_amounts(row).get(key, 0) for key in keys), 0) / 2**20
                  for row in rows]
        axes.barh(names, values, left=left, label=title)
        left = [before + value for before, value in zip(left, values)]
    axes.plot([row["resident"] / 2**20 for row in rows], names, "k|", markersize=14,
              label="resident")
    axes.set_xlabel("MiB")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
