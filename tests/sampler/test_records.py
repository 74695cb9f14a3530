"""Tables of numbers in columns, for any numbers (records.c)."""
from __future__ import annotations

import ctypes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import made_profiles
import record_rows
from made_profiles import MARKS, OBJECTS, TICKS, TYPES
from native_build import load
from vmprof_convert.readers import records

KINDS = range(made_profiles.TOTALS, made_profiles.HELD_OBJECTS + 1)
TEXTS = (made_profiles.TYPES, made_profiles.LABELS, made_profiles.MARKS,
         made_profiles.NAMES, made_profiles.HOLDERS, made_profiles.HELD_PATHS)
LARGEST_TEXT = 1024


class Record(ctypes.Structure):
    _fields_ = [("units", ctypes.c_char_p), ("rows", ctypes.POINTER(ctypes.c_int64)),
                ("text", ctypes.c_char_p), ("columns", ctypes.c_size_t),
                ("most_rows", ctypes.c_size_t), ("most_text", ctypes.c_size_t),
                ("count", ctypes.c_size_t), ("text_size", ctypes.c_size_t)]


class Library:
    def __init__(self) -> None:
        self._c = load("records")
        self._c.record_of.restype = ctypes.POINTER(Record)
        for function in self._c.record_encode, self._c.record_encode_settings:
            function.restype = ctypes.c_void_p
        self._c.record_bound.restype = ctypes.c_size_t
        self._memory = bytearray(2**18)
        self._buffer = (ctypes.c_char * 2**18).from_buffer(self._memory)
        self._c.record_clear_all()

    def of(self, kind: int) -> Record:
        found: Record = self._c.record_of(kind).contents
        return found

    def has_room(self, kind: int) -> bool:
        return bool(self._c.record_has_room(ctypes.byref(self.of(kind))))

    def add(self, kind: int, row: tuple[int, ...], text: bytes | None = None) -> None:
        numbers = (ctypes.c_int64 * self.of(kind).columns)(*row)
        record = ctypes.byref(self.of(kind))
        if text is None:
            self._c.record_add(record, numbers)
        else:
            self._c.record_add_text(record, numbers, text, ctypes.c_size_t(len(text)))

    def encode(self, kind: int) -> bytes:
        bound = self._c.record_bound(ctypes.byref(self.of(kind)))
        self._memory[bound:bound + 8] = b"\xa5" * 8
        end = self._c.record_encode(kind, self._buffer)
        size = end - ctypes.addressof(self._buffer)
        assert size <= bound
        assert self._memory[bound:bound + 8] == b"\xa5" * 8
        assert self.of(kind).count == self.of(kind).text_size == 0
        return bytes(self._memory[:size])

    def settings(self, text: bytes) -> bytes:
        end = self._c.record_encode_settings(
            text, ctypes.c_size_t(len(text)), self._buffer)
        return bytes(self._memory[:end - ctypes.addressof(self._buffer)])


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


def check(data: bytes, rows: list[tuple[int, ...]], texts: list[bytes] | None = None
          ) -> None:
    """Check that a record contains these rows.

    It is decoded twice, by the definition in PROFILE.rst and by the converter.
    """
    found = record_rows.record(data)
    assert found.rows == rows and found.texts == (texts or [])
    parsed = records.parse(data[9:])
    assert list(zip(*parsed.decoded())) == rows
    for number in range(len(rows[0])):
        assert list(parsed.column(number)) == [row[number] for row in rows]


def test_all_kinds_have_the_columns_that_readers_expect(library: Library) -> None:
    for kind in KINDS:
        assert library.of(kind).columns == records.COLUMNS[kind]
        assert (library.of(kind).most_text > 0) == (kind in TEXTS)


SMALL = st.integers(0, 3)
NUMBERS = st.one_of(
    SMALL, st.integers(0, 300), st.integers(0, 2**17), st.integers(0, 2**33),
    st.integers(-2**63, 2**63 - 1), st.sampled_from([-2**63, 2**63 - 1]))


