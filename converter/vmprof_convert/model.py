"""What a profile is, whoever wrote it: functions, stacks, samples.

Readers fill it, writers get it; it knows neither.
"""
from __future__ import annotations

import array
import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol, overload

#: of unknown kinds, so many are named
MAX_KINDS = 10
#: rows go into their columns so many at a time
_TOGETHER = 1024
#: what is read of the whole process: resident memory, processor time, page
#: faults without and with reading
RESIDENT, PROCESSOR = "resident", "processor"
MINOR_FAULTS, MAJOR_FAULTS = "minor-faults", "major-faults"
#: what a function can be
PYTHON, NATIVE = "python", "native"
#: it is none, but stands for something: see program.py
LABEL = "label"

#: What became of an object.  The profile doesn't say; it was in the nursery
#: when the profile ended; it died before its first minor collection.
UNTOLD, PENDING, DIED = -1, 0, 1
#: It became old, and a major collection found it dead; or none did.
FREED, ALIVE = 2, 3
#: Nobody followed it: it was pinned to its place; it became old, and then was
#: lost; or the objects of its piece could not be told apart.
PINNED, LOST, UNKNOWN = 4, 5, 6


def _words(text: str) -> list[str]:
    return text.split(",")


def _column() -> array.array[int]:
    return array.array("q")


class Frame(NamedTuple):
    """One frame of a stack."""

    #: address: identifies the function, see Profile.function()
    address: int
    #: "interpreted", "jit" or "native"; or LABEL, in no profile
    kind: str
    #: executed line; 0: not known
    line: int


class Function(NamedTuple):
    name: str
    #: line of the definition; 0: not known
    line: int
    #: "" for functions that have none
    file: str
    #: PYTHON, also if it is another interpreter's; NATIVE or LABEL
    kind: str


class Type(NamedTuple):
    """The names of a type of objects; empty: it has none of this kind.
    type_names.py says which of them is shown."""

    #: how the object is laid out, as the GC's own list has it
    layout: str = ""
    #: its class
    python: str = ""
    #: the Python type that it belongs to, whose storage it is
    owner: str = ""
    #: of what only the interpreter knows
    internal: str = ""
    #: the GC's number, an index into its list; -1: none
    number: int = -1


class Rows(Protocol):
    """What becomes of the samples while a profile is read."""

    def begin(self, settings: dict[str, str]) -> None:
        """What was added before doesn't count; `settings` is filled before
        the first sample of ours."""

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int, type_: int = -1, fate: int = UNTOLD,
            collected: int = -1, ended: int = -1) -> None:
        """A sample; the columns of Samples.  Where facts are recorded, it
        comes when they have: not in the order of the file."""

    def carry(self, stack: int, size: int, interval: int, type_: int, fate: int,
              collected: int, ended: int) -> None:
        """An object that was sampled in an earlier part of the profile, which is not
        here, and that was alive when this part began: it counts as alive, and not as
        allocated.  `collected` is -1 if it was old by then."""

    def add_object(self, key: int, type_: int, survived: int) -> None:
        """In older profiles: what became of the object of sample number `key`,
        from 1 on, which may come later, or never."""


class Carried(NamedTuple):
    """An object that was sampled in an earlier part: columns of Samples."""

    stack: int
    size: int
    interval: int
    type: int
    fate: int
    collected: int
    ended: int


