"""What the numbers of a sample are, in the words of Go's heap profiles, which pprof and
those who come after it know; and the labels of samples."""
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
    name: str
    unit: str


ALLOCATIONS = (SampleType("alloc_objects", "count"), SampleType("alloc_space", "bytes"))
IN_USE = (SampleType("inuse_objects", "count"), SampleType("inuse_space", "bytes"))
TICKS = (SampleType("samples", "count"),)
CPU = (SampleType("cpu", "nanoseconds"),)
HELD = SampleType("held_space", "bytes")
#: in between what sampling counts
SPACE = SampleType("space", "bytes")


class SampleTypes:
    """Those that all of some profiles have."""

    def __init__(self, *profiles: Profile) -> None:
        sizes = {size for profile in profiles for size in set(profile.samples.size)}
        # what earlier parts left behind may be all that there is
        self.has_allocations = any(sizes) or any(
            profile.samples.carried for profile in profiles)
        self._has_lifetimes = self.has_allocations and all(
            profile.has_lifetimes for profile in profiles)
        self._has_time = 0 in sizes
        #: lines for those formats that have comments
        self.comments = ([caveats.garbage_in_use(*profiles)]
                         if self._has_lifetimes else [])
        # of a time that isn't known there is no sum
        self._has_seconds = self._has_time and all(
            tick_seconds(profile) > 0 for profile in profiles)

    @property
    def types(self) -> list[SampleType]:
        return [*ALLOCATIONS * self.has_allocations, *IN_USE * self._has_lifetimes,
                *TICKS * self._has_time, *CPU * self._has_seconds]

    def numbers(self, value: Value, period: float) -> Iterable[float]:
        """One for each of `types`; `period`: nanoseconds between two time samples."""
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
            of: The type of the samples, in a format with a period for each type.
        """
        if self.has_allocations and of not in (*TICKS, *CPU):
            return SPACE, profile.interval
        return CPU[0], round(1e9 * tick_seconds(profile))


class HeldBytes(SampleTypes):
    """Of what somebody holds: no samples."""

    @property
    def types(self) -> list[SampleType]:
        return [HELD]

    def period(self, profile: Profile, of: SampleType | None = None
               ) -> tuple[SampleType, int]:
        return SPACE, profile.interval


class Labels:
    """Of the samples of a profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._types = TypeNames(profile)
        self._processes = by_stack.processes(profile)

    def set_of(self, stack: int) -> int:
        """What the program said is the same for stacks that have the same here."""
        return (self._profile.stack_labels[stack]
                if stack >= 0 and len(self._profile.labels) > 1 else 0)

    def of(self, part: SampleKey) -> dict[str, str]:
        """thread, process and type, as far as they are known; and what the program
        said, where that is not one of these."""
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
