"""Merging of the profiles of several processes into one profile with one clock.

The merged profile contains the samples of all processes. Two functions, types or
threads count as the same if they have the same name, as in the profile of a single
process. So the analysis and the writers treat a merged profile like any other.
The commands in cli/ call this module.
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

#: largest number of processes that an error message lists
_LISTED = 10
#: Upper bound of the bits of an address. The number of a process is added to its
#: addresses above these bits, so that equal addresses of two processes differ.
_ADDRESS_BITS = 64
#: First new number for threads. A thread gets a new number if an earlier process has a
#: thread with the same number.
_NEW_THREADS = 2**61
#: largest time in nanoseconds
_LAST = 2**63 - 1

_Event = TypeVar("_Event", Collection, Mark, Figure)


class Read(NamedTuple):
    """The profile of one process, as a reader returned it."""

    profile: Profile
    #: name of the file
    source: str
    #: nanoseconds from the start of the first process to the start of this process
    begin: int
    #: kernel's numbers of all sampled threads
    threads: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """Name of the process for messages and reports."""
        return process_name(self.profile, self.source)


class Whole(NamedTuple):
    """A merged profile, and where it contains the stacks and types of each process."""

    profile: Profile
    #: index of each process's first stack in Profile.stacks, and first type in
    #: Profile.types
    stacks: list[int]
    types: list[int]


class MergedStacks(StackTable):
    """The stacks of all processes, one process after the other."""

    def __init__(self, parts: Sequence[StackTable],
                 starts: list[int], are_alike: bool) -> None:
        """Concatenate tables of stacks.

        Args:
            parts: The table of each process.
            starts: The number of the first stack of each process.
            are_alike: Whether equal addresses mean the same function in all processes.
        """
        self._parts = parts
        self._starts = starts
        self._are_alike = are_alike
        self._moved: dict[tuple[int, Frame], Frame] = {}

    def __len__(self) -> int:
        """Return the number of stacks."""
        return self._starts[-1] + len(self._parts[-1])

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, outermost frame first."""
        part = bisect.bisect_right(self._starts, number) - 1
        frames = self._parts[part][number - self._starts[part]]
        if self._are_alike or not part:
            return frames
        return tuple([self._frame(part, frame) for frame in frames])

    def tree(self) -> Tree:
        """Return all stacks as a tree."""
        parents, nodes = array.array("q", [-1]), array.array("q")
        frames = [NO_FRAME]
        for number, part in enumerate(self._parts):
            tree = part.tree()
            begin = len(parents) - 1
            # all processes share node 0, the empty stack
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
    """Return Profile.labels and Profile.stack_labels of the merged profile."""
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
    """Return the start of each process in nanoseconds after the first start.

    Args:
        clocks: For each process, CLOCK_MONOTONIC at its start in nanoseconds (0 if
            unknown), and its start in seconds since 1970 (0.0 if unknown).

    Returns:
        The differences of CLOCK_MONOTONIC if all are known. Otherwise the differences
        of the seconds since 1970, or zeros if one of these is unknown, too.
    """
    if all(clock for clock, _ in clocks):
        times = [clock for clock, _ in clocks]
    elif all(start for _, start in clocks):
        # the time since 1970 is less reliable, because users adjust this clock
        times = [round(start * 1e9) for _, start in clocks]
    else:
        return [0] * len(clocks)
    return [min(time - min(times), _LAST // 2) for time in times]


def chosen(all_: Sequence[Read], patterns: Sequence[str]) -> list[Read]:
    """Return the processes that match a pattern, or all if there are no patterns.

    Args:
        all_: The processes of a run.
        patterns: Numbers, commands or file names of processes, or fnmatch patterns.

    Raises:
        ProfileError: A pattern matches no process; it may be misspelt.
    """
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
    """Merge the profiles of several processes. A single profile stays unchanged.

    Raises:
        ProfileError: Some profiles have exponential gaps and others have fixed gaps.
    """
    if len(parts) == 1:
        return Whole(parts[0].profile, [0], [0])
    profiles = [part.profile for part in parts]
    if len({profile.gaps for profile in profiles if profile.settings}) > 1:
        raise ProfileError("cannot merge these profiles, because only some have gaps "
                           "of a fixed size: open each separately")
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
        # readings of a metric belong to one process (see Process.profile)
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
    """Return the thread numbers of each process in a merged profile.

    Args:
        profile: The profile that merge() made of `parts`.
        parts: The processes.

    Returns:
        For each process, the kernel's number of each thread by its number in `profile`.
    """
    if not profile.processes:
        return [{tid: tid for tid in part.threads} for part in parts]
    return [process.threads for process in profile.processes]


def _starts(lengths: list[int]) -> list[int]:
    return [0, *accumulate(lengths)][:-1]


def _are_alike(profiles: Sequence[Profile]) -> bool:
    """Return whether no address means different functions in two processes."""
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
    """Return the first profile's settings, without settings that concern one process.

    The facts are the facts that all processes recorded, and the children are added up.
    """
    settings = dict(next((profile.settings for profile in profiles
                          if profile.settings), {}))
    if settings:
        # the merged profile has only the facts that all processes recorded
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
    """Return one Moment at the end of the run: the sum of each process's last totals.

    The list is empty if no process has totals.
    """
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
    # -1 means that the value is unknown
    return min(value + start, _LAST) if value >= 0 else -1
