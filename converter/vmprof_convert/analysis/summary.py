"""Sum the samples by function, line, file, module, type or label.

A `Tally` sums samples while a reader reads the profile. summarize() makes the rows of
the report from a tally. The *subject* of a row is the function, line, file, module,
type or label that the row shows.
"""
from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from vmprof_convert.analysis.selection import Selected
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.compiled_code import CompiledCode, compiled_code
from vmprof_convert.meaning.estimator import Estimate, Sampled, Sum, Z
from vmprof_convert.meaning.lifetimes import (
    CARRIED,
    NOT_RECORDED,
    STILL_ALIVE,
    state,
)
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import CLASS, INTERNAL, UNNAMED, Shown, TypeNames
from vmprof_convert.meaning.visible_stacks import UNKNOWN_LINE, Program
from vmprof_convert.profile.model import ALIVE as IS_ALIVE
from vmprof_convert.profile.model import (
    LABEL,
    UNKNOWN,
    UNTOLD,
    Carried,
    Columns,
    Function,
    Profile,
)
from vmprof_convert.profile.probability import probability
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.text.escape import shortened

#: the kinds of rows
FUNCTION, LINE, FILE, MODULE, TYPE = "function", "line", "file", "module", "type"
#: the prefix of a kind of rows with one row for each value of a label; the label's key
#: follows
LABELLED = "label:"
#: kinds of rows that are parts of the run (by_part.py)
THREAD, PROCESS = PARTS = ("thread", "process")
#: the measures by which rows can be sorted
SELF, TOTAL, OBJECTS, ALIVE = "self", "total", "objects", "alive"

#: an additional outcome in a Tally: a live object that is inherited from an earlier
#: segment
_IS_CARRIED = UNKNOWN + 1
#: the names of the outcomes at the end of the profile, by the numbers in Samples.fate
_STATES = {**{fate: state(fate, -1, -1) for fate in range(UNTOLD, UNKNOWN + 1)},
           _IS_CARRIED: CARRIED}
#: the number of distinct samples that a Tally counts before it adds them to its sums
_MAX_ALIKE = 10000
#: the number of samples that tally_of() counts at once
_TOGETHER = 2**16


class Choice(NamedTuple):
    """The kind of rows that a report shows, and their order."""

    #: FUNCTION, LINE, FILE or MODULE; or TYPE; or one of the former and TYPE
    by: tuple[str, ...] = (FUNCTION,)
    sort: str = SELF
    #: the time in nanoseconds at which the profile is considered to end; None for its
    #: real end
    at: int | None = None
    #: whether the storage of a list, dict etc. counts as that type
    group_storage: bool = False
    #: whether rows omit the internal objects of the interpreter
    hide_internal: bool = False


BY_FUNCTION = Choice()


