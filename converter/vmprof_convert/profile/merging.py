"""Several processes as one profile: what each allocated adds up, on one clock.

What a function, a type or a thread is called decides whether two are the same, as in
one process: so whatever says what a profile means says it of all of them together.
"""
from __future__ import annotations

import array
import bisect
import dataclasses
import fnmatch
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import (
    Collection,
    Columns,
    Figure,
    Function,
    Mark,
    Moment,
    Process,
    Profile,
    Samples,
)
from vmprof_convert.profile.names import names, process_name
from vmprof_convert.profile.stacks import NO_FRAME, Frame, StackTable, Tree
from vmprof_convert.text.escape import shortened

#: so many processes are named
_LISTED = 10
#: an address in one process, and the same in another: none is longer
_ADDRESS_BITS = 64
#: numbers of threads that are already another's
_NEW_THREADS = 2**61
#: the last time that there is
_LAST = 2**63 - 1

_Event = TypeVar("_Event", Collection, Mark, Figure)


class Read(NamedTuple):
    """A process's profile, as it was read."""

    profile: Profile
    #: the file's name
    source: str
    #: nanoseconds after the start of the first
    begin: int
    #: all threads that were sampled
    threads: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """For people."""
        return process_name(self.profile, self.source)


class Whole(NamedTuple):
    """The processes as one profile, with their samples if they have some."""

    profile: Profile
    #: where the stacks and types of each begin
    stacks: list[int]
    types: list[int]


class MergedStacks(StackTable):
    """The stacks of all, one process after the other."""

    def __init__(self, parts: Sequence[StackTable],
                 starts: list[int], are_alike: bool) -> None:
        """`are_alike`: an address means the same in all."""
        self._parts = parts
        self._starts = starts
        self._are_alike = are_alike
        self._moved: dict[tuple[int, Frame], Frame] = {}

    def __len__(self) -> int:
        return self._starts[-1] + len(self._parts[-1])

    def stack(self, number: int) -> tuple[Frame, ...]:
        part = bisect.bisect_right(self._starts, number) - 1
        frames = self._parts[part][number - self._starts[part]]
        if self._are_alike or not part:
            return frames
        return tuple([self._frame(part, frame) for frame in frames])

    def tree(self) -> Tree:
        parents, nodes = array.array("q", [-1]), array.array("q")
        frames = [NO_FRAME]
        for number, part in enumerate(self._parts):
            tree = part.tree()
            begin = len(parents) - 1
            # the empty stack is one for all
            parents.extend([parent + begin if parent else 0
                            for parent in tree.parents[1:]])
            nodes.extend([node + begin if node else 0 for node in tree.nodes])
            frames += tree.frames[1:] if self._are_alike or not number else [
                self._frame(number, frame) for frame in tree.frames[1:]]
        return Tree(parents, frames, nodes)

    def _frame(self, number: int, frame: Frame) -> Frame:
        key = number, frame
        found = self._moved.get(key)
        if found is None:
            found = self._moved[key] = frame._replace(
                address=_moved(frame.address, number))
        return found


def _labels(profiles: Sequence[Profile]) -> tuple[list[dict[str, str]], Sequence[int]]:
    """The sets of all, and for each stack one of them."""
    sets: list[dict[str, str]] = [{}]
    of_stack = array.array("i")
    if all(len(profile.labels) < 2 for profile in profiles):
        return sets, of_stack
    indices = {frozenset[tuple[str, str]](): 0}
    for profile in profiles:
        known = []
        for labels in profile.labels:
            index = indices.setdefault(frozenset(labels.items()), len(sets))
            if index == len(sets):
                sets.append(labels)
            known.append(index)
        of_stack.extend([known[number] for number in profile.stack_labels]
                        if profile.stack_labels else [0] * len(profile.stacks))
    return sets, of_stack


def _moved(address: int, number: int) -> int:
    return address + (number << _ADDRESS_BITS)


