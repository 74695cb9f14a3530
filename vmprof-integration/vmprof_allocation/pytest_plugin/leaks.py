"""Measure how much memory repeated calls of a test leak, for limit_leaks.

The test is called to warm up, and then between two marks in the profile.  Objects that
were allocated between the marks, and are alive at the second mark, have leaked.  For
native memory, malloc's own counts at the two marks are compared.
"""
from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator, Iterator

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.pytest_plugin import failures, native_memory
from vmprof_allocation.pytest_plugin.limits import complain, interval_for, limit
from vmprof_allocation.pytest_plugin.markers import REPEAT, WARM_UP
from vmprof_allocation.pytest_plugin.sampling import (
    Profiles,
    Sampling,
    add_not_measured,
)
from vmprof_allocation.pytest_plugin.stacks import Chosen
from vmprof_allocation.session.session import Session
from vmprof_convert.analysis import diff, thresholds
from vmprof_convert.analysis.diff import Sides
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.analysis.thresholds import Condition
from vmprof_convert.profile.model import Profile

#: Names of the two marks, which differ from all marks of the test.
_FIRST, _LAST = (__name__ + ": " + name for name in ("first", "last"))
#: The last part of the profile's file name, if the profile is kept.
LEAKS = "leaks"
#: With this value of trace_eagerness, the JIT compiles no bridges from failing guards.
_NEVER = 2**31 - 1


def compare(item: pytest.Function, marker: pytest.Mark
            ) -> Generator[None, None, str]:
    """Call the test several times, and compare the leaked bytes with the limit.

    Yields:
        None, each time that the test is to be called.

    Returns:
        The reason why the test fails, or "".
    """
    warm_up = _number(item, marker, "warm_up", WARM_UP, 0)
    repeat = _number(item, marker, "repeat", REPEAT, 1)
    condition = limit(item, marker, "alive growth")
    # the marker's limit is for one call
    condition = condition._replace(limit=condition.limit * repeat)
    #: Growth of the native memory, in bytes; None if it cannot be read.
    native: int | None = None
    profiles: Profiles | None = None
    no_retainers: list[str] = []
    chosen = _chosen(item, marker)
    with Sampling(item, interval_for(condition.limit), LEAKS, native_memory=True,
                  lines=chosen.filter_fn is not None) as sampling:
        session = sampling.session
        if session is None:
            yield
            return ""
        try:
            sampling.count(True)
            for _ in range(warm_up):
                yield
                if not sampling.is_on:
                    return ""
            with _compiling_nothing():
                _collect()
                before = native_memory.read_bytes()
                # read_bytes() has allocated young objects, which would count as alive
                _collect()
                heap = _heap_bytes()
                session.mark(_FIRST)
                yield from _repeated(repeat)
                session.mark(_LAST)
                # decide without the profile, which cannot be read yet, whether to find
                # retainers: now the leaked objects are alive
                is_above = _heap_bytes() - heap > condition.limit / 2
                for is_again in False, True:
                    after = native_memory.read_bytes()
                    if before is None or after is None:
                        break
                    native = min(after - before, after - before if native is None
                                 else native)
                    # The first calls also allocate buffers that later calls use again.
                    # Therefore, a growth is measured again.
                    if is_again or native <= condition.limit + native_memory.NOISE:
                        break
                    yield from _repeated(repeat)
                    before = after
            if is_above:
                no_retainers = _find_retainers(session)
        finally:
            profiles = sampling.finish()
    if profiles is None:
        return ""
    what = "%d calls of %s left" % (repeat, item.name)
    texts = _of_heap(profiles.heap, condition, what, no_retainers, chosen)
    if native is None:
        add_not_measured(item, "this system does not count native memory, which C code "
                         "allocates outside of the GC's heap")
    elif native > condition.limit + native_memory.NOISE:
        texts += _of_native_memory(what, native, condition, profiles.native, chosen)
    return "\n".join(texts)


def _repeated(times: int) -> Iterator[None]:
    for _ in range(times):
        yield
    _collect()


