"""Who allocates how much, of which type, and what became of it: the samples,
added up."""
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

#: what rows can be of
FUNCTION, LINE, FILE, MODULE, TYPE = "function", "line", "file", "module", "type"
#: or of a label's values: this, and its key
LABELLED = "label:"
#: or of parts of the run (by_part.py)
THREAD, PROCESS = PARTS = ("thread", "process")
#: what they can be sorted by
SELF, TOTAL, OBJECTS, ALIVE = "self", "total", "objects", "alive"

#: An additional fate in a Tally: a live object that an earlier part contains.
_IS_CARRIED = UNKNOWN + 1
#: states of objects at the end, by their fates
_STATES = {**{fate: state(fate, -1, -1) for fate in range(UNTOLD, UNKNOWN + 1)},
           _IS_CARRIED: CARRIED}
#: samples that are alike are counted before they are added up; of so many kinds
_MAX_ALIKE = 10000
#: so many rows of a table are counted at once
_TOGETHER = 2**16


class Choice(NamedTuple):
    """What is to be shown, and how."""

    #: FUNCTION, LINE, FILE or MODULE; TYPE; or one of those and TYPE
    by: tuple[str, ...] = (FUNCTION,)
    sort: str = SELF
    #: nanoseconds after the start: as though the profile ended there
    at: int | None = None
    #: storage counts as what it belongs to
    group_storage: bool = False
    #: what only the interpreter knows has no row
    hide_internal: bool = False


BY_FUNCTION = Choice()


class Figures:
    """Sums over the same samples: of all, and for each state of an object."""

    __slots__ = ("_all", "_is_one_class", "_states", "interval")

    def __init__(self, interval: int, is_one_class: bool = False) -> None:
        """`is_one_class`: all are instances of one class, of which the smallest
        that was met tells how small they can be."""
        #: the largest one that was in force
        self.interval = interval
        self._is_one_class = is_one_class
        self._all = Sum()
        self._states: dict[str, Sum] = {}

    def add(self, state: str, sum_: Sum) -> None:
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
        """Of other samples."""
        self.interval = max(self.interval, other.interval)
        self._all.add_sum(other._all)
        for then, sum_ in other._states.items():
            self._states.setdefault(then, Sum()).add_sum(sum_)

    def sum(self, state: str | None = None) -> Sum:
        """Of the objects in this state (lifetimes.py), or of all."""
        if state is None:
            return self._all
        return self._states.get(state) or Sum()

    def bytes(self, state: str | None = None, z: float = Z) -> Estimate:
        return self.sum(state).bytes(self.interval, z)

    def objects(self, state: str | None = None, z: float = Z) -> Estimate:
        sum_ = self.sum(state)
        if self._is_one_class and self._all.smallest:
            return sum_.objects(self.interval, self._all.smallest, z)
        return sum_.objects(self.interval, z=z)

    def sampled(self, state: str | None, is_objects: bool) -> Sampled:
        """Objects or bytes, without an interval."""
        return self.sum(state).sampled(
            self.interval, is_objects, (self._is_one_class and self._all.smallest) or 0)


class Subject(NamedTuple):
    """What a row is of."""

    function: Function | None
    #: Program.line(), or that of the definition; 0: the row is of no line
    line: int
    type: Shown | None = None
    #: a file, with its folders, or a module; or, of what has none, a label
    file: str = ""
    module: str = ""
    #: value of a label
    label: str = ""

    def of_type(self, type_: Shown | None) -> Subject:
        if type_ is self.type:
            return self
        return self._replace(type=type_)


class Row(NamedTuple):
    subject: Subject
    #: allocated by the function itself; and with what it calls
    own: Figures
    total: Figures

    @property
    def function(self) -> Function:
        assert self.subject.function is not None
        return self.subject.function


class Summary(NamedTuple):
    """The rows, largest first, and the sums over all samples."""

    rows: list[Row]
    figures: Figures
    time_samples: int
    #: did the interval change?
    varied: bool
    #: of what was left out of the rows, and of what has no type
    hidden: Figures
    untyped: Figures
    #: whether executed lines are known
    has_lines: bool
    #: callers that compiled code's stacks lack, and up to how many bytes
    missing: list[Function]
    missing_bytes: float
    #: bytes in whose stacks others may be missing; and of the JIT's log
    not_known_bytes: float
    log_bytes: float
    #: bytes that compiled code allocated
    compiled_bytes: float
    #: bytes in whose stacks the line of a caller is unknown
    callers_without_line_bytes: float

    @property
    def bytes(self) -> Estimate:
        return self.figures.bytes()

    @property
    def objects(self) -> Estimate:
        return self.figures.objects()

    @property
    def samples(self) -> int:
        return self.figures.sum().samples


