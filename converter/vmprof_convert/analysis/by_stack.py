"""What each stack stands for: bytes, objects and time samples, by thread and type.

For formats that hold stacks with numbers, and no single samples.  They all ask here,
so that they agree.
"""
from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.lifetimes import STILL_ALIVE, state
from vmprof_convert.meaning.origins import NOWHERE, Origins
from vmprof_convert.meaning.visible_stacks import CUT, Program, has_lines
from vmprof_convert.profile.model import LABEL, UNKNOWN, UNTOLD, Function, Profile
from vmprof_convert.profile.names import names, process_name
from vmprof_convert.profile.probability import probability
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.text.escape import printable, shortened
from vmprof_convert.text.units import format_number

#: of a path so many characters are kept
_MAX_PATH = 1000
#: a time between two samples that can be, in seconds; others are damage
_MIN_PERIOD, _MAX_PERIOD = 1e-6, 60.0

#: what a format may have no place for
THREADS, PROCESSES, TYPES, FATES, TICKS, OBJECTS, LINES, LABELS = (
    "threads", "processes", "types", "fates", "ticks", "objects", "lines", "labels")
#: instead of a type: time samples are of none
NONE = -2


class SampleKey(NamedTuple):
    """Samples that are counted together."""

    #: -1: lost
    stack: int
    #: -1: not known, or not asked for; NONE: time samples
    type: int = -1
    #: 0: not known, or not asked for
    thread: int = 0
    #: 0: not asked for
    step: int = 0


class Value:
    """What samples stand for, added up."""

    __slots__ = ("alive_bytes", "alive_bytes_variance", "alive_objects", "bytes",
                 "bytes_variance", "objects", "objects_variance", "ticks")

    def __init__(self) -> None:
        self.bytes = self.objects = self.alive_bytes = self.alive_objects = 0.0
        #: of the estimates above
        self.bytes_variance = self.objects_variance = self.alive_bytes_variance = 0.0
        #: time samples
        self.ticks = 0

    def add(self, other: Value) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def values(profile: Profile, *, types: bool = False, threads: bool = False,
           steps: Iterable[int] = itertools.repeat(0)) -> dict[SampleKey, Value]:
    """Add the samples up, and return the sums in the order of their stacks.

    Args:
        profile: its samples count.
        types: a sum for each type.
        threads: a sum for each thread.
        steps: the step in time of each sample; a sum for each step.
    """
    samples = profile.samples
    nothing = itertools.repeat(-1)
    groups = collections.Counter(zip(
        samples.stack, samples.type if types else nothing,
        samples.thread if threads else itertools.repeat(0), samples.fate,
        samples.size, samples.interval, samples.live_size, steps))
    states = {fate: state(fate, -1, -1) for fate in range(UNTOLD, UNKNOWN + 1)}
    result: dict[SampleKey, Value] = {}
    for (stack, type_, thread, fate, size, interval, live_size,
         step), count in groups.items():
        part = SampleKey(stack, type_ if size or not types else NONE, thread, step)
        value = result.get(part)
        if value is None:
            value = result[part] = Value()
        if not size:
            value.ticks += count
            continue
        p = probability(size, interval, profile.gaps)
        objects = count / p
        value.objects += objects
        value.bytes += objects * size
        variance = objects * (1.0 - p) / p      # as estimator.Sum has it
        value.objects_variance += variance
        value.bytes_variance += variance * size * size
        if states[fate] == STILL_ALIVE:
            value.alive_objects += objects
            size = live_size or size
            value.alive_bytes += objects * size
            value.alive_bytes_variance += variance * size * size
    for carried in samples.carried:
        if states[carried.fate] == STILL_ALIVE:
            part = SampleKey(carried.stack, carried.type if types else -1)
            value = result.setdefault(part, Value())
            p = probability(carried.size, carried.interval, profile.gaps)
            weight = (carried.live_size or carried.size) / p
            value.alive_objects += 1 / p
            value.alive_bytes += weight
            value.alive_bytes_variance += (1.0 - p) * weight ** 2
    # the lost one last, as everywhere
    return dict(sorted(result.items(), key=lambda pair: (
        pair[0].stack < 0, pair[0])))


def whole(numbers: Iterable[float]) -> list[int]:
    """Rounded, so that the sum of the first n is off by half at most."""
    result, exact, before = [], 0.0, 0
    for number in numbers:
        exact += number
        after = round(exact)
        result.append(after - before)
        before = after
    return result