def begins(clocks: Sequence[tuple[int, float]]) -> list[int]:
    """When each began, in nanoseconds after the first; `clocks` are those of each:
    the kernel's in nanoseconds, 0 if it is not known, and seconds since 1970."""
    if all(clock for clock, _ in clocks):
        times = [clock for clock, _ in clocks]
    elif all(start for _, start in clocks):
        # people set it back and forth
        times = [round(start * 1e9) for _, start in clocks]
    else:
        return [0] * len(clocks)
    return [min(time - min(times), _LAST // 2) for time in times]


def chosen(all_: Sequence[Read], patterns: Sequence[str]) -> list[Read]:
    """The processes of these numbers or names.  Raises ProfileError if one is none
    of them: it may be misspelt."""
    if not patterns:
        return list(all_)
    found: list[Read] = []
    for pattern in patterns:
        matching = [read for read in all_ if _matches(read, pattern)]
        if not matching:
            listed = ["%s" % (read.profile.pid or read.source) + (
                " (%s)" % shortened(read.profile.command)
                if read.profile.command else "") for read in all_]
            more = len(listed) - _LISTED
            raise ProfileError(
                "no process of this run is called '%s': write --process with the "
                "number or the name of one: %s%s" % (
                    shortened(pattern), ", ".join(listed[:_LISTED]),
                    ", and %d more" % more if more > 0 else ""))
        found += matching
    return [read for read in all_ if read in found]


def _matches(read: Read, pattern: str) -> bool:
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern)
               for name in (str(read.profile.pid), read.profile.command, read.source)
               if name)


def merge(parts: Sequence[Read]) -> Whole:
    """Of one, it is its own profile.  Raises ProfileError if they can't be added
    up."""
    if len(parts) == 1:
        return Whole(parts[0].profile, [0], [0])
    profiles = [part.profile for part in parts]
    if len({profile.gaps for profile in profiles if profile.settings}) > 1:
        raise ProfileError("some of these profiles have gaps of a fixed size, others "
                           "have not: look at each alone")
    stacks = _starts([len(profile.stacks) for profile in profiles])
    types = _starts([len(profile.types) for profile in profiles])
    are_alike = _are_alike(profiles)
    functions = dict(profiles[0].functions)
    for number, profile in enumerate(profiles[1:], 1):
        functions.update(profile.functions if are_alike else {
            _moved(address, number): function
            for address, function in profile.functions.items()})
    processes = _processes(parts)
    labels, stack_labels = _labels(profiles)
    first = profiles[0]
    ends = [profile.end_time for profile in profiles]
    merged = Profile(
        interpreter=first.interpreter, period=first.period,
        start_time=min(profile.start_time for profile in profiles),
        end_time=None if None in ends else max(end or 0.0 for end in ends),
        meta=first.meta, settings=_settings(profiles),
        unknown=_sum([profile.unknown for profile in profiles]),
        functions=functions,
        stacks=MergedStacks([profile.stacks for profile in profiles], stacks,
                            are_alike),
        samples=_samples(parts, processes, stacks, types),
        moments=_moments(parts),
        types=[type_ for profile in profiles for type_ in profile.types],
        collections=_shifted(parts, [p.collections for p in profiles]),
        marks=_shifted(parts, [p.marks for p in profiles]),
        # those of one process say nothing of another
        figures=[],
        misfits=sum(profile.misfits for profile in profiles),
        lost_stacks=sum(profile.lost_stacks for profile in profiles),
        cut_off={start + number: count
                 for start, profile in zip(stacks, profiles)
                 for number, count in profile.cut_off.items()},
        torn=sum(profile.torn for profile in profiles),
        threads={number: names(process.profile).get(tid, "")
                 for process in processes
                 for number, tid in process.threads.items()},
        command=first.command, processes=processes, labels=labels,
        stack_labels=stack_labels,
        nameless=max(profile.nameless for profile in profiles))
    return Whole(merged, stacks, types)


