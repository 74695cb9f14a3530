"""Tests of every reader and every writer in `formats` with damaged profiles.

The converter reports an error in one line, or writes a complete output. Each run tests
the same random cases.
"""
from __future__ import annotations

import gzip
import io
import os
import random
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from made_heap import Heap
from made_profiles import LINES, Log
from vmprof_convert import cli
from vmprof_convert.cli.formats import FORMATS

#: the number of damaged copies of a profile, for each format and option
CASES = 60


def small() -> bytes:
    """Return a profile with sampled objects, types and outcomes."""
    heap = Heap(interval=100)
    for name in "app.A", "app.B":
        heap.allocate("main work", (name, 90, 10))
        heap.allocate("main keep", (name, 300, 10**9))
    heap.collect()
    return heap.data()


def figures() -> bytes:
    log = Log()
    log.settings(period="0.01", run="r", clock=5)
    function = log.function("f")
    log.allocation([function], size=100, time=10**6)
    log.tick([function], time=2 * 10**6)
    log.mark(10**6, "here")
    log.event(1, 10**6, 5, 7)
    log.event(3, 10**6, 0, 1)
    for time in 10**6, 2 * 10**6:
        log.figure(1, time, time)
    log.thread(4321, "MainThread")
    log.command("app.py")
    return log.data()


def timed(version: int) -> bytes:
    log = Log(interpreter="cpython", version=version, flags=LINES)
    log.meta("os", "linux")
    function = log.function("f")
    log.raw_stack([-5, function, -6, function], 1, stamp=3)
    return log.data()


#: a profile for each reader
PROFILES = {
    "objects": small(), "figures": figures(), "time": timed(6), "stamps": timed(7)}
#: the encodings of a profile's file
FILES: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes, "packed": gzip.compress}


def changed(data: bytes, generator: random.Random) -> Iterator[bytes]:
    """Yield damaged copies: flipped bits, extreme numbers, lost or repeated bytes."""
    for _ in range(CASES):
        new = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 8))):
            at = generator.randrange(len(new))
            kind = generator.randrange(5)
            if kind < 2:
                new[at] ^= 1 << generator.randrange(8)
            elif kind == 2:
                new[at:at + 8] = generator.choice((
                    bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7,
                    b"\xff" * 7 + b"\x7f"))
            elif kind == 3:
                del new[at:at + generator.randrange(1, 30)]
            else:
                new[at:at] = new[at:at + generator.randrange(1, 30)]
            if not new:
                break
        yield bytes(new)


#: the arguments of each format of an output, and of each form of a report
OUTPUTS = {**{name: ("export", "--format", name) for name in FORMATS},
           **{name: ("report", "--" + name) for name in ("json", "markdown", "csv")},
           "table": ("report",)}


def check(path: Path, data: bytes, *arguments: str) -> bool:
    """Convert the profile `data`, and return whether it could be converted.

    `arguments` are the command and its options.

    An error has to be one line that names the profile, and keeps the old output.
    """
    path.write_bytes(data)
    target = path.with_name("out.txt")
    target.write_bytes(b"old")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main([arguments[0], str(path), "-o", str(target), *arguments[1:]])
    if code:
        assert code == 2 and out.getvalue() == ""
        assert err.getvalue().count("\n") == 1, err.getvalue()
        assert str(path) in err.getvalue()
        assert target.read_bytes() == b"old"
    else:
        assert target.read_bytes() != b"old"
    return not code


@pytest.fixture(autouse=True)
def on_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync, which would take long for ten thousand files."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.mark.parametrize("format_", OUTPUTS)
@pytest.mark.parametrize("what", PROFILES)
def test_damaged_profiles_in_each_format(what: str, format_: str,
                                         tmp_path: Path) -> None:
    generator = random.Random("%s %s" % (what, format_))
    path = tmp_path / "app.vmprof"
    good = sum(check(path, data, *OUTPUTS[format_], *options)
               for options in ((), ("--salvage",))
               for data in changed(PROFILES[what], generator))
    # the test would be useless if all or no profiles were refused; some formats do not
    # contain time samples
    is_none = what in ("time", "stamps") and format_ in ("chrome", "html")
    assert good == 0 if is_none else 0 < good < 2 * CASES


@pytest.mark.parametrize("around", FILES)
def test_damaged_files_in_each_encoding(around: str, tmp_path: Path) -> None:
    generator = random.Random(around)
    data = FILES[around](PROFILES["objects"])
    for options in (), ("--salvage",):
        for new in changed(data, generator):
            check(tmp_path / "app.vmprof", new, "report", "--json", *options)


@pytest.mark.slow
@pytest.mark.parametrize("around", FILES)
@pytest.mark.parametrize("what", PROFILES)
def test_cut_off_at_every_byte(what: str, around: str, tmp_path: Path) -> None:
    data = FILES[around](PROFILES[what])
    path = tmp_path / "app.vmprof"
    whole = [size for size in range(len(data)) if check(
        path, data[:size], "report", "--json")]
    # a truncated profile is accepted only if it is not packed (and ends between two
    # records)
    assert around == "plain" or not whole
    salvaged = [size for size in range(len(data)) if check(
        path, data[:size], "report", "--json", "--salvage")]
    assert set(whole) <= set(salvaged)


@pytest.mark.slow
@pytest.mark.parametrize("format_", OUTPUTS)
def test_cut_off_at_every_byte_and_salvaged(format_: str, tmp_path: Path) -> None:
    data = PROFILES["figures"]
    for size in range(0, len(data), 3):
        check(tmp_path / "app.vmprof", data[:size], *OUTPUTS[format_], "--salvage")


@pytest.mark.parametrize("arguments", [
    ("leaks",), ("tree",), *(("report", *options) for options in (
        ("--by", "line,type"), ("--of", "rss"), ("--of", "time"),
        ("--user-code", "--sort", "alive"), ("--at", "0.000001"), ("--time", "0..1")))])
def test_reports_of_damaged_profiles(arguments: tuple[str, ...],
                                     tmp_path: Path) -> None:
    generator = random.Random(" ".join(arguments))
    for what in "objects", "figures":
        for data in changed(PROFILES[what], generator):
            check(tmp_path / "app.vmprof", data, *arguments)


def test_several_profiles_with_a_damaged_one(tmp_path: Path) -> None:
    generator = random.Random(5)
    other = tmp_path / "other.vmprof"
    other.write_bytes(PROFILES["objects"])
    for format_ in OUTPUTS:
        for data in changed(PROFILES["figures"], generator):
            path = tmp_path / "app.vmprof"
            path.write_bytes(data)
            target = tmp_path / "out.txt"
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = cli.main([*OUTPUTS[format_], str(path), str(other), "-o",
                                 str(target)])
            assert code in (0, 2) and err.getvalue().count("\n") <= 1


def test_files_of_random_bytes(tmp_path: Path) -> None:
    generator = random.Random(3)
    heads = (b"", PROFILES["time"][:40], PROFILES["time"][:60],
             PROFILES["objects"][:1000], b"\x1f\x8b", gzip.compress(b"")[:12])
    for number in range(300):
        data = heads[number % len(heads)] + generator.randbytes(
            generator.randrange(200))
        check(tmp_path / "app.vmprof", data, "report", "--json", "--salvage")