class Figures:
    """The estimated bytes and objects of some samples, in total and by outcome."""

    __slots__ = ("_all", "_is_one_class", "_states", "interval")

    def __init__(self, interval: int, is_one_class: bool = False) -> None:
        """Start with no samples.

        Args:
            interval: the largest sampling interval that was in force, in bytes.
            is_one_class: whether all objects are instances of one class. Then the
                smallest sample bounds the size of objects that were not sampled.
        """
        #: the largest sampling interval that was in force, in bytes
        self.interval = interval
        self._is_one_class = is_one_class
        self._all = Sum()
        self._states: dict[str, Sum] = {}

    def add(self, state: str, sum_: Sum) -> None:
        """Add the sums of samples with one outcome."""
        if state != CARRIED:
            self._all.add_sum(sum_)
        if state in (STILL_ALIVE, CARRIED):
            sum_ = sum_.live
        if state == CARRIED:
            self._add(CARRIED, sum_)
        self._add(STILL_ALIVE if state == CARRIED else state, sum_)

    def _add(self, state: str, sum_: Sum) -> None:
        of_state = self._states.get(state)
        if of_state is None:
            of_state = self._states[state] = Sum()
        of_state.add_sum(sum_)

    def add_figures(self, other: Figures) -> None:
        """Add the sums of other samples."""
        self.interval = max(self.interval, other.interval)
        self._all.add_sum(other._all)
        for then, sum_ in other._states.items():
            self._states.setdefault(then, Sum()).add_sum(sum_)

    def sum(self, state: str | None = None) -> Sum:
        """Return the sum of the objects with the outcome `state`, or of all objects."""
        if state is None:
            return self._all
        return self._states.get(state) or Sum()

    def bytes(self, state: str | None = None, z: float = Z) -> Estimate:
        """Estimate the bytes of objects with the outcome `state`, or of all objects."""
        return self.sum(state).bytes(self.interval, z)

    def objects(self, state: str | None = None, z: float = Z) -> Estimate:
        """Estimate the number of objects with the outcome `state`, or of all."""
        sum_ = self.sum(state)
        if self._is_one_class and self._all.smallest:
            return sum_.objects(self.interval, self._all.smallest, z)
        return sum_.objects(self.interval, z=z)

    def sampled(self, state: str | None, is_objects: bool) -> Sampled:
        """Return the estimate of bytes or objects and its variance.

        Args:
            state: the outcome of the objects; None for all objects.
            is_objects: whether the number of objects is estimated, and not the bytes.
        """
        return self.sum(state).sampled(
            self.interval, is_objects, (self._is_one_class and self._all.smallest) or 0)


class Subject(NamedTuple):
    """The function, line, file, module, type or label that a row shows."""

    function: Function | None
    #: the executed line (Program.line()), or the line of the definition; 0 if the row
    #: has no line
    line: int
    type: Shown | None = None
    #: the path of a file, or the name of a module; a label if a function has neither
    file: str = ""
    module: str = ""
    #: the value of a label
    label: str = ""

    def of_type(self, type_: Shown | None) -> Subject:
        """Return a copy of this subject with another type of objects."""
        if type_ is self.type:
            return self
        return self._replace(type=type_)


class Row(NamedTuple):
    """The allocations of one subject."""

    subject: Subject
    #: the allocations of the subject itself, and the allocations with its callees
    own: Figures
    total: Figures

    @property
    def function(self) -> Function:
        """Return the function of a row by function or line."""
        assert self.subject.function is not None
        return self.subject.function


class Summary(NamedTuple):
    """The rows, with the largest one first, and the sums over all samples."""

    rows: list[Row]
    figures: Figures
    time_samples: int
    #: whether the sampling interval changed
    varied: bool
    #: the sums of the objects that the rows omit, and of objects of unknown type
    hidden: Figures
    untyped: Figures
    #: whether executed lines are known
    has_lines: bool
    #: the callers that stacks of compiled code lack, and the largest number of bytes
    #: that the rows of these callers lack
    missing: list[Function]
    missing_bytes: float
    #: the bytes with stacks in which unknown callers may be missing, and the bytes that
    #: the JIT allocated to write its log
    not_known_bytes: float
    log_bytes: float
    #: the bytes that compiled code allocated
    compiled_bytes: float
    #: the bytes with stacks in which the line of a caller is unknown
    callers_without_line_bytes: float

    @property
    def bytes(self) -> Estimate:
        """Estimate the bytes of all samples."""
        return self.figures.bytes()

    @property
    def objects(self) -> Estimate:
        """Estimate the number of objects of all samples."""
        return self.figures.objects()

    @property
    def samples(self) -> int:
        """Return the number of allocation samples."""
        return self.figures.sum().samples