@dataclasses.dataclass
class Samples:
    """A table with one row per sample; all columns have the same length.

    Where types or lifetimes are recorded, a sample is one object, and of a
    piece that held several sampled ones each has a row.
    """

    #: nanoseconds since the start; -1 where the log has no times
    time: array.array[int] = dataclasses.field(default_factory=_column)
    #: kernel's number of the thread; 0: not known
    thread: array.array[int] = dataclasses.field(default_factory=_column)
    #: index in Profile.stacks; -1: lost
    stack: array.array[int] = dataclasses.field(default_factory=_column)
    #: bytes; 0: a time sample
    size: array.array[int] = dataclasses.field(default_factory=_column)
    #: mean interval in bytes at that moment; 0: a time sample
    interval: array.array[int] = dataclasses.field(default_factory=_column)
    #: resident memory in KiB; 0: not known
    memory: array.array[int] = dataclasses.field(default_factory=_column)
    #: index in Profile.types; -1: not known
    type: array.array[int] = dataclasses.field(default_factory=_column)
    #: UNTOLD to UNKNOWN
    fate: array.array[int] = dataclasses.field(default_factory=_column)
    #: time of the first minor collection after its birth; -1: not known
    collected: array.array[int] = dataclasses.field(default_factory=_column)
    #: when it was FREED, or LOST; -1: it was not, or not known
    ended: array.array[int] = dataclasses.field(default_factory=_column)

    def __post_init__(self) -> None:
        # of older profiles' objects: key, type, survived
        self._objects = _column()
        # rows that are not in the columns yet
        self._waiting: list[tuple[int, ...]] = []
        #: of earlier parts (Rows.carry()): no rows of this table
        self.carried: list[Carried] = []

    def __len__(self) -> int:
        return len(self.stack) + len(self._waiting)

    def _columns(self) -> list[array.array[int]]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def begin(self, settings: dict[str, str]) -> None:
        self._waiting.clear()
        self.carried.clear()
        for column in self._columns():
            del column[:]

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int, type_: int = -1, fate: int = UNTOLD,
            collected: int = -1, ended: int = -1) -> None:
        waiting = self._waiting
        # in the order of the columns
        waiting.append((time, thread, stack, size, interval, memory,
                        type_, fate, collected, ended))
        # ten times append() takes three times as long
        if len(waiting) == _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        for column, values in zip(self._columns(), zip(*self._waiting)):
            column.extend(values)
        self._waiting.clear()

    def carry(self, stack: int, size: int, interval: int, type_: int, fate: int,
              collected: int, ended: int) -> None:
        self.carried.append(Carried(stack, size, interval, type_, fate, collected,
                                    ended))

    def add_object(self, key: int, type_: int, survived: int) -> None:
        self._objects.extend((key, type_, survived))

    def finish(self, *, own_clock: bool = False) -> None:
        """All rows were added: now they are in the columns.  Fill in what became
        of older profiles' objects; `own_clock`: the times are of a clock that
        starts anywhere."""
        self._settle()
        count = len(self)
        if own_clock and count:
            first = min(self.time)
            for i, time in enumerate(self.time):
                self.time[i] = min(time - first, 2**63 - 1)
        for i in range(0, len(self._objects), 3):
            key, type_, survived = self._objects[i:i + 3]
            # a process may be killed between an object and its sample
            if 1 <= key <= count:
                self.type[key - 1] = type_
                self.fate[key - 1] = LOST if survived else DIED
        del self._objects[:]


class Moment(NamedTuple):
    """What was true of the run at one moment: the head of a block of
    samples."""

    time: int
    allocated: int
    lost: int
    dropped: int
    collections: int
    pressures: int
    surprises: int


class Collection(NamedTuple):
    """A collection of the GC."""

    #: of everything, when marking ended; otherwise a minor one
    is_major: bool
    #: when it began, and how long it took, in nanoseconds
    time: int
    duration: int
    #: minor: bytes allocated before; major: how many there were
    number: int


class Mark(NamedTuple):
    """A moment that the program named."""

    time: int
    name: str


class Figure(NamedTuple):
    """A reading of the whole process."""

    #: RESIDENT to MAJOR_FAULTS
    kind: str
    #: nanoseconds since the start
    time: int
    #: bytes, nanoseconds, or how many
    value: int


