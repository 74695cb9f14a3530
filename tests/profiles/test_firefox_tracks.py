"""Tests of tracks, of categories of code, and of source text in the Firefox profile."""
from __future__ import annotations

import collections
import os
from pathlib import Path

import pytest

import firefox_rules
import made_profiles
from firefox_profiles import (
    MS,
    OTHER_TID,
    converted,
    frames,
    functions,
    path_of,
    remarks,
    thread,
)
from made_profiles import Log, jit
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning import source_text
from vmprof_convert.writers.firefox import BYTES, convert
from vmprof_convert.writers.firefox.stacks import IDLE

# ________________________________________
# tracks


def test_allocations_draw_the_track_without_time_samples() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed", facts="types")
    a = log.type("a")
    for time, size, function in ((0, 1000, f), (100, 3000, g), (100, 1000, f),
                                 (1000, 2000, f)):
        log.allocation([function], size=size, time=time * MS)
    log.collection(1000 * MS)
    for key in range(1, 5):
        log.young(key, 0, a)
    profile = converted(log)
    samples = profile["threads"][0]["samples"]
    assert samples["weightType"] == "bytes"
    drawn = [(round(time), weight, path_of(profile, stack)) for time, weight, stack
             in zip(samples["time"], samples["weight"], samples["stack"])]
    idle = (IDLE,)
    assert drawn == [
        (0, 0, idle), (0, 1000, ("f",)), (2, 0, idle), (100, 0, idle),
        # the samples of a bin share its width in proportion to their bytes
        (100, 3000, ("g",)), (102, 1000, ("f",)), (102, 0, idle), (1000, 0, idle),
        (1000, 2000, ("f",))]
    assert samples["time"][5] == pytest.approx(101.5)


def test_the_track_is_empty_during_long_pauses() -> None:
    """The front end draws each CPU sample until the next sample.

    A waiting program has no CPU samples, so that the writer adds idle samples.
    """
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(period="0.01")
    for time, function in ((1000, f), (1010, f), (1200, g), (2000, g), (2030, f)):
        log.tick([function], time=time * MS)
    profile = converted(log)
    samples = profile["threads"][0]["samples"]
    idle = (IDLE,)
    assert [(time, weight, path_of(profile, stack)) for time, weight, stack in zip(
            samples["time"], samples["weight"], samples["stack"])] == [
        (0, 0, idle), (990, 0, idle), (1000, 1, ("f",)), (1010, 1, ("f",)),
        # the kernel may cause pauses of less than 20 intervals
        (1200, 1, ("g",)), (1210, 0, idle), (1990, 0, idle), (2000, 1, ("g",)),
        (2030, 1, ("f",))]
    assert samples["weightType"] == "samples"


def test_time_samples_without_a_pause_have_no_weights() -> None:
    log = Log()
    f = log.function("f")
    log.settings(period="0.01")
    # most kernels take CPU samples at the ticks of a clock that is slower than the
    # period
    for time in range(0, 1000, 40):
        log.tick([f], time=time * MS)
    samples = converted(log)["threads"][0]["samples"]
    assert samples["weight"] is None
    assert samples["time"] == list(range(0, 1000, 40))


def test_objects_are_counted_on_a_separate_track() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed")
    log.allocation([f], size=100, thread=OTHER_TID)
    log.allocation([f], size=100, time=MS)
    log.allocation([f, g], size=2000, time=2 * MS)
    profile = converted(log)
    samples = thread(profile, "Objects (number)")["samples"]
    assert samples["weightType"] == "samples"
    counted: dict[tuple[str, ...], int] = collections.defaultdict(int)
    for weight, stack in zip(samples["weight"], samples["stack"]):
        counted[path_of(profile, stack)] += weight
    assert counted == {("f",): 20, ("f", "g"): 1, (IDLE,): 0}


def test_the_axis_may_be_bytes_allocated() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed", facts="types,lifetimes")
    for time, size in ((10, 1000), (20, 3000), (90, 2000)):
        log.allocation([f], size=size, time=time * MS)
    log.collection(30 * MS)
    log.young(1, 0)
    log.mark(50 * MS, "warm")
    profile = converted(log, unit=BYTES)
    assert profile["meta"]["sampleUnits"]["time"] == "bytes"
    table = profile["threads"][0]["nativeAllocations"]
    assert list(zip(table["time"], table["weight"])) == [
        (1000, 1000), (4000, 3000), (4000, -1000), (6000, 2000)]
    markers = profile["threads"][0]["markers"]
    # the markers of the collection and of the user's mark
    assert markers["startTime"] == [4000, 4000]
    # a rate of bytes per byte would be meaningless
    assert [c["name"] for c in profile["counters"]] == ["held-memory"]
    # the profile may end one bin later
    assert 6000 <= profile["meta"]["profilingEndTime"] <= 6012


