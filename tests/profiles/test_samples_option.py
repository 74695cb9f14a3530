"""Tests of `--samples`, which downsamples profiles with more samples than its value."""
from __future__ import annotations

import array
import gzip
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import made_profiles
import otlp_request
import protobuf_messages
import report_runs
from convert_runs import run_and_fail
from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.analysis.summary import summarize
from vmprof_convert.cli.formats import FORMATS
from vmprof_convert.meaning.lifetimes import STILL_ALIVE
from vmprof_convert.profile import columns
from vmprof_convert.profile.model import Columns, Row, Samples
from vmprof_convert.profile.probability import probability
from vmprof_convert.profile.thin import Limit

INTERVAL = 4096
SIZES = (24, 200, 3000, 50_000, 10**6)
WRITTEN = [name for name, format_ in FORMATS.items() if format_.write is not None]


def large(samples: int, seed: int = 1, **settings: object) -> bytes:
    """Return a profile with about `samples` allocation samples.

    The number of CPU samples is a tenth of `samples`. Some objects become old, and the
    GC frees some old objects.
    """
    draw = random.Random(seed)
    log = Log()
    log.settings(interval=INTERVAL, period="0.01", facts="types,lifetimes", **settings)
    log.command("app.py")
    stacks = [[log.function("f%d" % number)] * (1 + number) for number in range(9)]
    types = [log.type("a.T%d" % number) for number in range(3)]
    weights = [probability(size, INTERVAL, "exponential") / size for size in SIZES]
    old: list[int] = []
    time = 0
    while log.keys < samples:
        first = log.keys + 1
        sizes = draw.choices(SIZES, weights, k=200)
        for size in sizes:
            time += 1000
            log.allocation(draw.choice(stacks), size=size, interval=INTERVAL, time=time,
                           thread=draw.choice((1, 2)))
        for _ in range(20):
            time += 1000
            log.tick(draw.choice(stacks), time=time, thread=1)
        log.flush()
        log.collection(time)
        for key, _ in enumerate(sizes, first):
            log.young(key, key % 7 == 0, draw.choice(types))
            old += [key] * (key % 7 == 0)
        log.event(1, time, 500, 200 * INTERVAL)
        draw.shuffle(old)
        for key in old[30:]:
            log.freed(key)
        del old[30:]
    return log.data()


@pytest.fixture(scope="module")
def made() -> bytes:
    return large(8000)


def written(folder: Path, data: bytes, to: str, *options: str) -> tuple[bytes, str]:
    """Run the command, and return its output file and its messages."""
    (folder / "app.vmprof").write_bytes(data)
    out = folder / ("out." + to)
    done = report_runs.report(folder / "app.vmprof", "export", "--format", to, "-o",
                              str(out), *options, program="convert")
    assert done.returncode == 0, done.stderr
    return out.read_bytes(), done.stderr


@pytest.mark.parametrize("to", WRITTEN)
def test_output_does_not_change_within_the_limit(to: str, made: bytes,
                                                 tmp_path: Path) -> None:
    count = len(readers.read_bytes(made).samples)
    plain, complaints = written(tmp_path, made, to)
    assert "downsampled" not in complaints and b"downsampled" not in plain
    for limit in 0, count, 10**18 - 1:
        assert written(tmp_path, made, to, "--samples", str(limit)) == (
            plain, complaints)


@pytest.mark.parametrize("to", WRITTEN)
def test_the_same_samples_remain_each_time(to: str, made: bytes,
                                           tmp_path: Path) -> None:
    first = written(tmp_path, made, to, "--samples", "1000")
    assert written(tmp_path, made, to, "--samples", "1000") == first
    assert first[0] != written(tmp_path, made, to)[0]


def pprof_sum(data: bytes) -> int:
    found = protobuf_messages.read("Pprof", data)
    names = [found["string_table"][one["type"]] for one in found["sample_type"]]
    at = names.index("alloc_space")
    return sum(sample["value"][at] for sample in found["sample"])