class Stacks(Sequence[tuple[Frame, ...]]):
    """Distinct stacks.  Most share their outer frames with others: a stack is
    a node of a tree, and its frames are made when they are asked for."""

    def __init__(self) -> None:
        # of each node; number 0 is the empty stack
        self._parent = array.array("i", [-1])
        self._frame = array.array("i", [-1])
        # open addressing, linear probing; a dict would take six times as much
        self._table = array.array("i", bytes(4 * 2**10))
        #: each one once
        self.frames: list[Frame] = []
        self._frame_numbers: dict[tuple[int, str, int], int] = {}
        # of each stack
        self._nodes = array.array("i")
        #: node * 2 + whether it filled its record: stack
        self._numbers: dict[int, int] = {}
        #: how often each stack was sampled that filled its record: outer
        #: frames may be missing
        self.full: dict[int, int] = {}
        #: of each stack, which set of labels its samples have; 0: none
        self.labels = array.array("i")
        self._labelled: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> tuple[Frame, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Frame, ...]]: ...

    def __getitem__(self, index: int | slice) -> (
            tuple[Frame, ...] | list[tuple[Frame, ...]]):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        node = self._nodes[index]
        frames = []
        while node:
            frames.append(self.frames[self._frame[node]])
            node = self._parent[node]
        frames.reverse()
        return tuple(frames)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def number(self, node: int, is_full: bool) -> int:
        """The number of the stack that ends with `node`; `is_full`: there was
        no room for more frames."""
        key = node << 1 | is_full
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            self._nodes.append(node)
            self.labels.append(0)
            if is_full:
                self.full[number] = 0
        return number

    def labelled(self, stack: int, labels: int) -> int:
        """The same stack, as another one: its samples have labels."""
        number = self._labelled.get((stack, labels))
        if number is None:
            number = self._labelled[stack, labels] = len(self._nodes)
            self._nodes.append(self._nodes[stack])
            self.labels.append(labels)
            if stack in self.full:
                self.full[number] = 0
        return number

    def child(self, node: int, address: int, kind: str, line: int = 0) -> int:
        """The node of one frame more, inside of `node`'s."""
        key = address, kind, line
        number = self._frame_numbers.get(key)
        if number is None:
            number = self._frame_numbers[key] = len(self.frames)
            self.frames.append(Frame(address, kind, line))
        place = self._place(node, number)
        child = self._table[place]
        if not child:
            child = self._table[place] = len(self._parent)
            self._parent.append(node)
            self._frame.append(number)
            if 3 * child > 2 * len(self._table):
                self._grow()
        return child

    def _place(self, node: int, frame: int) -> int:
        """Where in the table this child of `node` is, or has to be."""
        table, parents, frames = self._table, self._parent, self._frame
        mask = len(table) - 1
        place = node * 0x9e3779b1 + frame * 0x85ebca77
        place = (place ^ place >> 15) & mask
        while child := table[place]:
            if parents[child] == node and frames[child] == frame:
                break
            place = place + 1 & mask
        return place

    def _grow(self) -> None:
        self._table = array.array("i", bytes(8 * len(self._table)))
        for child in range(1, len(self._parent)):
            place = self._place(self._parent[child], self._frame[child])
            self._table[place] = child

    def last(self, node: int) -> tuple[int, Frame]:
        """The frame that `node`, not 0, ends with, and the node without it."""
        return self._parent[node], self.frames[self._frame[node]]

    def cut(self) -> dict[int, int]:
        """The stacks that have lost their outermost frames, and how often each
        was sampled.

        A stack that fills its record may just fit.  Then it begins where
        others do that had room left, with a function that nobody calls.
        """
        if not self.full:
            return {}
        called, entries = set(), set()
        for node in range(1, len(self._parent)):
            if self._parent[node]:
                called.add(self.frames[self._frame[node]].address)
        for stack, node in enumerate(self._nodes):
            if node and stack not in self.full:
                entries.add(self._entry(node))
        entries -= called
        return {stack: count for stack, count in self.full.items()
                if self._entry(self._nodes[stack]) not in entries}

    def _entry(self, node: int) -> int | None:
        """The address of the outermost function."""
        outermost = node
        while node:
            node, outermost = self._parent[node], node
        return self.frames[self._frame[outermost]].address if outermost else None


class Process(NamedTuple):
    """One of the processes that a profile is of."""

    #: its own profile as it was read, but without the samples
    profile: Profile
    #: the file's name
    source: str
    #: nanoseconds after the start of the whole
    begin: int
    #: its threads' numbers in the whole, and the kernel's: two processes' may be
    #: the same, one after the other
    threads: dict[int, int]



