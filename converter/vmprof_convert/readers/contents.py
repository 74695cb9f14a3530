"""The first pass over a profile: the contents of all records except the objects.

Contents collects the settings, stacks, types, events and names of a profile, and the
times at which objects ended. The second pass (readers/objects.py) needs this content to
complete the row of each object. readers/__init__.py runs both passes. PROFILE.rst
defines the records.
"""
from __future__ import annotations

import array
import collections
import itertools
import operator
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.columns import by_key, gathered
from vmprof_convert.profile.held import INCOMPLETE, Held, Holder, Step
from vmprof_convert.profile.model import (
    ALLOCATED,
    HEAP,
    HEAP_HAS,
    MAJOR_FAULTS,
    MINOR_FAULTS,
    NURSERY,
    PRIVATE,
    PROCESSOR,
    RAW_IN_USE,
    RESIDENT,
    Collection,
    Columns,
    Figure,
    Mark,
    Moment,
    Rows,
    Snapshot,
    Swept,
    Type,
)
from vmprof_convert.profile.stacks import Stacks
from vmprof_convert.readers import pypy_stacks, records
from vmprof_convert.readers.records import Damaged, Record

#: Longest accepted stack, in words of a record or frames of a node. A longer stack
#: means that the profile is damaged, and the reader should not allocate memory for the
#: stack.
MAX_DEPTH = 2**16

#: Words of a stack that filled vmprof's record. vmprof adds a frame, which takes two
#: words, while two of 1019 words are free. So a stack of 1016 words was continued, and
#: a stack of 1018 words was cut. A frame that is inlined in machine code is also added
#: if only one word is free, so a cut stack can have 1020 words. The resident memory has
#: a separate place in the record. (vmp_stack.c, MAX_STACK_DEPTH - 1;
#: vmprof_get_custom_offset.h.)
FULL_RECORD = 1018

_BETWEEN_LABELS = _BETWEEN_NAMES = "\x1f"
_THREAD, _COMMAND = 1, 2
#: field of Type for each kind of type name
_TYPE_NAMES = {1: "layout", 2: "python", 3: "owner", 4: "internal"}
_FIGURES = {1: RESIDENT, 2: HEAP_HAS, 3: HEAP, 4: PROCESSOR, 6: MINOR_FAULTS,
            7: MAJOR_FAULTS, 8: PRIVATE, 9: NURSERY, 10: RAW_IN_USE, 11: ALLOCATED}
#: settings whose value in the last segment is valid for all segments
_OF_THE_END = ("children", "programs", "told", "ended", "bookkeeping",
               "memory")
#: value in place of the node of a lost stack
_LOST = -1
#: number of bits for `which`, the number of an object in its sample, next to the key
_WHICH_BITS = 16
_LIMIT = 2**63
#: Largest number of rows of a profile, in addition to one row per byte. A column whose
#: values are equally far from each other takes no bytes per row. So without a limit, 1
#: kB could contain rows that take gigabytes in memory.
_ROWS_WITHOUT_BYTES = 2**18
#: The same limit for the records in _OF_OBJECTS, in addition to eight rows per byte.
#: The reader keeps these as arrays. At interval 1, a million objects that die together
#: have consecutive keys and one time.
_OBJECTS_WITHOUT_BYTES = 2**21
_OF_OBJECTS = frozenset((records.OBJECTS, records.WAITING, records.ENDED, records.RAW,
                         records.RAW_ENDED))
#: Largest number of frames of all stacks together, and additional frames for each byte
#: of the records. A chain of 65,536 nodes takes few bytes, and each node can end a
#: stack.
_ALWAYS_FRAMES, _FRAMES_FOR_A_BYTE = 2**22, 128
#: largest number of steps of a reference path; a writer makes 16 (native/held/paths.c)
_MOST_STEPS = 64
#: kinds of records about the GC's heap, which a profile of native memory omits
_OF_THE_HEAP = (records.OBJECTS, records.WAITING, records.ENDED, records.TICKS,
                records.COLLECTIONS, records.MARKED, records.SWEPT, records.HELD,
                records.HOLDERS, records.HELD_PATHS, records.HELD_OBJECTS,
                records.SNAPSHOTS)


