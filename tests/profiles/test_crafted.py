"""Tests that profiles crafted to harm the reader take little memory and time."""
from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from made_heap import Heap
from made_profiles import Log, column, record, word
from vmprof_convert import cli, readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.readers import records

#: a program that runs vmprof-convert with 1 GiB of address space and 100 s of processor
#: time; all profiles of these tests need far less
_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
from vmprof_convert import cli
codes = []
for path in sys.argv[1:]:
    codes.append(str(cli.main(["report", path, "-o", path + ".json"])))
print("codes", *codes)
"""


def codes(paths: Sequence[Path]) -> list[str]:
    """Run vmprof-convert within the limits, and return its exit codes."""
    done = subprocess.run([sys.executable, "-c", _LIMITED, *map(str, paths)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1].split()[1:]


def equal(*values: int) -> list[bytes]:
    """Return encoded columns, each of which repeats one value without bytes per row."""
    return [b"\x08" + word(value) if value else b"\0" for value in values]


def counting(start: int) -> bytes:
    """Return an encoded column of `start` and the numbers after it."""
    return b"\x18" + word(start) + word(1)


def made(*more: bytes, facts: str = "types,lifetimes") -> bytes:
    log = Log()
    log.settings(facts=facts, capabilities="held,lifetimes,types")
    log.define([log.function("f")])
    log.flush()
    log.bytes += b"".join(more)
    return log.data()


ROWS = 2**20


def many(kind: int, *values: int, times: int = 10) -> bytes:
    return b"".join(record(kind, [counting(1 + n * ROWS), *equal(*values)], ROWS)
                    for n in range(times))


BOMBS: dict[str, Callable[[], bytes]] = {
    "objects": lambda: made(many(
        records.OBJECTS, 0, 1000, 12, 1, 0, 0, 64, 131072, 0, 1, 0, 0)),
    "totals": lambda: made(many(records.TOTALS, 1, 0, 0, 3, 0, 0, 0)),
    "nodes": lambda: made(*[record(records.NODES, equal(0, 1), ROWS)] * 10),
    "ticks": lambda: made(many(records.TICKS, 12, 1, 0, 0)),
    "marks": lambda: made(many(records.MARKS, 0)),
    "figures": lambda: made(*[record(records.FIGURES, equal(1, 7, 5), ROWS)] * 10),
    "collections": lambda: made(many(records.COLLECTIONS, 1, 5, 7)),
    "ended": lambda: made(many(records.ENDED, 0, 0, 100)),
    "types": lambda: made(many(records.TYPES, 1, -1, 0)),
    "packed": lambda: gzip.compress(
        made() + b"".join(b"\7" + word(3) + b"abc" + word(2**25) + b" " * 2**25
                          for _ in range(20)), 9)}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_with_rows_for_gigabytes_is_refused(name: str,
                                                         tmp_path: Path) -> None:
    path = tmp_path / "bomb.vmprof"
    path.write_bytes(BOMBS[name]())
    assert codes([path]) == ["2"]


def test_many_objects_may_die_at_once(tmp_path: Path) -> None:
    """A record of a few bytes describes a million objects with consecutive keys.

    Sampling at interval 1 gives such records.
    """
    path = tmp_path / "died.vmprof"
    path.write_bytes(made(many(records.ENDED, 0, 0, 100, times=2)))
    assert codes([path]) == ["0"]


def test_many_retainers_take_no_quadratic_time(tmp_path: Path) -> None:
    """A former reader took 10**10 steps for 100,000 groups of two retainers."""
    log = Log()
    log.settings(capabilities="held")
    log.define([log.function("f")])
    log.held(1, objects=5, size=500)
    for bit in range(2):
        log.holder(1, 1 << bit, 5, 1, "a.x", "list")
    log.flush()
    rows = 100_000
    log.bytes += record(records.HOLDERS, equal(1, 3, 0, 5, 1, 0), rows) * 2
    path = tmp_path / "holders.vmprof"
    path.write_bytes(log.data())
    assert codes([path]) == ["0"]


@pytest.mark.parametrize(("kind", "row"), [
    (records.TOTALS, (-5, 1, 0, 0, 0, 0, 0, 0)),
    (records.TOTALS, (5, -1, 0, 0, 0, 0, 0, 0)),
    (records.FIGURES, (3, 5, -1)),
    (records.FIGURES, (3, -5, 1)),
    (records.MARKS, (-5, 0)),
    (records.TICKS, (-5, 12, 1, 0, 0)),
    (records.OBJECTS, (1, 0, -5, 12, 1, 0, 0, 64, 64, 0, 1, 0, 0)),
    (records.ENDED, (1, 0, 0, -5)),
    (records.HELD, (1, 5, 0, -1, 5, 5, 5, 5, 0)),
    (records.COLLECTIONS, (1, -5, 1, 1)),
    (records.COLLECTIONS, (1, 5, -1, 1)),
    (records.MARKED, (-5, 1, -9)),
    (records.SWEPT, (5, 1, -2, 1, 1, 1)),
    (records.SWEPT, (5, 1, -1, -1, 1, 1)),
])
def test_negative_times_and_sizes_are_damage(kind: int, row: Sequence[int]) -> None:
    data = made(record(kind, [column([value]) for value in row], 1))
    with pytest.raises(ProfileError, match="damaged profile"):
        readers.read_bytes(data)


def test_a_snapshot_may_be_later_than_the_last_totals(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process may be killed after a heap snapshot and before the next totals.

    The converter once ended with a traceback for such a profile.
    """
    log = Log()
    log.settings(facts="types,lifetimes", capabilities="held,lifetimes,types")
    log.allocation([log.function("f")], size=100, time=10**6)
    log.young(log.keys, 1)
    log.flush()
    log.bytes += record(records.SNAPSHOTS, [column([number]) for number in (
        9 * 10**9, 1, 100, 5, 5, 5, 1, 100)], 1)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    assert cli.main(["report", str(path)]) == 0
    assert "could reach at 9.00 s (heap snapshot)" in capsys.readouterr().out


