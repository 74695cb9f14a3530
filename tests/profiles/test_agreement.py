"""Tests that the report's table and the Firefox profile agree.

Both have the same labels, and the same bytes for every function. The Firefox profile
rounds the weights of samples to whole bytes, so that its sums may differ by a known
rounding error.
"""
from __future__ import annotations

import collections
import io
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import firefox_rules
import made_profiles
import report_runs
from conftest import PyPy
from made_heap import Heap
from made_profiles import LINES, PID, FrameSpec, Log, jit, machine_code, native
from vmprof_convert import readers
from vmprof_convert.analysis.summary import FUNCTION, TYPE, Choice, Tally, summarize
from vmprof_convert.meaning.lifetimes import STILL_ALIVE, state
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.meaning.visible_stacks import CUT, Program
from vmprof_convert.profile.model import PYTHON, Function, Profile
from vmprof_convert.text.units import format_bytes
from vmprof_convert.writers import firefox
from vmprof_convert.writers.firefox.lives import split_shrunk

MS = 1_000_000

#: how a function is displayed: name, file, line, and whether it is a Python function
Key = tuple[str, str, int, bool]


class Keys:
    """The names, files and lines with which functions are displayed."""

    def __init__(self, profile: Profile) -> None:
        self._origins = Origins(profile)

    def of(self, function: Function) -> Key:
        return (function.name, self._origins.path(function.file), function.line,
                function.kind == PYTHON)


class Shown:
    """The metadata and the sums of bytes that the Firefox profile contains."""

    def __init__(self, profile: Profile) -> None:
        out = io.BytesIO()
        firefox.write(profile, out)
        self.json: dict[str, Any] = json.loads(out.getvalue())
        assert firefox_rules.violations(self.json) == []
        self.extra: dict[str, Any] = {
            entry["label"]: entry["value"]
            for section in self.json["meta"]["extra"]
            for entry in section["entries"]}
        self.own: dict[Key, int] = collections.defaultdict(int)
        self.total: dict[Key, int] = collections.defaultdict(int)
        #: allocated and live bytes by function and type; empty without types
        self.typed: dict[tuple[Key, str], int] = collections.defaultdict(int)
        self.retained: dict[tuple[Key, str], int] = collections.defaultdict(int)
        self.time_samples = 0
        for thread in self.json["threads"]:
            if not isinstance(thread["tid"], int):
                continue        # this thread repeats the samples of all others
            if thread["samples"]["weightType"] == "samples":
                self.time_samples += sum(thread["samples"]["weight"] or
                                         [1] * len(thread["samples"]["stack"]))
            allocations = thread.get("nativeAllocations",
                                     {"stack": [], "weight": []})
            alive: dict[int, tuple[tuple[Key, str], int]] = {}
            for stack, weight, address in zip(
                    allocations["stack"], allocations["weight"],
                    allocations.get("memoryAddress")
                    or allocations["weight"]):
                if weight < 0:
                    del alive[address]
                    continue
                functions = self.functions(stack)
                if profile.has_types:
                    # the innermost frame is the type of the object
                    place = functions[1], functions.pop(0)[0]
                    self.typed[place] += weight
                    alive[address] = place, weight
                self.own[functions[0]] += weight
                for function in set(functions):
                    self.total[function] += weight
            for place, weight in alive.values():
                self.retained[place] += weight

    def functions(self, stack: int | None) -> list[Key]:
        """Return the functions of a stack, innermost first."""
        shared = self.json["shared"]
        strings, functions = shared["stringArray"], shared["funcTable"]
        result = []
        while stack is not None:
            number = shared["frameTable"]["func"][
                shared["stackTable"]["frame"][stack]]
            source = functions["source"][number]
            result.append((
                strings[functions["name"][number]],
                "" if source is None else
                strings[shared["sources"]["filename"][source]],
                functions["lineNumber"][number] or 0,
                functions["isJS"][number]))
            stack = shared["stackTable"]["prefix"][stack]
        if result[-1][0] == CUT:
            del result[-1]
        return result


