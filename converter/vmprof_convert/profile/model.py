"""What a profile is, whoever wrote it: functions, stacks, samples.

Readers fill it, writers get it; it knows neither.
"""
from __future__ import annotations

import array
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Union

from vmprof_convert.profile.columns import by_key, gathered, is_one, those
from vmprof_convert.profile.held import Held
from vmprof_convert.profile.stacks import StackTable

#: of unknown kinds, so many are named
MAX_KINDS = 10
#: what is read of the whole process: resident memory, what of it is no other
#: process's, processor time, page faults without and with reading
RESIDENT, PRIVATE, PROCESSOR = "resident", "private", "processor"
MINOR_FAULTS, MAJOR_FAULTS = "minor-faults", "major-faults"
#: and of the GC's heap: what is in use, what the GC has of the system, and its nursery,
#: which is part of both
HEAP, HEAP_HAS, NURSERY = "heap", "heap-has", "nursery"
#: and of malloc: bytes in use, beside those that the GC has
RAW_IN_USE = "raw-in-use"
#: bytes that the program had allocated, at each mark
ALLOCATED = "allocated"
#: moments at which raw memory is looked at
_LOOKS = 40
#: what a function can be
PYTHON, NATIVE = "python", "native"
#: it is none, but stands for something, such as what is not shown
LABEL = "label"

#: What became of an object.  The profile doesn't say; it was in the nursery
#: when the profile ended; it died before its first minor collection.
UNTOLD, PENDING, DIED = -1, 0, 1
#: It became old, and a major collection found it dead; or none did.
FREED, ALIVE = 2, 3
#: Nobody followed it: it became old, and then was lost; or the objects of its piece
#: could not be told apart.
LOST, UNKNOWN = 4, 5


def _words(text: str) -> list[str]:
    return text.split(",")


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


class Row(NamedTuple):
    """One sample: a row of Samples, which says what its columns are."""

    time: int
    thread: int
    stack: int
    size: int
    interval: int
    memory: int
    type: int = -1
    fate: int = UNTOLD
    collected: int = -1
    ended: int = -1
    live_size: int = 0


class Columns:
    """Rows of Samples, as columns of one length in the order of Row.  A column that
    came as a function is made when it is first asked for: most reports look at half of
    them, and making one takes as long as adding it up."""

    time: Sequence[int]
    thread: Sequence[int]
    stack: Sequence[int]
    size: Sequence[int]
    interval: Sequence[int]
    memory: Sequence[int]
    type: Sequence[int]
    fate: Sequence[int]
    collected: Sequence[int]
    ended: Sequence[int]
    live_size: Sequence[int]

    def __init__(self, *columns: Column) -> None:
        self._makers: dict[str, Callable[[], Sequence[int]]] = {}
        for name, column in zip(Row._fields, columns):
            if callable(column):
                self._makers[name] = column
            else:
                setattr(self, name, column)

    def __getattr__(self, name: str) -> Sequence[int]:
        # (of those that are there, Python doesn't ask)
        if name not in self._makers:
            raise AttributeError(name)
        column = self._makers.pop(name)()
        setattr(self, name, column)
        return column

    def __iter__(self) -> Iterator[Sequence[int]]:
        return (getattr(self, name) for name in Row._fields)

    @classmethod
    def of_ticks(cls, time: array.array[int], thread: Sequence[int],
                 stack: array.array[int], memory: Sequence[int]) -> Columns:
        """Rows of time samples."""
        def same(typecode: str, number: int) -> array.array[int]:
            return array.array(typecode, [number]) * len(stack)

        # (no array twice: see Samples.extend())
        return cls(time, thread, stack, same("q", 0), same("q", 0), memory,
                   same("i", -1), same("b", -1), same("q", -1), same("q", -1),
                   same("q", 0))

    def replaced(self, **columns: Sequence[int]) -> Columns:
        """The same rows, with other columns of these names."""
        return Columns(*[
            columns[name] if name in columns else functools.partial(getattr, self, name)
            for name in Row._fields])

    def chosen(self, which: Sequence[int]) -> Columns:
        """Those of which it is true."""
        number = len(which) - which.count(0)
        if number in (0, len(which)):
            return self if number else Columns(*[()] * len(Row._fields))
        return Columns(*[
            functools.partial(self._chosen, name, which, number)
            for name in Row._fields])

    def _chosen(self, name: str, which: Sequence[int], number: int) -> Sequence[int]:
        column: Sequence[int] = getattr(self, name)
        if isinstance(column, array.array) and is_one(column):
            return column[:1] * number
        return list(those(column, which))


#: as Columns takes it
Column = Union[Sequence[int], Callable[[], Sequence[int]]]


