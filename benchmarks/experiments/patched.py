"""A program that was translated with the patch: the guest interpreter of
rpython/examples, without and with the JIT.  Whole processes."""
from __future__ import annotations

import tempfile
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from experiments.costs import INTERVALS
from measuring import BUILD, ROOT

NAME = "patched"
BUILDS = ("guest", "guest-jit")
PROGRAM = ROOT / "rpython" / "examples" / "programs" / "gcbench.guest"
RATES = (*INTERVALS, "auto:1000/s")
#: rounds of the program, about half a second each
ROUNDS = {"guest": 6, "guest-jit": 40}
PAIRS = 15


def run(context: Context) -> Json:
    builds = [b for b in BUILDS if (BUILD / "rpython" / b).exists()]
    if not builds:
        raise measuring.Failed("there is no .build/rpython/guest: run `make "
                               "bench`, which builds it")
    with tempfile.TemporaryDirectory() as folder:
        def start(build: str, rate: str | None) -> measuring.Process:
            flags = [] if rate is None else ["--allocation-sampling", rate]
            return measuring.run(
                [BUILD / "rpython" / build, *flags, PROGRAM,
                 "%d" % (1 if context.quick else ROUNDS[build])], Path(folder))

        return {"runs": turns.take(
            builds, ("128k", "auto:1000/s") if context.quick else RATES,
            1 if context.quick else PAIRS, start, Path(folder) / "out.vmprof",
            "build", NAME)}


def report(results: Json) -> str:
    return turns.report(results["runs"], "build", RATES)


def plot(results: Json, path: Path) -> None:
    turns.plot(results["runs"], "build", BUILDS, RATES, path)
