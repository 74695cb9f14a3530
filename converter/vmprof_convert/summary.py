"""Who allocates how much: the samples, added up per function."""
from __future__ import annotations

import collections
from typing import NamedTuple

from vmprof_convert.delegation import missing
from vmprof_convert.estimator import Estimate, Sum, probability
from vmprof_convert.model import Function, Profile
from vmprof_convert.program import Program

#: samples that are alike are counted before they are added up; of so many kinds
_MAX_GROUPS = 10000


class Row(NamedTuple):
    function: Function
    #: allocated by the function itself; and with what it calls
    self_bytes: Estimate
    self_objects: Estimate
    total_bytes: Estimate
    total_objects: Estimate


class Summary(NamedTuple):
    """The functions, largest first, and the sums over all of them."""

    rows: list[Row]
    bytes: Estimate
    objects: Estimate
    samples: int
    time_samples: int
    #: did the interval change?
    varied: bool
    #: callers that compiled code's stacks lack, and up to how many bytes
    missing: list[Function]
    missing_bytes: float


class Tally:
    """Adds samples up while they are read, per stack (model.Rows)."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._sums: dict[int, Sum] = {}
        self._groups: dict[tuple[int, int, int], int] = {}
        self.time_samples = 0
        #: of the samples
        self.smallest_interval = self.largest_interval = 0

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        if not size:
            self.time_samples += 1
            return
        group = stack, size, interval
        self._groups[group] = self._groups.get(group, 0) + 1
        if len(self._groups) == _MAX_GROUPS:
            self._add_up()

    def add_object(self, key: int, type_: int, survived: int) -> None:
        pass

    def _add_up(self) -> None:
        gaps = self._settings.get("gaps", "exponential")
        for (stack, size, interval), count in self._groups.items():
            sum_ = self._sums.get(stack)
            if sum_ is None:
                sum_ = self._sums[stack] = Sum()
            sum_.add(size, probability(size, interval, gaps), count)
            self.largest_interval = max(self.largest_interval, interval)
            self.smallest_interval = min(self.smallest_interval or interval,
                                         interval)
        self._groups.clear()

    def sums(self) -> dict[int, Sum]:
        """For each stack, number -1 being the lost ones."""
        self._add_up()
        return self._sums


def _tally(profile: Profile) -> Tally:
    tally = Tally()
    tally.begin(profile.settings)
    samples = profile.samples
    for row in zip(samples.stack, samples.time, samples.thread, samples.size,
                   samples.interval, samples.memory):
        tally.add(*row)
    return tally


def summarize(profile: Profile, tally: Tally | None = None) -> Summary:
    """Add the allocation samples of `profile` up, per function; or those of
    `tally`, if they went there.

    A function that stands several times in a stack counts once in its total.
    """
    if tally is None:
        tally = _tally(profile)
    everything = Sum()
    own: dict[Function, Sum] = collections.defaultdict(Sum)
    total: dict[Function, Sum] = collections.defaultdict(Sum)
    program = Program(profile)
    for stack, sum_ in tally.sums().items():
        functions = program.functions(stack)
        everything.add_sum(sum_)
        own[functions[-1]].add_sum(sum_)
        for function in set(functions):
            total[function].add_sum(sum_)
    gaps = missing(profile)
    lacking = Sum()
    for stack, sum_ in tally.sums().items():
        if stack in gaps.stacks:
            lacking.add_sum(sum_)
    nothing = Estimate(0.0, 0.0, 0.0)
    interval = tally.largest_interval or profile.interval
    rows = [Row(function,
                own[function].bytes(interval) if function in own else nothing,
                own[function].objects(interval) if function in own else nothing,
                sum_.bytes(interval), sum_.objects(interval))
            for function, sum_ in total.items()]
    rows.sort(key=lambda row: (-row.self_bytes.value, -row.total_bytes.value,
                               row.function))
    return Summary(rows, everything.bytes(interval),
                   everything.objects(interval), everything.samples,
                   tally.time_samples,
                   tally.smallest_interval != tally.largest_interval,
                   gaps.functions if lacking.samples else [],
                   lacking.bytes(interval).value if lacking.samples else 0.0)
