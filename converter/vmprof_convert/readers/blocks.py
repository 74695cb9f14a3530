"""The blocks of an allocation profile, as PROFILE.rst defines them."""
from __future__ import annotations

import array
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Moment
from vmprof_convert.profile.store import is_one
from vmprof_convert.readers import pypy_stacks
from vmprof_convert.readers.collector import MAX_DEPTH, Collector
from vmprof_convert.readers.digits import Numbers, Payload
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
_OF_THE_END = ("children", "programs", "told", "ended", "bookkeeping")

#: flags of a sample with another thread, interval or memory than the one before
_NEW = 1, 2, 4
#: samples are handed on so many at a time
_TOGETHER = 2**10


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
        self._numbers = Numbers()
        self._begin_numbers()

    def _begin_numbers(self) -> None:
        #: the collector's number of each stack that was defined
        self.defined = array.array("q", [-1])
        self._stacks = _Stacks(self.defined, self._numbers)
        #: the nodes of the file's tree: each one's node in the collector's, and
        #: its depth; and the file's frames, (kind, address)
        self._nodes = array.array("q", [0])
        self._depths = array.array("i", [0])
        self._pairs: list[tuple[int, int]] = [(0, 0)]
        #: that the samples have: an index of Facts.labels
        self._label = 0
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
        elif kind in ("facts", "types", "gc", "marks", "figures", "names", "carried",
                      "labels"):
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

    def _read_samples(self, text: str,
                      define: Callable[[Payload], None]) -> None:
        try:
            payload = Payload(text, self._numbers)
            head = [payload.number() for _ in range(8)]
            before = head.pop()
            if not self.moments and "part" in self.settings:
                self.facts.before = before
            if self._part is not None and (
                    before > self.facts.before + self._collector.count):
                raise Damaged("a part behind one whose end was never written (each can "
                              "be read where it is alone in a folder)")
            if (before != self.facts.before + self._collector.count
                    or max(before, *head) >= 2**63):
                raise ValueError
            self.moments.append(self._moment(*head))
            rows = _Rows(self._begin, self._stacks, self._numbers)
            while payload.is_left:
                flags, texts = payload.samples()
                if texts:
                    rows.add(flags, texts)
                    if len(rows) >= _TOGETHER:
                        self._hand_on(rows)
                else:
                    payload.number()
                    define(payload)
            self._hand_on(rows)
        except (ValueError, IndexError, OverflowError):
            raise Damaged("a block of samples that are none") from None

    def _hand_on(self, rows: _Rows) -> None:
        has_ticks, (stacks, *columns) = rows.take()
        if not self.has_memory:
            columns[-1] = array.array("q", [0]) * len(stacks)
        if self._label or self.facts.label_changes:
            stacks = self._labelled(stacks)
        self._collector.add(stacks, *columns, has_ticks=has_ticks)

    def _labelled(self, stacks: Sequence[int]) -> Sequence[int]:
        changes = self.facts.label_changes
        labelled = self._collector.stacks.labelled
        result = []
        for key, stack in enumerate(
                stacks, self.facts.before + self._collector.count + 1):
            while changes and changes[0][0] <= key:
                _, self._label = changes.popleft()
            result.append(labelled(stack, self._label)
                          if self._label and stack >= 0 else stack)
        return result

    def _moment(self, time: int, *counts: int) -> Moment:
        if self._before is not None:
            counts = tuple(map(operator.add, counts, self._before[1:]))
        return Moment(time + self._begin, *counts)

    def _read_definition(self, payload: Payload) -> None:
        number = payload.number
        at, added = number(), number()
        node, depth = self._nodes[at], self._depths[at]
        if depth + added > MAX_DEPTH:
            raise ValueError
        stacks = self._collector.stacks
        for _ in range(added):
            pair = number()
            if not pair:
                pair = len(self._pairs)
                self._pairs.append(_frame(payload))
            node = pypy_stacks.child(stacks, node, *self._pairs[pair])
            depth += 1
            self._nodes.append(node)
            self._depths.append(depth)
        self.defined.append(self._collector.stack(node, 2 * depth))

    def _read_definition_2(self, payload: Payload) -> None:
        """A stack shared outer frames with the one that was defined before."""
        kept, added = payload.number(), payload.number()
        if kept >= len(self._path) or kept + added > MAX_DEPTH:
            raise ValueError
        del self._path[kept + 1:]
        stacks = self._collector.stacks
        for _ in range(added):
            self._path.append(pypy_stacks.child(
                stacks, self._path[-1], *_frame(payload)))
        self.defined.append(
            self._collector.stack(self._path[-1], 2 * (kept + added)))

    def _read_objects(self, text: str) -> None:
        try:
            numbers = Payload(text, self._numbers).rest()
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

    def _read_entries(self, text: str, kind: str) -> None:
        facts = self.facts
        read = {"types": facts.read_types, "gc": facts.read_gc,
                "marks": facts.read_marks, "figures": facts.read_figures,
                "names": facts.read_names, "labels": facts.read_labels}
        try:
            payload = Payload(text, self._numbers)
            if kind == "facts":
                facts.read_facts(payload)
            elif kind == "carried":
                # of a later part, the samples are there already
                if self._part is None:
                    facts.read_carried(payload.rest(), self.defined)
            else:
                read[kind](payload.rest())
        except (ValueError, IndexError):
            raise Damaged("a block of %s that are none" % kind) from None