class Tally:
    """Adds samples up while they are read (model.Rows): per stack, type and
    state."""

    def __init__(self, at: int | None = None) -> None:
        """`at`: see Choice."""
        self.at = at
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._sums: dict[tuple[int, int, str], Sum] = {}
        #: how often there are samples of this stack, type, fate, size, interval and
        #: live size
        self._alike: collections.Counter[tuple[int, int, int, int, int, int]] = (
            collections.Counter())
        #: time samples of each stack
        self.ticks: collections.Counter[int] = collections.Counter()
        self._smallest_interval = self._largest_interval = 0

    def extend(self, rows: Columns) -> None:
        fates: Iterable[int] = rows.fate
        if self.at is not None:
            rows = rows.chosen([time <= self.at for time in rows.time])
            # as they were then
            fates = map(self._fate, rows.fate, rows.collected, rows.ended)
        if not any(rows.size):
            # what else there is of time samples is the same for all
            self.ticks.update(rows.stack)
            return
        # what is alike is counted in C
        self._alike.update(zip(
            rows.stack, rows.type, fates, rows.size, rows.interval, rows.live_size))
        if len(self._alike) >= _MAX_ALIKE:
            self._add_up()

    def _fate(self, fate: int, collected: int, ended: int) -> int:
        return IS_ALIVE if state(
            fate, collected, ended, self.at) == STILL_ALIVE else fate

    def carry(self, object_: Carried) -> None:
        if state(object_.fate, object_.collected, object_.ended,
                 self.at) == STILL_ALIVE:
            self._alike[object_.stack, object_.type, _IS_CARRIED, object_.size,
                        object_.interval, object_.live_size] += 1

    @property
    def time_samples(self) -> int:
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
        """Of the samples; 0: there is none."""
        self._add_up()
        return self._smallest_interval

    @property
    def largest_interval(self) -> int:
        """Of the samples; 0: there is none."""
        self._add_up()
        return self._largest_interval

    def add_tally(self, other: Tally, stacks: int = 0, types: int = 0) -> None:
        """Of other samples of the same profile; or of one whose first stack and
        type have these numbers here."""
        for (stack, type_, then), sum_ in other.sums().items():
            key = (stack + stacks if stack >= 0 else stack,
                   type_ + types if type_ >= 0 else type_, then)
            self._sums.setdefault(key, Sum()).add_sum(sum_)
        for stack, count in other.ticks.items():
            self.ticks[stack + stacks if stack >= 0 else stack] += count
        self._widen(other.smallest_interval, other.largest_interval)

    def keep(self, selected: Selected) -> None:
        """Forget what is not asked for."""
        self._sums = {key: sum_ for key, sum_ in self.sums().items()
                      if selected.includes(*key)}
        self.ticks = collections.Counter({
            stack: count for stack, count in self.ticks.items()
            if selected.includes(stack, -1, NOT_RECORDED)})

    def figures(self) -> Figures:
        """Of all together."""
        result = Figures(self.largest_interval)
        for (_, _, then), sum_ in self.sums().items():
            result.add(then, sum_)
        return result

    def sums(self) -> dict[tuple[int, int, str], Sum]:
        """For each stack, number -1 being the lost ones; type, of which -1 is
        not known; and state (lifetimes.py)."""
        self._add_up()
        return self._sums


class ByThread:
    """Adds up each thread by itself (model.Rows), for `tally`: only when all is
    read, it is known what they are called."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._tally.begin(settings)
        self._parts: dict[int, Tally] = {}

    def extend(self, rows: Columns) -> None:
        for thread, count in collections.Counter(rows.thread).items():
            is_all = count == len(rows.thread)
            self._part(thread).extend(rows if is_all else rows.chosen(
                list(map(thread.__eq__, rows.thread))))

    def carry(self, object_: Carried) -> None:
        # nobody knows of which thread it is
        self._part(0).carry(object_)

    def _part(self, thread: int) -> Tally:
        part = self._parts.get(thread)
        if part is None:
            part = self._parts[thread] = Tally(self._tally.at)
            part.begin(self._settings)
        return part

    def keep(self, threads: Set[int]) -> None:
        """These go into the tally, and the others are forgotten."""
        self._parts = {thread: self._parts[thread]
                       for thread in sorted(threads & self._parts.keys())}
        for part in self._parts.values():
            self._tally.add_tally(part)

    def parts(self) -> Mapping[int, Tally]:
        """By the kernel's number of the thread; 0: it is not known."""
        return self._parts


def tally_of(profile: Profile, at: int | None,
             alike: Mapping[int, int] | None = None) -> Tally:
    """`alike`: instead of each stack another one."""
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
    """Raises ProfileError if the profile can't tell what is asked."""
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
            "nothing in this profile says what became of the objects, which "
            "%s needs: it was taken without lifetimes" % (
                "--at" if choice.at is not None else "--sort alive"))
    if choice.at is not None and choice.at > profile.end:
        raise ProfileError("there is no --at %.9g: the profile ends after %.9g "
                           "seconds" % (choice.at / 1e9, profile.end / 1e9))


