"""Fresh processes, from the command line: what is sampled against what never
knew of it.  Unlike `costs`, this has what stays on the program's heap because
it is sampled at all, and is walked by every major collection."""
from __future__ import annotations

import dataclasses
import itertools
import json
import random
import tempfile
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from measuring import ROOT

NAME = "fresh"
PROGRAM = "gcbench"
SCRIPT = ROOT / "benchmarks" / "programs" / "rounds.py"
#: 1G: hardly a sample is taken
RATES = ("1G", "4M", "auto", "512k", "128k", "32k")
PAIRS, CHURNS = 22, 12


def run(context: Context) -> Json:
    rates = ("1G", "128k") if context.quick else RATES
    pairs, churns = (1, 1) if context.quick else (PAIRS, CHURNS)
    rng = random.Random(2)
    phases = [rng.randrange(2**16) for _ in range(pairs)]
    # of a turn: the rates, and two plain ones
    calls = itertools.count()
    with tempfile.TemporaryDirectory() as name:
        profile = Path(name) / "out.vmprof"

        def start(_: str, rate: str | None) -> measuring.Process:
            phase = phases[next(calls) // (len(rates) + 2)]
            flags: list[str | Path] = [] if rate is None else [
                "-m", "vmprof", "--allocation-sampling", rate, "-o", profile]
            process = measuring.run(
                [context.pypy, *flags, SCRIPT, "%d" % churns, "%d" % phase])
            return dataclasses.replace(
                process, wall=json.loads(process.out)["wall"])

        return {"runs": turns.take((PROGRAM,), rates, pairs, start, profile,
                                   "program", NAME)}


def report(results: Json) -> str:
    return "%s\n\ntime: what the program takes for four rounds, as it measures" \
        " itself" % turns.report(results["runs"], "program", RATES)


def plot(results: Json, path: Path) -> None:
    turns.plot(results["runs"], "program", (PROGRAM,), RATES, path)