def firefox_sum(data: bytes) -> int:
    found = json.loads(data)
    table = found["threads"][0]["nativeAllocations"]
    assert found["threads"][0]["name"] == "All threads"
    return sum(weight for weight in table["weight"] if weight > 0)


def speedscope_sum(data: bytes) -> int:
    return sum(profile["endValue"] for profile in json.loads(data)["profiles"]
                if profile["name"] == "allocated bytes")


def vmprof_sum(data: bytes) -> int:
    profile = readers.read_bytes(data)
    return int(profile.meta["bytes per sample"]) * len(profile.samples)


def page_sum(data: bytes) -> int:
    text = re.search(rb'id="profile">(.*?)</script>', data, re.DOTALL)
    assert text
    return sum(json.loads(text[1])["bytes"])


SUMS: dict[str, Callable[[bytes], int]] = {
    "firefox": firefox_sum, "html": page_sum, "pprof": pprof_sum,
    "otlp": lambda data: otlp_request.read(data).types["alloc_space"].sum,
    "speedscope": speedscope_sum,
    "collapsed": lambda data: sum(
        int(line.rpartition(b" ")[2]) for line in data.splitlines()),
    "chrome": lambda data: sum(
        sample["size"] for sample in json.loads(data)["samples"]),
    "vmprof": vmprof_sum}


def test_all_formats_are_tested() -> None:
    assert sorted(SUMS) == sorted(WRITTEN)


@pytest.mark.parametrize("most", [4000, 1000])
@pytest.mark.parametrize("to", WRITTEN)
def test_totals_are_those_of_the_report(to: str, most: int, made: bytes,
                                        tmp_path: Path) -> None:
    """The report adds up all samples.

    Its sum is within the confidence interval of the downsampled profile.
    """
    path = tmp_path / "app.vmprof"
    path.write_bytes(made)
    of_all = report_runs.as_json(path)["sum"]
    limit = Limit(most)
    profile = readers.read(path, samples=limit.table())
    thinned = limit.thinned()
    assert thinned is not None and most / 3 < thinned.stayed <= most
    summary = summarize(profile)
    assert summary.samples == thinned.stayed
    assert summary.bytes.low < of_all["allocated"]["bytes"]["value"] < (
        summary.bytes.high)
    alive = summary.figures.bytes(STILL_ALIVE)
    assert alive.low < of_all["alive"]["bytes"]["value"] < alive.high
    total = SUMS[to](written(tmp_path, made, to, "--samples", str(most))[0])
    # in the format of vmprof, all samples have the same weight
    assert total == pytest.approx(
        summary.bytes.value, rel=2 * INTERVAL / summary.bytes.value
        if to == "vmprof" else 1e-7)


@pytest.mark.parametrize("to", WRITTEN)
def test_message_and_output_have_the_number_of_samples(to: str, made: bytes,
                                                       tmp_path: Path) -> None:
    data, complaints = written(tmp_path, made, to, "--samples", "1000")
    found = re.match(
        r"vmprof-convert: downsampled: (\d+) of 8000 allocation samples were kept, and "
        r"each represents correspondingly more bytes \(--samples 0 keeps all\)\n",
        complaints)
    assert found and 400 < int(found[1]) <= 1000
    place = {"speedscope": "app.py (%s of 8000 samples)",
             "vmprof": "%s of 8000 samples"}.get(
                 to, "downsampled: %s of 8000 allocation samples were kept")
    has_place = to not in ("collapsed", "chrome")
    assert ((place % found[1]).encode() in data) == has_place


def test_page_has_the_interval_of_the_remaining_samples(
        made: bytes, tmp_path: Path) -> None:
    data, _ = written(tmp_path, made, "html", "--samples", "1000")
    head = re.search(rb'"head":"allocated in [0-9.]+ s \((\d+) samples, one per '
                     rb'([0-9.]+) KiB', data)
    assert head and int(head[1]) <= 1000
    assert float(head[2]) > 4 * INTERVAL / 1024


