"""Tests of the reader with stacks, samples, incomplete profiles and invalid files.

The tests also cover the summary's treatment of recursion and of the sampler's own code.
"""
from __future__ import annotations

import gzip
import os
import random
import struct
import threading
from pathlib import Path

import pytest

from made_profiles import (
    LINES,
    MARKED,
    PID,
    FrameSpec,
    Log,
    column,
    jit,
    large,
    machine_code,
    record,
    string,
    word,
)
from report_runs import text
from vmprof_convert import readers
from vmprof_convert.analysis import summary
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import DIED, PENDING, Samples
from vmprof_convert.profile.stacks import Frame, Stacks
from vmprof_convert.readers import container, records
from vmprof_convert.readers.pypy_stacks import (
    INTERPRETED,
    JIT,
    MACHINE_CODE,
    decode,
)


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025])
def test_rows_count_as_soon_as_they_are_added(count: int) -> None:
    samples = Samples()
    for number in range(count):
        samples.add(0, number, 1, 24, 1000, 0)
    assert len(samples) == count
    samples.finish()
    assert len(samples) == len(samples.time) == count


def small() -> Log:
    log = Log()
    main, leaf = log.function("main", 1), log.function("leaf", 5)
    log.settings()
    log.allocation([main, leaf], size=24, time=10)
    log.allocation([main], size=48, time=20)
    return log


def test_samples_are_tied_to_their_stacks() -> None:
    profile = readers.read_bytes(small().data())
    names = [[profile.function(f.address).name for f in profile.stacks[s]]
             for s in profile.samples.stack]
    assert names == [["main", "leaf"], ["main"]]
    assert list(profile.samples.size) == [24, 48]
    assert list(profile.samples.time) == [10, 20]
    assert set(profile.samples.thread) == {PID}


def test_a_lost_stack_affects_one_sample_only() -> None:
    log = small()
    log.allocation(None, size=96, time=30)
    leaf = log.function("after")
    log.allocation([leaf], size=8, time=40)
    profile = readers.read_bytes(log.data())
    assert profile.lost_stacks == 1
    assert list(profile.samples.size) == [24, 48, 96, 8]
    assert profile.samples.stack[2] == -1
    assert profile.stacks[profile.samples.stack[3]][0].address == leaf
    said = text(profile)
    assert "lost: the stacks of 1 of 4 samples" in said
    assert "[stack lost]" in said


def test_samples_of_vmprof_in_a_log_with_records_are_ignored() -> None:
    log = small()
    log.flush()
    log.raw_stack([1, 0x1008], 0)
    profile = readers.read_bytes(log.data())
    assert list(profile.samples.size) == [24, 48]
    assert len(profile.stacks) == 2


def test_a_python_function_keeps_its_name() -> None:
    """vmprof.disable() looks up native names for all addresses, in some PyPys.

    It also writes names that it invents for addresses without a native name.
    """
    log = small()
    for address in range(0x1000, log.addresses + 8, 8):
        log.bytes += b"\x08" + word(address) + string("n:<native symbol>:0:-")
    profile = readers.read_bytes(log.data())
    assert {profile.function(frame.address).name
            for stack in profile.stacks for frame in stack} == {"main", "leaf"}


def test_jit_frame_and_the_frame_that_entered_it_are_one() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    # innermost first: machine code, g inlined in f, and the f that entered the code
    log.raw_stack([6, 0x7000, 3, g, 3, f, 1, f, 1, g], 0)
    profile = readers.read_bytes(log.data())
    assert list(profile.stacks) == [(
        Frame(g, "interpreted", 0), Frame(f, "jit", 0), Frame(g, "jit", 0))]


def test_machine_code_that_calls_machine_code() -> None:
    log = Log()
    f = log.function("f")
    log.raw_stack([6, 0x7000, 3, f, 3, f, 6, 0x8000, 3, f, 1, f], 0)
    profile = readers.read_bytes(log.data())
    assert len(profile.stacks[0]) == 3


def test_interpreted_recursion_is_kept() -> None:
    log = Log()
    f = log.function("f")
    log.raw_stack([1, f] * 5, 0)
    assert len(readers.read_bytes(log.data()).stacks[0]) == 5


def test_lines_of_cpython() -> None:
    log = Log(interpreter="cpython", flags=LINES)
    f, g = log.function("f"), log.function("g")
    log.raw_stack([-12, g, -3, f], 77)
    profile = readers.read_bytes(log.data())
    assert profile.stacks[0] == (Frame(f, "interpreted", 3),
                                 Frame(g, "interpreted", 12))
    assert list(profile.samples.thread) == [77]