class Carried(NamedTuple):
    """An object that was sampled in an earlier part, and that was alive when this
    part began: columns of Samples.  It counts as alive, and not as allocated."""

    stack: int
    size: int
    interval: int
    type: int
    fate: int
    #: -1: it was old when this part began
    collected: int
    ended: int
    live_size: int = 0


class Rows(Protocol):
    """What becomes of the samples while a profile is read."""

    def begin(self, settings: dict[str, str]) -> None:
        """What was added before doesn't count; `settings` is filled before
        the first sample of ours."""

    def extend(self, rows: Columns) -> None:
        """Some samples.  Where facts are recorded, they come when these have: not
        in the order of the file."""

    def carry(self, object_: Carried) -> None:
        """The sample is in an earlier part of the profile, which is not read."""


class Samples:
    """A table with one row per sample; all columns have the same length.

    Where types or lifetimes are recorded, a sample is one object, and of a
    piece that held several sampled ones each has a row.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        #: nanoseconds since the start; -1 where the log has no times
        self.time = array.array("q")
        #: kernel's number of the thread; 0: not known
        self.thread = array.array("q")
        #: index in Profile.stacks; -1: lost
        self.stack = array.array("i")
        #: bytes; 0: a time sample
        self.size = array.array("q")
        #: mean interval in bytes at that moment; 0: a time sample
        self.interval = array.array("q")
        #: resident memory in KiB; 0: not known
        self.memory = array.array("q")
        #: index in Profile.types; -1: not known
        self.type = array.array("i")
        #: UNTOLD to UNKNOWN
        self.fate = array.array("b")
        #: time of the first minor collection after its birth; -1: not known
        self.collected = array.array("q")
        #: when it was FREED, or LOST; -1: it was not, or not known
        self.ended = array.array("q")
        #: bytes that the object takes while it is alive, if the program has shrunk it
        #: since it was allocated (its probability is still that of `size`); 0: it has
        #: not
        self.live_size = array.array("q")
        #: of earlier parts (Rows.carry()): no rows of this table
        self.carried: list[Carried] = []

    def __len__(self) -> int:
        return len(self.stack)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Samples) and (
            self.carried == other.carried and self.columns() == other.columns())

    __hash__ = None  # type: ignore[assignment]

    @property
    def ticks(self) -> int:
        """How many are time samples: a pass over all of them."""
        return self.size.count(0)

    def columns(self) -> list[array.array[int]]:
        """As in Columns."""
        return [getattr(self, name) for name in Row._fields]

    def begin(self, settings: dict[str, str]) -> None:
        self._clear()

    def extend(self, rows: Columns) -> None:
        """Behind those that are there.  What is an array may become a column, and is
        nobody else's then."""
        new: list[Any] = list(rows)
        is_first = not len(self) and all(
            isinstance(column, array.array) for column in rows)
        for name in Row._fields:
            # one at a time: what was copied needs no memory any more
            column = new.pop(0)
            if is_first:
                setattr(self, name, column)
            else:
                getattr(self, name).extend(column)

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int, type_: int = -1, fate: int = UNTOLD,
            collected: int = -1, ended: int = -1, live_size: int = 0) -> None:
        self.add_row((time, thread, stack, size, interval, memory,
                      type_, fate, collected, ended, live_size))

    def add_row(self, row: tuple[int, ...]) -> None:
        """As in Row."""
        for column, number in zip(self.columns(), row):
            column.append(number)

    def carry(self, object_: Carried) -> None:
        self.carried.append(object_)

    def finish(self, *, own_clock: bool = False) -> None:
        """All rows were added.  `own_clock`: their times are of a clock that starts
        anywhere; now they start at 0."""
        if own_clock and self.time:
            first = min(self.time)
            self.time = array.array("q", [min(time - first, 2**63 - 1)
                                          for time in self.time])

    def change(self, new: Callable[[array.array[int]], array.array[int]]) -> None:
        """Each column becomes what `new` makes of it."""
        for name in Row._fields:
            setattr(self, name, new(getattr(self, name)))

    def mapped(self, new: Callable[[array.array[int]], array.array[int]]) -> Samples:
        """Another table with these columns, and no `carried`."""
        result = Samples()
        for name in Row._fields:
            setattr(result, name, new(getattr(self, name)))
        return result

    def sort(self) -> None:
        """By time; those of one time stay as they are."""
        rows = by_key(self.time)
        if not isinstance(rows, range):
            self.change(lambda column: column if is_one(column)
                        else gathered(column, rows))


class Thinned(NamedTuple):
    """Of a table with a limit (thin.py), allocation samples: how many stayed, of how
    many that there were."""

    stayed: int
    came: int


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
    #: major: for how long it had been marking, as far as that is known, in nanoseconds.
    #: What became old meanwhile counted as alive, whether it was or not
    marking: int = 0