class _Stacks(dict[str, int]):
    """Stacks, as the collector numbers them, by the first number of a sample, as
    text."""

    def __init__(self, defined: Sequence[int], numbers: Numbers) -> None:
        super().__init__()
        self._defined = defined
        self._numbers = numbers

    def __missing__(self, text: str) -> int:
        stack = self[text] = self._defined[self._numbers[text] - 1 >> 3]
        return stack


class _Rows:
    """Samples, as columns, as they are in a block."""

    def __init__(self, time: int, stacks: Mapping[str, int],
                 numbers: Mapping[str, int]) -> None:
        """The first one's time is after `time`."""
        self._time = time
        self._stack_of = stacks.__getitem__
        self._number_of = numbers.__getitem__
        #: thread, interval and memory
        self._last = [0, 0, 0]
        #: of samples without flags, as text, what is in columns of stacks only
        self._texts: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._stacks: list[int] = []
        self._gaps: list[int] = []
        self._sizes: list[int] = []
        #: threads, intervals and memories, as far as they differ
        self._others = [array.array("q") for _ in _NEW]

    def __len__(self) -> int:
        return len(self._stacks)

    def add(self, flags: int, texts: list[str]) -> None:
        """Samples that have these flags: of each, one number after the other, as
        text."""
        width = rest = 3
        width += bin(flags).count("1")
        # at once: those that are defined later are no stacks yet
        self._stacks += map(self._stack_of, texts[::width])
        if not flags:
            self._texts += texts
            return
        self._repeat()
        for which, is_new in enumerate(_NEW):
            if flags & is_new:
                column = self._others[which]
                column.extend(map(self._number_of, texts[rest::width]))
                self._last[which] = column[-1]
                rest += 1
        self._split(texts, width)
        self._repeat()

    def _split(self, texts: list[str], width: int) -> None:
        self._gaps += map(self._number_of, texts[1::width])
        self._sizes += map(self._number_of, texts[2::width])

    def _repeat(self) -> None:
        """What the samples do not say is as before."""
        self._split(self._texts, 3)
        self._texts.clear()
        for last, column in zip(self._last, self._others):
            column.extend(array.array("q", [last]) * (len(self._sizes) - len(column)))

    def take(self) -> tuple[bool, list[Sequence[int]]]:
        """Whether there are time samples, and stacks, times, threads, sizes, intervals
        and memories, which are no longer here.  Raises ValueError or OverflowError if a
        number can't be."""
        self._repeat()
        times = array.array("q", accumulate(self._gaps, initial=self._time))
        self._time = times[-1]
        sizes = array.array("q", self._sizes)
        threads, intervals, memories = self._others
        has_ticks = not all(self._sizes)
        if has_ticks or (intervals and not (is_one(intervals) and intervals[0])):
            if any(size and not interval for size, interval in zip(sizes, intervals)):
                raise ValueError
            # a time sample has none
            intervals = array.array("q", map(
                operator.mul, intervals, map(bool, sizes)))
        columns: list[Sequence[int]] = [
            array.array("i", self._stacks), times[1:], threads, sizes, intervals,
            memories]
        self._begin()
        return has_ticks, columns


def _frame(payload: Payload) -> tuple[int, int]:
    """Kind and address."""
    kind, address = payload.number(), payload.number()
    if kind >= 2**64 or address >= 2**64:
        raise ValueError
    return kind, address - (address >> 63 << 64)
