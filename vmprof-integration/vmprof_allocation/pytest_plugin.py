"""For pytest: what each test allocates, and tests that fail if it is too much.

    pytest --allocations
    @pytest.mark.limit_allocations("10 MB")
    @pytest.mark.limit_leaks("1 MB")

A test is judged by samples: it fails only if it is above its limit beyond doubt, with
the confidence of vmprof_convert.analysis.thresholds.  What pytest loads at each of its
starts, is in this file: all else is imported where it is needed.
"""
from __future__ import annotations

import contextlib
import gc
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

if TYPE_CHECKING:
    from vmprof_allocation.session.session import Session
    from vmprof_convert.analysis.summary import Choice
    from vmprof_convert.analysis.thresholds import Condition, Verdict
    from vmprof_convert.profile.model import Profile
    from vmprof_convert.report.tables import Table

OPTION = "--allocations"
INTERVAL = "--allocations-interval"
ALLOCATIONS, LEAKS = "limit_allocations", "limit_leaks"
DEFAULT_INTERVAL = "16k"

#: a run that keeps to its limit has about so many samples
SAMPLES = 400
#: mean bytes between two samples: from, and to
SMALLEST, LARGEST = 64, 2**17
#: calls before anything counts, and those that do; as the marker has them
WARM_UP, REPEAT = 3, 10
#: guards that fail less often are not compiled on
_NEVER = 2**31 - 1
#: of a test's functions so many are shown; of a table's tests so many
ROWS, TESTS = 8, 100