def test_version_7_has_time_stamps() -> None:
    log = Log(interpreter="cpython", version=7)
    f = log.function("f")
    for stamp in 123456, 123400:
        log.raw_stack([f], 77, stamp=stamp)
    profile = readers.read_bytes(log.data())
    assert list(profile.samples.time) == [56, 0]


def test_gzipped_profile(tmp_path: Path) -> None:
    path = tmp_path / "p.gz"
    path.write_bytes(gzip.compress(small().data()))
    assert len(readers.read(path).samples) == 2


def test_members_of_gzip_are_joined() -> None:
    data = small().data()
    parts = [data[:77], data[77:300], b"", data[300:]]
    assert readers.read_bytes(b"".join(map(gzip.compress, parts))) == (
        readers.read_bytes(data))


def test_a_pipe_is_read_twice(tmp_path: Path) -> None:
    """The reader returns the objects only after it has read everything else."""
    data = large(20000, 10, 50, facts=True)
    out, into = os.pipe()

    def write() -> None:
        with open(into, "wb") as file:
            file.write(data)

    writing = threading.Thread(target=write)
    writing.start()
    profile = readers.read(out)
    writing.join()
    assert profile == readers.read_bytes(data)


@pytest.mark.parametrize("at", range(20, 60))
def test_damaged_gzip_is_refused(at: int) -> None:
    packed = bytearray(gzip.compress(small().data()))
    packed[at] ^= 16
    with pytest.raises(ProfileError, match="damaged"):
        readers.read_bytes(bytes(packed))


@pytest.mark.parametrize("frames,is_cut", [
    (508, False), (509, True), (510, True)])
def test_cut_stacks_are_those_that_fill_the_record(
        frames: int, is_cut: bool) -> None:
    """After 1016 words, vmprof continues with the next frame.

    It stops after 1018 words, or after 1020 words if it is within machine code.
    """
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([g] + [f] * 99, size=16)
    log.allocation([f] * frames, size=16)
    log.allocation([f] * frames, size=24)
    assert readers.read_bytes(log.data()).cut_stacks == 2 * is_cut


def test_stack_that_just_fits_is_not_cut() -> None:
    """The outermost function of such a stack has no caller in other stacks."""
    log = Log()
    f, main = log.function("f"), log.function("main")
    log.settings()
    log.allocation([main, f], size=16)
    log.allocation([main] + [f] * 508, size=16)
    log.allocation([f] * 509, size=16)
    assert readers.read_bytes(log.data()).cut_stacks == 1
    # a stack may be cut if its outermost function has a caller in another stack
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f, f], size=16)
    log.allocation([f] * 509, size=16)
    assert readers.read_bytes(log.data()).cut_stacks == 1


def test_cut_stacks_of_vmprofs_own_samples() -> None:
    log = Log()
    f = log.function("f")
    for _ in range(3):
        log.raw_stack([1, f] * 509, 0)
    log.raw_stack([1, f] * 508, 0)
    assert readers.read_bytes(log.data()).cut_stacks == 3


def test_settings_at_the_end_complete_the_first_settings() -> None:
    log = small()
    log.flush()
    profile = readers.read_bytes(bytes(log.bytes))
    assert (profile.children, profile.ended) == (0, "")
    log.settings_text("children=2;ended=the program disabled vmprof")
    profile = readers.read_bytes(log.data())
    assert (profile.children, profile.ended) == (
        2, "the program disabled vmprof")
    assert profile.settings["interval"] == "1000"
    assert list(profile.samples.size) == [24, 48]


@pytest.mark.parametrize("children", ["", "x", "-1", "1e9", "9" * 5000, "\u0663"])
def test_hostile_number_of_children(children: str) -> None:
    log = small()
    log.settings(children=children, ended="\x1b[2J\n")
    profile = readers.read_bytes(log.data())
    assert (profile.children, profile.ended) == (0, "?[2J?")


def test_the_last_name_of_a_function_is_its_name() -> None:
    """A sampler that has read an incomplete name writes the complete name later."""
    log = Log()
    log.settings()
    log.name(8, "py:torn:1:app.py")
    log.allocation([8], size=16)
    log.flush()
    log.name(8, "py:whole:2:app.py")
    assert [(function.name, function.line) for function in
            readers.read_bytes(log.data()).functions.values()] == [("whole", 2)]


