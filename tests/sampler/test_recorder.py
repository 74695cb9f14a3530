"""Threads that take samples at the same time, a thread that writes them, forks, and
several profiles (recorder.c).

The harness is built with a sanitizer for memory errors, with a sanitizer for data
races, and for AArch64.
"""
from __future__ import annotations

import pathlib
import struct
import subprocess

import pytest

import made_profiles
from native_build import MEMORY, THREADS, X86_64, build, machines, run_of
from vmprof_convert import readers
from vmprof_convert.profile import model

TRAILER = b"\x03" + struct.pack("<qq8x", made_profiles.START + 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer, machine", [
    (MEMORY, X86_64), (THREADS, X86_64), *(
        pytest.param("", *machine.values, marks=machine.marks)
        for machine in machines()[1:])])
def test_threads_take_samples(tmp_path: pathlib.Path, sanitizer: str,
                              machine: str) -> None:
    harness = build(
        "recorder_harness", "shared/recorder.c", "shared/profile_log.c",
        "shared/records.c", "shared/pending.c", "shared/children.c",
        "shared/file_sink.c",
        "shared/stack_tree.c", "shared/code_names.c", "shared/figures.c",
        "shared/pace.c", sanitizer=sanitizer, machine=machine)
    file = tmp_path / "profile"
    done = subprocess.run(
        [*run_of(harness, machine), file, bytes(made_profiles.Log().bytes).hex(),
         TRAILER.hex()],
        text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for path, line in zip((file, tmp_path / "profile.2"),
                          done.stdout.splitlines()[:2]):
        samples, lost, size, time_samples = map(int, line.split())
        profile = readers.read(path)
        assert profile.end_time is not None
        assert profile.settings["engine"] == "harness"
        # A thread adds and removes the note "perhaps" until the profile stops, so the
        # last removal may come too late.
        assert profile.settings["ended"] in ("", "perhaps")
        assert "children" not in profile.settings
        assert len(profile.samples) == samples + time_samples
        sizes = profile.samples.size
        assert (sum(map(bool, sizes)), sum(sizes)) == (samples, size)
        assert lost == samples // 100
    *lines, in_parts = done.stdout.splitlines()
    assert len(lines) == 2
    parts = [readers.read(tmp_path / ("profile.part.%d" % number))
             for number in range(1, 21)]
    whole = readers.read([tmp_path / ("profile.part.%d" % number)
                          for number in range(1, 21)])
    samples, lost, size, time_samples = map(int, in_parts.split())
    for column in ([s for part in parts for s in part.samples.size],
                   whole.samples.size):
        assert (len(column), sum(map(bool, column)), sum(column)) == (
            samples + time_samples, samples, size)
    assert sum(part.moments[-1].lost for part in parts) == lost == samples // 100
    assert sum(part.lost_stacks for part in parts) == lost
    assert all(part.end_time is not None for part in parts)
    forked = readers.read(tmp_path / "profile.forked")
    assert forked.settings["children"] == "1"
    assert forked.end_time is not None and not forked.samples


def test_sample_without_room_never_sweeps_the_waiting_samples(
        tmp_path: pathlib.Path) -> None:
    harness = build(
        "full_tables_harness", "hook/gc/objects.c", "sampler/sampler.c",
        "shared/recorder.c", "shared/profile_log.c", "shared/records.c",
        "shared/children.c", "shared/file_sink.c", "shared/stack_tree.c",
        "shared/code_names.c", "shared/figures.c", "shared/pace.c", "shared/flusher.c")
    file = tmp_path / "profile"
    done = subprocess.run(
        [harness, file, bytes(made_profiles.Log().bytes).hex(), TRAILER.hex()],
        text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    samples, without_room = map(int, done.stdout.split())
    profile = readers.read(file)
    assert len(profile.samples) == samples
    assert profile.samples.fate.count(model.UNKNOWN) == without_room