def rounding(members: Sequence[bool]) -> float:
    """Return the largest rounding error in bytes of a sum of sample weights.

    The converter rounds the weights so that the sum of the first n samples is off by
    at most half a byte, for every n. The sum of a run of samples is the difference of
    two such sums. Each end of a run adds half a byte, except the start of the profile.

    Args:
        members: for each sample of the profile, whether it belongs to the sum.
    """
    ends = sum(a != b for a, b in zip(members, [*members[1:], False]))
    return ends / 2


def check(path: Path) -> Profile:
    """Compare the report of the profile at `path` with the Firefox profile.

    The report takes its sums from a `Tally`, which adds the samples during the reading.
    The Firefox profile is made from all samples afterwards.
    """
    tally = Tally()
    profile = readers.read_into(path, tally)
    summary = summarize(profile, tally)
    text = report_runs.text(profile, limit=None, tally=tally)
    whole = readers.read(path)
    shown = Shown(whole)

    key_of = Keys(whole).of
    rows = {key_of(row.function): row for row in summary.rows}
    assert len(rows) == len(summary.rows)
    assert shown.total.keys() == rows.keys()
    program = Program(whole)
    # all functions of each stack, the innermost function last
    ends = {stack: [*map(key_of, program.functions(stack))]
            for stack in {*whole.samples.stack}}
    on = {stack: frozenset(keys) for stack, keys in ends.items()}
    # the Firefox profile has an additional row for each shrunk object
    samples = whole.samples
    with split_shrunk(samples):
        samples.sort()
        stacks = [stack for stack, size in zip(samples.stack, samples.size) if size]
    for key, row in rows.items():
        assert shown.own[key] == pytest.approx(
            row.own.bytes().value, rel=1e-12,
            abs=rounding([ends[stack][-1] == key for stack in stacks])), key
        assert shown.total[key] == pytest.approx(
            row.total.bytes().value, rel=1e-12,
            abs=rounding([key in on[stack] for stack in stacks])), key
    assert sum(shown.own.values()) == pytest.approx(
        summary.bytes.value, rel=1e-12, abs=0.5)

    if profile.has_types:
        check_types(whole, shown)

    # labels and messages
    lines = text.splitlines()
    origins = Origins(whole)
    labels = {tuple(re.split(" {2,}", line)[-2 if ":" in line or ".py" in line
                                            else -1:]) for line in lines}
    for name, file, line, _ in {(f.name, f.file, f.line, f.kind) for f in (
            row.function for row in summary.rows)}:
        place = "%s:%d" % (origins.path(file), line) if line else origins.path(file)
        assert ((name, place) if file else (name,)) in labels, name
    said = re.search(r"\((\d+) samples", lines[0])
    assert shown.extra.get("Allocation samples", 0) == summary.samples == (
        int(said[1]) if said else 0)
    assert shown.time_samples == summary.time_samples == number(
        "CPU samples: (N);", text)
    if profile.moments:
        last = profile.moments[-1]
        assert shown.extra["Allocated, counted by the GC"] == format_bytes(
            last.allocated)
        assert "the GC itself counted: %s" % format_bytes(last.allocated) in text
        if profile.collections:
            assert "collections: %d minor, " % shown.extra["Minor collections"] in text
    if profile.lost_stacks:
        assert " of %d samples are missing; " % len(whole.samples) in text
    said_there = "\n".join(map(str, shown.extra.values()))
    for pattern in (
            "lost: the stacks of (N) of", "cut: the stacks of (N) samples",
            "(N) child process", "up to (N)[.0-9]* .* are missing from"):
        assert number(pattern, said_there) == number(pattern, text), pattern
    return whole


