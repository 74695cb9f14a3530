"""Offsets of fields from an artificial table of types (probe/fields.py).

In case of doubt, a field has no offset.
"""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vmprof_allocation.engines.hook.probe.fields import Fields
from vmprof_allocation.engines.hook.probe.memory import NotCertain

#: offset of a type's size within its entry
SIZE = 16


class Made:
    """A stand-in for the GC's table of types, with a single type.

    Args:
        name: the GC's name of the type, with its fields.
        size: size in bytes, including the header.
        references: offsets of the references in bytes.
    """

    table = 0

    def __init__(self, name: str, size: int, references: list[int]) -> None:
        self.layout = SimpleNamespace(type_fixed_size=SIZE)
        self.names, self.numbers, self.bits, self.is_varsize = [name], [64], 0, 1
        self._entry = [0, 0, size, 1000, 0]
        self._at = {1000: len(references)} | {
            1008 + 8 * i: at for i, at in enumerate(references)}

    def entry(self, number: int) -> list[int]:
        assert number == 64
        return self._entry

    def word(self, at: int) -> int:
        return self._at[at]

    def words(self, at: int, count: int) -> list[int]:
        return [self._at[at + 8 * i] for i in range(count)]


def fields_of(name: str, size: int, references: list[int]) -> dict[str, int]:
    made: Any = Made(name, size, references)
    return Fields(made, made).of(0)


@pytest.mark.parametrize("name, size, references, found", [
    # The superclass ends where the size implies.  After the words come fields of one
    # byte, from which on the names are in alphabetical order again.  Fields that may
    # change without a word (mutate_) are at the end.
    ("Frame { super, inst_b, inst_c, inst_a, mutate_b }", 56, [8, 24, 48],
     {"inst_b": 24, "inst_c": 32, "inst_a": 40, "mutate_b": 48}),
    ("Frame { super, inst_b, inst_c, inst_a, mutate_b }", 40, [16],
     {"inst_b": 8, "inst_c": 16, "inst_a": 24, "mutate_b": 32}),
    ("Flags { super, inst_x, inst_a, inst_b }", 32, [16],
     {"inst_x": 16, "inst_a": 24, "inst_b": 25}),
    ("Plain { a, inner: * GcStruct Other { c, d }, b }", 32, [8],
     {"a": 8, "inner": 16, "b": 24}),
])
def test_fields_follow_the_superclass(
        name: str, size: int, references: list[int], found: dict[str, int]) -> None:
    assert fields_of("GcStruct " + name, size, references) == found


@pytest.mark.parametrize("name, size, references", [
    ("Two { super, inst_a, inst_b }", 16, [8]),     # too small for both
    ("Two { super, inst_a, inst_b }", 28, [8]),
    ("Two { a, b }", 32, [8]),                      # large enough for another field
    ("Two { a, b }", 24, [12]),                     # a reference that is not a field
])
def test_fields_that_do_not_fit_have_no_offset(
        name: str, size: int, references: list[int] ) -> None:
    assert fields_of("GcStruct " + name, size, references) == {}


def test_name_of_two_types_is_refused() -> None:
    made: Any = Made("GcStruct Two { a }", 16, [])
    made.names *= 2
    made.numbers *= 2
    with pytest.raises(NotCertain, match="2 types have the name GcStruct Two"):
        Fields(made, made).field("GcStruct Two", "a")