#: value in the record *ended*: a heap snapshot reached the object, so it has not ended
_REACHED_AGAIN = 2
#: value in Ends for an object that has not ended, because a heap snapshot reached it
#: after a row with its end
_NONE = -1


class Ends:
    """The times at which objects ended, by the sample and the number of each object."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._keys = array.array("q")
        #: twice the time in nanoseconds, plus 1 if the object was lost; or _NONE
        self._ends = array.array("q")
        self._is_sorted = True

    def __len__(self) -> int:
        """Return the number of objects that have ended."""
        self._sort()
        return len(self._keys)

    def add(self, keys: Sequence[int], which: Sequence[int], how: Sequence[int],
            times: Sequence[int]) -> None:
        """Add rows of the record *ended*, which are in the order of the profile.

        Raises:
            OverflowError: a key is too large.
        """
        self._keys.extend(key << _WHICH_BITS | number
                          for key, number in zip(keys, which))
        self._ends.extend(_NONE if kind == _REACHED_AGAIN else time << 1 | bool(kind)
                          for time, kind in zip(times, how))
        self._is_sorted = False

    def of(self, first: int, last: int) -> dict[int, int]:
        """Return the ends of the objects of some samples.

        Args:
            first: Smallest key of a sample.
            last: Largest key of a sample.

        Returns:
            For each object, by its place(): twice the time of its end in nanoseconds,
            plus 1 if the object was lost.
        """
        self._sort()
        start = bisect_left(self._keys, first << _WHICH_BITS)
        stop = bisect_left(self._keys, (last + 1) << _WHICH_BITS, start)
        return dict(zip(self._keys[start:stop], self._ends[start:stop]))

    def _sort(self) -> None:
        if not self._is_sorted:
            order = by_key(self._keys)
            self._keys = gathered(self._keys, order)
            self._ends = gathered(self._ends, order)
            self._drop_repeated()
            self._is_sorted = True

    def _drop_repeated(self) -> None:
        """Keep only the last row of each object, which replaces its earlier rows."""
        following = itertools.islice(self._keys, 1, None)
        is_last = array.array("b", map(operator.ne, self._keys, following))
        if 0 in is_last:
            is_last.append(1)
            self._keep(is_last)
        if _NONE in self._ends:
            self._keep([end != _NONE for end in self._ends])

    def _keep(self, which: Sequence[int]) -> None:
        self._keys = array.array("q", itertools.compress(self._keys, which))
        self._ends = array.array("q", itertools.compress(self._ends, which))


def place(key: int, which: int) -> int:
    """Return the number that identifies an object in the results of Ends.of().

    Args:
        key: The key of the object's sample.
        which: The number of the object in its sample.
    """
    return key << _WHICH_BITS | which


class Part:
    """A segment: one of the profiles that a process writes one after the other.

    The numbers of nodes, frames, types and collections are valid only in their segment.
    """

    def __init__(self, begin: int, allocated: Moment | None) -> None:
        """Create a segment without records.

        Args:
            begin: See the attribute.
            allocated: The last totals of the preceding segment, None for the first one.
        """
        #: nanoseconds from the start of the first segment to the start of this segment
        self.begin = begin
        #: totals of the preceding segments, which this segment's totals do not include
        self.before = allocated
        self.settings: dict[str, str] = {}
        #: key of the first sample of this segment
        self.first = 1
        #: For each node of this segment: its node in Contents.stacks, and its depth.
        #: Node 0 has no frames.
        self.nodes, self.depths = array.array("i", [0]), array.array("i", [0])
        #: depth of each node, including the lines, which `depths` does not count
        self.lengths = array.array("i", [0])
        #: (kind, address) of each frame; the first frame has number 1
        self.frames: list[tuple[int, int]] = [(0, 0)]
        #: index in Contents.stacks, by the node, or by the node and number of the
        #: labels
        self.stacks: dict[int, int] = {_LOST: -1}
        self.labelled: dict[tuple[int, int], int] = {}
        #: index in Contents.types, by the type's number in this segment
        self.types: dict[int, int] = {}
        #: end of each minor collection in nanoseconds, by the collection's number
        self.collected: dict[int, int] = {}
        #: Records of objects that were in the nursery when the record was written, each
        #: with the last key in the record.
        self.waiting: collections.deque[tuple[int, Record]] = collections.deque()
        #: Key of the first sample whose objects were in the nursery after the last
        #: whole batch. Rows in `waiting` with smaller keys are void.
        self.waits = 0
        #: `waits` according to the latest totals, 0 if no sample waits. It becomes
        #: `waits` when the batch of these totals is known to be whole.
        self.next_waits = 0
        #: smallest and largest key of the samples of this segment
        self.least, self.most = _LIMIT, 0

    def end_batch(self) -> None:
        """Finish a whole batch; forget waiting samples that the batch has recorded."""
        if self.next_waits:
            self.waits = self.next_waits
        while self.waiting and (
                not self.next_waits or self.waiting[0][0] < self.waits):
            self.waiting.popleft()

    def shifted(self, times: array.array[int]) -> array.array[int]:
        """Return times since the start of the first segment, in nanoseconds.

        Args:
            times: Nanoseconds since the start of this segment.

        Raises:
            Damaged: A time is before the start, or too large.
        """
        begin = self.begin
        if times and min(times) + begin < 0:
            raise Damaged("a time before the start")
        if not begin:
            return times
        try:
            return array.array("q", [time + begin for time in times])
        except OverflowError:
            raise Damaged("a time that is too large") from None


class Contents:
    """The contents of a profile, or of all segments of one process, without objects."""

    def __init__(self, rows: Rows, *, has_parts: bool = False,
                 raw: bool = False) -> None:
        """Create the contents of a profile without records.

        Args:
            rows: The receiver of the samples.
            has_parts: Whether the profile has several segments.
            raw: Whether to read the samples of native memory instead of the GC's heap.
                The records about the heap are ignored in that case.
        """
        self._rows = rows
        self._is_raw = raw
        self._has_parts = has_parts
        #: whether the log contains records of the sampler; if it does, vmprof's own
        #: stack samples are ignored
        self.are_there = False
        self.settings: dict[str, str] = {}
        self.stacks = Stacks()
        self.types: list[Type] = []
        self.moments: list[Moment] = []
        self.collections: list[Collection] = []
        self.marks: list[Mark] = []
        self.swept: list[Swept] = []
        self.snapshots: list[Snapshot] = []
        self.figures: list[Figure] = []
        #: names of threads, by the kernel's numbers; and the program's command
        self.threads: dict[int, str] = {}
        self.command = ""
        #: distinct sets of labels, the first one empty
        self.labels: list[dict[str, str]] = [{}]
        #: number of records of each unknown kind
        self.unknown: dict[str, int] = {}
        self.ends = Ends()
        self.parts: list[Part] = []
        #: keys of samples that a later segment records again
        self.told_again: set[int] = set()
        #: retainers, by the number of the heap snapshot
        self.held: dict[int, Held] = {}
        #: number of samples whose stack got lost
        self.lost_stacks = 0
        #: size of all records in bytes
        self._bytes = 0
        #: number of frames of all stacks, including the lines
        self._frames = 0
        #: number of rows of objects, and of all other rows
        self._object_rows = self._other_rows = 0
        #: index in `labels`, by the number of the labels in the profile
        self._label_sets = {0: 0}
        self._label_indices: dict[frozenset[tuple[str, str]], int] = {frozenset(): 0}
        self._readers = {
            records.SETTINGS: self._read_settings, records.TOTALS: self._read_totals,
            records.FRAMES: self._read_frames, records.NODES: self._read_nodes,
            records.TYPES: self._read_types, records.LABELS: self._read_labels,
            records.OBJECTS: self._look_at_objects, records.WAITING: self._keep_waiting,
            records.ENDED: self._read_ended, records.TICKS: self._read_ticks,
            records.COLLECTIONS: self._read_collections,
            records.MARKED: self._read_marked, records.SWEPT: self._read_swept,
            records.MARKS: self._read_marks, records.FIGURES: self._read_figures,
            records.NAMES: self._read_names, records.HELD: self._read_held,
            records.HOLDERS: self._read_holders,
            records.HELD_PATHS: self._read_held_paths,
            records.HELD_OBJECTS: self._read_held_objects,
            records.RAW: _pass, records.RAW_ENDED: _pass,
            records.SNAPSHOTS: self._read_snapshots}
        if raw:
            self._readers.update(dict.fromkeys(_OF_THE_HEAP, _pass))
            self._readers[records.RAW] = self._look_at_objects
            self._readers[records.RAW_ENDED] = self._read_ended
            # Finalizers, which free native memory, run after marking and sweeping.
            self._readers[records.MARKED] = self._read_marked
            self._readers[records.SWEPT] = self._read_swept

    @property
    def part(self) -> Part:
        """The segment that is being read."""
        return self.parts[-1]

    def begin_part(self) -> None:
        """Begin the next segment of the process."""
        self.parts.append(Part(0, self.moments[-1] if self.moments else None))

    def end_part(self, *, is_whole: bool) -> None:
        """Finish a segment whose file was read to its end.

        Args:
            is_whole: Whether the file has a trailer. Without a trailer the last batch
                may lack objects, and the waiting samples of earlier batches stay.

        Raises:
            Damaged: A waiting sample is invalid.
        """
        part = self.part
        if is_whole:
            part.end_batch()
        if part.waiting:
            # The second pass remembers the keys of all objects from this key on.
            part.waits = max(part.waits, min(part.waiting[0][1].column(0)))
        for _, record in part.waiting:
            self._look_at_objects(record)
            record.forget()

    def read(self, record: Record) -> None:
        """Read a record; its content is added to the attributes.

        Raises:
            Damaged: The record is invalid.
            ProfileError: The segments do not fit each other, or a setting is invalid.
        """
        if not self.are_there:
            self.are_there = True
            self._rows.begin(self.settings)
        self._bytes += record.size
        if record.kind in _OF_OBJECTS:
            self._object_rows += record.rows
        else:
            self._other_rows += record.rows
        if (self._object_rows > _OBJECTS_WITHOUT_BYTES + 8 * self._bytes
                or self._other_rows > _ROWS_WITHOUT_BYTES + self._bytes):
            raise Damaged("%d rows, which %d bytes of records cannot contain,"
                          % (self._object_rows + self._other_rows, self._bytes))
        reader = self._readers.get(record.kind)
        if reader is None:
            self._pass_over("record %d" % record.kind)
            return
        reader(record)

    def _pass_over(self, name: str) -> None:
        self.unknown[name] = self.unknown.get(name, 0) + 1

    # ________________________________________
    # settings, totals, CPU samples, marks, metrics and names

    def _read_settings(self, record: Record) -> None:
        part = self.part
        new: dict[str, str] = {}
        for _, text in record.texts():
            new.update(pair.partition("=")[::2] for pair in text.split(";"))
        if self._is_raw:
            _change_for_raw_memory(new)
        part.settings.update(new)
        part.first = _number(part.settings, "first") or 1
        if len(self.parts) == 1:
            self.settings.update(new)
            return
        self.settings.update({key: new[key] for key in _OF_THE_END if key in new})
        first, this = (_number(p.settings, "clock") for p in (self.parts[0], part))
        if not first or not this:
            raise ProfileError("the profile has a segment without a clock, whose start "
                               "is unknown")
        if this < first:
            raise ProfileError("the profile has a segment that began before the first "
                               "segment")
        part.begin = this - first

    def _read_totals(self, record: Record) -> None:
        part = self.part
        for time, *counts, waits in zip(*record.decoded()):
            # Totals begin a batch. The objects of the batch follow.
            part.end_batch()
            part.next_waits = waits
            if time + part.begin < 0 or min(counts) < 0:
                raise Damaged("totals, or their time, of less than 0")
            if self.part.before is not None:
                counts = [one + before for one, before in zip(
                    counts, self.part.before[1:])]
            self.moments.append(Moment(time + self.part.begin, *counts))

    def _read_ticks(self, record: Record) -> None:
        times, threads, nodes, labels, memories = record.decoded()
        self._rows.extend(Columns.of_ticks(
            self.part.shifted(times), threads,
            self.stacks_of(nodes, labels, self.part), memories))

    def _read_marks(self, record: Record) -> None:
        for (time,), name in record.texts():
            if time + self.part.begin < 0:
                raise Damaged("a mark before the start")
            self.marks.append(Mark(time + self.part.begin, name))

    def _read_figures(self, record: Record) -> None:
        for kind, time, value in zip(*record.decoded()):
            if time + self.part.begin < 0 or value < 0:
                raise Damaged("a figure, or its time, of less than 0")
            if kind in _FIGURES:
                if _FIGURES[kind] == ALLOCATED and self.part.before is not None:
                    value += self.part.before.allocated
                self.figures.append(
                    Figure(_FIGURES[kind], time + self.part.begin, value))
            else:
                self._pass_over("figure %d" % kind)

    def _read_names(self, record: Record) -> None:
        for (kind, thread), name in record.texts():
            if kind == _THREAD:
                self.threads[thread] = name
            elif kind == _COMMAND:
                self.command = name
            else:
                self._pass_over("name %d" % kind)

    # ________________________________________
    # retainers

    def _read_held(self, record: Record) -> None:
        for number, time, *figures in zip(*record.decoded()):
            if time + self.part.begin < 0 or min(figures) < 0:
                raise Damaged("a heap snapshot, or its time, of less than 0")
            self.held[number] = Held(time + self.part.begin, *figures)

    def answers(self) -> list[Held]:
        """Return the retainers from all heap snapshots.

        If the profile lacks rows of a snapshot, Held.problem becomes INCOMPLETE.
        """
        for held in self.held.values():
            rows = len(held.holders) + len(held.steps) + len(held.stacks)
            if rows < held.rows and not held.problem:
                held.problem = INCOMPLETE
        return list(self.held.values())

    def _held(self, number: int) -> Held:
        if number not in self.held:
            raise Damaged("the retainers of an unknown heap snapshot")
        return self.held[number]

    def _read_holders(self, record: Record) -> None:
        for (number, set_, address, size, objects), text in record.texts():
            path, _, rest = text.partition(_BETWEEN_NAMES)
            type_, *aliases = rest.split(_BETWEEN_NAMES)
            held = self._held(number)
            named = held.named
            bits = {1 << bit for bit in range(set_.bit_length()) if set_ >> bit & 1}
            if (set_ <= 0 or size < 0 or objects < 0 or set_ in named
                    or (len(bits) > 1 if path else len(bits) < 2 or not bits <= named)):
                raise Damaged("retainers with the invalid set %d" % set_)
            if path:
                named.add(set_)
            held.holders.append(
                Holder(set_, address, size, objects, path, type_, tuple(aliases)))

    def _read_held_paths(self, record: Record) -> None:
        for (number, step, before, size), text in record.texts():
            held = self._held(number)
            steps = held.steps
            if (step != len(steps) + 1 or not 0 <= before < step or size < 0
                    or (before and (size > steps[before - 1].bytes
                                    or held.depths[before - 1] == _MOST_STEPS))):
                raise Damaged("a path with an invalid step")
            held.depths.append(held.depths[before - 1] + 1 if before else 1)
            label, _, type_ = text.partition(_BETWEEN_NAMES)
            steps.append(Step(before - 1, size, label, type_))

    def _read_held_objects(self, record: Record) -> None:
        part = self.part
        for (number, node, type_, size, interval, set_, how, path, live_size) in zip(
                *record.decoded()):
            if size <= 0 or interval <= 0 or not 0 <= live_size < size:
                raise Damaged("a held object without a size")
            held = self._held(number)
            held.stacks.append(self.stack(node, part))
            held.types.append(self.type_index(type_, part))
            held.sizes.append(size)
            held.live_sizes.append(live_size or size)
            held.intervals.append(interval)
            held.sets.append(set_)
            held.hows.append(how)
            if not 0 <= path <= len(held.steps):
                raise Damaged("a held object with an unknown path")
            held.paths.append(path - 1)

    # ________________________________________
    # stacks

    def _read_frames(self, record: Record) -> None:
        self.part.frames.extend(zip(*record.decoded()))

    def _read_nodes(self, record: Record) -> None:
        nodes, depths, frames = self.part.nodes, self.part.depths, self.part.frames
        lengths = self.part.lengths
        for parent, frame in zip(*record.decoded()):
            # a parent is written before its children
            if not 0 <= parent < len(nodes) or not 0 < frame < len(frames):
                raise Damaged("an invalid node of a stack")
            if lengths[parent] == MAX_DEPTH:
                raise Damaged("a stack of more than %d frames" % MAX_DEPTH)
            nodes.append(pypy_stacks.child(self.stacks, nodes[parent], *frames[frame]))
            # lines take no room in vmprof's record, so `depths` does not count them
            lengths.append(lengths[parent] + 1)
            depths.append(depths[parent] + (frames[frame][0] != pypy_stacks.LINE))

    def stack(self, node: int, part: Part) -> int:
        """Return the index in `stacks` of the stack that ends at a node.

        Returns:
            The index, or -1 if the stack got lost.

        Raises:
            Damaged: The node is unknown, or the stacks have too many frames.
        """
        found = part.stacks.get(node)
        if found is None:
            if not 0 <= node < len(part.nodes):
                raise Damaged("a stack that ends with the unknown node %d" % node)
            self._frames += part.lengths[node]
            if self._frames > _ALWAYS_FRAMES + _FRAMES_FOR_A_BYTE * self._bytes:
                raise Damaged("stacks of more than %d frames in a profile of %d bytes"
                              % (self._frames - 1, self._bytes))
            found = part.stacks[node] = self.stacks.number(
                part.nodes[node], 2 * part.depths[node] >= FULL_RECORD)
        return found

    def _labelled_stack(self, node: int, label: int, part: Part) -> int:
        found = part.labelled.get((node, label))
        if found is None:
            if label not in self._label_sets:
                raise Damaged("unknown labels %d" % label)
            found, set_ = self.stack(node, part), self._label_sets[label]
            if set_ and found >= 0:
                found = self.stacks.labelled(found, set_)
            part.labelled[node, label] = found
        return found

    def stacks_of(self, nodes: Sequence[int], labels: Sequence[int], part: Part) -> (
            array.array[int]):
        """Return the indices in `stacks` of the stacks of some samples.

        The samples are counted as samples of cut stacks or of lost stacks.

        Args:
            nodes: The node of each sample's stack.
            labels: The number of the labels of each sample.
            part: The segment in which these numbers are valid.

        Raises:
            Damaged: A node or a number of labels is unknown.
        """
        if any(labels):
            stacks = array.array("i", [
                self._labelled_stack(node, label, part)
                for node, label in zip(nodes, labels)])
        else:
            known = part.stacks
            for node in dict.fromkeys(nodes):       # in the order of the samples
                if node not in known:
                    self.stack(node, part)
            stacks = array.array("i", map(known.__getitem__, nodes))
        self.lost_stacks += stacks.count(-1)
        full = self.stacks.full
        if full:
            for stack in filter(full.__contains__, stacks):
                full[stack] += 1
        return stacks

    def _read_labels(self, record: Record) -> None:
        for (number,), text in record.texts():
            pairs = (pair.partition("=") for pair in text.split(_BETWEEN_LABELS))
            labels = {key: value for key, _, value in pairs if key}
            index = self._label_indices.setdefault(
                frozenset(labels.items()), len(self.labels))
            if index == len(self.labels):
                self.labels.append(labels)
            self._label_sets[number] = index

    # ________________________________________
    # objects

    def type_index(self, number: int, part: Part) -> int:
        """Return the index in `types` of a type, -1 if the type is unknown.

        Args:
            number: The number of the type in the segment, 0 if unknown.
            part: The segment.
        """
        if not number:
            return -1
        found = part.types.get(number)
        if found is None:
            found = part.types[number] = len(self.types)
            self.types.append(Type())
        return found

    def _read_types(self, record: Record) -> None:
        for (number, kind, gc_number), name in record.texts():
            field = _TYPE_NAMES.get(kind)
            if field is None:
                self._pass_over("name of a type %d" % kind)
                continue
            at = self.type_index(number, self.part)
            if at < 0:
                raise Damaged("a name of the type 0")
            if not getattr(self.types[at], field):
                change: dict[str, Any] = {field: name}
                self.types[at] = self.types[at]._replace(**change)
            if gc_number >= 0:
                self.types[at] = self.types[at]._replace(number=gc_number)

    def _look_at_objects(self, record: Record) -> None:
        """Remember which samples several segments record.

        The second pass reads the objects themselves (readers/objects.py).
        """
        if not self._has_parts or not record.rows:
            return
        part, keys = self.part, record.column(0)
        part.least = min(part.least, max(min(keys), part.first))
        part.most = max(part.most, max(keys))
        if min(keys) < part.first:
            outcomes, collections = record.column(10), record.column(11)
            self.told_again.update(
                key for key, outcome, collection in zip(keys, outcomes, collections)
                if key < part.first and not is_start(outcome, collection))

    def is_known(self, key: int, part: Part) -> bool:
        """Return whether one of the earlier segments that are read has a sample.

        Args:
            key: The key of the sample.
            part: The current segment.
        """
        return any(earlier.least <= key < min(earlier.most + 1, part.first)
                   for earlier in self.parts[:self.parts.index(part)])

    def _keep_waiting(self, record: Record) -> None:
        if record.rows:
            self.part.waiting.append((record.column(0)[-1], record))
            record.forget()

    def _read_ended(self, record: Record) -> None:
        keys, which, lost, times = record.decoded()
        if min(which, default=0) < 0 or max(which, default=0) >> _WHICH_BITS:
            raise Damaged("the end of an unknown object")
        try:
            self.ends.add(keys, which, lost, self.part.shifted(times))
        except OverflowError:
            raise Damaged("a sample whose key is too large") from None

    def _read_collections(self, record: Record) -> None:
        part = self.part
        allocated_before = part.before.allocated if part.before is not None else 0
        for number, start, duration, allocated in zip(*record.decoded()):
            start += part.begin
            if min(start, duration, allocated) < 0:
                raise Damaged("a minor collection with a number of less than 0")
            part.collected[number] = start + duration
            self.collections.append(Collection(
                False, start, duration, allocated + allocated_before))

    def _read_marked(self, record: Record) -> None:
        for time, number, began in zip(*record.decoded()):
            if min(time + self.part.begin, number) < 0:
                raise Damaged("a major collection with a number of less than 0")
            self.collections.append(Collection(
                True, time + self.part.begin, 0, number, max(time - began, 0)))

    def _read_swept(self, record: Record) -> None:
        for time, *numbers in zip(*record.decoded()):
            # the second number may be -1: the size at the start is unknown
            if time + self.part.begin < 0 or numbers[1] < -1 or min(
                    numbers[:1] + numbers[2:]) < 0:
                raise Damaged("a sweep with a number of less than 0")
            self.swept.append(Swept(time + self.part.begin, *numbers))

    def _read_snapshots(self, record: Record) -> None:
        before = self.part.before.allocated if self.part.before is not None else 0
        for time, *numbers in zip(*record.decoded()):
            if time + self.part.begin < 0 or min(numbers) < 0:
                raise Damaged("a heap snapshot with a number of less than 0")
            numbers[-1] += before
            self.snapshots.append(Snapshot(time + self.part.begin, *numbers))


def _pass(record: Record) -> None:
    """Ignore a record about the kind of memory (heap or native) that is not read."""


def _change_for_raw_memory(settings: dict[str, str]) -> None:
    """Change the settings of allocation samples into settings of native memory."""
    if "engine" not in settings:
        return              # later settings of the same profile
    settings["interval"] = settings.pop("raw", "")
    settings["samples"] = "raw"
    settings["facts"] = "types,lifetimes"
    settings["capabilities"] = "labels,marks,names"
    for name in "limit", "period", "lines":
        settings.pop(name, None)


#: Outcome of an object that was promoted. An inherited object that was old when the
#: segment began has this outcome and collection 0.
_PROMOTED = 1


def is_start(outcome: int, collection: int) -> bool:
    """Return whether an inherited object was already old when the segment began.

    Args:
        outcome: The outcome in the object's row.
        collection: The number of the object's minor collection in the row.
    """
    return outcome == _PROMOTED and not collection


def _number(settings: dict[str, str], name: str) -> int:
    text = settings.get(name, "")
    # the setting may be any text in a damaged profile
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ProfileError("damaged profile: invalid number in the setting %s: %s"
                           % (name, text[:40]))
    return int(text or "0")
