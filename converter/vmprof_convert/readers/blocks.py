"""The blocks of an allocation profile, as PROFILE.rst defines them."""
from __future__ import annotations

import array
import itertools
import operator
import re
from collections.abc import Callable, Iterator

from vmprof_convert.errors import ProfileError
from vmprof_convert.model import Moment
from vmprof_convert.readers import pypy_stacks
from vmprof_convert.readers.collector import MAX_DEPTH, Collector
from vmprof_convert.readers.facts import Facts

#: a name that stands for nothing: what is named so is a block
ADDRESS = -0x616C6C6F63
#: versions of the layout that are read, the newest last
VERSIONS = (2, 3)

_VERSION = re.compile("[0-9]{1,9}", re.ASCII)
_KIND = re.compile("[a-z][a-z0-9-]{0,31}")
#: how settings were called, and what their values were
_RENAMED = {("carrier", "live"): ("engine", "hook"),
            ("carrier", "patch"): ("engine", "builtin")}

#: settings of a later part that are true of all
_OF_THE_END = ("children", "programs", "ended")

#: digits of a number: all but the last have the sixth bit set
_NUMBER = re.compile("[`-\x7f]*[@-_]")
_LAST_DIGIT = re.compile("[@-_]")
_NUMBERS = re.compile("([@-\x7f]*[@-_])?")
#: that are read at once
_MAX_DIGITS = 2**12
#: digits of a number; longer ones are none that anybody wrote
_LONGEST = 2**6
_NEW_THREAD, _NEW_INTERVAL, _NEW_MEMORY = 1, 2, 4


class Damaged(Exception):
    """The block is none; the message says of which kind."""


def _check_version(version: str) -> int:
    """The version of a block that can be read; raises ProfileError for others.
    To pass over them is no choice: what else stands in the log, for vmprof's
    readers, would be taken for all there is."""
    if not _VERSION.fullmatch(version):
        raise Damaged("a block that is none")
    number = int(version)
    if number not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise ProfileError(
            "the profile has blocks of version %d; this vmprof-convert "
            "understands %s" % (number, known) + (
                ": install a newer vmprof-convert to read it"
                if number > VERSIONS[-1] else ""))
    return number