def check_types(profile: Profile, shown: Shown) -> None:
    """Compare the bytes by function and type in the report and the Firefox profile."""
    key_of = Keys(profile).of
    rows = {}
    for row in summarize(profile, None, Choice((FUNCTION, TYPE))).rows:
        assert row.subject.type is not None
        if row.own.sum().samples:
            rows[key_of(row.function), row.subject.type.name] = row.own
    assert rows.keys() == shown.typed.keys()
    samples = profile.samples
    program, names = Program(profile), TypeNames(profile)
    innermost = {stack: key_of(program.functions(stack)[-1])
                 for stack, size in zip(samples.stack, samples.size) if size}
    with split_shrunk(samples):
        samples.sort()
        places = [(innermost[stack], names.shown(type_).name)
                  if size else None for stack, type_, size in
                  zip(samples.stack, samples.type, samples.size)]
        alive = [state(fate, -1, -1) == STILL_ALIVE for fate in samples.fate]
    for place, figures in rows.items():
        assert shown.typed[place] == pytest.approx(
            figures.bytes().value, rel=1e-12,
            abs=rounding([found == place for found in places])), place
        if profile.has_lifetimes:
            assert shown.retained[place] == pytest.approx(
                figures.bytes(STILL_ALIVE).value, rel=1e-12,
                abs=rounding([found == place and is_alive for found, is_alive
                              in zip(places, alive)])), place
    counters = {counter["name"]: counter for counter in shown.json["counters"]}
    if profile.has_lifetimes:
        # the last value of the memory track is the sum of the live bytes in the report
        whole = summarize(profile).figures.bytes(STILL_ALIVE).value
        assert sum(counters["held-memory"]["samples"]["count"]) == pytest.approx(
            whole, rel=1e-12, abs=rounding(alive))


def number(pattern: str, text: str) -> int:
    """Return the number at N in `pattern`, or 0 if the text does not match."""
    found = re.search(pattern.replace("N", r"\d+"), text)
    return int(found[1]) if found else 0


def test_tolerance_is_the_largest_rounding_error() -> None:
    assert rounding([True, True, True]) == 0.5
    assert rounding([True, False, False]) == 0.5
    assert rounding([False, True, False, True]) == 4 * 0.5
    assert rounding([False, False]) == 0


# ________________________________________
# made profiles


def many(stacks: Sequence[Sequence[FrameSpec] | None], log: Log) -> Log:
    """Add 60 samples with these stacks, and of different sizes and intervals."""
    chosen = random.Random(1).choices(stacks, k=60)
    for i, stack in enumerate(chosen):
        log.allocation(stack, size=16 + i * 37 % 900,
                       interval=(700, 1000, 64)[i % 3], time=i * MS,
                       thread=PID + i % 2)
    log.allocated, log.collections = 54321, 3
    return log


def plain(log: Log) -> Log:
    f, g = log.function("f"), log.function("g", 7, "lib.py")
    return many([[f], [f, g], [g, f], [f, g, g]], log)


def sampled(**settings: object) -> Log:
    log = Log()
    log.settings(**settings)
    return log


def lost() -> Log:
    log = sampled()
    f = log.function("f")
    return many([[f], None, [f, f]], log)


def lost_time_samples() -> Log:
    log = sampled(period="0.01")
    f = log.function("f")
    log.allocation([f], size=24, time=MS)
    for i in range(3):
        log.tick(None, time=(2 + i) * MS)
    return log


def empty_stacks(interpreter: str) -> Log:
    log = Log(interpreter=interpreter)
    log.settings()
    f = log.function("f")
    return many([[f], [], [f, f], []], log)


def machine_code_alone() -> Log:
    log = sampled()
    f = log.function("f")
    return many([[machine_code(0x7000)] * 509, [f, machine_code(0x7000)],
                 [machine_code(0x8000)]], log)


def starts_and_ends() -> Log:
    log = sampled()
    main = log.function("entry_point", 1, "<builtin>/app_main.py")
    run = log.function("run_toplevel", 1, "<builtin>/app_main.py")
    runner = log.function("_run_code", 1, "/usr/lib/pypy3.9/runpy.py")
    site = log.function("join", 1, "/usr/lib/pypy3.9/posixpath.py")
    exits = log.function("run_exitfuncs", 1, "<builtin>/atexit/app_atexit.py")
    f = log.function("f")
    return many([[main], [main, run, runner], [main, site], [main, run, site],
                 [exits], [exits, f], [main, run, runner, f]], log)


