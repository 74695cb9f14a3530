"""Snapshots of our tracemalloc have the same results as CPython's.

Both modules get the same traces, and all results are compared.
"""
from __future__ import annotations

import math
import pathlib
import pickle
import tracemalloc as cpython
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmprof_allocation import tracemalloc as ours

FILES = st.sampled_from(["a.py", "b.py", "lib/c.py", "lib/c.pyc", "<x>", "[a].py"])
FRAMES = st.tuples(FILES, st.integers(0, 5))
TRACES = st.lists(st.tuples(
    st.integers(0, 2), st.integers(1, 10**7),
    # each file once, because of test_a_recursion_counts_once
    st.lists(FRAMES, min_size=1, max_size=4,
             unique_by=lambda frame: frame[0]).map(tuple),
    st.integers(1, 9)), max_size=30)
FILTERS = st.lists(st.one_of(
    st.tuples(st.just("Filter"), st.fixed_dictionaries({
        "inclusive": st.booleans(),
        "filename_pattern": FILES | st.sampled_from(["*", "lib/*", "?.py"]),
        "lineno": st.none() | st.integers(0, 5),
        "all_frames": st.booleans(),
        "domain": st.none() | st.integers(0, 2)})),
    st.tuples(st.just("DomainFilter"), st.fixed_dictionaries({
        "inclusive": st.booleans(), "domain": st.integers(0, 2)}))), max_size=3)
HOW = st.sampled_from([("traceback", False), ("lineno", False),
                       ("filename", False), ("lineno", True),
                       ("filename", True)])


def told(statistics: list[Any]) -> list[Any]:
    return [(str(s), repr(s).replace("<Traceback", "Traceback"),
             s.traceback.format(), s.traceback.format(2), s.traceback.format(-1),
             s.traceback.format(0), s.traceback.format(3, True),
             len(s.traceback), [(f.filename, f.lineno, str(f), repr(f))
                                for f in s.traceback],
             *(getattr(s, name, None) for name in (
                 "size", "size_diff", "count", "count_diff")))
            for s in statistics]


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True)
@given(TRACES, TRACES, FILTERS, HOW)
def test_same_as_cpython(new: list[Any], old: list[Any],
                         filters: list[tuple[str, dict[str, Any]]],
                         how: tuple[str, bool]) -> None:
    results = []
    for module in (cpython, ours):
        snapshot = module.Snapshot(new, 4).filter_traces(
            [getattr(module, name)(**arguments) for name, arguments in filters])
        before = module.Snapshot(old, 4)
        results.append((
            told(snapshot.statistics(*how)),
            told(snapshot.compare_to(before, *how)),
            [(t.domain, t.size, str(t), t.traceback.total_nframe)
             for t in snapshot.traces], snapshot.traceback_limit))
    assert results[0] == results[1]


@pytest.mark.parametrize("size", [0, 1, 99, 100, 1023, 10239, 10240, 99 * 1024,
                                  10**6, 10**7, 10**9, 10**12, 10**15, -5, -10**7])
def test_sizes_are_written_as_in_cpython(size: int) -> None:
    frame = (("x", 1),)
    assert str(ours.Statistic(ours.Traceback(frame), size, 1)) == str(
        cpython.Statistic(cpython.Traceback(frame), size, 1))
    assert str(ours.StatisticDiff(ours.Traceback(frame), 1, size, 1, 2)) == str(
        cpython.StatisticDiff(cpython.Traceback(frame), 1, size, 1, 2))


def test_arguments_that_cpython_refuses() -> None:
    snapshot = ours.Snapshot([], 1)
    with pytest.raises(ValueError, match="'nonsense'"):
        snapshot.statistics("nonsense")
    with pytest.raises(ValueError, match="cumulative"):
        snapshot.statistics("traceback", cumulative=True)
    with pytest.raises(TypeError, match="filters"):
        snapshot.filter_traces(ours.Filter(True, "*"))  # type: ignore[arg-type]
    for nframe in 0, -1, 65536:
        with pytest.raises(ValueError, match="number of frames"):
            ours.start(nframe)
    with pytest.raises(TypeError, match="number of frames"):
        ours.start("1")  # type: ignore[arg-type]


def test_dump_and_load(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "snapshot"
    snapshot = ours.Snapshot([(0, 5, (("x.py", 3),), 1, 2.5, 9.0, 1.0, 7)], 25)
    snapshot.dump(file)
    again = ours.Snapshot.load(file)
    assert again.traces == snapshot.traces
    assert again.traceback_limit == 25
    assert again.statistics("lineno") == snapshot.statistics("lineno")
    file.write_bytes(pickle.dumps([1]))
    with pytest.raises(ValueError, match="contains a list instead of a snapshot"):
        ours.Snapshot.load(file)


@pytest.mark.parametrize("content", [
    b"", b"print(1)\n", b"\x1f\x8b\x08\x00", b"\x80\x04\x95", b"\x80\x04h\x07."])
def test_load_of_other_files_is_refused(tmp_path: pathlib.Path, content: bytes) -> None:
    """For such files, PyPy's pickle raises KeyError, IndexError and others."""
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(pickle.UnpicklingError, match="other' contains no snapshot: "):
        ours.Snapshot.load(file)
    with pytest.raises(FileNotFoundError):
        ours.Snapshot.load(tmp_path / "none")


def test_a_recursion_counts_once() -> None:
    """CPython counts a line for each of its frames in the traceback.

    In our traces, all frames of a function have the same line, so CPython's count would
    be the depth of the recursion.
    """
    deep = ours.Snapshot([(0, 100, (("x.py", 3),) * 50 + (("x.py", 1),))], 99)
    for key in "lineno", "filename":
        assert {s.size for s in deep.statistics(key, cumulative=True)} == {100}


# ____________________________________________________________
# errors of estimates, which CPython's snapshots do not have

def trace(size: int, variance: float, key: int, line: int = 1) -> Any:
    return 0, size, (("x.py", line),), 1, size / 16, variance, variance / 256, key


def test_error_of_a_sum() -> None:
    (statistic,) = ours.Snapshot(
        [trace(1600, 900.0, 1), trace(3200, 1600.0, 2)], 1).statistics("lineno")
    assert (statistic.size, statistic.count) == (4800, 300)
    assert math.isclose(statistic.size_error, 1.959964 * 50)
    assert math.isclose(statistic.count_error, 1.959964 * 50 / 16)


def test_common_traces_do_not_add_to_the_error_of_a_difference() -> None:
    old = ours.Snapshot([trace(1600, 900.0, 1), trace(100, 1600.0, 2)], 1)
    new = ours.Snapshot([trace(1600, 900.0, 1), trace(100, 900.0, 3)], 1)
    (difference,) = new.compare_to(old, "lineno")
    assert (difference.size_diff, difference.count_diff) == (0, 0)
    assert math.isclose(difference.size_diff_error, 1.959964 * 50)
    (same,) = new.compare_to(new, "lineno")
    assert same.size_diff_error == 0