def test_a_pipe_is_not_read_to_its_end_before_its_head() -> None:
    """A pipe may be endless, such as the output of `yes`."""
    reader, writer = os.pipe()
    with open(reader, "rb") as pipe, subprocess.Popen(
            [sys.executable, "-m", "vmprof_convert", "report", "-"], stdin=pipe,
            stderr=subprocess.PIPE, text=True) as process:
        with open(writer, "wb") as out:
            out.write(b"y\n" * 20)
            out.flush()
            assert process.stderr is not None
            message = process.stderr.read()     # the pipe is still open for writing
        assert process.wait() == 2
    assert message.count("\n") == 1 and "not a vmprof profile" in message


def test_a_profile_of_the_branch_of_jung_and_bolz_tereick_is_named() -> None:
    log = Log()
    log.meta("os", "linux")
    log.bytes += b"\x09" + word(1) + word(0) + bytes(16)
    with pytest.raises(ProfileError, match="vmprof-firefox-converter") as caught:
        readers.read_bytes(bytes(log.bytes))
    assert "damaged" not in str(caught.value)


def test_memory_is_bounded_whatever_numbers_are_damaged(tmp_path: Path) -> None:
    """The test changes 64-bit numbers, counts and column widths, as a fuzzer does."""
    heap = Heap(interval=100)
    for name in "app.A", "app.B":
        heap.allocate("main work", (name, 90, 10))
    heap.collect()
    data = heap.data()
    rng = random.Random(52)
    paths = []
    for number in range(150):
        new = bytearray(data)
        for _ in range(rng.choice((1, 2, 4))):
            at = rng.randrange(60, len(new) - 8)
            size = rng.choice((1, 2, 4, 8))
            new[at:at + size] = rng.choice((
                b"\xff" * size, bytes(size), b"\0" * (size - 1) + b"\x7f",
                rng.randbytes(size)))
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(new)
    assert set(codes(paths)) <= {"0", "2"}


def test_sigterm_leaves_no_temporary_file(tmp_path: Path) -> None:
    program = """if 1:
        import sys, time
        from vmprof_convert.cli import output
        with output.replacing(sys.argv[1]) as out:
            print("writes", flush=True)
            time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "a.json")],
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writes\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.terminate()
    assert process.returncode == 143
    assert list(tmp_path.iterdir()) == []


#: the largest number of frames that a stack may have
DEEP = 2**16
#: arguments of the command, for each format
FORMATS = (["report"], ["tree"], ["report", "--user-code"], ["callers", "f"],
           ["report", "--by", "line"], ["report", "--json"], ["report", "--markdown"],
           ["report", "--csv"], ["flamegraph", "-o", "deep.html"],
           *(["export", "-o", "deep" + suffix] for suffix in (
               ".json.gz", ".pb.gz", ".collapsed", ".speedscope.json", ".heapprofile",
               ".prof", ".html")))


def chain(depth: int, ends: Sequence[int]) -> bytes:
    """Return a profile in which each stack node calls the next node.

    `ends` are the nodes of the samples' innermost frames.
    """
    log = Log()
    log.settings()
    log.define([log.function("f")])
    log.flush()
    rows = depth - 1
    log.bytes += record(records.NODES, [counting(1), *equal(1)], rows)
    for node in ends:
        log.sample(node, 64, 1000, 0, 1)
    return log.data()


@pytest.mark.parametrize("arguments", FORMATS, ids="_".join)
def test_each_format_takes_the_deepest_stack(arguments: list[str],
                                             tmp_path: Path) -> None:
    """The converter does not recurse, and needs a small part of the limits below."""
    (tmp_path / "deep.vmprof").write_bytes(chain(DEEP, [DEEP, DEEP - 1]))
    done = subprocess.run(
        [sys.executable, "-c", """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from vmprof_convert import cli
sys.exit(cli.main(sys.argv[1:]))""", arguments[0], "deep.vmprof", *arguments[1:]],
        capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("depth, ends, said", [
    (DEEP + 1, [1], "a stack of more than 65536 frames"),
    # a file of 260 kB with 2 * 10**9 frames
    (DEEP, range(1, DEEP + 1), "frames in a profile of")])
def test_stacks_that_take_too_long_are_refused(
        depth: int, ends: Sequence[int], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        readers.read_bytes(chain(depth, ends))