def numbered(profile: Profile, parts: Sequence[Read]) -> list[dict[int, int]]:
    """The threads of each of `parts`, of which `profile` is the whole: their numbers
    there, and the kernel's."""
    if not profile.processes:
        return [{tid: tid for tid in part.threads} for part in parts]
    return [process.threads for process in profile.processes]


def _starts(lengths: list[int]) -> list[int]:
    return [0, *accumulate(lengths)][:-1]


def _are_alike(profiles: Sequence[Profile]) -> bool:
    """Whether no address means one function here and another one there."""
    known: dict[int, Function] = {}
    for profile in profiles:
        for address, function in profile.functions.items():
            if known.setdefault(address, function) != function:
                return False
    return True


def _processes(parts: Sequence[Read]) -> list[Process]:
    taken: set[int] = set()
    new = _NEW_THREADS
    result = []
    for part in parts:
        threads = {}
        for tid in sorted(part.threads | part.profile.threads.keys() | (
                set(part.profile.samples.thread))):
            number = tid
            if number in taken:
                number = new
                new += 1
            taken.add(number)
            threads[number] = tid
        result.append(Process(
            dataclasses.replace(part.profile, samples=Samples()), part.source,
            part.begin, threads))
    return result


def _settings(profiles: Sequence[Profile]) -> dict[str, str]:
    """The first one's, but for what is true of each alone."""
    settings = dict(next((profile.settings for profile in profiles
                          if profile.settings), {}))
    if settings:
        # only what all of them recorded is known of the whole
        facts = [profile.settings.get("facts", "").split(",")
                 for profile in profiles if profile.settings]
        settings["facts"] = ",".join(
            word for word in facts[0] if all(word in words for words in facts))
        settings["children"] = str(sum(profile.children for profile in profiles))
    for key in ("pid", "parent", "part", "clock", "seed", "told", "ended",
                "bookkeeping", "memory"):
        settings.pop(key, None)
    return settings


def _sum(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    result: dict[str, int] = {}
    for count in counts:
        for key, number in count.items():
            result[key] = result.get(key, 0) + number
    return result


def _moments(parts: Sequence[Read]) -> list[Moment]:
    """The last one: what was true in each when it ended."""
    last = [part.profile.moments[-1] for part in parts if part.profile.moments]
    if not last:
        return []
    end = max(part.begin + part.profile.end for part in parts)
    return [Moment(end, *map(sum, list(zip(*last))[1:]))]


def _shifted(parts: Sequence[Read],
             events: Sequence[Sequence[_Event]]) -> list[_Event]:
    return sorted((event._replace(time=event.time + part.begin)
                   for part, of_part in zip(parts, events) for event in of_part),
                  key=lambda event: event.time)


def _samples(parts: Sequence[Read], processes: Sequence[Process],
             stacks: list[int], types: list[int]) -> Samples:
    merged = Samples()
    for part, process, stack, type_ in zip(parts, processes, stacks, types):
        samples, begin = part.profile.samples, part.begin
        number = {tid: number for number, tid in process.threads.items()}
        merged.extend(Columns(*samples.columns()).replaced(
            thread=list(map(number.__getitem__, samples.thread)),
            stack=_shifted_column(samples.stack, stack),
            type=_shifted_column(samples.type, type_),
            time=_shifted_column(samples.time, begin),
            collected=_shifted_column(samples.collected, begin),
            ended=_shifted_column(samples.ended, begin)))
        for row in samples.carried:
            merged.carry(row._replace(
                stack=_shift(row.stack, stack), type=_shift(row.type, type_),
                collected=_shift(row.collected, begin),
                ended=_shift(row.ended, begin)))
    return merged


def _shifted_column(column: Sequence[int], start: int) -> Sequence[int]:
    return [_shift(value, start) for value in column] if start else column


def _shift(value: int, start: int) -> int:
    # -1 means that it is not known
    return min(value + start, _LAST) if value >= 0 else -1
