"""Runs traces in native/nursery_harness.c with and without sampling.

The two runs are compared with each other and with the oracle. The harness describes the
lines of a trace. It also checks at each step that the GC reads its own nursery_top,
that pinned objects are where the GC reads them, that no two objects overlap, that
samples have the object's address, and that errno does not change.
"""
from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import oracle
from native_build import build
from oracle import Sample

#: an interval with which no byte is sampled if gaps are fixed
NEVER = 2**62
OFF = 0                 # a value of enum nursery_phase

#: the beginning of a trace with two pinned objects: 64 bytes at the nursery's offset
#: 1600, and 16 bytes at 2448
PINNED = """\
nursery 4096
pins 2
small 16 100
small 64 1
small 16 50
pin 0
pin 50
collect
"""


def build_harness() -> pathlib.Path:
    return build("nursery_harness", "sampler/sampler.c", "hook/gc/nursery.c")


class Totals(NamedTuple):
    """The totals that the engine counts."""

    allocated: int
    collections: int
    pressures: int
    surprises: int
    phase: int


class Run(NamedTuple):
    """The output of a trace."""

    #: events of the run without sampling
    program: list[str]
    events: list[oracle.Event]
    samples: list[Sample]
    totals: Totals

    @property
    def sampled(self) -> list[int]:
        return [sample.number for sample in self.samples]


def events_of(program: list[str]) -> Iterator[oracle.Event]:
    """Yield the oracle's events for the events that a run printed."""
    for line in program:
        kind, *words = line.split()
        if kind == "start":
            yield oracle.Start(int(words[0]), int(words[1]), words[2] == "1",
                               words[3:] == ["1"])
        elif kind in ("stop", "abandon"):
            yield oracle.Stop()
        elif kind == "rate":
            yield oracle.Rate(int(words[0]))
        elif kind in ("small", "large"):
            yield oracle.Allocation(int(words[0]), int(words[1]))
        elif kind == "collection":
            yield oracle.Collection()
        elif kind == "pressure":
            yield oracle.Pressure()
        else:
            assert kind in ("run", "hidden", "pinned", "unpinned", "unhook",
                            "MemoryError")


def _output(harness: pathlib.Path, trace: str) -> list[str]:
    done = subprocess.run([harness], input=trace, text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def totals_of(harness: pathlib.Path, trace: str) -> Totals:
    """Return the totals of a trace in which sampling causes additional collections."""
    return Totals(*map(int, _output(harness, trace)[-1].split()[1:]))


def run(harness: pathlib.Path, trace: str) -> Run:
    """Run a trace, and check that sampling does not change the program's actions."""
    lines = _output(harness, trace)
    second = lines.index("run 1")
    program = lines[1:second]
    *with_sampling, totals = lines[second + 1:]
    assert totals.startswith("total ")
    assert [line for line in with_sampling
            if not line.startswith("sample ")] == program
    return Run(program, list(events_of(program)),
               [Sample(*map(int, line.split()[1:])) for line in with_sampling
                if line.startswith("sample ")],
               Totals(*map(int, totals.split()[1:])))


def places(result: Run) -> list[int]:
    """Return the offset in the nursery of each small object."""
    return [int(line.split()[3]) for line in result.program
            if line.startswith("small ")]


def check(harness: pathlib.Path, trace: str) -> Run:
    """Run a trace, and compare it with the oracle."""
    result = run(harness, trace)
    assert result.samples == list(oracle.samples(result.events))
    check_totals(result)
    return result


def check_totals(result: Run) -> None:
    """Check the totals, which count from the last start of sampling."""
    starts = [i for i, line in enumerate(result.program)
              if line.startswith("start")]
    if not starts:
        return
    program = result.program[starts[-1]:]
    ends = [i for i, line in enumerate(program) if line in ("stop", "abandon")]
    running = program[:ends[0]] if ends else program
    hooked = program[:program.index("unhook")] if "unhook" in program else program
    assert result.totals.surprises == 0
    assert result.totals.collections == hooked.count("collection")
    assert result.totals.pressures <= hooked.count("pressure")
    if ends and "abandon" not in program and not result.totals.pressures:
        # every byte was counted once
        assert result.totals.allocated == sum(
            event.size for event in events_of(running)
            if isinstance(event, oracle.Allocation))