class Tally:
    """The sums of samples per stack, type and outcome.

    It implements model.Rows, so that a reader fills it and no samples have to be kept.
    """

    def __init__(self, at: int | None = None) -> None:
        """Start with no samples; see Choice for `at`."""
        self.at = at
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        """Discard all samples."""
        self._settings = settings
        self._sums: dict[tuple[int, int, str], Sum] = {}
        #: the number of samples with the same stack, type, outcome, size, interval and
        #: live size
        self._alike: collections.Counter[tuple[int, int, int, int, int, int]] = (
            collections.Counter())
        #: the number of CPU samples of each stack
        self.ticks: collections.Counter[int] = collections.Counter()
        self._smallest_interval = self._largest_interval = 0

    def extend(self, rows: Columns) -> None:
        """Add samples."""
        fates: Iterable[int] = rows.fate
        if self.at is not None:
            rows = rows.chosen([time <= self.at for time in rows.time])
            # the outcomes at the time self.at
            fates = map(self._fate, rows.fate, rows.collected, rows.ended)
        if not any(rows.size):
            # All other columns of CPU samples are equal.
            self.ticks.update(rows.stack)
            return
        # Counter counts equal samples in C.
        self._alike.update(zip(
            rows.stack, rows.type, fates, rows.size, rows.interval, rows.live_size))
        if len(self._alike) >= _MAX_ALIKE:
            self._add_up()

    def _fate(self, fate: int, collected: int, ended: int) -> int:
        return IS_ALIVE if state(
            fate, collected, ended, self.at) == STILL_ALIVE else fate

    def carry(self, object_: Carried) -> None:
        """Add an inherited object."""
        if state(object_.fate, object_.collected, object_.ended,
                 self.at) == STILL_ALIVE:
            self._alike[object_.stack, object_.type, _IS_CARRIED, object_.size,
                        object_.interval, object_.live_size] += 1

    @property
    def time_samples(self) -> int:
        """Return the number of CPU samples."""
        return sum(self.ticks.values())

    def _add_up(self) -> None:
        gaps = self._settings.get("gaps", "exponential")
        for (stack, type_, fate, size, interval, live_size), count in (
                self._alike.items()):
            if not size:
                self.ticks[stack] += count
                continue
            key = stack, type_, _STATES[fate]
            sum_ = self._sums.get(key)
            if sum_ is None:
                sum_ = self._sums[key] = Sum()
            sum_.add(size, probability(size, interval, gaps), count, live_size)
            self._widen(interval, interval)
        self._alike.clear()

    def _widen(self, smallest: int, largest: int) -> None:
        self._largest_interval = max(self._largest_interval, largest)
        self._smallest_interval = min(self._smallest_interval or smallest,
                                      smallest or self._smallest_interval)

    @property
    def smallest_interval(self) -> int:
        """Return the smallest sampling interval in bytes; 0 without samples."""
        self._add_up()
        return self._smallest_interval

    @property
    def largest_interval(self) -> int:
        """Return the largest sampling interval in bytes; 0 without samples."""
        self._add_up()
        return self._largest_interval

    def add_tally(self, other: Tally, stacks: int = 0, types: int = 0) -> None:
        """Add the samples of another tally.

        Args:
            other: a tally of the same profile, or of a profile that was merged into
                this one.
            stacks: the index in this profile of the first stack of the other profile.
            types: the index in this profile of the first type of the other profile.
        """
        for (stack, type_, then), sum_ in other.sums().items():
            key = (stack + stacks if stack >= 0 else stack,
                   type_ + types if type_ >= 0 else type_, then)
            self._sums.setdefault(key, Sum()).add_sum(sum_)
        for stack, count in other.ticks.items():
            self.ticks[stack + stacks if stack >= 0 else stack] += count
        self._widen(other.smallest_interval, other.largest_interval)

    def keep(self, selected: Selected) -> None:
        """Discard the samples that `selected` does not include."""
        self._sums = {key: sum_ for key, sum_ in self.sums().items()
                      if selected.includes(*key)}
        self.ticks = collections.Counter({
            stack: count for stack, count in self.ticks.items()
            if selected.includes(stack, -1, NOT_RECORDED)})

    def figures(self) -> Figures:
        """Return the sums of all samples."""
        result = Figures(self.largest_interval)
        for (_, _, then), sum_ in self.sums().items():
            result.add(then, sum_)
        return result

    def sums(self) -> dict[tuple[int, int, str], Sum]:
        """Return the sums for each stack, type and outcome (lifetimes.py).

        The stack is -1 for samples whose stack was lost. The type is -1 if it is
        unknown.
        """
        self._add_up()
        return self._sums