def test_an_axis_of_too_many_bytes_is_refused() -> None:
    log = Log()
    for _ in range(3):
        log.allocation([log.function("f")], size=2**62, interval=2**62)
    with pytest.raises(ProfileError, match="which is impossible"):
        converted(log, unit=BYTES)


def test_an_axis_of_bytes_needs_allocations() -> None:
    log = Log()
    log.raw_stack(log.words([log.function("f")]), 0)
    with pytest.raises(ProfileError, match="no allocation samples"):
        converted(log, unit=BYTES)


# ________________________________________
# origins


def test_categories_distinguish_the_origin_of_code() -> None:
    files = {"/home/me/app.py": ("Program", "app.py"),
             "/v/lib/pypy3.9/site-packages/a/b.py": ("Installed packages", "a/b.py"),
             "/usr/lib/pypy3.9/json/c.py": ("Standard library", "json/c.py"),
             "<frozen importlib._bootstrap>": (
                 "Import machinery", "<frozen importlib._bootstrap>"),
             "<builtin>/d.py": ("Built-in", "<builtin>/d.py")}
    log = Log()
    main = log.function("<module>", 1, "/home/me/app.py")
    named = {file: log.function("f", 5, file) for file in files}
    log.settings()
    for function in named.values():
        log.allocation([main, function], size=24)
        log.allocation([main, jit(function)], size=24)
    profile = converted(log)
    found = [(category, way) for name, category, way, _ in frames(profile)
             if name == "f"]
    assert found == [(category, way) for category, _ in files.values()
                     for way in ("Interpreted", "JIT")]
    assert [file for name, file, _ in functions(profile) if name == "f"] == [
        short for _, short in files.values()]


def test_files_with_the_same_displayed_path_are_distinct() -> None:
    log = Log()
    f, g = (log.function("f", 1, "/%s/lib/pypy3.9/site-packages/a.py" % venv)
            for venv in ("v", "w"))
    log.settings()
    log.allocation([f], size=24)
    log.allocation([g], size=24)
    assert functions(converted(log)) == [("f", "a.py", 1), ("f", "a.py", 1)]


def test_source_text_is_included_on_request(tmp_path: Path) -> None:
    source = tmp_path / "app.py"
    source.write_text("def f(): 'text'\n")
    os.utime(source, (made_profiles.START - 5,) * 2)
    changed = tmp_path / "changed.py"
    changed.write_text("new\n")
    folder = tmp_path / "folder.py"
    folder.mkdir()
    log = Log()
    functions_ = [log.function("f", 1, str(path)) for path in (
        source, changed, tmp_path / "gone.py", folder)]
    log.settings()
    log.allocation(functions_, size=24)
    profile = readers.read_bytes(log.data())
    texts, missing = source_text.read(profile)
    assert (texts, missing) == ({str(source): "def f(): 'text'\n"}, 3)
    result = convert(profile, texts=texts, missing_texts=missing)
    assert firefox_rules.violations(result) == []
    assert result["shared"]["sources"]["content"] == [
        "def f(): 'text'\n", None, None, None]
    assert any("the text of 3 files" in text for text in remarks(result))


@pytest.mark.parametrize("name", [
    "id_rsa", ".env", "app.py.key", "lib/pypy3.9/os.py",
    "lib/pypy3.9/site-packages/six.py"])
def test_a_hostile_profile_gets_no_text_of_other_files(
        tmp_path: Path, name: str) -> None:
    """A user may publish the converted profile with the texts."""
    secret = tmp_path / name
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("secret = 1\n")
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret = 2\n")
    for path in (secret, tmp_path / "secret"):
        os.utime(path, (made_profiles.START - 5,) * 2)
    log = Log()
    functions_ = [log.function("f", 1, str(path)) for path in (secret, link)]
    log.settings()
    log.allocation(functions_, size=24)
    # the link has the name of a source file, and counts as a missing text
    assert source_text.read(readers.read_bytes(log.data())) == ({}, 1)