@dataclasses.dataclass
class Profile:
    interpreter: str
    #: seconds between two time samples
    period: float
    #: seconds since 1970; 0.0: not known
    start_time: float
    #: 0.0: not known; None: the log has no end (the process was killed, or
    #: still runs)
    end_time: float | None
    meta: dict[str, str]
    #: settings of the allocation sampling; empty: there was none
    settings: dict[str, str]
    #: what the profile holds beside, which the reader didn't know: kinds, and
    #: how many blocks of each were passed over
    unknown: dict[str, int]
    #: of the frames, by their addresses
    functions: dict[int, Function]
    #: distinct stacks, outermost frame first
    stacks: Sequence[tuple[Frame, ...]]
    #: empty if they went elsewhere: see read_into()
    samples: Samples
    moments: list[Moment]
    #: of the objects
    types: list[Type]
    #: by time
    collections: list[Collection]
    marks: list[Mark]
    #: by time
    figures: list[Figure]
    #: facts that fit no sample
    misfits: int
    #: samples without a stack
    lost_stacks: int
    #: stacks that filled vmprof's record, outer frames are missing; and how often
    #: each was sampled
    cut_off: dict[int, int]
    #: bytes at the end that make no whole record (only with salvage=True)
    torn: int = 0
    #: what the program called its threads, by the kernel's numbers, as far as it
    #: is known
    threads: dict[int, str] = dataclasses.field(default_factory=dict)
    #: the script and its arguments; empty: not known
    command: str = ""
    #: if there are several, which: the first one began the run (processes.py)
    processes: list[Process] = dataclasses.field(default_factory=list)
    #: sets of what the program said of its work (vmprof_allocation.labels), the
    #: first of them empty; and of each stack the index of its own, if there are some:
    #: stacks of the same frames may differ in this alone
    labels: list[dict[str, str]] = dataclasses.field(default_factory=lambda: [{}])
    stack_labels: Sequence[int] = ()

    def labels_of(self, stack: int) -> dict[str, str]:
        """Those of its samples."""
        if stack < 0 or len(self.labels) < 2:
            return self.labels[0]
        return self.labels[self.stack_labels[stack]]

    @property
    def label_keys(self) -> list[str]:
        return sorted({key for labels in self.labels for key in labels})

    @property
    def cut_stacks(self) -> int:
        """Samples of stacks that are cut off."""
        return sum(self.cut_off.values())

    @property
    def interval(self) -> int:
        """Mean bytes between two samples when sampling started; 0: not
        known."""
        return self._setting("interval")

    def _setting(self, name: str) -> int:
        """A number; 0: not known."""
        text = self.settings.get(name, "")
        # of a damaged profile it may be anything
        return int(text) if re.fullmatch("[0-9]{1,19}", text, re.ASCII) else 0

    @property
    def pid(self) -> int:
        """The kernel's number of the process; 0: not known."""
        return self._setting("pid")

    @property
    def parent(self) -> int:
        """Of the process that began this one, if that is of the run; or 0."""
        return self._setting("parent")

    @property
    def run(self) -> str:
        """The same in all profiles of a run; empty: not known."""
        return self.settings.get("run", "")

    @property
    def engine(self) -> str:
        """How the sampler got at the allocations: "hook" or "builtin"; empty:
        not known."""
        return self.settings.get("engine", "")

    @property
    def gaps(self) -> str:
        return self.settings.get("gaps", "exponential")

    @property
    def has_types(self) -> bool:
        """Whether the types of all sampled objects are recorded."""
        return "types" in _words(self.settings.get("facts", ""))

    @property
    def has_lifetimes(self) -> bool:
        """Whether it is recorded what became of them."""
        return "lifetimes" in _words(self.settings.get("facts", ""))

    @property
    def end(self) -> int:
        """Nanoseconds from the start to the last of what is known; 0: there
        are no times."""
        return self.moments[-1].time if self.moments else 0

    @property
    def children(self) -> int:
        """Processes that the program forked, and that were not sampled."""
        return self._setting("children")

    @property
    def passed_over(self) -> str:
        """What of `unknown` there is, for people."""
        kinds = ["%s (%d)" % pair for pair in sorted(self.unknown.items())]
        if len(kinds) > MAX_KINDS:
            kinds[MAX_KINDS:] = ["%d kinds more" % (len(kinds) - MAX_KINDS)]
        return ", ".join(kinds)

    @property
    def ended(self) -> str:
        """Why the profile ends before the program did; empty: it does not."""
        return "".join(c if c.isprintable() else "?"
                       for c in self.settings.get("ended", ""))

    def function(self, address: int) -> Function:
        return self.functions[address]