class Snapshot(NamedTuple):
    """A heap snapshot.

    A forked process found out which objects the program could reach.  Sampled objects
    that it could not reach ended at this time (model.Samples.ended).
    """

    #: nanoseconds since the start
    time: int
    #: number and bytes of all objects that the program could reach
    objects: int
    bytes: int
    #: nanoseconds for which the program stopped; processor time of the process
    pause: int
    processor_time: int
    #: bytes that the process needed
    memory: int
    #: number of sampled objects that were examined
    examined: int
    #: bytes that the program had allocated
    allocated: int


class Swept(NamedTuple):
    """What the GC counted when a major collection had swept, and what was estimated of
    the same objects: bytes."""

    #: nanoseconds since the start
    time: int
    #: of all old objects; and what they were when all that had been young as the
    #: sampling began had met its first minor collection, -1: not known
    heap: int
    heap_at_begin: int
    #: of the sampled objects that are alive
    alive: int
    #: estimated, of the objects of which it is not known what became of them
    not_known: int
    #: of the samples until then: the longest
    interval: int


class Mark(NamedTuple):
    """A moment that the program named."""

    time: int
    name: str


class Figure(NamedTuple):
    """A reading of the whole process."""

    #: one of RESIDENT to ALLOCATED
    kind: str
    #: nanoseconds since the start
    time: int
    #: bytes, nanoseconds, or how many
    value: int


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
    #: still runs: is_written)
    end_time: float | None
    meta: dict[str, str]
    #: settings of the allocation sampling; empty: there was none
    settings: dict[str, str]
    #: what the profile holds beside, which the reader didn't know: kinds, and
    #: how many records of each were passed over
    unknown: dict[str, int]
    #: of the frames, by their addresses
    functions: dict[int, Function]
    stacks: StackTable
    #: empty if they went elsewhere: see read_into()
    samples: Samples
    moments: list[Moment]
    #: of the objects
    types: list[Type]
    #: by time; of raw memory none
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
    #: if there are several, which: the first one began the run (merging.py)
    processes: list[Process] = dataclasses.field(default_factory=list)
    #: sets of what the program said of its work (vmprof_allocation.labels), the
    #: first of them empty; and of each stack the index of its own, if there are some:
    #: stacks of the same frames may differ in this alone
    labels: list[dict[str, str]] = dataclasses.field(default_factory=lambda: [{}])
    stack_labels: Sequence[int] = ()
    #: it has no end, as its process goes on writing it: readers/still_written.py
    is_written: bool = False
    #: functions of the interpreter's own that have no names, and are in no stack:
    #: readers/nameless.py
    nameless: int = 0
    #: by time
    swept: list[Swept] = dataclasses.field(default_factory=list)
    #: by time; of several processes none
    snapshots: list[Snapshot] = dataclasses.field(default_factory=list)
    #: of native memory alone, by time: for each major collection, the ends of marking
    #: and of sweeping.  Then finalizers free the memory of unmarked objects
    frees: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    #: None: all samples were read
    thinned: Thinned | None = None
    #: who held what, each time that somebody asked
    held: list[Held] = dataclasses.field(default_factory=list)
    #: what of raw memory was sampled beside this, if it was read for who shows both
    raw: Profile | None = None

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
    def is_raw(self) -> bool:
        """Whether the samples are those of raw memory: what C code had of malloc, and
        not the objects of the GC's heap."""
        return self.settings.get("samples") == "raw"

    @property
    def looks(self) -> list[int]:
        """Return the times at which the live objects are known, in order.

        These are the heap snapshots and the ends of marking of the major collections.
        The live blocks of native memory are always known: then the times are the marks
        and _LOOKS equidistant times.
        """
        if not self.is_raw:
            return sorted([*(one.time for one in self.collections if one.is_major),
                           *(one.time for one in self.snapshots)])
        return sorted({*(self.end * number // _LOOKS
                         for number in range(1, _LOOKS + 1)),
                       *(mark.time for mark in self.marks)})

    @property
    def raw_interval(self) -> int:
        """Mean bytes between two samples of raw memory, which this is beside; 0: there
        are none."""
        return self._setting("raw")

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
    def last_held(self) -> Held | None:
        """The last answer; if there is none, the last question, which says why; None:
        nobody asked."""
        answers = [held for held in self.held if not held.problem] or self.held
        return answers[-1] if answers else None

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
    def missing(self) -> int:
        """Allocation samples that could not be written: of a PyPy without the
        recorder."""
        return self._setting("missing")

    @property
    def children(self) -> int:
        """Processes that the program forked, and that were not sampled."""
        return self._setting("children")

    @property
    def bookkeeping(self) -> int:
        """Bytes that the sampler took at most, in the program's process, to know what
        becomes of the objects; 0: not known."""
        return self._setting("bookkeeping")

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