def starts_alone() -> Log:
    log = sampled()
    return many([[log.function("entry_point", 1, "<builtin>/app_main.py")]],
                log)


def without_names() -> Log:
    """Return a log with incomplete names of functions.

    Some frames have no name, as in the profile of a killed process. Some names have an
    invalid form. Some lines and files are unknown.
    """
    log = sampled()
    f = log.function("f")
    odd = log.function("g", 0, "")
    log.addresses += 16
    log.name(log.addresses, "no form at all")
    return many([[f, 0xDEAD0], [0xDEAD0, 0xDEAD8], [odd, f], [log.addresses],
                 [jit(0xDEAD8)], [log.function("h", 0, "h.py")]], log)


def one_name_for_many() -> Log:
    log = sampled()
    return many([[log.function("f", 3)], [log.function("f", 3), 0xDEAD1],
                 [log.function("f", 4)], [log.function("f", 3, "other.py")]],
                log)


def native_frames() -> Log:
    log = sampled()
    f = log.function("f")
    malloc, free = log.native_function("malloc"), log.native_function("f")
    log.name(log.addresses + 16, "py:malloc:0:-")
    return many([[f, native(malloc)], [f, native(malloc), native(0xBEEF1)],
                 [native(malloc), f], [f, native(free), jit(f)],
                 # a Python function with the name of a native function
                 [f, log.addresses + 16], [f, log.addresses + 16, malloc],
                 # an address in a Python frame and also in a native frame
                 [native(f), f], [0xBEEF1]], log)


def recursion() -> Log:
    log = sampled()
    f, g = log.function("f"), log.function("g")
    return many([[f] * 300, [f, g] * 100, [g] * 508 + [f], [f, jit(f), jit(f)],
                 [g] * 509], log)


def time_samples_alone(interpreter: str, **options: Any) -> Log:
    log = Log(interpreter=interpreter, **options)
    f, g = log.function("f"), log.function("g")
    for path in [f], [f, g], [g]:
        if log.pypy:
            log.raw_stack(log.words(path), 1)
        elif log.flags & LINES:
            log.raw_stack([n for frame in reversed(path)
                           for n in (-5, frame)], 1)
        else:
            log.raw_stack(reversed(path), 1)
    log.raw_stack([], 1)
    return log


def both_kinds() -> Log:
    log = sampled(period="0.001")
    f, g = log.function("f"), log.function("g")
    for i in range(50):
        log.tick([f] if i % 3 else [f, g], time=i * MS)
        log.allocation([f, g] if i % 2 else [g], size=16 + i * 40,
                       time=i * MS, interval=333)
    return log


def large_and_tiny() -> Log:
    log = sampled()
    f, g = log.function("f"), log.function("g")
    for i in range(20):
        log.allocation([f], size=2**40 + i, interval=2**20)
        log.allocation([g], size=16, interval=2**50)
        log.allocation([f, g], size=1, interval=1)
    return log


def with_facts(facts: str) -> Log:
    """Return a log with batched allocations, all outcomes, and all kinds of types."""
    heap = Heap(interval=300, facts=facts, nursery=5000, minors=3)
    rng = random.Random(4)
    for _ in range(600):
        life = rng.choice([100, 20_000, math.inf])
        heap.allocate("main f", ("a.B", 40, 100), ("list", 32, life),
                      ("list (storage)", 8 * rng.randrange(1, 90), life))
        heap.allocate("main f g", ("<JIT frame>", 900, 500))
    log = heap.log
    f = log.function("f", 99, "lost.py")
    heap.collect()
    last = log.keys
    for number in range(12):
        log.allocation([f] if number % 4 else None, size=200, interval=300,
                       time=heap.now)
    log.collection(heap.now + 5)
    for number in range(11):
        log.young(last + 1 + number, (0, 1, 9, 3)[number % 4], number % 3)
    log.collection(heap.now + 9)
    log.lose(last + 2)
    log.freed(last + 6)
    log.mark(heap.now, "end")
    return log