def interval_of(profile: Profile, tally: Tally) -> int:
    """The largest one, for the ends of intervals.  At the one that the sampling began
    with, nothing may have been sampled."""
    return max(tally.largest_interval, profile.interval)


def summarize(profile: Profile, tally: Tally | None = None,
              choice: Choice = BY_FUNCTION, *, origins: Origins | None = None,
              code: CompiledCode | None = None) -> Summary:
    """Add the allocation samples of `profile` up; or those of `tally`, if they
    went there.  `origins`, `code`: of the profile as it was read, if this is a part
    of it.

    A function that stands several times in a stack counts once in its total.
    Raises ProfileError if the profile can't tell what is asked.
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
    # of what no row shows, nobody misses anything
    known = places.functions()
    return Summary(rows, everything, tally.time_samples,
                   tally.smallest_interval != tally.largest_interval,
                   hidden, untyped, places.has_lines,
                   [function for function in code.missing.functions
                    if lacking.samples and function in known],
                   *(sum_.bytes(interval).value if sum_.samples else 0.0
                     for sum_ in (lacking, not_known, logged, compiled, without_line)))


def sum_up(profile: Profile) -> Summary:
    """Of all samples together, and by type if that is known: without a look at stacks,
    but for those that lack something."""
    code = compiled_code(profile)
    # one stack stands for all that lack the same
    alike: dict[tuple[bool, ...], int] = {}
    tally = tally_of(profile, None, {
        stack: alike.setdefault((stack in code.missing.stacks, stack in code.not_known,
                                 stack in code.log, stack in code.compiled), stack)
        for stack in range(-1, len(profile.stacks))})
    summary = summarize(
        profile, tally, Choice(by=(TYPE,) if profile.has_types else ()), code=code)
    # these are shown elsewhere
    return summary._replace(
        missing=code.missing.functions if summary.missing_bytes else [])


def figures_of(all_: dict[Subject, Figures], subject: Subject,
             interval: int) -> Figures:
    found = all_.get(subject)
    if found is None:
        found = all_[subject] = Figures(
            interval, subject.type is not None and subject.type.kind == CLASS)
    return found


class Places:
    """What rows a stack counts in, but for types."""

    def __init__(self, profile: Profile, by: tuple[str, ...],
                 origins: Origins | None = None) -> None:
        self._program = Program(profile)
        self._origins = origins or Origins(profile)
        if by and by[0] in PARTS:
            raise ProfileError("--by %s is for tables of what was allocated in one "
                               "run: choose one with --%s instead" % (by[0], by[0]))
        self._by = by
        self._key = key_of(by)
        self._profile = profile
        #: some line was known
        self.has_lines = False
        self._known: dict[Frame, Subject] = {}

    def of(self, stack: int) -> list[Subject]:
        """From the outermost frame on; at least one."""
        if not self._by or self._by == (TYPE,):
            return [Subject(None, 0)]
        if self._key is not None:
            value = self._profile.labels_of(stack).get(self._key)
            return [Subject(None, 0, label="[without %s]" % self._key if value is None
                            else value or "[empty]")]
        return list(map(self._subject, self._program.stack(stack)))

    def functions(self) -> set[Function]:
        """Those that some row is of, or counts in."""
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
    """Of the label that rows are of."""
    return next((word[len(LABELLED):] for word in by if word.startswith(LABELLED)),
                None)


def has_totals(by: tuple[str, ...]) -> bool:
    """Whether rows have callers, whose totals have theirs in it."""
    return by != (TYPE,) and key_of(by) is None and not (by and by[0] in PARTS)


def _no_file(function: Function) -> str:
    """Where functions are counted that are in none."""
    return function.name if function.kind == LABEL else "[no file]"


def _module(path: str) -> str:
    """app/views.py: app.views; without the folders that are none of it."""
    if not path.endswith(".py"):
        return path
    parts = path[:-len(".py")].split("/")
    while parts and parts[0] in ("", "..", "."):
        del parts[0]
    if len(parts) > 1 and parts[-1] == "__init__":
        del parts[-1]
    return ".".join(parts)


def sort(rows: list[Row], by: str) -> None:
    def key(row: Row) -> tuple[float, ...]:
        own, total = row.own.sum(), row.total.sum()
        first: Iterable[float] = {
            SELF: (), TOTAL: (-total.value_bytes,),
            OBJECTS: (-own.value_objects, -total.value_objects),
            ALIVE: (-row.own.sum(STILL_ALIVE).value_bytes,
                    -row.total.sum(STILL_ALIVE).value_bytes)}[by]
        return (*first, -own.value_bytes, -total.value_bytes)

    rows.sort(key=lambda row: (key(row), row.subject))
