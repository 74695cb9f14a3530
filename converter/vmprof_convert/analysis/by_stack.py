"""Sum the samples of each stack: bytes, objects and CPU samples, by thread and type.

Writers of formats without single samples use this module, so that all of them show the
same numbers and names.
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

#: the largest number of characters of a shown path
_MAX_PATH = 1000
#: the valid range of the seconds between two CPU samples; a profile with another value
#: is damaged
_MIN_PERIOD, _MAX_PERIOD = 1e-6, 60.0

#: the kinds of information that a format may lack (see left_out())
THREADS, PROCESSES, TYPES, FATES, TICKS, OBJECTS, LINES, LABELS = (
    "threads", "processes", "types", "fates", "ticks", "objects", "lines", "labels")
#: SampleKey.type of CPU samples, which have no type
NONE = -2


class SampleKey(NamedTuple):
    """The properties of samples that are summed together."""

    #: the index of the stack; -1 if the stack is lost
    stack: int
    #: the index of the type; -1 if it is unknown, or if types are not separated; NONE
    #: for CPU samples
    type: int = -1
    #: the kernel's number of the thread; 0 if it is unknown, or if threads are not
    #: separated
    thread: int = 0
    #: the number of the time step; 0 if time steps are not separated
    step: int = 0


class Value:
    """The estimates from the samples that have the same SampleKey."""

    __slots__ = ("alive_bytes", "alive_bytes_variance", "alive_objects", "bytes",
                 "bytes_variance", "objects", "objects_variance", "ticks")

    def __init__(self) -> None:
        """Start with no samples."""
        self.bytes = self.objects = self.alive_bytes = self.alive_objects = 0.0
        #: the variances of the estimated bytes, objects and live bytes
        self.bytes_variance = self.objects_variance = self.alive_bytes_variance = 0.0
        #: the number of CPU samples
        self.ticks = 0

    def add(self, other: Value) -> None:
        """Add the samples of another value."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def values(profile: Profile, *, types: bool = False, threads: bool = False,
           steps: Iterable[int] = itertools.repeat(0)) -> dict[SampleKey, Value]:
    """Return the sums of the samples of each stack, in the order of the stacks.

    Args:
        profile: the profile with its samples.
        types: whether each type has its own sum.
        threads: whether each thread has its own sum.
        steps: the number of the time step of each sample; each step has its own sum.
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
        variance = objects * (1.0 - p) / p      # see estimator.Sum
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
    # Samples whose stack was lost come last, as in all outputs.
    return dict(sorted(result.items(), key=lambda pair: (
        pair[0].stack < 0, pair[0])))


def whole(numbers: Iterable[float]) -> list[int]:
    """Round numbers so that each partial sum differs by at most 0.5 from the exact sum.

    The numbers rounded one by one could add up to another total.
    """
    result, exact, before = [], 0.0, 0
    for number in numbers:
        exact += number
        after = round(exact)
        result.append(after - before)
        before = after
    return result


class Place(NamedTuple):
    """The shown names of a function, without control characters for a terminal."""

    name: str
    #: the short path of the file; empty if the function has no file
    path: str = ""
    #: the line of the definition; 0 if it is unknown
    line: int = 0
    #: the path of the file as the profile records it
    file: str = ""
    #: the origin of the code: one of origins.ORIGINS, or NOWHERE
    origin: str = NOWHERE

    @property
    def text(self) -> str:
        """Return the function with its file and line, such as "main (app.py:12)"."""
        if not self.path:
            return self.name
        where = "%s:%d" % (self.path, self.line) if self.line else self.path
        return "%s (%s)" % (self.name, where)


def place_of(function: Function, origins: Origins) -> Place:
    """Return the shown names of a function."""
    path = origins.path(function.file) if function.file else ""
    return Place(shortened(function.name), shortened(path, _MAX_PATH), function.line,
                 shortened(function.file, _MAX_PATH), origins.of(function))


class Places:
    """The shown names of the functions in each stack of a profile."""

    def __init__(self, profile: Profile) -> None:
        """Prepare the names of the profile's functions."""
        self._program = Program(profile)
        self._origins = Origins(profile)
        self._cut = profile.cut_off
        self._known: dict[Frame, Place] = {}

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, outermost first; at least one."""
        return self._program.stack(stack)

    def is_cut(self, stack: int) -> bool:
        """Return whether the profile lacks outer frames of a stack."""
        return stack in self._cut and self.frames(stack)[0].kind != LABEL

    def of(self, stack: int) -> list[Place]:
        """Return the functions of a stack, outermost first; CUT for missing frames."""
        places = list(map(self.place, self.frames(stack)))
        return [Place(CUT), *places] if self.is_cut(stack) else places

    def place(self, frame: Frame) -> Place:
        """Return the function of a frame."""
        found = self._known.get(frame)
        if found is None:
            found = self._known[frame] = place_of(
                self._program.function(frame), self._origins)
        return found

    def line(self, frame: Frame) -> int:
        """Return the executed line of a frame (see Program.line())."""
        return self._program.line(frame)


def tick_seconds(profile: Profile) -> float:
    """Return the seconds between two CPU samples; 0.0 if the time is unknown."""
    seconds = profile.period
    if profile.settings:
        # The period in the header is meaningful only in a profile of stock vmprof.
        try:
            seconds = float(profile.settings.get("period", ""))
        except ValueError:
            return 0.0
    return seconds if _MIN_PERIOD <= seconds < _MAX_PERIOD else 0.0


def processes(profile: Profile) -> dict[int, str]:
    """Return the name of each thread's process; empty if there is only one process."""
    return {thread: shortened(process_name(process.profile, process.source))
            for process in profile.processes for thread in process.threads}


def thread_name(profile: Profile, thread: int) -> str:
    """Return a thread's name, or the kernel's number; empty if both are unknown."""
    name = names(profile).get(thread, "")
    return shortened(name) if name else str(thread) if thread else ""


def check_samples(profile: Profile) -> None:
    """Check that the profile contains samples or inherited objects.

    Raises:
        ProfileError: The profile contains neither.
    """
    if not (len(profile.samples) or profile.samples.carried):
        raise ProfileError("the profile has no samples, so there is no output to write")


def left_out(profile: Profile, *lacking: str,
             has_times: bool = False) -> list[str]:
    """Return one line about the information that a format lacks, or an empty list.

    Args:
        profile: the profile that is converted.
        lacking: the kinds of information that the format lacks: some of THREADS to
            LABELS.
        has_times: whether the format contains the times of samples.
    """
    words = []
    if TICKS in lacking:
        ticks = profile.samples.size.count(0)
        words += [format_number(ticks, "CPU sample")] if ticks else []
    if THREADS in lacking:
        threads = len(set(profile.samples.thread))
        words += ["the thread (of %d)" % threads] if threads > 1 else []
    if PROCESSES in lacking and profile.processes:
        words.append("the process (of %d)" % len(profile.processes))
    if TYPES in lacking and profile.has_types:
        words.append("types")
    if OBJECTS in lacking:
        words.append("numbers of objects")
    if FATES in lacking and profile.has_lifetimes:
        words.append("outcomes of objects (--outcome selects one)")
    if LINES in lacking and has_lines(profile):
        words.append("executed lines (a function has the line of its definition)")
    if LABELS in lacking and profile.label_keys:
        words.append("labels (--label selects one)")
    marks = len(profile.marks)
    if not has_times:
        words += [format_number(marks, "mark")] if marks else []
        words.append("times")
    return [printable("not included, because the format cannot contain this: %s"
                      % ", ".join(words))] if words else []