def test_a_record_of_implausible_size_is_refused(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes of zeros take few bytes in a gzip file."""
    monkeypatch.setattr(container, "_MOST_FOR_A_BYTE", 10**4)
    log = small()
    log.bytes += b"\x02" + word(1) + word(2**27) + bytes(2**27)
    with pytest.raises(ProfileError, match="a record of 134217745 bytes"):
        readers.read_bytes(gzip.compress(log.data(), 1))


def test_pieces_of_the_file_may_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small().data()
    whole = readers.read_bytes(data)
    for piece in 1, 2, 7, 41:
        monkeypatch.setattr(container, "PIECE", piece)
        assert readers.read_bytes(data) == whole
        assert readers.read_bytes(gzip.compress(data)) == whole
        assert readers.read_bytes(gzip.compress(data[:99]) + gzip.compress(data[99:])
                                  ) == whole


def test_progress_is_reported_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.vmprof"
    path.write_bytes(large(200_000, 10, 50))
    told: list[tuple[int, int]] = []
    readers.read(path, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told) and len(told) > 2
    assert told[-1] == (path.stat().st_size, path.stat().st_size)


def test_stacks_are_defined_by_their_new_frames() -> None:
    log = Log()
    f, g, h = (log.function(name) for name in "fgh")
    stacks: list[list[FrameSpec]] = [
        [f, g, h], [f, g], [f, g, g], [], [h], [f, g, h, f, g, h],
        [f, g, h], [jit(f), g], [f, jit(g)]]
    log.settings()
    for frames in stacks:
        log.allocation(frames, size=8)
        log.flush()
    profile = readers.read_bytes(log.data())
    assert [log.pairs(frames) for frames in stacks] == [
        tuple((3 if frame.kind == "jit" else 1, frame.address)
              for frame in profile.stacks[stack])
        for stack in profile.samples.stack]
    assert len(profile.stacks) == len(stacks) - 1


@pytest.mark.parametrize("values", [
    [], [5], [0] * 9, [7] * 9, [0, 1, 1, 0, 1] * 5, [3, 2, 1, 0] * 3, [9, 15, 0],
    [100, 355], [100, 356], [8, 800, 16, 80], [1, 2**16], [-5, 2**31], [0, 2**32],
    [-2**63, 2**63 - 1, 0], list(range(5, 500, 5)), list(range(500, 5, -5)),
    [10, 10, 11, 12, 12, 13, 20, 21], [2**62 + i // 3 for i in range(99)],
    [1_000_000 * i + 5000 * (i % 3) for i in range(50)]])
@pytest.mark.parametrize("unit", [1, 8, 1000])
def test_columns_are_decoded_exactly(values: list[int], unit: int) -> None:
    """The columns have all widths, and some have steps, a base or a unit."""
    data = record(
        MARKED, [column(values, unit), column([1] * len(values)),
                 column(values, unit)], len(values))
    size, = struct.unpack_from("<q", data, 1)
    assert size == len(data) - 9
    parsed = records.parse(data[9:])
    assert list(parsed.decoded()[0]) == list(parsed.column(0)) == values


def test_pending_objects_count_until_their_outcome_is_known() -> None:
    """Only the pending objects of the last batch count."""
    log = Log()
    f = log.function("f")
    log.settings(facts="types,lifetimes")
    log.allocation([f], size=16, time=1)
    log.flush()
    log.allocation([f], size=24, time=2)
    log.flush()
    log.collection(5)
    log.young(1, 0)
    log.allocation([f], size=32, time=6)
    log.flush()
    samples = readers.read_bytes(bytes(log.bytes)).samples
    assert sorted(zip(samples.size, samples.fate)) == [
        (16, DIED), (24, PENDING), (32, PENDING)]


def test_log_without_a_trailer_is_a_killed_run() -> None:
    log = small()
    log.flush()
    profile = readers.read_bytes(bytes(log.bytes))
    assert profile.end_time is None
    assert len(profile.samples) == 2
    assert "did not end normally" in text(profile)


def test_a_truncated_log_is_an_error_or_a_killed_run() -> None:
    """With `salvage`, the reader returns the whole records before the cut."""
    log = small()
    log.flush()
    whole = bytes(log.bytes)
    outcomes = set()
    for size in range(len(whole)):
        try:
            profile = readers.read_bytes(whole[:size])
            outcomes.add("read")
            assert len(profile.samples) <= 2
        except ProfileError as e:
            outcomes.add("refused")
            assert "\n" not in str(e)
        if size > 60:
            rest = readers.read_bytes(whole[:size], salvage=True)
            assert rest.torn < 400
    assert outcomes == {"read", "refused"}


def test_cut_inside_the_last_batch_keeps_the_samples_of_earlier_batches() -> None:
    """The first batch has young objects. The last batch records their outcomes."""
    log = Log()
    log.settings(facts="types,lifetimes")
    main = log.function("main")
    for _ in range(20):
        log.allocation([main], size=16)
    keys = list(log.waiting)
    log.flush()
    earlier = len(log.bytes)
    expected = len(readers.read_bytes(bytes(log.bytes)).samples)
    log.collection(5)
    for key in keys:
        log.young(key, 0)
    log.allocation([main], size=16)
    whole = log.data()
    for size in range(earlier, len(whole) + 1):
        samples = readers.read_bytes(whole[:size], salvage=True).samples
        assert expected <= len(samples) <= expected + 1, size
    assert len(samples) == expected + 1


@pytest.mark.parametrize("data,said", [
    (b"", "the file is empty"),
    (b"\0" * 39, "39 bytes"),
    (b"#!/usr/bin/env python\nprint('hello, this is a program')\n", "begins"),
    (b"\x7fELF" + bytes(1000), "begins with 7f 45 4c 46"),
    (struct.pack("<5q", 0, 3, 0, 1, 0), "no header"),
    (struct.pack("<5q", 0, 3, 0, 1, 0) + b"\x05\0\x63\x08\x00", "version 99"),
    (struct.pack("<5q", 0, 3, 0, 1, 0) + b"\xff", "unknown record 0xff"),
])
def test_foreign_files(data: bytes, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        readers.read_bytes(data)


@pytest.mark.parametrize("record,said", [
    (b"\x01" + word(1) + word(-1), "depth -1"),
    (b"\x01" + word(1) + word(2**62), "depth 4611686018427387904"),
    (b"\x01" + word(7) + word(1), "counts 7"),
    (b"\x02" + word(1) + word(-5), "a string of -5"),
    (b"\x02" + word(1) + word(2**60), "cut off"),
    (b"\x07" + word(3) + b"key" + word(2**40), "cut off"),
    (b"\x05\x00\x06\x08\x00", "second header"),
])
def test_hostile_records(record: bytes, said: str) -> None:
    log = small()
    with pytest.raises(ProfileError, match=said):
        readers.read_bytes(bytes(log.bytes) + record)


def test_random_damage_raises_no_other_error() -> None:
    rng = random.Random(1)
    good = small().data()
    refused = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            summary.summarize(readers.read_bytes(bytes(data)))
        except ProfileError:
            refused += 1
    assert 0 < refused < 3000


def test_deep_stacks_need_no_recursion() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f] * 5000, size=16)
    profile = readers.read_bytes(log.data())
    assert len(profile.stacks[0]) == 5000
    (row,) = summary.summarize(profile).rows
    assert row.total.bytes().value == pytest.approx(row.own.bytes().value)


def test_equal_stacks_are_stored_once() -> None:
    """The memory of the reader grows with the number of distinct stacks."""
    profile = readers.read_bytes(large(samples=20000, depth=30, distinct=50))
    assert len(profile.samples) == 20000
    assert len(profile.stacks) == 50


def test_summary_counts_a_recursive_function_once() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([f, f, f, g], size=16)
    log.allocation([f, jit(f), machine_code(1), g], size=16)
    rows = {row.function.name: row
            for row in summary.summarize(readers.read_bytes(log.data())).rows}
    assert rows["f"].own.bytes().value == 0
    assert rows["f"].total.bytes().value == rows["g"].own.bytes().value > 2000
    assert rows["g"].own.objects().value == pytest.approx(2 * 63.0, rel=0.01)


def test_summary_hides_the_command_that_ran_the_program() -> None:
    log = Log()
    runner = [log.function("entry_point", 1, "<builtin>/app_main.py"),
              log.function("_run_code", 1, "/usr/lib/pypy3.9/runpy.py"),
              log.function("run", 1, "/x/vmprof_allocation/run.py")]
    module = log.function("<module>", 1, "/home/me/runpy_app.py")
    log.settings()
    log.allocation([*runner, module], size=16)
    log.allocation(runner, size=16)
    names = {row.function.name for row in
             summary.summarize(readers.read_bytes(log.data())).rows}
    assert names == {"<module>", "[starting and ending the run]"}


def test_summary_hides_the_code_of_an_attach() -> None:
    """The program's functions with the names of the sampler's functions are shown."""
    def rows(inside: str) -> dict[str, float]:
        log = Log()
        ours = log.function("<module>", 1, "<string>")
        begin = log.function("begin", 1, inside)
        load = log.function("_find_and_load", 1, "<frozen importlib._bootstrap>")
        exists = log.function("exists", 1, "/usr/lib/pypy3.9/genericpath.py")
        mine = log.function("serve", 1, "/home/me/server.py")
        log.settings()
        for stack in ([ours], [ours, begin], [ours, begin, load], [ours, load],
                      [ours, mine], [begin, exists]):
            log.allocation(stack, size=16)
        found = summary.summarize(readers.read_bytes(log.data())).rows
        return {row.function.name: row.own.objects().value for row in found}

    found = rows("<vmprof-allocation>")
    assert set(found) == {"serve", "<module>", "[starting and ending the run]"}
    assert found["<module>"] == 0
    assert found["[starting and ending the run]"] == pytest.approx(
        5 * found["serve"])
    assert set(rows("/home/me/inside.py")) == {
        "serve", "<module>", "begin", "_find_and_load", "exists"}


def test_summary_hides_threads_that_begin_in_our_code() -> None:
    log = Log()
    answer = log.function("_answer", 1, "/x/vmprof_allocation/remote/serve.py")
    exists = log.function("exists", 1, "/usr/lib/pypy3.9/genericpath.py")
    main = log.function("main", 1, "/home/me/app.py")
    log.settings()
    for stack in [answer], [answer, exists], [main, answer, exists]:
        log.allocation(stack, size=16)
    names = {row.function.name for row in
             summary.summarize(readers.read_bytes(log.data())).rows}
    assert names == {"main", "_answer", "exists", "[starting and ending the run]"}


def test_machine_code_alone_has_a_separate_label() -> None:
    """vmprof knows no function of this machine code.

    The label for the start of the run would be wrong.
    """
    log = Log()
    log.settings()
    log.allocation([machine_code(0x7000)] * 509, size=16)
    (row,) = summary.summarize(readers.read_bytes(log.data())).rows
    assert row.function.name == "[compiled code, function not known]"


def test_summary_of_a_profile_without_allocations() -> None:
    log = Log()
    log.raw_stack(log.words([log.function("f")]), 0)
    assert text(readers.read_bytes(log.data())) == (
        "no allocation samples: the profile was taken without "
        "--allocation-sampling\n"
        "CPU samples: 1; --of time sums them, and the command view shows them\n")


def test_summary_hides_pypy_s_work_before_and_after_the_program() -> None:
    """PyPy imports `site`, searches for the program, and calls its exit handlers."""
    log = Log()
    main, command = (log.function(name, 1, "<builtin>/app_main.py")
                     for name in ("entry_point", "run_command_line"))
    run = log.function("run_toplevel", 1, "<builtin>/app_main.py")
    load = log.function("_find_and_load", 1, "<frozen importlib._bootstrap>")
    site = log.function("<module>", 1, "/usr/lib/pypy3.9/site.py")
    path = log.function("abspath", 1, "/usr/lib/pypy3.9/posixpath.py")
    exits = log.function("run_exitfuncs", 1, "<builtin>/atexit/app_atexit.py")
    mine = log.function("<module>", 1, "/home/me/site.py")
    handler = log.function("handler", 1, "/home/me/site.py")
    log.settings()
    for stack in ([main, command, load, site], [main, command, path],
                  [main, command, run, mine], [main, command, run, path],
                  [exits, handler], [exits]):
        log.allocation(stack, size=16)
    rows = {row.function.name: row.own.objects().value for row in
            summary.summarize(readers.read_bytes(log.data())).rows}
    assert set(rows) == {"<module>", "abspath", "handler",
                         "[starting and ending the run]"}
    assert rows["[starting and ending the run]"] == pytest.approx(
        3 * rows["handler"])


def test_time_samples_stay_in_their_order() -> None:
    """Batches may have different numbers of CPU samples."""
    log = Log()
    main = log.function("main")
    for batch in ((1, 2), (3, 4, 5), (6,), (7, 8, 9, 10, 11, 12, 13)):
        for time in batch:
            log.tick([main], time=time * 1000)
        log.flush()
    assert list(readers.read_bytes(log.data()).samples.time) == list(
        range(1000, 14000, 1000))


def test_lines_of_frames() -> None:
    """A line precedes its frame.

    A compiled frame and the interpreted frame that entered it are one frame. It has the
    line of the compiled frame.
    """
    stacks = Stacks()
    words = [8, 7, INTERPRETED, 40, JIT, 30, 8, 6, JIT, 20, MACHINE_CODE, 1 << 20,
             8, 5, JIT, 10, 8, 4, INTERPRETED, 10, 8, 3, INTERPRETED, 50, 8, 2]
    number = stacks.number(decode(stacks, words), False)
    assert stacks[number] == (
        Frame(50, "interpreted", 3), Frame(10, "jit", 5), Frame(20, "jit", 6),
        Frame(30, "jit", 0), Frame(40, "interpreted", 7))