def test_all_time_samples_remain(made: bytes, tmp_path: Path) -> None:
    ticks = readers.read_bytes(made).samples.ticks
    data, _ = written(tmp_path, made, "firefox", "--samples", "10")
    thread = json.loads(data)["threads"][0]
    assert [entry["value"] for section in json.loads(data)["meta"]["extra"]
            for entry in section["entries"] if entry["label"] == "CPU samples"] == [
                ticks] == [800]
    assert thread["samples"]["length"] >= ticks


@pytest.mark.parametrize("number", ["-1", "1.5", "1e6", "x", "", "9" * 30, "\u0661"])
def test_refuses_an_invalid_number(
        number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.vmprof").write_bytes(large(100))
    said = run_and_fail(tmp_path, capsys, "export", "app.vmprof", "--format", "pprof",
                        "--samples=" + number)
    assert ("invalid number of samples %r: write 1 or more, or 0 for all" % number
            in said)


def test_a_report_has_all_samples(tmp_path: Path) -> None:
    path = tmp_path / "app.vmprof"
    path.write_bytes(large(100))
    assert "--samples limits the formats that contain single" in report_runs.refused(
        path, "--samples", "10")
    assert "downsampled" not in report_runs.report(path).stdout


def test_resident_memory_is_attributed_to_the_remaining_samples(tmp_path: Path) -> None:
    """`--of rss` attributes the growth to single samples."""
    log = Log()
    log.settings()
    f = log.function("f")
    for number in range(1, 3001):
        log.allocation([f], size=5000, time=number * 1000)
    for time in 0, 3_000_000:
        log.figure(1, time, 10**7 + time)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    plain = report_runs.as_json(path, "--of", "rss")
    found = report_runs.as_json(path, "--of", "rss", "--samples", "500")
    assert found["rows"] == plain["rows"]
    assert any(line.startswith("downsampled: ") for line in found["remarks"])
    assert not any(line.startswith("downsampled: ") for line in plain["remarks"])


def test_a_difference_has_one_message_for_both_sides(tmp_path: Path) -> None:
    paths = []
    for seed in 1, 2:
        paths.append(str(tmp_path / ("%d.vmprof" % seed)))
        Path(paths[-1]).write_bytes(large(3000, seed))
    done = report_runs.called("convert", ["diff", *paths, "--samples", "1000"],
                              {"COLUMNS": "1000"})
    assert done.returncode == 0, done.stderr
    said = r"downsampled: \d+ of 6000 allocation samples were kept"
    assert len(re.findall(said, done.stdout)) == 1
    done = report_runs.called("convert", ["diff", *paths, "--samples", "1000",
                                          "--format", "collapsed"], {})
    assert done.returncode == 0 and len(re.findall(said, done.stderr)) == 1
    assert "downsampled" not in report_runs.called(
        "convert", ["diff", *paths], {}).stdout


def test_a_check_has_the_message(tmp_path: Path) -> None:
    path = tmp_path / "app.vmprof"
    path.write_bytes(large(3000))
    arguments = ["check", str(path), "--fail-if", "objects > 100M"]
    assert "downsampled" not in report_runs.called("convert", arguments, {}).stdout
    done = report_runs.called("convert", [*arguments, "--samples", "1000"], {})
    assert done.returncode == 0 and "downsampled: " in done.stdout


def test_the_limit_is_for_all_processes_together(tmp_path: Path) -> None:
    for number in range(3):
        name = "app.%d.vmprof" % (100 + number) if number else "app.vmprof"
        (tmp_path / name).write_bytes(large(
            2000, number, run="a", pid=100 + number, clock=10**9 + number * 5000,
            **({"parent": 100} if number else {})))
    out = tmp_path / "out.json"
    done = report_runs.report(tmp_path / "app.vmprof", "export", "-o", str(out),
                              "--samples", "1000", program="convert")
    found = re.search(r"downsampled: (\d+) of 6000 allocation samples", done.stderr)
    assert found and 300 < int(found[1]) <= 1000
    profile = json.loads(out.read_bytes())
    assert profile["threads"][0]["name"] == "All processes"
    births = sum(weight > 0 for weight in profile["threads"][0][
        "nativeAllocations"]["weight"])
    assert births == int(found[1])
    # samples of each process remain
    assert len({thread["pid"] for thread in profile["threads"]
                if thread.get("nativeAllocations")}) == 4


def test_filters_select_from_the_remaining_samples(made: bytes, tmp_path: Path) -> None:
    data, complaints = written(tmp_path, made, "pprof", "--samples", "1000", "--thread",
                               "1")
    assert "downsampled: " in complaints and b"downsampled: " in data
    all_ = pprof_sum(written(tmp_path, made, "pprof", "--thread", "1")[0])
    assert pprof_sum(data) == pytest.approx(all_, rel=0.3)


# The script reads VmHWM, because ru_maxrss is at least the memory of the tests' process
# (see getrusage).
SCRIPT = """
import re, sys
from vmprof_convert import cli
code = cli.main(sys.argv[1:])
with open("/proc/self/status") as file:
    print(int(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1]) // 1024)
sys.exit(code)
"""


@pytest.mark.parametrize("count, options, most", [
    (600_000, ("--samples", "100000"), 56),
    pytest.param(3_000_000, (), 256, marks=pytest.mark.hard)])
def test_memory_is_bounded_by_the_remaining_samples(
        tmp_path: Path, count: int, options: tuple[str, ...], most: int) -> None:
    """`most` is the memory of the whole process in MiB; the interpreter takes 17 MiB.

    Arrays of three million samples take 209 MiB, and their Firefox profile takes the
    same again.
    """
    path = tmp_path / "app.vmprof"
    path.write_bytes(gzip.compress(made_profiles.large(count, 4, 50, facts=True), 1))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "export", path, "--format", "firefox", *options,
         "-o", tmp_path / "out.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "of %d allocation samples were kept" % count in done.stderr
    assert int(done.stdout.split()[-1]) < most


# ____________________________________________________________
# the table of samples


def rows(count: int, first: int = 0) -> Columns:
    return Columns(*map(array.array, "qqiqqqibqqq", zip(*[
        Row(number, 1, number % 3, 24, 1000, 0)
        for number in range(first, first + count)])))


def test_rows_that_are_added_together_are_not_copied() -> None:
    samples, others = Samples(), rows(100)
    samples.extend(others)
    samples.extend(rows(2, 2000))
    assert samples.time is others.time
    assert list(samples.time) == [*range(100), 2000, 2001]
    assert list(samples.stack) == [time % 3 for time in samples.time]
    samples.extend(Columns(*map(list, rows(200, 5000))))
    assert list(samples.stack) == [time % 3 for time in samples.time]
    assert {len(column) for column in samples.columns()} == {302}


@pytest.mark.parametrize("batch", [3, 2**16])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 100])
def test_sort_of_rows_is_stable(
        count: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BATCH", batch)
    draw = random.Random(count)
    for most in 1, 5, 2**40:
        keys = array.array("q", [draw.randrange(-1, most) for _ in range(count)])
        assert list(columns.by_key(keys)) == sorted(range(count), key=keys.__getitem__)
    samples = Samples()
    for time in keys:
        samples.add(len(samples), time, 1, 24, 1000, 0)
    samples.sort()
    assert list(samples.time) == sorted(keys)
    assert [keys[row] for row in samples.stack] == sorted(keys)


@pytest.mark.parametrize("together", [1, 4, 2**12])
def test_some_rows_of_a_column(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_TOGETHER", together)
    column = array.array("q", range(10, 20))
    assert columns.gathered(column, range(10)) is column
    assert columns.gathered(column, range(3, 5)).tolist() == [13, 14]
    for chosen in [], [7], [9, 0, 3], [5] * 10, list(range(10)):
        assert columns.gathered(column, chosen).tolist() == [10 + row for row in chosen]
        which = [row in chosen for row in range(10)]
        for of in column, array.array("q", [7]) * 10:
            assert columns.chosen(of, which).tolist() == [
                of[row] for row in range(10) if which[row]]
