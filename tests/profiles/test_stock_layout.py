"""Tests of output in stock vmprof's layout, with vmprof's own reader and with ours.

The tests run vmprof's reader on CPython.
"""
from __future__ import annotations

import collections
import io
from pathlib import Path

import pytest
import vmprof

import hostile_names
from made_profiles import Log, jit, native
from stack_files import a_heap, labelled_log, read_collapsed
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import summarize
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import printable
from vmprof_convert.writers import vmprof as writer


def written(profile: Profile, path: Path) -> list[str]:
    out = io.BytesIO()
    said = writer.write(profile, out)
    path.write_bytes(out.getvalue())
    return said


def by_name(path: Path) -> dict[str, int]:
    """Return the samples of each function, counted by vmprof's own reader."""
    return dict(vmprof.read_profile(str(path)).top_profile())


def test_vmprof_counts_the_weights_of_the_samples(tmp_path: Path) -> None:
    profile = a_heap()
    path = tmp_path / "app.prof"
    said = written(profile, path)
    line, = said
    assert line.startswith("each sample of this file represents 200 B; not included")
    assert "types" in line
    counts = by_name(path)
    stats = vmprof.read_profile(str(path))
    total = len(stats.profiles)
    assert total == pytest.approx(summarize(profile).bytes.value / 200, abs=1)
    for row in summarize(profile).rows:
        function = row.function
        name = "py:%s:%d:%s" % (function.name, function.line, function.file)
        assert counts[name] * 200 == pytest.approx(
            row.total.bytes().value, abs=200 * len(profile.stacks))


def test_our_reader_returns_the_same_stacks(tmp_path: Path) -> None:
    profile = readers.read_bytes(labelled_log().data())
    path = tmp_path / "app.prof"
    written(profile, path)
    back = readers.read(path)
    program = Program(back)
    counts = collections.Counter(
        tuple(function.name for function in program.functions(stack))
        for stack in back.samples.stack)
    stacks = collections.Counter({
        tuple(name.partition(" (")[0] for name in stack): round(bytes_ / 1000)
        for stack, bytes_ in read_collapsed(profile).items()})
    assert counts == stacks
    assert back.interpreter == "pypy" and not back.settings


def test_kinds_of_frames_are_kept(tmp_path: Path) -> None:
    log = Log()
    f, g, n = log.function("f"), log.function("g", 2), log.native_function("n")
    log.settings()
    log.allocation([f, jit(g), native(n)], size=5000)
    path = tmp_path / "app.prof"
    written(readers.read_bytes(log.data()), path)
    back = readers.read(path)
    stack, = set(back.stacks)
    assert [(back.function(frame.address).name, frame.kind) for frame in stack] == [
        ("f", "interpreted"), ("g", "jit"), ("n", "native")]


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "app.prof"
    written(readers.read_bytes(hostile_names.log().data()), path)
    # names that look the same count as one name
    different = {printable(name) for name in hostile_names.HOSTILE}
    assert len(by_name(path)) == len(different) + len(hostile_names.HOSTILE)
    assert all(name.isprintable() for name in by_name(path))


def test_each_time_sample_is_one_sample(tmp_path: Path) -> None:
    log = Log(interpreter="cpython")
    f = log.function("f")
    for _ in range(3):
        log.raw_stack([f], thread=5)
    path = tmp_path / "app.prof"
    assert all("stands for" not in line
               for line in written(readers.read_bytes(log.data()), path))
    assert list(by_name(path).values()) == [3]


def test_refuses_fewer_bytes_than_one_sample() -> None:
    log = Log()
    log.settings(interval=10_000)
    log.allocation([log.function("f")], size=16, interval=16)
    with pytest.raises(ProfileError, match="fewer bytes than one sample"):
        writer.write(readers.read_bytes(log.data()), io.BytesIO())


def test_the_command_with_a_filter(tmp_path: Path,
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.vmprof").write_bytes(labelled_log().data())
    assert cli.main(["export", "app.vmprof", "-o", "app.prof", "--function",
                     "work"]) == 0
    assert by_name(tmp_path / "app.prof") == {
        "py:main:1:/srv/app/main.py": 80, "py:work:11:/srv/app/work.py": 80}