class ByThread:
    """One tally for each thread, and one for the selected threads.

    It implements model.Rows. The names of threads, by which the user selects them, are
    known only after the whole profile has been read.
    """

    def __init__(self, tally: Tally) -> None:
        """Start with no samples.

        Args:
            tally: the tally to which keep() adds the samples of the selected threads.
        """
        self._tally = tally
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        """Discard all samples."""
        self._settings = settings
        self._tally.begin(settings)
        self._parts: dict[int, Tally] = {}

    def extend(self, rows: Columns) -> None:
        """Add samples."""
        for thread, count in collections.Counter(rows.thread).items():
            is_all = count == len(rows.thread)
            self._part(thread).extend(rows if is_all else rows.chosen(
                list(map(thread.__eq__, rows.thread))))

    def carry(self, object_: Carried) -> None:
        """Add an inherited object."""
        # The profile does not record the thread of an inherited object.
        self._part(0).carry(object_)

    def _part(self, thread: int) -> Tally:
        part = self._parts.get(thread)
        if part is None:
            part = self._parts[thread] = Tally(self._tally.at)
            part.begin(self._settings)
        return part

    def keep(self, threads: Set[int]) -> None:
        """Add the samples of `threads` to the tally, and discard other samples."""
        self._parts = {thread: self._parts[thread]
                       for thread in sorted(threads & self._parts.keys())}
        for part in self._parts.values():
            self._tally.add_tally(part)

    def parts(self) -> Mapping[int, Tally]:
        """Return the tallies by the kernel's number of the thread; 0 if unknown."""
        return self._parts


def tally_of(profile: Profile, at: int | None,
             alike: Mapping[int, int] | None = None) -> Tally:
    """Return a tally of the samples that a profile contains.

    Args:
        profile: the profile with its samples.
        at: see Choice.
        alike: the stack that replaces each stack; None to keep the stacks.
    """
    tally = Tally(at)
    tally.begin(profile.settings)
    samples = profile.samples
    for carried in samples.carried:
        tally.carry(carried if alike is None
                    else carried._replace(stack=alike[carried.stack]))
    for start in range(0, len(samples), _TOGETHER):
        rows = Columns(*[column[start:start + _TOGETHER]
                         for column in samples.columns()])
        tally.extend(rows if alike is None else rows.replaced(
            stack=list(map(alike.__getitem__, rows.stack))))
    return tally


def check(profile: Profile, choice: Choice) -> None:
    """Check that the profile records the information that a choice needs.

    Raises:
        ProfileError: The profile lacks this information, or ends before `choice.at`.
    """
    key = key_of(choice.by)
    if key is not None and key not in profile.label_keys:
        raise ProfileError("no sample has a label '%s'%s" % (shortened(key), (
            "; there are: %s" % ", ".join(map(shortened, profile.label_keys))
            if profile.label_keys else ": the program sets them with "
            "vmprof_allocation.labels()")))
    if TYPE in choice.by and not profile.has_types:
        raise ProfileError(
            "there are no types of objects in this profile, which --by type "
            "needs: it was taken without them")
    if not profile.has_lifetimes and (
            choice.sort == ALIVE or choice.at is not None):
        raise ProfileError(
            "this profile has no outcomes of objects, which %s needs: it was taken "
            "without lifetimes" % (
                "--at" if choice.at is not None else "--sort alive"))
    if choice.at is not None and choice.at > profile.end:
        raise ProfileError("there is no --at %.9g: the profile ends after %.9g "
                           "seconds" % (choice.at / 1e9, profile.end / 1e9))


def interval_of(profile: Profile, tally: Tally) -> int:
    """Return the largest sampling interval in bytes, which determines upper bounds.

    The initial interval counts, too, even if it was changed before the first sample.
    """
    return max(tally.largest_interval, profile.interval)