def what_went_wrong() -> Log:
    log = plain(sampled(children=3, ended="the program disabled vmprof"))
    log.pressures, log.surprises, log.dropped = 2, 5, 7
    return log


MADE: dict[str, Callable[[], Log]] = {
    "plain": lambda: plain(sampled()),
    "fixed gaps": lambda: plain(sampled(gaps="fixed")),
    "auto": lambda: plain(sampled(interval=65536, limit="5000ppm")),
    "no samples in blocks": lambda: time_samples_alone("pypy"),
    "lines": lambda: time_samples_alone("cpython", flags=LINES),
    "no lines": lambda: time_samples_alone("cpython", flags=0),
    "own times": lambda: time_samples_alone("cpython", version=7),
    "empty stacks": lambda: empty_stacks("pypy"),
    "another's empty stacks": lambda: empty_stacks("guest"),
    "types and lifetimes": lambda: with_facts("types,lifetimes"),
    "types": lambda: with_facts("types"),
    "resident memory": lambda: plain(Log(
        flags=made_profiles.PYPY | made_profiles.MEMORY)),
    **{made.__name__: made for made in (
        lost, lost_time_samples, machine_code_alone, starts_and_ends,
        starts_alone, without_names, one_name_for_many, native_frames,
        recursion, both_kinds, large_and_tiny, what_went_wrong)},
}


@pytest.mark.parametrize("name", MADE)
def test_made_profiles(name: str, tmp_path: Path) -> None:
    path = tmp_path / "made.vmprof"
    path.write_bytes(MADE[name]().data())
    check(path)


def test_the_labels_of_stacks_without_frames(tmp_path: Path) -> None:
    """The label gives the reason why a stack has no frames."""
    path = tmp_path / "made.vmprof"
    for log, label in (
            (empty_stacks("guest"), "[no frames]"),
            (machine_code_alone(), "[compiled code, function not known]"),
            (starts_and_ends(), "[starting and ending the run]"),
            (lost(), "[stack lost]")):
        path.write_bytes(log.data())
        profile = check(path)
        labels = {row.function.name for row in summarize(profile).rows
                  if row.function.name.startswith("[")}
        assert labels == {label}


# ________________________________________
# profiles of real programs

PROGRAM = """
    import sys, threading
    sys.setrecursionlimit(10000)

    def down(n):
        return down(n - 1) if n else [str(i) for i in range(300)]

    def items(n):
        if n:
            yield str(n)
            yield from items(n - 1)

    def work():
        for n in 3, 60, 470, 530:
            down(n)
        for _ in range(30):
            sum(map(len, items(20)))
            list(map(str, range(2000)))
            bytearray(100000)

    thread = threading.Thread(target=work)
    thread.start()
    work()
    thread.join()
"""


@pytest.mark.parametrize("interval,flags", [
    ("2k", ()), ("auto", ()), ("16k", ("--period", "0.001")),
    ("4k", ("--allocation-distribution", "fixed")),
    ("16k", ("--mem", "--period", "0.001")),
], ids=["2k", "auto", "both kinds", "fixed", "memory"])
@pytest.mark.parametrize("jit", ["", "off"], ids=["jit", "no jit"])
def test_real_profiles(pypy: PyPy, interval: str, flags: tuple[str, ...],
                       jit: str) -> None:
    run = pypy.sample(PROGRAM, interval, *flags, jit=jit)
    profile = check(run.path)
    assert len(profile.samples) > 20


def test_a_real_start_and_end(pypy: PyPy) -> None:
    profile = check(pypy.sample("pass", "256").path)
    assert "[starting and ending the run]" in {
        row.function.name for row in summarize(profile).rows}


def test_real_time_samples(pypy: PyPy) -> None:
    script = pypy.script(PROGRAM)
    run = pypy.command("-m", "vmprof", "--period", "0.001", "-o", "out.vmprof",
                       str(script))
    assert run.code == 0, run.err
    check(run.path)