class _Numbers(dict[str, int]):
    """What digits mean.  Most numbers are small and come again."""

    def __missing__(self, digits: str) -> int:
        if len(digits) > _LONGEST:
            raise ValueError
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
        #: of the file that is read: the first, or one that goes on from there
        self._part: dict[str, str] | None = None
        #: when that one began, after the first; and what was counted before
        self._begin = 0
        self._is_placed = False
        self._before: Moment | None = None
        #: there were some: what else the log has of samples are the same again
        self.are_there = False
        #: kinds of which nothing is known, and how many blocks there were
        self.unknown: dict[str, int] = {}
        #: says the log's header.  PyPy 8 ends its samples with a time: it was
        #: taken for resident memory, and so there are profiles that have both
        self.has_memory = False
        self.settings: dict[str, str] = {}
        self.moments: list[Moment] = []
        self.facts = Facts(collector, self.unknown)
        self._numbers = _Numbers()
        self._begin_numbers()

    def _begin_numbers(self) -> None:
        #: the collector's number of each stack that was defined
        self.defined = array.array("q", [-1])
        #: the nodes of the file's tree: each one's node in the collector's, and
        #: its depth; and the file's frames, (kind, address)
        self._nodes = array.array("q", [0])
        self._depths = array.array("i", [0])
        self._pairs: list[tuple[int, int]] = [(0, 0)]
        #: in version 2: the nodes of the stack that was defined last
        self._path = [0]

    def begin_part(self) -> None:
        """What is read from now on is of the next file of the same process."""
        self._begin_numbers()
        self._part = {}
        self._is_placed = False
        self._before = self.moments[-1] if self.moments else None

    def read(self, text: str) -> None:
        """Read one block.  Raises Damaged, or ProfileError if it is newer than
        this."""
        # of a newer version nothing is known but where it stands
        name, _, rest = text.partition(":")
        parts = rest.rsplit(":", 2)
        if name != "alloc" or len(parts) != 3:
            raise Damaged("a block that is none")
        payload, version, kind = parts
        number = _check_version(version)
        if ":" in payload or not _KIND.fullmatch(kind):
            raise Damaged("a block that is none")
        if not self.are_there:
            self.are_there = True
            self._collector.begin(self.settings)
        if kind == "settings":
            self._read_settings(payload)
        elif kind == "samples":
            self._read_samples(payload, self._read_definition if number > 2
                               else self._read_definition_2)
        elif kind == "objects":
            self._read_objects(payload)
        elif kind in ("facts", "types", "gc", "marks", "figures", "names"):
            self._read_entries(payload, kind)
        else:
            self.unknown[kind] = self.unknown.get(kind, 0) + 1

    def _read_settings(self, payload: str) -> None:
        for pair in payload.split(";"):
            key, _, value = pair.partition("=")
            key, value = _RENAMED.get((key, value), (key, value))
            if self._part is not None:
                self._part[key] = value
            if self._part is None or key in _OF_THE_END:
                self.settings[key] = value
        if self._part is not None and not self._is_placed:
            self._go_on(self._part)
        self._collector.expect(self.settings.get("facts", ""))

    def _go_on(self, part: dict[str, str]) -> None:
        """Where the clock of the first file is when this part of it begins."""
        try:
            self._begin = int(part["clock"]) - int(self.settings["clock"])
        except (KeyError, ValueError):
            raise Damaged("a part without a clock") from None
        self._is_placed = True
        if not 0 <= self._begin < 2**63:
            raise Damaged("a part that began before the first one")
        self.facts.begin_part(
            self._begin, self._before.allocated if self._before is not None else 0)

    def _check_numbers(self, payload: str, kind: str) -> None:
        if not _NUMBERS.fullmatch(payload):
            raise Damaged("a block of %s that are none" % kind)

    def _all_numbers(self, payload: str, kind: str) -> Iterator[int]:
        self._check_numbers(payload, kind)
        return itertools.chain.from_iterable(self._some_numbers(payload))

    def _some_numbers(self, payload: str) -> Iterator[Iterator[int]]:
        # not all at once: each is a string of its own
        at = 0
        while last := _LAST_DIGIT.search(payload, at + _MAX_DIGITS):
            yield map(self._numbers.__getitem__,
                      _NUMBER.findall(payload, at, last.end()))
            at = last.end()
        yield map(self._numbers.__getitem__, _NUMBER.findall(payload, at))

    def _read_samples(self, payload: str,
                      define: Callable[[Iterator[int]], None]) -> None:
        numbers = self._all_numbers(payload, "samples")
        add = self._collector.add
        try:
            head = [next(numbers) for _ in range(8)]
            before = head.pop()
            if not self.moments and "part" in self.settings:
                self.facts.before = before
            if (before != self.facts.before + self._collector.count
                    or max(before, *head) >= 2**63):
                raise ValueError
            self.moments.append(self._moment(*head))
            thread = interval = memory = 0
            time = self._begin
            for number in numbers:
                if not number:
                    define(numbers)
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
                add(self.defined[number >> 3], time, thread, size,
                    interval if size else 0,
                    memory if self.has_memory else 0)
        except (ValueError, IndexError, OverflowError, StopIteration):
            raise Damaged("a block of samples that are none") from None

    def _moment(self, time: int, *counts: int) -> Moment:
        if self._before is not None:
            counts = tuple(map(operator.add, counts, self._before[1:]))
        return Moment(time + self._begin, *counts)

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
                self._pairs.append(_frame(numbers))
            node = pypy_stacks.child(stacks, node, *self._pairs[pair])
            depth += 1
            self._nodes.append(node)
            self._depths.append(depth)
        self.defined.append(self._collector.stack(node, 2 * depth))

    def _read_definition_2(self, numbers: Iterator[int]) -> None:
        """A stack shared outer frames with the one that was defined before."""
        kept, added = next(numbers), next(numbers)
        if kept >= len(self._path) or kept + added > MAX_DEPTH:
            raise ValueError
        del self._path[kept + 1:]
        stacks = self._collector.stacks
        for _ in range(added):
            self._path.append(pypy_stacks.child(
                stacks, self._path[-1], *_frame(numbers)))
        self.defined.append(
            self._collector.stack(self._path[-1], 2 * (kept + added)))

    def _read_objects(self, payload: str) -> None:
        numbers = self._all_numbers(payload, "objects")
        try:
            for key in numbers:
                fate = next(numbers)
                if (key | fate >> 1) >> 63:
                    raise ValueError
                # an earlier part's sample: it is not here
                self._collector.add_object(
                    max(key - self.facts.before, 0),
                    self.facts.type_index(fate >> 1, fate >> 1), fate & 1)
        except (StopIteration, ValueError):
            raise Damaged("a block of objects that are none") from None

    def _read_entries(self, payload: str, kind: str) -> None:
        self._check_numbers(payload, kind)
        some = self._some_numbers(payload)
        facts = self.facts
        read = {"types": facts.read_types, "gc": facts.read_gc,
                "marks": facts.read_marks, "figures": facts.read_figures,
                "names": facts.read_names}
        try:
            if kind == "facts":
                facts.read_facts(some)
            else:
                read[kind](itertools.chain.from_iterable(some))
        except (ValueError, IndexError):
            raise Damaged("a block of %s that are none" % kind) from None

def _frame(numbers: Iterator[int]) -> tuple[int, int]:
    """Kind and address."""
    kind, address = next(numbers), next(numbers)
    if kind >= 2**64 or address >= 2**64:
        raise ValueError
    return kind, address - (address >> 63 << 64)