def summarize(profile: Profile, tally: Tally | None = None,
              choice: Choice = BY_FUNCTION, *, origins: Origins | None = None,
              code: CompiledCode | None = None) -> Summary:
    """Sum the allocation samples of a profile, and return the rows of a report.

    A function that occurs several times in a stack counts once in its total.

    Args:
        profile: the profile.
        tally: the sums of its samples; None to sum the samples that the profile
            contains.
        choice: the kind of rows.
        origins: the origins of the functions of the whole profile; None if `profile` is
            the whole profile.
        code: the compiled code of the whole profile; None if `profile` is the whole
            profile.

    Raises:
        ProfileError: The profile does not record the information that `choice` needs.
    """
    check(profile, choice)
    if tally is None:
        tally = tally_of(profile, choice.at)
    if code is None:
        code = compiled_code(profile)
    names = TypeNames(profile, group_storage=choice.group_storage)
    interval = interval_of(profile, tally)
    own: dict[Subject, Figures] = {}
    total: dict[Subject, Figures] = {}
    everything, hidden, untyped = (Figures(interval) for _ in range(3))
    by_stack: dict[int, list[tuple[int, str, Sum]]] = collections.defaultdict(
        list)
    for (stack, type_, then), sum_ in tally.sums().items():
        by_stack[stack].append((type_, then, sum_))
    places = Places(profile, choice.by, origins)
    lacking, not_known, logged, compiled = Sum(), Sum(), Sum(), Sum()
    remarked = ((code.missing.stacks, lacking), (code.not_known, not_known),
                (code.log, logged), (code.compiled, compiled))
    without_line = Sum()
    for stack, parts in by_stack.items():
        of_stack = places.of(stack)
        innermost, distinct = of_stack[-1], set(of_stack)
        also_in = [of_them for stacks, of_them in remarked if stack in stacks]
        if any(place.line == UNKNOWN_LINE for place in of_stack[:-1]):
            also_in.append(without_line)
        for type_, then, sum_ in parts:
            everything.add(then, sum_)
            for of_them in also_in:
                of_them.add_sum(sum_)
            shown = names.shown(type_)
            if shown == UNNAMED:
                untyped.add(then, sum_)
            if choice.hide_internal and shown.kind == INTERNAL:
                hidden.add(then, sum_)
                continue
            of_row = shown if TYPE in choice.by else None
            figures_of(own, innermost.of_type(of_row), interval).add(then, sum_)
            for place in distinct:
                figures_of(total, place.of_type(of_row), interval).add(then, sum_)
    nothing = Figures(interval)
    rows = [Row(subject, own.get(subject, nothing), figures)
            for subject, figures in total.items()]
    sort(rows, choice.sort)
    # Only callers that a row could show are reported as missing.
    known = places.functions()
    return Summary(rows, everything, tally.time_samples,
                   tally.smallest_interval != tally.largest_interval,
                   hidden, untyped, places.has_lines,
                   [function for function in code.missing.functions
                    if lacking.samples and function in known],
                   *(sum_.bytes(interval).value if sum_.samples else 0.0
                     for sum_ in (lacking, not_known, logged, compiled, without_line)))


def sum_up(profile: Profile) -> Summary:
    """Sum all samples, by type if types are known, without a row for each function.

    Stacks that lack the same information count as one stack, so that the sums of
    Summary about missing callers remain.
    """
    code = compiled_code(profile)
    # for each combination of missing information, the first stack that lacks it
    alike: dict[tuple[bool, ...], int] = {}
    tally = tally_of(profile, None, {
        stack: alike.setdefault((stack in code.missing.stacks, stack in code.not_known,
                                 stack in code.log, stack in code.compiled), stack)
        for stack in range(-1, len(profile.stacks))})
    summary = summarize(
        profile, tally, Choice(by=(TYPE,) if profile.has_types else ()), code=code)
    # summarize() omits missing callers that no row shows. Another table of the output
    # shows functions.
    return summary._replace(
        missing=code.missing.functions if summary.missing_bytes else [])