def _of_heap(profile: Profile, condition: Condition, what: str,
             no_retainers: list[str], chosen: Chosen) -> list[str]:
    """Return the text of the failure if the calls left too many objects in the heap.

    Args:
        profile: the samples of the GC's heap.
        condition: the limit of the growth.
        what: the beginning of the text.
        no_retainers: the reason why the profile has no retainers; empty if it has them.
        chosen: the choice of the samples that count.

    Returns:
        The lines of the text, or an empty list if the test does not fail.
    """
    profile = diff.without_interpreter(profile)
    if not chosen.is_everything:
        profile = chosen.part(profile, _between_marks(profile).gained)
    sides = _between_marks(profile)
    choice = Choice(by=("line", "type"), sort="alive")
    verdict, = thresholds.of([condition], diff.compare(sides, choice))
    if not verdict.failed:
        return []
    gained = sides.gained[0]
    return [failures.exceeded(verdict, what, gained, choice),
            *(no_retainers or failures.retainers(profile, gained))]


def _between_marks(profile: Profile) -> Sides:
    return diff.of_moments(profile, diff.find_moment(profile, _FIRST),
                           diff.find_moment(profile, _LAST, is_last=True))


def _gained_bytes(sides: Sides) -> float:
    gained, = sides.gained
    return summarize(gained).figures.bytes("alive").value


def _of_native_memory(what: str, bytes_: int, condition: Condition,
                      native: Profile | None, chosen: Chosen) -> list[str]:
    """Return the text of the failure that the calls left `bytes_` of native memory.

    The list is empty if samples that do not count explain the growth.
    """
    text = failures.exceeded_natively(what, bytes_, condition.limit)
    if native is not None:
        sides = _between_marks(native)
        if not chosen.is_everything:
            counted = _between_marks(chosen.part(native, sides.gained))
            # malloc's count includes the memory of samples that do not count
            refused = _gained_bytes(sides) - _gained_bytes(counted)
            if bytes_ - refused <= condition.limit + native_memory.NOISE:
                return []
            sides = counted
        gained, = (diff.only_own_code(sides) or sides).gained
        if summarize(gained).figures.bytes("alive").high > bytes_ / 2:
            return [failures.table(
                text + " Samples of the first calls:", gained,
                Choice(by=("function", "type"), sort="alive"))]
    return [text + " Most of it was not sampled: check what uses ctypes, cffi, array "
            "and C extensions."]


def _heap_bytes() -> int:
    """Return the size of the GC's heap; 0 if this PyPy does not count it."""
    try:
        return int(gc.get_stats()._s.total_gc_memory)   # type: ignore[attr-defined]
    except AttributeError:
        return 0


def _find_retainers(session: Session) -> list[str]:
    """Have the retainers written into the profile, if the engine can find retainers.

    Returns:
        The reason why the retainers were not found, or an empty list.
    """
    engine = session.engine
    if engine is not None and "held" in engine.capabilities():
        try:
            session.retainers()
        except AllocationSamplingError as error:
            return [str(error)]
    return []


@contextlib.contextmanager
def _compiling_nothing() -> Iterator[None]:
    """Stop the JIT from compiling; code that is already compiled still runs.

    The JIT keeps compiled code in arrays that look like arrays of the program.  During
    hundreds of calls, these arrays grow by more than most leaks.
    """
    try:
        import pypyjit
    except ImportError:
        yield
        return
    pypyjit.set_param("off")
    pypyjit.set_param("trace_eagerness=%d" % _NEVER)
    try:
        yield
    finally:
        # PyPy has no function that returns the previous settings of the JIT
        pypyjit.set_param("default")


def _collect() -> None:
    # an object that becomes old during a major collection can only be freed by the next
    for _ in range(3):
        gc.collect()


def _chosen(item: pytest.Function, marker: pytest.Mark) -> Chosen:
    filter_fn = marker.kwargs.get("filter_fn")
    if filter_fn is not None and not callable(filter_fn):
        complain(item, "invalid %s(filter_fn=%r): write a function that takes a stack"
                 % (marker.name, filter_fn))
    is_one = marker.kwargs.get("current_thread_only", False)
    if not isinstance(is_one, bool):
        complain(item, "invalid %s(current_thread_only=%r): write True or False"
                 % (marker.name, is_one))
    return Chosen(filter_fn, threading.get_native_id() if is_one else None)


def _number(item: pytest.Function, marker: pytest.Mark, name: str, default: int,
            least: int) -> int:
    number = marker.kwargs.get(name, default)
    if not isinstance(number, int) or number < least:
        complain(item, "invalid %s(%s=%r): write a whole number, %d or more"
                 % (marker.name, name, number, least))
    return number
