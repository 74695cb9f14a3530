"""The probe's search for the words in which the GC counts its heap.

Without these words, profiles have no size of the heap.
"""
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import PyPy
from test_search import fields, remembered
from vmprof_allocation.engines.hook.probe import heap
from vmprof_allocation.engines.hook.probe.collector import SWEEPING
from vmprof_allocation.engines.hook.probe.memory import NotCertain
from vmprof_convert import readers
from vmprof_convert.analysis.process_memory import readings
from vmprof_convert.profile.model import HEAP, HEAP_HAS, NURSERY, RAW_IN_USE, RESIDENT

BASE = 0x100000
#: offsets from BASE of the GC's own words, one of its parts, and the end of its data
GC, PART, END = 0x1000, 0x4000, 0x8000
BLOCKS, ARENAS, LARGE, SIZE = PART + 0xa8, PART + 0xa0, GC + 0x228, GC + 0x1a0
NAMES = "heap_blocks", "heap_arenas", "heap_large", "heap_nursery"


class Model:
    """A GC whose words change like a real GC's words, with other words between."""

    def __init__(self) -> None:
        self.gc = BASE + GC
        self.layout = SimpleNamespace(gc=GC)
        self.data = BASE + 0x100, END
        self.time = 0
        self.at = {GC + 0x68: BASE + PART}
        #: other words that change with the collector's counts
        self.more: dict[int, Callable[[], int]] = {}
        self.peak = self.state = 0
        #: whether the GC counts blocks again from 0 while it sweeps
        self.forgets = True

    def _step(self) -> None:
        self.time += 1
        self.state = self.time % 4
        self.at.update({
            BLOCKS: 1000 + self.time * 37 % 90 if not self.forgets
            or self.state != SWEEPING else 0, ARENAS: 5000 + self.time * 41 % 80,
            LARGE: 700 + self.time * 43 % 70, SIZE: 4096})
        self.peak = max(self.peak, self.at[BLOCKS])
        self.at.update({address: value() for address, value in self.more.items()})

    def words(self, address: int, count: int) -> list[int]:
        return [self.at.get(address - BASE + 8 * i, 0) for i in range(count)]

    # functions of the module gc

    def collect(self) -> None:
        self._step()

    def collect_step(self) -> SimpleNamespace:
        before = self.state
        self._step()
        return SimpleNamespace(oldstate=before, newstate=self.state)

    def _get_stats(self) -> SimpleNamespace:
        return SimpleNamespace(
            total_arena_memory=self.at[BLOCKS], total_rawmalloced_memory=self.at[LARGE],
            nursery_size=self.at[SIZE], total_allocated_memory=self.at[ARENAS]
            + self.at[LARGE] + self.at[SIZE])


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    found = Model()
    monkeypatch.setattr(heap, "gc", found)
    monkeypatch.setattr(heap, "SMALL", 1)
    monkeypatch.setattr(heap, "LARGE_SIZE", 1)
    return found


def find(model: Any) -> tuple[int, ...]:
    return heap.find(model)[:4]


def test_each_word_is_found(model: Model) -> None:
    assert find(model) == (BLOCKS, ARENAS, LARGE, SIZE)


@pytest.mark.parametrize("forgets", [True, False])
def test_probe_finds_whether_the_count_stays_valid_during_a_sweep(
        model: Any, forgets: bool) -> None:
    model.forgets = forgets
    # the count is never smaller during a sweep
    model.more[BLOCKS] = lambda: (
        0 if forgets and model.state == SWEEPING else 1000 + model.time // 4
        if model.time % 40 else 900)
    assert heap.find(model).is_counted_on is not forgets


def test_word_that_keeps_the_maximum_is_not_the_count(model: Model) -> None:
    model.more[PART + 0x88] = lambda: model.peak
    assert find(model) == (BLOCKS, ARENAS, LARGE, SIZE)


def test_parts_that_overlap_have_each_word_once(model: Model) -> None:
    """A word counts once if several pointers lead there."""
    model.at[GC + 0x100] = BASE + PART - 0x10
    model.at[GC + 0x338] = BASE + GC
    assert find(model) == (BLOCKS, ARENAS, LARGE, SIZE)


@pytest.mark.parametrize("word", [BLOCKS, ARENAS, LARGE, SIZE])
def test_two_words_that_always_agree(model: Model, word: int) -> None:
    model.more[GC + 0x300] = lambda: model.at[word]
    with pytest.raises(NotCertain, match="2"):
        find(model)


@pytest.mark.parametrize("word", [BLOCKS, ARENAS, LARGE])
def test_a_word_that_never_changes(model: Model, word: int) -> None:
    model.more[word] = lambda: 12345
    with pytest.raises(NotCertain):
        find(model)


@pytest.mark.parametrize("word", [BLOCKS, ARENAS, LARGE])
def test_a_word_that_only_grows(model: Model, word: int) -> None:
    """Such a word may keep the maximum of the count."""
    model.more[word] = lambda: 5000 + model.time
    with pytest.raises(NotCertain):
        find(model)


def test_a_part_that_is_not_in_the_librarys_data(model: Model) -> None:
    model.data = BASE + 0x100, PART
    with pytest.raises(NotCertain, match="0"):
        find(model)


def test_counts_that_change_all_the_time(model: Model) -> None:
    told = model._get_stats
    model._step()

    def stats() -> SimpleNamespace:
        model._step()
        return told()
    model._get_stats = stats  # type: ignore[method-assign]
    with pytest.raises(NotCertain, match="changed during each reading"):
        find(model)


def test_build_without_these_counts(model: Model) -> None:
    model._get_stats = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        find(model)


# ____________________________________________________________
# the PyPy that the tests run

def test_words_are_found_in_this_pypy(stock_pypy: PyPy) -> None:
    layout = fields(remembered(stock_pypy).read_text())
    words = [int(layout[name][0]) for name in NAMES]
    assert all(word > 0 and word % 8 == 0 for word in words)
    assert len(set(words)) == len(NAMES)


@pytest.mark.parametrize(("name", "value"), [*((name, "0") for name in NAMES),
                                             ("gc_state", "-1")])
def test_no_heap_size_is_recorded_if_a_word_is_unknown(
        stock_pypy: PyPy, name: str, value: str) -> None:
    remembered(stock_pypy, **{name: value})
    profile = stock_pypy.sample("import gc; gc.collect()", "128k").profile()
    assert readings(profile, RESIDENT)
    for kind in HEAP, HEAP_HAS, NURSERY:
        assert not readings(profile, kind)


def test_no_size_of_native_memory_is_recorded_without_its_count(
        stock_pypy: PyPy) -> None:
    """A value of 0 would mean that all native memory was freed."""
    remembered(stock_pypy, **dict.fromkeys(NAMES, "0"))
    run = stock_pypy.sample("""
        import ctypes
        kept = [ctypes.create_string_buffer(5000) for _ in range(2000)]
    """, "1M", "--native-memory", "16k")
    assert list(readings(readers.read(run.path, raw=True), RAW_IN_USE)) == []
    assert "wrong" not in stock_pypy.command(
        "-m", "vmprof_allocation", "report", "out.vmprof").out


@pytest.mark.parametrize("name", NAMES)
def test_a_word_outside_of_the_librarys_data_is_refused(
        stock_pypy: PyPy, name: str) -> None:
    remembered(stock_pypy, **{name: "%d" % 2**40})
    doctor = stock_pypy.command("-m", "vmprof_allocation", "doctor")
    assert "the address of data: 0x10000000000" in doctor.out