_PROPERTY, _NOT_MEASURED = "allocations", "allocations: not measured"
#: marks; a test may have some of its own
_FIRST, _LAST = (__name__ + ": " + name for name in ("first", "last"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("allocations", "allocations (PyPy)")
    group.addoption(OPTION, action="store_true",
                    help="show what each test allocates, and what of it is alive")
    group.addoption(INTERVAL, metavar="BYTES", default=DEFAULT_INTERVAL,
                    help="mean number of bytes between two samples of %s (default: %s)"
                         % (OPTION, DEFAULT_INTERVAL))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "%s(limit): fail if the test allocates more, such as \"10 MB\""
        % ALLOCATIONS)
    config.addinivalue_line(
        "markers", "%s(limit, *, warm_up=%d, repeat=%d): fail if a call of the test "
        "keeps more, such as \"1 MB\"; it is called so often" % (
            LEAKS, WARM_UP, REPEAT))
    if config.getoption(OPTION):
        from vmprof_allocation import AllocationSamplingError
        from vmprof_allocation.settings.parsing import make_settings
        try:
            make_settings(config.getoption(INTERVAL))
        except AllocationSamplingError as error:
            raise pytest.UsageError("%s: %s" % (INTERVAL, error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Calls the test itself, if it is to be measured."""
    allocations = pyfuncitem.get_closest_marker(ALLOCATIONS)
    leaks = pyfuncitem.get_closest_marker(LEAKS)
    is_shown = pyfuncitem.config.getoption(OPTION)
    if not (allocations or leaks or is_shown):
        return None
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        if allocations or leaks:
            pytest.fail("%s and %s are for functions that are not async"
                        % (ALLOCATIONS, LEAKS), pytrace=False)
        return None
    failure = _call_and_compare(pyfuncitem, leaks) if leaks else ""
    if failure:
        allocations = None
    if allocations or is_shown:
        failure = _call_and_count(pyfuncitem, allocations) or failure
    if failure:
        pytest.fail(failure, pytrace=False)
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in ALLOCATIONS, LEAKS:
        if item.get_closest_marker(name) and not (
                isinstance(item, pytest.Function) and _is_plain(item)):
            pytest.fail("%s is for functions and methods, and not for tests of "
                        "unittest: %s" % (name, item.name), pytrace=False)


def _is_plain(item: pytest.Function) -> bool:
    import unittest
    return not (isinstance(item.cls, type)
                and issubclass(item.cls, unittest.TestCase))


def _call(item: pytest.Function) -> None:
    """As pytest itself does it."""
    names = item._fixtureinfo.argnames
    item.obj(**{name: item.funcargs[name] for name in names})


def _call_and_count(item: pytest.Function, marker: pytest.Mark | None) -> str:
    """Returns why the test fails, or nothing."""
    from vmprof_allocation import AllocationSamplingError
    condition = _condition(item, marker, "allocated") if marker else None
    interval: int | str = item.config.getoption(INTERVAL)
    if condition is not None:
        interval = _interval(condition.limit)
    raised: list[BaseException] = []

    def measured(_: Session) -> None:
        # a test that fails has allocated, too
        try:
            _call(item)
        except AllocationSamplingError:
            raise               # of the sampling
        except BaseException as error:
            raised.append(error)

    profiles = _sampled(item, interval, measured)
    failure = "" if profiles is None else _judge(
        item, profiles.heap, None if raised else condition)
    if raised:
        raise raised[0]
    return failure


def _judge(item: pytest.Function, profile: Profile,
           condition: Condition | None) -> str:
    from vmprof_convert.analysis import thresholds
    from vmprof_convert.analysis.summary import Choice, summarize
    figures = summarize(profile).figures
    if item.config.getoption(OPTION):
        allocated, alive = figures.bytes(), figures.bytes("alive")
        item.user_properties.append((_PROPERTY, {
            "test": item.nodeid, "allocated": list(allocated), "alive": list(alive),
            "objects": list(figures.objects())}))
    if condition is not None:
        verdict, = thresholds.judge([condition], [figures])
        if verdict.failed:
            return _failure(verdict, "%s allocated" % item.name, profile,
                            Choice(by=("line",)))
    return ""


def _call_and_compare(item: pytest.Function, marker: pytest.Mark) -> str:
    """Warm up; then what is alive after the calls that was not before them.  Returns
    why the test fails, or nothing."""
    warm_up = _number(item, marker, "warm_up", WARM_UP, 0)
    repeat = _number(item, marker, "repeat", REPEAT, 1)
    condition = _condition(item, marker, "alive growth")
    # what a call leaves is what the limit is about
    condition = condition._replace(limit=condition.limit * repeat)
    outside: list[int] = []
    not_held: list[str] = []

    def call_often() -> None:
        for _ in range(repeat):
            _call(item)
        _collect()

    def measured(session: Session) -> None:
        from vmprof_allocation import mark, raw_memory
        for _ in range(warm_up):
            _call(item)
        with _compiling_nothing():
            _collect()
            before = raw_memory.read()
            # what is young counts as alive: also what reading took
            _collect()
            heap = _heap()
            mark(_FIRST)
            call_often()
            mark(_LAST)
            # as it seems, and before it is judged: what leaked is alive
            is_above = _heap() - heap > condition.limit / 2
            for is_again in False, True:
                after = raw_memory.read()
                if before is None or after is None:
                    break
                outside[:] = [min([after - before, *outside])]
                # the first time, some is set aside for good
                if is_again or outside[0] <= condition.limit + raw_memory.NOISE:
                    break
                call_often()
                before = after
        if is_above:
            not_held.extend(_look_who_holds(session))

    profiles = _sampled(item, _interval(condition.limit), measured, has_raw=True)
    if profiles is None:
        return ""
    from vmprof_convert.analysis import diff, thresholds
    from vmprof_convert.analysis.summary import Choice
    profile = diff.without_interpreter(profiles.heap)
    sides = diff.of_moments(profile, diff.find_moment(profile, _FIRST),
                            diff.find_moment(profile, _LAST, is_last=True))
    choice = Choice(by=("line", "type"), sort="alive")
    difference = diff.compare(sides, choice)
    verdict, = thresholds.of([condition], difference)
    what = "%d calls of %s left" % (repeat, item.name)
    failures = []
    if verdict.failed:
        failures.append(_failure(verdict, what, sides.gained[0], choice))
        failures += not_held or _held(profile, sides.gained[0])
    if not outside:
        item.user_properties.append((
            _NOT_MEASURED, "%s: what C code keeps outside of the GC's heap: this "
            "system does not tell" % item.nodeid))
    elif text := _outside(what, outside[0], condition):
        failures.append(_who_asked(text, outside[0], profiles.raw))
    return "\n".join(failures)


def _heap() -> int:
    """Bytes of the GC's; 0: they are not told."""
    try:
        return int(gc.get_stats()._s.total_gc_memory)   # type: ignore[attr-defined]
    except AttributeError:
        return 0


def _look_who_holds(session: Session) -> list[str]:
    """Into the profile.  Returns why not, if that is not always so."""
    from vmprof_allocation import AllocationSamplingError
    engine = session.engine
    if engine is not None and "held" in engine.capabilities():
        try:
            session.held()
        except AllocationSamplingError as error:
            return [str(error)]
    return []


def _held(profile: Profile, gained: Profile) -> list[str]:
    """Who holds what was `gained`, and is alive."""
    from vmprof_convert.analysis import holders
    from vmprof_convert.profile.model import ALIVE
    from vmprof_convert.report.held import holders_of
    samples = gained.samples
    line = holders_of(holders.of_chosen(profile, {
        (stack, type_) for stack, type_, fate in zip(
            samples.stack, samples.type, samples.fate) if fate == ALIVE}))
    return [line] if line else []


def _outside(what: str, bytes_: int, condition: Condition) -> str:
    """Why the test fails if it is so much that the calls left outside of the GC's heap;
    or nothing."""
    from vmprof_allocation import raw_memory
    from vmprof_convert.text.units import format_bytes
    if bytes_ <= condition.limit + raw_memory.NOISE:
        return ""
    return (
        "%s %s outside of the GC's heap (as malloc counts), and may %s; called again, "
        "they left at least so much." % (
            what, format_bytes(bytes_), format_bytes(condition.limit)))


def _who_asked(text: str, bytes_: int, raw: Profile | None) -> str:
    """The text, and who asked for so many bytes, as far as it is there of the first
    calls."""
    from vmprof_convert.analysis import diff
    from vmprof_convert.analysis.summary import Choice, summarize
    if raw is not None:
        sides = diff.of_moments(raw, diff.find_moment(raw, _FIRST), diff.find_moment(
            raw, _LAST, is_last=True))
        gained, = (diff.only_own_code(sides) or sides).gained
        if summarize(gained).figures.bytes("alive").high > bytes_ / 2:
            return _table(text + " Of the first calls, by samples:", gained, Choice(
                by=("function", "type"), sort="alive"))
    return (text + " Most of it is in no sample: look at ctypes, cffi, array and C "
            "extensions")


@contextlib.contextmanager
def _compiling_nothing() -> Iterator[None]:
    """What the JIT compiles it keeps, in arrays that look as the program's do: for
    hundreds of calls, more than most leaks.  What is compiled already runs so."""
    try:
        import pypyjit
    except ImportError:
        yield
        return
    pypyjit.set_param("off")
    # and no bridges of what there is
    pypyjit.set_param("trace_eagerness=%d" % _NEVER)
    try:
        yield
    finally:
        # what they were, nobody tells
        pypyjit.set_param("default")


def _collect() -> None:
    # what a collection promotes, only the next one judges
    for _ in range(3):
        gc.collect()


def _number(item: pytest.Function, marker: pytest.Mark, name: str, default: int,
            least: int) -> int:
    number = marker.kwargs.get(name, default)
    if not isinstance(number, int) or number < least:
        _complain(item, "%s(%s=%r): write a number, %d or more"
                  % (marker.name, name, number, least))
    return number


def _condition(item: pytest.Function, marker: pytest.Mark, what: str) -> Condition:
    from vmprof_convert.analysis import thresholds
    unknown = set(marker.kwargs) - ({"warm_up", "repeat"} if marker.name == LEAKS
                                    else set())
    if len(marker.args) != 1 or unknown:
        _complain(item, "%s%r: write one limit, such as %s(\"10 MB\")" % (
            marker.name, marker.args, marker.name))
    try:
        condition = thresholds.parse("%s > %s" % (what, marker.args[0]))
    except ValueError:
        condition = None
    if condition is None or condition.is_share:
        _complain(item, "%s(%r) is no limit: write bytes, such as \"10 MB\""
                  % (marker.name, marker.args[0]))
    return condition


def _complain(item: pytest.Function, text: str) -> NoReturn:
    pytest.fail("%s: %s" % (item.nodeid, text), pytrace=False)


def _interval(limit: float) -> int:
    return int(min(max(limit / SAMPLES, SMALLEST), LARGEST))


class _Profiles(NamedTuple):
    heap: Profile
    #: None: it was not asked for, or this PyPy can't sample it
    raw: Profile | None


def _sampled(item: pytest.Function, interval: int | str,
             work: Callable[[Session], None], *, has_raw: bool = False
             ) -> _Profiles | None:
    """`has_raw`: raw memory, too, where that is possible.  None: the test was in the
    way, and is in the table with why."""
    from vmprof_allocation import AllocationSamplingError
    from vmprof_convert import readers
    from vmprof_convert.errors import ProfileError
    if _is_sampled():
        pytest.skip("allocations can't be measured: this process is sampled already")
    with tempfile.TemporaryDirectory(prefix="allocations") as folder:
        path = os.path.join(folder, "test.vmprof")
        try:
            session = _started(path, interval, has_raw)
        except AllocationSamplingError as error:
            _complain(item, str(error))
        try:
            work(session)
        except AllocationSamplingError as error:
            pytest.skip("allocations can't be measured: the test samples by itself "
                        "(%s)" % error)
        finally:
            why = ""
            try:
                session.stop()
            except AllocationSamplingError as error:
                why = str(error)
        try:
            if not why:
                heap = readers.read(path)
                return _Profiles(heap, readers.read(path, raw=True)
                                 if heap.raw_interval else None)
        except (ProfileError, OSError) as error:
            why = str(error)
    item.user_properties.append((_NOT_MEASURED, "%s: %s" % (item.nodeid, why)))
    return None


def _started(path: str, interval: int | str, has_raw: bool) -> Session:
    """Raises AllocationSamplingError."""
    from vmprof_allocation import AllocationSamplingError, sample
    # what processes of the test allocate is not in this file
    session = sample(path, interval, follow=False,
                     raw_memory=interval if has_raw else None)
    try:
        session.start()
    except AllocationSamplingError:
        if not has_raw:
            raise
        return _started(path, interval, False)
    return session


def _is_sampled() -> bool:
    """By the command line, or by a fixture."""
    try:
        import _vmprof
    except ImportError:
        return False        # who begins to sample says why that can't be
    return bool(_vmprof.is_enabled())


def _failure(verdict: Verdict, what: str, profile: Profile, choice: Choice) -> str:
    from vmprof_convert.analysis.thresholds import CONFIDENCE
    from vmprof_convert.text.units import format_bytes, format_ends
    estimate = verdict.estimate
    return _table("%s %s (%s .. %s, %.4g %%), and may %s" % (
        what, *format_ends(estimate.low, estimate.value, estimate.high),
        100 * CONFIDENCE, format_bytes(verdict.limit)), profile, choice)


def _table(head: str, profile: Profile, choice: Choice) -> str:
    """In twenty lines at most."""
    import io

    from vmprof_convert.analysis.summary import summarize
    from vmprof_convert.report import tables, terminal_table
    from vmprof_convert.text.terminal import Terminal
    # a row of less than a hundredth tells nothing
    state = "alive" if choice.sort == "alive" else None
    sums = [row.own.sum(state).value_bytes
            for row in summarize(profile, choice=choice).rows]
    page = tables.of(profile, choice, min(ROWS, sum(
        bytes_ > sum(sums) / 100 for bytes_ in sums)))
    if state is not None:
        page = page._replace(tables=[_without_allocated(one) for one in page.tables])
    text = io.StringIO()
    terminal_table.write(page._replace(head=[head], notes=[]), text, Terminal(100))
    return "\n".join(text.getvalue().splitlines()[:20])


def _without_allocated(table: Table) -> Table:
    """What is alive, and of whom: what the calls allocated is not in question."""
    from vmprof_convert.report.tables import FIGURE
    kept = [number for number, column in enumerate(table.columns)
            if column.kind != FIGURE or column.title == "alive"]
    return table._replace(
        columns=[table.columns[number] for number in kept],
        rows=[tuple(row[number] for number in kept) for row in table.rows])


def _properties(terminalreporter: pytest.TerminalReporter, wanted: str) -> list[Any]:
    return [value for reports in terminalreporter.stats.values()
            for report in reports if getattr(report, "when", None) == "call"
            for name, value in report.user_properties if name == wanted]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
        terminalreporter: pytest.TerminalReporter) -> None:
    for value in _properties(terminalreporter, _NOT_MEASURED):
        terminalreporter.write_line("not measured: %s" % value)
    if not terminalreporter.config.getoption(OPTION):
        return
    from vmprof_convert.meaning.estimator import Estimate
    from vmprof_convert.text.escape import shortened
    from vmprof_convert.text.units import format_bytes, format_estimate, format_number
    rows = _properties(terminalreporter, _PROPERTY)
    rows.sort(key=lambda row: -row["allocated"][0])
    terminalreporter.section("allocations of %s" % format_number(len(rows), "test"))
    terminalreporter.write_line("%20s %12s %12s  test" % (
        "allocated", "alive", "objects"))
    for row in rows[:TESTS]:
        value, low, high = Estimate(*row["allocated"])
        objects, few, many = Estimate(*row["objects"])
        terminalreporter.write_line("%20s %12s %12s  %s" % (
            format_estimate(low, value, high), format_bytes(row["alive"][0]),
            format_estimate(few, objects, many, False), shortened(row["test"])))
    if len(rows) > TESTS:
        terminalreporter.write_line("... and %s more" % format_number(
            len(rows) - TESTS, "test"))
