"""The builtin engine, for a PyPy that was translated with this project's patches.

In this PyPy, the GC and rvmprof sample allocations, which native/hook does for a stock
PyPy.  This engine calls PyPy's module `_vmprof`, whose enable() takes the settings of
the sampling as a text.
"""
from __future__ import annotations

import os
from _thread import RLock

from vmprof_allocation.engines import thread_names
from vmprof_allocation.engines.base import (
    Alive,
    Engine,
    Statistics,
    empty,
    refuse_second,
)
from vmprof_allocation.engines.builtin.forked_child import Following, ForkedChild
from vmprof_allocation.engines.ending import INCOMPLETE, Ending
from vmprof_allocation.errors import AllocationSamplingError

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


#: names of the settings that RPython's rvmprof/allocations.py accepts
ALLOCATIONS = ("interval", "gaps", "seed", "limit", "lifetimes", "in_memory")
#: number of integers per object in the result of _vmprof.alive_allocations()
FIELDS = 7


class BuiltinEngine(Engine):
    """The builtin engine: see :class:`vmprof_allocation.engines.base.Engine`."""

    name = "builtin"

    def __init__(self, vmprof: Any) -> None:
        """Create the engine with PyPy's module `_vmprof`."""
        self._vmprof = vmprof
        self._pid = 0
        self._fd = -1
        self._lock = RLock()
        #: The settings for children; None if children are only counted.
        self._following: Following | None = None
        #: The profile and settings of this process if it is a sampled forked child;
        #: None in the process that called start().
        self._child: ForkedChild | None = None

    def capabilities(self) -> tuple[str, ...]:
        """Return the capabilities: see Engine.capabilities()."""
        # rvmprof_allocation.c writes the same list into the profile
        return ("labels", "lifetimes", "limits", "marks", "names", "native-frames",
                "resident-memory", "rotation", "time-samples", "types")

    def prepare(self, knowledge: str = "") -> None:
        """Check that this process is not sampled yet: see Engine.prepare()."""
        if self._pid not in (0, os.getpid()):
            # this process is a forked child, which inherited the parent's lock and
            # sampling
            self._leave_parent()
        with self._lock:
            refuse_second(self._pid)

    def _leave_parent(self) -> None:
        self._lock = RLock()
        self._pid = 0
        self._child = None
        self._disable()

    def _disable(self) -> str:
        """Disable vmprof, and return the problem or an empty string."""
        try:
            # vmprof.disable() would read the whole profile again to find the names of
            # native frames, which this profile does not have
            self._vmprof.disable()
        except self._vmprof.VMProfError as e:
            return str(e)
        return ""

    def start(self, fd: int, settings: Settings,
              processes: Processes | None = None) -> None:
        """Start to sample: see Engine.start()."""
        with self._lock:
            self.prepare()
            empty(fd)
            try:
                self._enable(fd, settings, processes)
                if processes is not None and settings.follow and not settings.memory:
                    self._following = Following(settings, processes)
            except self._vmprof.VMProfError as e:
                raise AllocationSamplingError("cannot start the sampling: vmprof "
                                              "reports: %s" % e) from e
            except (AttributeError, TypeError) as e:
                self._disable()
                raise AllocationSamplingError(
                    "this PyPy was translated with another version of the patches "
                    "(%s). Translate it again" % e) from e
            except BaseException:
                self._disable()
                self._pid = 0
                raise

    def _enable(self, fd: int, settings: Settings,
                processes: Processes | None) -> None:
        # Not vmprof.enable(), because it prints to stdout.  The first 0 means no lines,
        # and the second one CPU time instead of real time.
        self._vmprof.enable(
            fd, settings.period or 0.0, int(settings.memory), 0,
            int(settings.native), 0,
            allocations=";".join(filter(None, (
                settings.text(*ALLOCATIONS), _describe(processes)))))
        self._name(0, thread_names.of_command())
        self._pid = os.getpid()
        self._fd = fd

    def _name(self, thread: int, name: str) -> None:
        self._vmprof.name_thread(thread, thread_names.for_native(name).decode())

    def _name_threads(self) -> None:
        known = self._child.inherited if self._child is not None else ()
        for thread, name in thread_names.of_threads():
            if thread not in known:
                self._name(thread, name)

    def is_sampled_child(self) -> bool:
        """Return whether this is a sampled child: see Engine.is_sampled_child().

        The first call in a forked child starts its sampling.
        """
        if self._pid == os.getpid():
            return self._child is not None
        if not self._pid or self._following is None:
            return False
        # the child must continue after any error
        try:
            child = self._following.child(self._pid)
        except Exception:
            child = None
        if child is None:
            return False        # the GC still samples, and counts unsampled children
        self._leave_parent()
        try:
            self._enable(child.fd, child.settings, child.processes)
            self._following = Following(child.settings, child.processes)
            child.end_at_exit(self.stop)
            self._child = child
        except Exception:
            self._leave_parent()
            child.close(has_samples=False)
        return self._child is not None

    def child_path(self) -> str:
        """Return the profile of a sampled child: see Engine.child_path()."""
        return "" if self._child is None else self._child.path

    def _is_on(self) -> bool:
        return self._pid == os.getpid() and bool(self._vmprof.is_enabled())

    def set_interval(self, interval: int) -> None:
        """Change the mean interval: see Engine.set_interval()."""
        with self._lock:
            if self._is_on():
                self._vmprof.set_allocation_interval(interval)

    def rotate(self, fd: int, settings: Settings, processes: Processes | None,
               part: int) -> str:
        """Rotate the profile: see Engine.rotate()."""
        with self._lock:
            if settings.in_memory:
                raise AllocationSamplingError(
                    "cannot rotate the data of tracemalloc, which are in memory")
            if not self._is_on():
                raise AllocationSamplingError("allocation sampling is not on")
            empty(fd)
            self._name_threads()
            try:
                incomplete = self._vmprof.rotate_allocations(
                    fd, allocation_settings=_describe(processes, part))
            except self._vmprof.VMProfError as e:
                raise AllocationSamplingError(
                    "cannot write the next profile: %s; the present profile "
                    "continues" % e) from e
            self._fd = fd
            self._name(0, thread_names.of_command())    # in each segment
            return _why(incomplete)

    def define_label(self, text: str) -> int:
        """Define a set of labels: see Engine.define_label()."""
        return int(self._vmprof.define_label(_encodable(text)))

    def label(self, number: int) -> None:
        """Set the labels of the calling thread: see Engine.label()."""
        self._vmprof.label(number)

    def writes_to(self, fd: int) -> bool:
        """Return whether the present profile is written to `fd`."""
        return self._is_on() and self._fd == fd

    def mark(self, name: str) -> None:
        """Write a mark: see Engine.mark()."""
        with self._lock:
            if self._is_on():
                self._vmprof.mark(_encodable(name))

    def stop(self) -> None:
        """End the sampling: see Engine.stop()."""
        with self._lock:
            if self._pid == 0:
                return
            # The program may have disabled vmprof.  An earlier call of stop() may also
            # have been interrupted after _disable().
            problem = ""
            if self._vmprof.is_enabled():
                if self._pid == os.getpid():
                    self._name_threads()
                problem = self._disable()
            self._end_children()
            self._pid = 0
            if problem:
                raise AllocationSamplingError(
                    "the profile is not complete: " + _why(problem))

    def _end_children(self) -> None:
        if self._following is not None:
            self._following.end()
            self._following = None
        if self._child is not None:
            self._child.close(self.statistics().samples > 0)
            self._child = None

    def state(self) -> tuple[object, ...] | None:
        """Return the state for restore(): see Engine.state()."""
        return (vars(self),)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Continue with a state: see Engine.restore()."""
        # share the attributes with the old engine object, because after a fork either
        # of the two objects may record the change
        self.__dict__, = state

    def ending(self, has_snapshot: bool) -> Ending:
        """Return the end of this run: see Engine.ending()."""
        return BuiltinEnding(self)

    def alive(self) -> list[Alive]:
        """Return the tracked objects: see Engine.alive()."""
        with self._lock:
            if not self._is_on():
                return []
            numbers = iter(self._vmprof.alive_allocations())
            return [Alive(*fields) for fields in zip(*[numbers] * FIELDS)]

    def find_alive(self, address: int) -> Alive | None:
        """Return the tracked object with this id(): see Engine.find_alive()."""
        for object_ in self.alive():
            if object_.address == address:
                return object_
        return None

    def forget_alive(self) -> None:
        """Forget all tracked objects: see Engine.forget_alive()."""
        with self._lock:
            if self._is_on():
                self._vmprof.alive_allocations(forget=True)

    def alive_bytes(self) -> tuple[float, float]:
        """Return the live bytes and their maximum: see Engine.alive_bytes()."""
        with self._lock:
            if not self._is_on():
                return 0.0, 0.0
            alive, peak = self._vmprof.alive_allocation_bytes()
            return float(alive), float(peak)

    def reset_peak(self) -> None:
        """Forget the maximum of alive_bytes(): see Engine.reset_peak()."""
        with self._lock:
            if self._is_on():
                self._vmprof.alive_allocation_bytes(reset_peak=True)

    def ignore(self, ignored: bool) -> bool:
        """Ignore the allocations of this thread: see Engine.ignore()."""
        return bool(self._vmprof.ignore_allocations(ignored))

    def flush(self) -> str:
        """Return "": alive() has written all records, and _vmprof returns no error."""
        return ""

    def statistics(self) -> Statistics:
        """Return the statistics: see Engine.statistics()."""
        result = Statistics()
        counted = self._vmprof.allocation_statistics()
        for name in Statistics.__slots__:
            # `pressures` and `surprises` are 0, because the GC itself counts
            setattr(result, name, counted.get(name, 0))
        return result


class BuiltinEnding(Ending):
    """The end of a run of the builtin engine.

    The engine object remains in the process, because it is small.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: BuiltinEngine) -> None:
        """Create the end of this engine's run."""
        self._engine = engine

    def ignore(self, ignored: bool) -> bool:
        """Ignore the allocations of this thread: see Ending.ignore()."""
        return self._engine.ignore(ignored)

    def end(self) -> bool:
        """End the sampling: see Ending.end()."""
        self._engine.stop()
        return True

    def forked(self) -> None:
        """Start to sample a forked child: see Ending.forked()."""
        self._engine.is_sampled_child()

    def end_child(self) -> None:
        """End the sampling of a forked child: see Ending.end_child()."""
        if self._engine.is_sampled_child():
            self._engine.stop()


def _encodable(text: str) -> str:
    """Replace surrogates, which `_vmprof` cannot encode in UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _why(problem: str) -> str:
    """Replace vmprof's message about an incomplete profile with a clearer one."""
    return next((text for error, text in INCOMPLETE.items()
                 if os.strerror(error) == problem), problem)


def _describe(processes: Processes | None, part: int = 1) -> str:
    """Return a profile's settings for its run, parent and segment (PROFILE.rst)."""
    found: list[tuple[str, object]] = []
    if processes is not None:
        found.append(("run", processes.run))
        if processes.parent:
            found.append(("parent", processes.parent))
    if part > 1:
        found.append(("part", part))
    return ";".join("%s=%s" % pair for pair in found)


_engine: BuiltinEngine | None = None


def engine(vmprof: Any) -> BuiltinEngine:
    """Return the engine of this process.

    Args:
        vmprof: The module from choose.sampling_vmprof().
    """
    global _engine
    if _engine is None:
        _engine = BuiltinEngine(vmprof)
    return _engine
