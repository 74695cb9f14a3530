"""The model of a profile: functions, stacks, types, samples and events.

The readers fill a Profile. The analysis, the reports and the writers read the Profile.
PROFILE.rst defines the units and meanings of the numbers.
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

#: largest number of unknown kinds of records that Profile.passed_over names
MAX_KINDS = 10
#: Kinds of metrics (Figure.kind). Linux counts these: the resident memory, its private
#: part (USS), the processor time, and the minor and major page faults.
RESIDENT, PRIVATE, PROCESSOR = "resident", "private", "processor"
MINOR_FAULTS, MAJOR_FAULTS = "minor-faults", "major-faults"
#: Metrics of the GC: the bytes in use, the bytes that the GC has from the system, and
#: the size of the nursery. Both other metrics include the nursery.
HEAP, HEAP_HAS, NURSERY = "heap", "heap-has", "nursery"
#: metric of malloc: bytes in use, without the memory of the GC
RAW_IN_USE = "raw-in-use"
#: metric that is read at each mark: bytes that the program had allocated so far
ALLOCATED = "allocated"
#: number of equidistant times that Profile.looks contains for native memory
_LOOKS = 40
#: kinds of functions
PYTHON, NATIVE = "python", "native"
#: kind of a function that is only a label, for example for code that a report omits
LABEL = "label"

#: Outcomes of an object (Samples.fate):
#: - UNTOLD: The profile does not record outcomes.
#: - PENDING: The object was in the nursery when the profile ended.
#: - DIED: The object was short-lived. It died before its first minor collection.
UNTOLD, PENDING, DIED = -1, 0, 1
#: More outcomes of an object:
#: - FREED: The object became old. A major collection or a heap snapshot found it dead.
#: - ALIVE: The object became old, and was not found dead.
FREED, ALIVE = 2, 3
#: Unknown outcomes of an object:
#: - LOST: The object became old, and the sampler stopped following it.
#: - UNKNOWN: The outcome is unknown, for example because the sampler could not identify
#:   the object in its batched allocation.
LOST, UNKNOWN = 4, 5


def _words(text: str) -> list[str]:
    return text.split(",")


class Function(NamedTuple):
    """A Python function, a native function, or a label in place of functions."""

    name: str
    #: line of the definition, 0 if unknown
    line: int
    #: path of the source file, "" if the function has none
    file: str
    #: PYTHON for functions of any interpreted language, NATIVE or LABEL
    kind: str


class Type(NamedTuple):
    """The recorded names of a type of objects; a missing name is empty.

    meaning/type_names.py chooses the name that a report shows.
    """

    #: name of the object's layout in the list of the GC's types
    layout: str = ""
    #: name of the object's Python class
    python: str = ""
    #: name of the Python type whose instances have this object as their storage
    owner: str = ""
    #: name of a type that only the interpreter knows
    internal: str = ""
    #: index in the list of the GC's types, -1 if unknown
    number: int = -1


class Row(NamedTuple):
    """One sample, a row of Samples, which documents the columns."""

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
    """Some rows of Samples as columns of equal length, in the order of Row.

    A column may be given as a function, which is called at the first access. Most
    reports need half of the columns, and creating a column takes as long as adding it
    up.
    """

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
        """Set the columns, which are sequences or functions, in the order of Row."""
        self._makers: dict[str, Callable[[], Sequence[int]]] = {}
        for name, column in zip(Row._fields, columns):
            if callable(column):
                self._makers[name] = column
            else:
                setattr(self, name, column)

    def __getattr__(self, name: str) -> Sequence[int]:
        """Create and return a column that was given as a function."""
        # Python calls this method only for missing attributes
        if name not in self._makers:
            raise AttributeError(name)
        column = self._makers.pop(name)()
        setattr(self, name, column)
        return column

    def __iter__(self) -> Iterator[Sequence[int]]:
        """Iterate over the columns in the order of Row."""
        return (getattr(self, name) for name in Row._fields)

    @classmethod
    def of_ticks(cls, time: array.array[int], thread: Sequence[int],
                 stack: array.array[int], memory: Sequence[int]) -> Columns:
        """Return rows of CPU samples, which have no size, type or outcome."""
        def same(typecode: str, number: int) -> array.array[int]:
            return array.array(typecode, [number]) * len(stack)

        # each column is a new array, because Samples.extend() may take it over
        return cls(time, thread, stack, same("q", 0), same("q", 0), memory,
                   same("i", -1), same("b", -1), same("q", -1), same("q", -1),
                   same("q", 0))

    def replaced(self, **columns: Sequence[int]) -> Columns:
        """Return the same rows with some columns replaced, by name."""
        return Columns(*[
            columns[name] if name in columns else functools.partial(getattr, self, name)
            for name in Row._fields])

    def chosen(self, which: Sequence[int]) -> Columns:
        """Return the rows whose flag in `which` is true."""
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


#: a column as an argument of Columns: a sequence, or a function that returns it
Column = Union[Sequence[int], Callable[[], Sequence[int]]]


class Carried(NamedTuple):
    """An object from an earlier segment that was alive when this segment began.

    The fields are columns of Samples. The object counts as alive and not as allocated.
    """

    stack: int
    size: int
    interval: int
    type: int
    fate: int
    #: -1 if the object was already old when this segment began
    collected: int
    ended: int
    live_size: int = 0


class Rows(Protocol):
    """The interface of a receiver, which gets the samples while a profile is read."""

    def begin(self, settings: dict[str, str]) -> None:
        """Begin the samples and drop all rows that were added before.

        Args:
            settings: The settings of the profile. The reader fills the dict before it
                adds the first allocation sample.
        """

    def extend(self, rows: Columns) -> None:
        """Add some samples, in any order.

        If the profile records types or outcomes, an object is added when its type and
        outcome are known, so not in the order of the file.
        """

    def carry(self, object_: Carried) -> None:
        """Add an inherited object, whose sample is in a segment that is not read."""


class Samples:
    """A table of samples with one row per sample, in columns of equal length.

    If the profile records types or outcomes, each sampled object has a row. So several
    objects of one batched allocation of the JIT can have rows.
    """

    def __init__(self) -> None:
        """Create an empty table."""
        self._clear()

    def _clear(self) -> None:
        #: time of the sample in nanoseconds since the start, -1 if the log has no times
        self.time = array.array("q")
        #: kernel's number of the thread, 0 if unknown
        self.thread = array.array("q")
        #: index in Profile.stacks, -1 if the stack got lost
        self.stack = array.array("i")
        #: allocated size in bytes, 0 for a CPU sample
        self.size = array.array("q")
        #: mean gap between sample points in bytes when the sample was taken, 0 for a
        #: CPU sample
        self.interval = array.array("q")
        #: resident memory in KiB, 0 if unknown
        self.memory = array.array("q")
        #: index in Profile.types, -1 if unknown
        self.type = array.array("i")
        #: outcome: one of UNTOLD to UNKNOWN
        self.fate = array.array("b")
        #: End of the first minor collection after the allocation, in nanoseconds since
        #: the start; -1 if unknown. For native memory, the time of the allocation.
        self.collected = array.array("q")
        #: time at which the object was found to be FREED or LOST, in nanoseconds since
        #: the start; -1 for other outcomes
        self.ended = array.array("q")
        #: Size in bytes while the object is alive, if the program has shrunk the
        #: object, otherwise 0. The probability of the sample still depends on `size`.
        self.live_size = array.array("q")
        #: inherited objects, which are not rows of this table
        self.carried: list[Carried] = []

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.stack)

    def __eq__(self, other: object) -> bool:
        """Return whether another table has the same rows and inherited objects."""
        return isinstance(other, Samples) and (
            self.carried == other.carried and self.columns() == other.columns())

    __hash__ = None  # type: ignore[assignment]

    @property
    def ticks(self) -> int:
        """The number of CPU samples; each access counts all rows."""
        return self.size.count(0)

    def columns(self) -> list[array.array[int]]:
        """Return the columns in the order of Row."""
        return [getattr(self, name) for name in Row._fields]

    def begin(self, settings: dict[str, str]) -> None:
        """Remove all rows (Rows.begin())."""
        self._clear()

    def extend(self, rows: Columns) -> None:
        """Append rows (Rows.extend()).

        The table may keep an array of `rows` as its column and change it later. So the
        caller must not use the arrays again.
        """
        new: list[Any] = list(rows)
        is_first = not len(self) and all(
            isinstance(column, array.array) for column in rows)
        for name in Row._fields:
            # pop one column at a time, so that its memory is free after the copy
            column = new.pop(0)
            if is_first:
                setattr(self, name, column)
            else:
                getattr(self, name).extend(column)

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int, type_: int = -1, fate: int = UNTOLD,
            collected: int = -1, ended: int = -1, live_size: int = 0) -> None:
        """Append a row, given as its columns."""
        self.add_row((time, thread, stack, size, interval, memory,
                      type_, fate, collected, ended, live_size))

    def add_row(self, row: tuple[int, ...]) -> None:
        """Append a row, given in the order of Row."""
        for column, number in zip(self.columns(), row):
            column.append(number)

    def carry(self, object_: Carried) -> None:
        """Add an inherited object (Rows.carry())."""
        self.carried.append(object_)

    def finish(self, *, own_clock: bool = False) -> None:
        """Finish the table after all rows were added.

        Args:
            own_clock: Whether the clock of the times has an arbitrary start. In that
                case, the first time becomes 0.
        """
        if own_clock and self.time:
            first = min(self.time)
            self.time = array.array("q", [min(time - first, 2**63 - 1)
                                          for time in self.time])

    def change(self, new: Callable[[array.array[int]], array.array[int]]) -> None:
        """Replace each column by the result of `new`."""
        for name in Row._fields:
            setattr(self, name, new(getattr(self, name)))

    def mapped(self, new: Callable[[array.array[int]], array.array[int]]) -> Samples:
        """Return a table whose columns are the results of `new` for these columns.

        The table has no inherited objects.
        """
        result = Samples()
        for name in Row._fields:
            setattr(result, name, new(getattr(self, name)))
        return result

    def sort(self) -> None:
        """Sort the rows by time; rows with equal times keep their order."""
        rows = by_key(self.time)
        if not isinstance(rows, range):
            self.change(lambda column: column if is_one(column)
                        else gathered(column, rows))


class Thinned(NamedTuple):
    """The numbers of allocation samples before and after downsampling (thin.py)."""

    #: number of samples that remain
    stayed: int
    #: number of samples before downsampling
    came: int


class Moment(NamedTuple):
    """Totals of the run at one time, from a record *totals* (PROFILE.rst)."""

    #: nanoseconds since the start
    time: int
    #: bytes that the program had allocated
    allocated: int
    #: number of allocation samples whose stack got lost
    lost: int
    #: number of CPU samples that were dropped because another sample was being recorded
    dropped: int
    #: number of minor collections
    collections: int
    #: number of times that memory pressure was reported to the GC, which hides some
    #: bytes from `allocated` each time
    pressures: int
    #: number of changes of the GC's state that the engine did not observe
    surprises: int


class Collection(NamedTuple):
    """A minor collection, or the end of marking of a major collection."""

    #: whether this is a major collection
    is_major: bool
    #: start of a minor collection or end of marking, in nanoseconds since the start
    time: int
    #: duration of a minor collection in nanoseconds, 0 for a major collection
    duration: int
    #: bytes allocated before a minor collection, or number of major collections so far
    number: int
    #: Duration of a major collection's marking in nanoseconds, 0 if unknown. Objects
    #: that became old during the marking count as alive, even if they were garbage.
    marking: int = 0


class Snapshot(NamedTuple):
    """A heap snapshot.

    A forked process found the objects that the program could reach. The other sampled
    objects were found dead at this time (Samples.ended).
    """

    #: nanoseconds since the start
    time: int
    #: number and bytes of all objects that the program could reach
    objects: int
    bytes: int
    #: pause of the program, and processor time of the forked process, in nanoseconds
    pause: int
    processor_time: int
    #: bytes that the forked process needed
    memory: int
    #: number of sampled objects that were examined
    examined: int
    #: bytes that the program had allocated since the start
    allocated: int


class Swept(NamedTuple):
    """The GC's count of old objects after a major collection, and the estimated count.

    analysis/heap_check.py compares both. All values except `time` are in bytes.
    """

    #: nanoseconds since the start
    time: int
    #: size of all old objects
    heap: int
    #: Size of all old objects at the start of sampling, -1 if unknown. The GC counted
    #: them when all objects that were young at the start had met a minor collection.
    heap_at_begin: int
    #: estimated size of the old objects that were not found dead, from the samples
    alive: int
    #: estimated size of the objects with an unknown outcome
    not_known: int
    #: largest mean gap of a sample so far
    interval: int


class Mark(NamedTuple):
    """A time that the program named."""

    #: nanoseconds since the start
    time: int
    name: str


class Figure(NamedTuple):
    """A reading of a metric of the whole process."""

    #: one of RESIDENT to ALLOCATED
    kind: str
    #: nanoseconds since the start
    time: int
    #: bytes, nanoseconds, or a number of page faults
    value: int


class Process(NamedTuple):
    """One of the processes of a merged profile."""

    #: profile of the process as a reader returned it, without the samples
    profile: Profile
    #: name of the profile's file
    source: str
    #: nanoseconds from the start of the merged profile to the start of this process
    begin: int
    #: Kernel's number of each thread, by the number of the thread in the merged
    #: profile. The kernel can give the same number to threads of two successive
    #: processes.
    threads: dict[int, int]


@dataclasses.dataclass
class Profile:
    """A profile of a process, or of several processes after a merge."""

    #: name of the interpreter in the log header
    interpreter: str
    #: seconds between two CPU samples
    period: float
    #: start of the profile in seconds since 1970, 0.0 if unknown
    start_time: float
    #: End of the profile in seconds since 1970, 0.0 if unknown. None if the log has no
    #: trailer, because the process was killed or still runs (is_written).
    end_time: float | None
    #: meta data of vmprof's log
    meta: dict[str, str]
    #: settings of the allocation sampling, empty without allocation sampling
    settings: dict[str, str]
    #: number of skipped records, names or metrics, by their kind, which is unknown to
    #: the reader
    unknown: dict[str, int]
    #: functions of the frames, by the addresses of the frames
    functions: dict[int, Function]
    stacks: StackTable
    #: the samples; empty if the reader gave them to another receiver
    #: (readers.read_into())
    samples: Samples
    #: totals in the order of the profile; the last totals count the whole run
    moments: list[Moment]
    #: types of the sampled objects
    types: list[Type]
    #: collections by time; empty for native memory
    collections: list[Collection]
    #: marks by time
    marks: list[Mark]
    #: readings of metrics by time
    figures: list[Figure]
    #: number of object events that match no sample
    misfits: int
    #: number of samples whose stack got lost
    lost_stacks: int
    #: Number of samples, by the index of a stack that filled vmprof's record. Outer
    #: frames of these stacks are missing.
    cut_off: dict[int, int]
    #: number of bytes at the end that do not form a whole record (only with
    #: salvage=True)
    torn: int = 0
    #: known names that the program gave to its threads, by the kernel's numbers
    threads: dict[int, str] = dataclasses.field(default_factory=dict)
    #: the script and its arguments, empty if unknown
    command: str = ""
    #: processes of a merged profile (merging.py), the first process of the run first;
    #: empty in the profile of a single process
    processes: list[Process] = dataclasses.field(default_factory=list)
    #: Sets of labels that the program gave to its work (vmprof_allocation.labels). The
    #: first set is empty.
    labels: list[dict[str, str]] = dataclasses.field(default_factory=lambda: [{}])
    #: Index of the set of labels for each stack, empty without labels. Stacks with the
    #: same frames may differ only in their labels.
    stack_labels: Sequence[int] = ()
    #: whether the process is still writing the profile (readers/still_written.py)
    is_written: bool = False
    #: number of the interpreter's native functions without names, which were removed
    #: from the stacks (readers/nameless.py)
    nameless: int = 0
    #: counts of the GC after major collections, by time
    swept: list[Swept] = dataclasses.field(default_factory=list)
    #: heap snapshots by time; empty in a merged profile
    snapshots: list[Snapshot] = dataclasses.field(default_factory=list)
    #: For native memory only, by time: the ends of marking and of sweeping of each
    #: major collection. After sweeping, finalizers free memory of unmarked objects.
    frees: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    #: result of downsampling, None if all samples are present
    thinned: Thinned | None = None
    #: retainers from each heap snapshot that recorded them
    held: list[Held] = dataclasses.field(default_factory=list)
    #: profile of native memory of the same process, if the caller reads both
    raw: Profile | None = None

    def labels_of(self, stack: int) -> dict[str, str]:
        """Return the labels of a stack's samples, {} if the stack got lost."""
        if stack < 0 or len(self.labels) < 2:
            return self.labels[0]
        return self.labels[self.stack_labels[stack]]

    @property
    def label_keys(self) -> list[str]:
        """The distinct keys of all labels, sorted."""
        return sorted({key for labels in self.labels for key in labels})

    @property
    def cut_stacks(self) -> int:
        """The number of samples whose stack was cut off."""
        return sum(self.cut_off.values())

    @property
    def interval(self) -> int:
        """The mean gap in bytes when sampling started, 0 if unknown."""
        return self._setting("interval")

    def _setting(self, name: str) -> int:
        """Return a setting as a number, 0 if unknown."""
        text = self.settings.get(name, "")
        # the setting may be any text in a damaged profile
        return int(text) if re.fullmatch("[0-9]{1,19}", text, re.ASCII) else 0

    @property
    def is_raw(self) -> bool:
        """Whether the samples are native memory instead of objects on the GC's heap."""
        return self.settings.get("samples") == "raw"

    @property
    def looks(self) -> list[int]:
        """The times at which the live objects are known, in order.

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
        """The mean gap in bytes of native memory samples, 0 without such samples."""
        return self._setting("raw")

    @property
    def pid(self) -> int:
        """The kernel's number of the process, 0 if unknown."""
        return self._setting("pid")

    @property
    def parent(self) -> int:
        """The kernel's number of the parent process, 0 if it is not part of the run."""
        return self._setting("parent")

    @property
    def run(self) -> str:
        """An identifier of the run, the same in all its profiles; empty if unknown."""
        return self.settings.get("run", "")

    @property
    def engine(self) -> str:
        """The name of the engine, "hook" or "builtin"; empty if unknown."""
        return self.settings.get("engine", "")

    @property
    def gaps(self) -> str:
        """The sampling distribution, "exponential" or "fixed"."""
        return self.settings.get("gaps", "exponential")

    @property
    def last_held(self) -> Held | None:
        """The retainers from the last snapshot that succeeded.

        If no snapshot succeeded, the value is the last failed one, whose `problem` is
        the reason. It is None if no snapshot searched for retainers.
        """
        answers = [held for held in self.held if not held.problem] or self.held
        return answers[-1] if answers else None

    @property
    def has_types(self) -> bool:
        """Whether the profile records the types of all sampled objects."""
        return "types" in _words(self.settings.get("facts", ""))

    @property
    def has_lifetimes(self) -> bool:
        """Whether the profile records the outcomes of all sampled objects."""
        return "lifetimes" in _words(self.settings.get("facts", ""))

    @property
    def end(self) -> int:
        """The time of the last totals in nanoseconds since the start, 0 without totals.

        This is the end of the profile.
        """
        return self.moments[-1].time if self.moments else 0

    @property
    def missing(self) -> int:
        """The number of lost samples, in profiles that rvmprof itself has written."""
        return self._setting("missing")

    @property
    def children(self) -> int:
        """The number of processes that the program forked and that were not sampled."""
        return self._setting("children")

    @property
    def bookkeeping(self) -> int:
        """The peak size in bytes of the sampler's data on outcomes, 0 if unknown.

        The data are in the memory of the sampled process.
        """
        return self._setting("bookkeeping")

    @property
    def passed_over(self) -> str:
        """A text that lists the unknown kinds of records, and how many were skipped."""
        kinds = ["%s (%d)" % pair for pair in sorted(self.unknown.items())]
        if len(kinds) > MAX_KINDS:
            kinds[MAX_KINDS:] = ["%d kinds more" % (len(kinds) - MAX_KINDS)]
        return ", ".join(kinds)

    @property
    def ended(self) -> str:
        """The reason why the profile ends before the program; empty if it does not."""
        return "".join(c if c.isprintable() else "?"
                       for c in self.settings.get("ended", ""))

    def function(self, address: int) -> Function:
        """Return the function of a frame's address."""
        return self.functions[address]