class Place(NamedTuple):
    """A function as it is shown: nothing in it does anything to a terminal."""

    name: str
    #: short; empty: it is in no file
    path: str = ""
    #: of the definition; 0: not known
    line: int = 0
    #: as the profile has it
    file: str = ""
    #: whose code it is: of origins.ORIGINS, or NOWHERE
    origin: str = NOWHERE

    @property
    def text(self) -> str:
        """main (app.py:12)"""
        if not self.path:
            return self.name
        where = "%s:%d" % (self.path, self.line) if self.line else self.path
        return "%s (%s)" % (self.name, where)


def place_of(function: Function, origins: Origins) -> Place:
    path = origins.path(function.file) if function.file else ""
    return Place(shortened(function.name), shortened(path, _MAX_PATH), function.line,
                 shortened(function.file, _MAX_PATH), origins.of(function))


class Places:
    """The stacks of a profile, as they are shown."""

    def __init__(self, profile: Profile) -> None:
        self._program = Program(profile)
        self._origins = Origins(profile)
        self._cut = profile.cut_off
        self._known: dict[Frame, Place] = {}

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """Outermost first, at least one."""
        return self._program.stack(stack)

    def is_cut(self, stack: int) -> bool:
        """Whether outer frames are missing."""
        return stack in self._cut and self.frames(stack)[0].kind != LABEL

    def of(self, stack: int) -> list[Place]:
        """Outermost first, at least one."""
        places = list(map(self.place, self.frames(stack)))
        return [Place(CUT), *places] if self.is_cut(stack) else places

    def place(self, frame: Frame) -> Place:
        found = self._known.get(frame)
        if found is None:
            found = self._known[frame] = place_of(
                self._program.function(frame), self._origins)
        return found

    def line(self, frame: Frame) -> int:
        """See Program."""
        return self._program.line(frame)


def tick_seconds(profile: Profile) -> float:
    """Between two time samples; 0.0: not known."""
    seconds = profile.period
    if profile.settings:
        # the head's period means something in a stock profile only
        try:
            seconds = float(profile.settings.get("period", ""))
        except ValueError:
            return 0.0
    return seconds if _MIN_PERIOD <= seconds < _MAX_PERIOD else 0.0


def processes(profile: Profile) -> dict[int, str]:
    """For each thread of several processes the name of its own; of one: nothing."""
    return {thread: shortened(process_name(process.profile, process.source))
            for process in profile.processes for thread in process.threads}


def thread_name(profile: Profile, thread: int) -> str:
    """MainThread, or the kernel's number; empty: not known."""
    name = names(profile).get(thread, "")
    return shortened(name) if name else str(thread) if thread else ""


def check_samples(profile: Profile) -> None:
    """Raises ProfileError if there are none, nor any that earlier parts left behind."""
    if not (len(profile.samples) or profile.samples.carried):
        raise ProfileError("there are no samples in it, and so nothing to write")


def left_out(profile: Profile, *lacking: str,
             has_times: bool = False) -> list[str]:
    """What of the profile a format has no place for, in a line, if it is anything:
    `lacking` are some of THREADS to LABELS."""
    words = []
    if TICKS in lacking:
        ticks = profile.samples.size.count(0)
        words += [format_number(ticks, "time sample")] if ticks else []
    if THREADS in lacking:
        threads = len(set(profile.samples.thread))
        words += ["which of %d threads it was" % threads] if threads > 1 else []
    if PROCESSES in lacking and profile.processes:
        words.append("which of %d processes it was" % len(profile.processes))
    if TYPES in lacking and profile.has_types:
        words.append("types")
    if OBJECTS in lacking:
        words.append("numbers of objects")
    if FATES in lacking and profile.has_lifetimes:
        words.append("what became of objects (--fate chooses)")
    if LINES in lacking and has_lines(profile):
        words.append("executed lines (a function has that of its definition)")
    if LABELS in lacking and profile.label_keys:
        words.append("labels (--label chooses)")
    marks = len(profile.marks)
    if not has_times:
        words += [format_number(marks, "mark")] if marks else []
        words.append("times")
    return [printable("not in there, as the format has no place for it: %s"
                      % ", ".join(words))] if words else []
