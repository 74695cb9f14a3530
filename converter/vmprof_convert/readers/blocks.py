"""The blocks of an allocation profile, as PROFILE.rst defines them."""
from __future__ import annotations

import array
import itertools
import re
from collections.abc import Iterator

from vmprof_convert.model import Moment
from vmprof_convert.readers import pypy_stacks
from vmprof_convert.readers.collector import MAX_DEPTH, Collector

#: a name that stands for nothing: what is named so is a block
ADDRESS = -0x616C6C6F63
VERSION = "3"

#: digits of a number: all but the last have the sixth bit set
_NUMBER = re.compile("[`-\x7f]*[@-_]")
_LAST_DIGIT = re.compile("[@-_]")
_NUMBERS = re.compile("([@-\x7f]*[@-_])?")
#: that are read at once
_MAX_DIGITS = 2**12
_NEW_THREAD, _NEW_INTERVAL, _NEW_MEMORY = 1, 2, 4


class Damaged(Exception):
    """The block is none; the message says of which kind."""


class _Numbers(dict[str, int]):
    """What digits mean.  Most numbers are small and come again."""

    def __missing__(self, digits: str) -> int:
        number = 0
        for digit in reversed(digits):
            number = number << 5 | ord(digit) & 31
        if len(digits) <= 3:
            self[digits] = number
        return number


class Blocks:
    """Reads the blocks of one log, in their order."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        #: there were some: what else the log has of samples are the same again
        self.are_there = False
        self.settings: dict[str, str] = {}
        self.moments: list[Moment] = []
        self._numbers = _Numbers()
        #: the collector's number of each stack that was defined; and the nodes
        #: of the file's tree: each one's node in the collector's, and its
        #: depth; and the file's frames, (kind, address)
        self._defined = array.array("q", [-1])
        self._nodes = array.array("q", [0])
        self._depths = array.array("i", [0])
        self._pairs: list[tuple[int, int]] = [(0, 0)]

    def read(self, text: str) -> None:
        """Read one block.  Raises Damaged."""
        parts = text.split(":")
        if len(parts) != 4:
            raise Damaged("a block that is none")
        _, payload, version, kind = parts
        if version != VERSION:
            return
        if kind == "settings":
            self._begin()
            for pair in payload.split(";"):
                key, _, value = pair.partition("=")
                self.settings[key] = value
        elif kind == "samples":
            self._begin()
            self._read_samples(payload)
        elif kind == "objects":
            self._read_objects(payload)

    def _begin(self) -> None:
        if not self.are_there:
            self.are_there = True
            self._collector.begin(self.settings)

    def _all_numbers(self, payload: str, kind: str) -> Iterator[int]:
        if not _NUMBERS.fullmatch(payload):
            raise Damaged("a block of %s that are none" % kind)
        return itertools.chain.from_iterable(self._some_numbers(payload))

    def _some_numbers(self, payload: str) -> Iterator[Iterator[int]]:
        # not all at once: each is a string of its own
        at = 0
        while last := _LAST_DIGIT.search(payload, at + _MAX_DIGITS):
            yield map(self._numbers.__getitem__,
                      _NUMBER.findall(payload, at, last.end()))
            at = last.end()
        yield map(self._numbers.__getitem__, _NUMBER.findall(payload, at))

    def _read_samples(self, payload: str) -> None:
        numbers = self._all_numbers(payload, "samples")
        add = self._collector.add
        try:
            head = [next(numbers) for _ in range(8)]
            if head.pop() != self._collector.count or max(head) >= 2**63:
                raise ValueError
            self.moments.append(Moment(*head))
            thread = interval = memory = time = 0
            for number in numbers:
                if not number:
                    self._read_definition(numbers)
                    continue
                number -= 1
                time += next(numbers)
                size = next(numbers)
                if number & _NEW_THREAD:
                    thread = next(numbers)
                if number & _NEW_INTERVAL:
                    interval = next(numbers)
                if number & _NEW_MEMORY:
                    memory = next(numbers)
                if size and not interval:
                    raise ValueError
                if (time | size | thread | interval | memory) >> 63:
                    raise ValueError
                add(self._defined[number >> 3], time, thread, size,
                    interval if size else 0, memory)
        except (ValueError, IndexError, OverflowError, StopIteration):
            raise Damaged("a block of samples that are none") from None

    def _read_definition(self, numbers: Iterator[int]) -> None:
        at, added = next(numbers), next(numbers)
        node, depth = self._nodes[at], self._depths[at]
        if depth + added > MAX_DEPTH:
            raise ValueError
        stacks = self._collector.stacks
        for _ in range(added):
            pair = next(numbers)
            if not pair:
                pair = len(self._pairs)
                kind, address = next(numbers), next(numbers)
                if kind >= 2**64 or address >= 2**64:
                    raise ValueError
                self._pairs.append((kind, address - (address >> 63 << 64)))
            node = pypy_stacks.child(stacks, node, *self._pairs[pair])
            depth += 1
            self._nodes.append(node)
            self._depths.append(depth)
        self._defined.append(self._collector.stack(node, 2 * depth))

    def _read_objects(self, payload: str) -> None:
        numbers = self._all_numbers(payload, "objects")
        try:
            for key in numbers:
                fate = next(numbers)
                if (key | fate >> 1) >> 63:
                    raise ValueError
                self._collector.add_object(key, fate >> 1, fate & 1)
        except (StopIteration, ValueError):
            raise Damaged("a block of objects that are none") from None