@st.composite
def columns(draw: st.DrawFn, rows: int) -> list[int]:
    """Draw the numbers of a column that fits one of the encodings, or nearly fits."""
    kind = draw(st.sampled_from(["any", "small", "same", "steps", "units", "steps"]))
    if kind == "same":
        return [draw(NUMBERS)] * rows
    if kind == "any":
        return draw(st.lists(NUMBERS, min_size=rows, max_size=rows))
    values = draw(st.lists(SMALL, min_size=rows, max_size=rows))
    base = draw(st.integers(-2**40, 2**40))
    if kind == "units":
        unit = draw(st.sampled_from([8, 1000, 24000]))
        return [base + unit * value for value in values]
    if kind == "steps":
        step = draw(st.integers(-2**20, 2**20))
        total, result = base, []
        for value in values:
            total += step + value
            result.append(total)
        return result
    return values


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[tuple[int, ...]]]:
    kind = draw(st.sampled_from([kind for kind in KINDS if kind not in TEXTS]))
    rows = 1 if kind == made_profiles.TOTALS else draw(st.integers(1, 30))
    return kind, list(zip(*[draw(columns(rows))
                            for _ in range(records.COLUMNS[kind])]))


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(tables())
def test_encoded_tables_are_decoded_again(
        library: Library, table: tuple[int, list[tuple[int, ...]]]) -> None:
    kind, rows = table
    for row in rows:
        assert library.has_room(kind)
        library.add(kind, row)
    check(library.encode(kind), rows)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in TEXTS])
def test_full_records_of_the_widest_numbers(library: Library, kind: int) -> None:
    rows, count = [], 0
    while library.has_room(kind):
        count += 1
        rows.append(tuple((-1)**count * (2**62 + count * number)
                          for number in range(library.of(kind).columns)))
        library.add(kind, rows[-1])
    assert count == library.of(kind).most_rows
    data = library.encode(kind)
    assert len(data) < 65536            # the size of profile_log.c's buffer
    check(data, rows)


@pytest.mark.parametrize("kind", TEXTS)
def test_texts(library: Library, kind: int) -> None:
    texts = [b"", b"a", "\u00e4;:\x00".encode(), b"x" * LARGEST_TEXT, b"\xff"]
    rows = []
    for number, text in enumerate(texts):
        row = (*[number] * (library.of(kind).columns - 1), len(text))
        library.add(kind, row, text)
        rows.append(row)
    data = library.encode(kind)
    check(data, rows, texts)
    assert [text for _, text in records.parse(data[9:]).texts()] == [
        text.decode("utf-8", "replace") for text in texts]
    # add texts until there is no room
    count = 0
    while library.has_room(kind):
        library.add(kind, (1,) * library.of(kind).columns, b"y" * LARGEST_TEXT)
        count += 1
    assert count >= 4 and len(record_rows.record(library.encode(kind)).texts) == count


def test_a_long_text_is_cut_between_two_characters(library: Library) -> None:
    library.add(TYPES, (1, 2, -1, 0), ("x" + "\u20ac" * 1000).encode())
    library.add(MARKS, (5, 0), b"\x80" * 2000)
    assert record_rows.record(library.encode(TYPES)).texts == [
        ("x" + "\u20ac" * 341).encode()]
    # these bytes are not valid UTF-8
    assert record_rows.record(library.encode(MARKS)).texts == [b""]


@pytest.mark.parametrize("text", [b"", b"a=1", b"x" * 4000])
def test_settings(library: Library, text: bytes) -> None:
    check(library.settings(text), [(len(text),)], [text])


def test_usual_samples_take_few_bytes(library: Library) -> None:
    """A sample takes seven bytes, two for its time and two for its stack.

    The samples have one thread and interval, times in whole microseconds, and some
    types and sizes.  Most objects are short-lived.
    """
    rows: list[tuple[int, ...]] = []
    for i in range(500):
        rows.append((i + 1, 0, i * 50_000 + i * 7919 % 90 * 1000, 4321, i * 37 % 300,
                     0, 0,
                     16 + i % 9 * 8, 32768, 1 + i % 20, int(i % 10 == 0), 1 + i // 128,
                     0))
        library.add(OBJECTS, rows[-1])
    data = library.encode(OBJECTS)
    check(data, rows)
    assert len(data) < 7 * len(rows)


def test_nothing_is_encoded_as_nothing(library: Library) -> None:
    assert library.encode(TICKS) == b""
