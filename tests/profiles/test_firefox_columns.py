"""Tests of the encoding of long columns in the Firefox profile, and of its memory."""
from __future__ import annotations

import array
import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest

import made_profiles
from firefox_profiles import converted
from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.writers import firefox
from vmprof_convert.writers.firefox import BYTES
from vmprof_convert.writers.firefox.format import encoding
from vmprof_convert.writers.firefox.format.columns import Milliseconds, Same, Texts
from vmprof_convert.writers.firefox.format.encoding import PIECE, Known, encoded
from vmprof_convert.writers.firefox.format.encoding import text as text_of


def text(value: object) -> str:
    return "".join(encoded(value))


def test_encoded_milliseconds_are_exact() -> None:
    times = [*range(1100), 10**6 - 1, 10**6, 123456789, 10**12 + 10, 10**13 + 120]
    assert json.loads(text(Milliseconds(array.array("q", times)))) == [
        time / 1e3 for time in times]
    shown = Milliseconds(array.array("q", times))
    assert shown[1] == 0.001 and list(shown[-2:]) == [1e9 + 0.01, 1e10 + 0.12]


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1])
def test_columns_of_any_length(length: int) -> None:
    numbers = array.array("i", range(length))
    plain = json.dumps(list(numbers), separators=(",", ":"))
    assert text(numbers) == text(array.array("q", numbers)) == plain
    assert json.loads(text(Same(-7, length))) == [-7] * length
    assert json.loads(text(Milliseconds(numbers))) == [
        number / 1e3 for number in numbers]


def test_a_column_that_is_encoded_in_pieces() -> None:
    def pieces() -> Iterator[str]:
        yield ""
        yield text_of(array.array("i", [1, 2]))
        yield ""
        yield text_of(Milliseconds([3]))
        yield Known()[-7]
    assert text({"a": Texts(pieces)}) == '{"a":[1,2,3e-3,-7]}'
    assert text(Texts(lambda: iter(()))) == text(Texts(lambda: iter([""]))) == "[]"


def test_the_cache_of_texts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_MOST", 3)
    known = Known()
    assert [known[number] for number in range(10)] == ["%d," % n for n in range(10)]
    assert len(known) <= 3


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    for value in number, [number]:
        with pytest.raises(ValueError):
            text({"a": value})


def test_bytes_are_whole_numbers() -> None:
    """The time axis shows bytes here. A former version wrote 1000.0 with lifetimes."""
    log = Log()
    log.settings(facts="types,lifetimes")
    log.allocation([log.function("f")], size=2000, time=5)
    log.collection(10)
    log.young(1, 0)
    times = converted(log, BYTES)["threads"][0]["nativeAllocations"]["time"]
    assert list(map(type, times)) == [int, int]


def test_assumed_times_have_no_more_digits_than_recorded_times() -> None:
    """The samples are a third of a millisecond apart, because the run took a second."""
    log = Log()
    f = log.function("f")
    for _ in range(3000):
        log.raw_stack(log.words([f]), 1)
    times = converted(log)["threads"][0]["samples"]["time"]
    assert times[:4] == [0.0, 0.333, 0.666, 0.999]
    assert times[-1] == 999.666


def test_columns_of_time_samples_are_distinct_objects() -> None:
    """Two columns are distinct even if their values are equal."""
    log = Log()
    f, g = log.function("f"), log.function("g")
    for number in range(20_000):
        log.raw_stack(log.words([f] * (1 + number % 7) + [g]), 1)
    columns = readers.read_bytes(log.data()).samples.columns()
    assert {len(column) for column in columns} == {20_000}
    assert len(set(map(id, columns))) == len(columns)


def test_writer_does_not_keep_a_second_copy_of_the_columns(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns have ten numbers per object, which take 66 bytes in arrays."""
    # small batches reduce the memory that does not grow with the samples
    monkeypatch.setattr("vmprof_convert.analysis.summary._TOGETHER", 1000)
    monkeypatch.setattr("vmprof_convert.writers.firefox.activity.MOST", 1000)
    monkeypatch.setattr("vmprof_convert.profile.columns._BATCH", 1000)

    def peak(samples: int) -> int:
        profile = readers.read_bytes(made_profiles.large(samples, 6, 50, facts=True))
        tracemalloc.start()
        try:
            firefox.write(profile, Nowhere())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    peak(1000)                      # this call imports modules, and fills caches
    small, large = peak(20_000), peak(60_000)
    assert large - small < 40_000 * 66


class Nowhere(io.BytesIO):
    def write(self, data: object) -> int:
        return 0