def figures_of(all_: dict[Subject, Figures], subject: Subject,
             interval: int) -> Figures:
    """Return the sums of a subject in `all_`; create them if they are missing."""
    found = all_.get(subject)
    if found is None:
        found = all_[subject] = Figures(
            interval, subject.type is not None and subject.type.kind == CLASS)
    return found


class Places:
    """The subjects of the rows to which each stack belongs, without types."""

    def __init__(self, profile: Profile, by: tuple[str, ...],
                 origins: Origins | None = None) -> None:
        """Prepare the names of the profile's functions.

        Args:
            profile: the profile.
            by: the kind of rows (see Choice).
            origins: the origins of the profile's functions; None to find them.

        Raises:
            ProfileError: The rows are threads or processes (see by_part.py).
        """
        self._program = Program(profile)
        self._origins = origins or Origins(profile)
        if by and by[0] in PARTS:
            raise ProfileError("--by %s is for tables of the allocations of one run: "
                               "choose one with --%s instead" % (by[0], by[0]))
        self._by = by
        self._key = key_of(by)
        self._profile = profile
        #: whether an executed line was known for any stack so far
        self.has_lines = False
        self._known: dict[Frame, Subject] = {}

    def of(self, stack: int) -> list[Subject]:
        """Return the subjects of a stack, outermost first; at least one."""
        if not self._by or self._by == (TYPE,):
            return [Subject(None, 0)]
        if self._key is not None:
            value = self._profile.labels_of(stack).get(self._key)
            return [Subject(None, 0, label="[without %s]" % self._key if value is None
                            else value or "[empty]")]
        return list(map(self._subject, self._program.stack(stack)))

    def functions(self) -> set[Function]:
        """Return the functions of all subjects in the results of of() so far."""
        return set(map(self._program.function, self._known))

    def _subject(self, frame: Frame) -> Subject:
        found = self._known.get(frame)
        if found is None:
            found = self._known[frame] = self._new(frame)
        return found

    def _new(self, frame: Frame) -> Subject:
        function = self._program.function(frame)
        if FUNCTION in self._by:
            return Subject(function, 0)
        if LINE in self._by:
            self.has_lines |= frame.line > 0
            return Subject(function, self._program.line(frame) or function.line)
        if FILE in self._by:
            return Subject(None, 0, file=function.file or _no_file(function))
        if MODULE in self._by:
            return Subject(None, 0, module=_module(
                self._origins.path(function.file)) or _no_file(function))
        return Subject(None, 0)


def key_of(by: tuple[str, ...]) -> str | None:
    """Return the key of the label whose values are the rows; None for other rows."""
    return next((word[len(LABELLED):] for word in by if word.startswith(LABELLED)),
                None)


def has_totals(by: tuple[str, ...]) -> bool:
    """Return whether rows have callers, so that totals differ from own allocations."""
    return by != (TYPE,) and key_of(by) is None and not (by and by[0] in PARTS)


def _no_file(function: Function) -> str:
    """Return the name of the row for a function that has no file."""
    return function.name if function.kind == LABEL else "[no file]"


def _module(path: str) -> str:
    """Return the module of a path: app.views for app/views.py.

    Leading folders that belong to no module are omitted.
    """
    if not path.endswith(".py"):
        return path
    parts = path[:-len(".py")].split("/")
    while parts and parts[0] in ("", "..", "."):
        del parts[0]
    if len(parts) > 1 and parts[-1] == "__init__":
        del parts[-1]
    return ".".join(parts)


def sort(rows: list[Row], by: str) -> None:
    """Sort rows by SELF, TOTAL, OBJECTS or ALIVE."""
    def key(row: Row) -> tuple[float, ...]:
        own, total = row.own.sum(), row.total.sum()
        first: Iterable[float] = {
            SELF: (), TOTAL: (-total.value_bytes,),
            OBJECTS: (-own.value_objects, -total.value_objects),
            ALIVE: (-row.own.sum(STILL_ALIVE).value_bytes,
                    -row.total.sum(STILL_ALIVE).value_bytes)}[by]
        return (*first, -own.value_bytes, -total.value_bytes)

    rows.sort(key=lambda row: (key(row), row.subject))
