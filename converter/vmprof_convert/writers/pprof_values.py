"""The numbers and labels of samples, for the formats of pprof and OTLP.

The sample types have the names that Go's heap profiles use, which pprof and similar
tools know.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import SampleKey, Value, tick_seconds
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats
from vmprof_convert.text.escape import shortened


class SampleType(NamedTuple):
    """The name and the unit of a number that each sample has."""

    name: str
    unit: str


ALLOCATIONS = (SampleType("alloc_objects", "count"), SampleType("alloc_space", "bytes"))
IN_USE = (SampleType("inuse_objects", "count"), SampleType("inuse_space", "bytes"))
TICKS = (SampleType("samples", "count"),)
CPU = (SampleType("cpu", "nanoseconds"),)
HELD = SampleType("held_space", "bytes")
#: unit of the distance between allocation samples
SPACE = SampleType("space", "bytes")


class SampleTypes:
    """The sample types that several profiles have in common."""

    def __init__(self, *profiles: Profile) -> None:
        """Find the common sample types of the profiles."""
        sizes = {size for profile in profiles for size in set(profile.samples.size)}
        # a segment may have no samples but inherited objects
        self.has_allocations = any(sizes) or any(
            profile.samples.carried for profile in profiles)
        self._has_lifetimes = self.has_allocations and all(
            profile.has_lifetimes for profile in profiles)
        self._has_time = 0 in sizes
        #: comments on the numbers, for formats that have comments
        self.comments = ([caveats.garbage_in_use(*profiles)]
                         if self._has_lifetimes else [])
        # if the period of CPU samples is unknown, their processor time is unknown, too
        self._has_seconds = self._has_time and all(
            tick_seconds(profile) > 0 for profile in profiles)

    @property
    def types(self) -> list[SampleType]:
        """The sample types in the order of numbers()."""
        return [*ALLOCATIONS * self.has_allocations, *IN_USE * self._has_lifetimes,
                *TICKS * self._has_time, *CPU * self._has_seconds]

    def numbers(self, value: Value, period: float) -> Iterable[float]:
        """Yield a number for each of `types`.

        Args:
            value: The sums of some samples.
            period: Nanoseconds between two CPU samples.
        """
        if self.has_allocations:
            yield from (value.objects, value.bytes)
        if self._has_lifetimes:
            yield from (value.alive_objects, value.alive_bytes)
        if self._has_time:
            yield value.ticks
        if self._has_seconds:
            yield value.ticks * period

    def period(self, profile: Profile, of: SampleType | None = None
               ) -> tuple[SampleType, int]:
        """Return the unit of the sampling period, and the period in this unit.

        Args:
            profile: The profile.
            of: The sample type whose period is returned, in a format with a period for
                each type.
        """
        if self.has_allocations and of not in (*TICKS, *CPU):
            return SPACE, profile.interval
        return CPU[0], round(1e9 * tick_seconds(profile))


class HeldBytes(SampleTypes):
    """The sample type of files that show the live bytes of a heap snapshot."""

    @property
    def types(self) -> list[SampleType]:
        """The sample type of retained bytes."""
        return [HELD]

    def period(self, profile: Profile, of: SampleType | None = None
               ) -> tuple[SampleType, int]:
        """Return the unit of the sampling period, and the period in bytes."""
        return SPACE, profile.interval


class Labels:
    """The labels of the samples of a profile."""

    def __init__(self, profile: Profile) -> None:
        """Prepare the names of types and processes."""
        self._profile = profile
        self._types = TypeNames(profile)
        self._processes = by_stack.processes(profile)

    def set_of(self, stack: int) -> int:
        """Return the number of the set of labels that the program gave to a stack."""
        return (self._profile.stack_labels[stack]
                if stack >= 0 and len(self._profile.labels) > 1 else 0)

    def of(self, part: SampleKey) -> dict[str, str]:
        """Return the labels of some samples.

        The result contains the program's labels. The labels "thread", "process" and
        "type" are added as far as they are known, and replace labels of the program.
        """
        labels = {shortened(key): shortened(text) for key, text
                  in self._profile.labels_of(part.stack).items()}
        thread = by_stack.thread_name(self._profile, part.thread)
        if thread:
            labels["thread"] = thread
        if part.thread in self._processes:
            labels["process"] = self._processes[part.thread]
        if self._profile.has_types and part.type != by_stack.NONE:
            labels["type"] = self._types.shown(part.type).name
        return labels
