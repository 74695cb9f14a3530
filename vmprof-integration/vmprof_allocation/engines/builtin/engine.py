"""The builtin engine, of a PyPy that was translated with our patches: it
samples on its own.

`_vmprof.enable` takes a text about allocations there, and the GC and rvmprof do
what native/hook does from outside.
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

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


#: of the settings, what RPython's rvmprof/allocations.py knows
ALLOCATIONS = ("interval", "gaps", "seed", "limit", "lifetimes", "in_memory")
#: numbers of each object, in what _vmprof.alive_allocations() returns
FIELDS = 7


class BuiltinEngine(Engine):
    """See :class:`vmprof_allocation.engines.base.Engine`."""

    name = "builtin"

    def __init__(self, vmprof: Any) -> None:
        self._vmprof = vmprof
        self._pid = 0
        self._fd = -1
        self._lock = RLock()
        #: None: children are counted only
        self._following: Following | None = None
        #: None: this is the process that start() was called in
        self._child: ForkedChild | None = None

    def capabilities(self) -> tuple[str, ...]:
        # what rvmprof_allocation.c, which knows no Python, writes itself
        return ("labels", "lifetimes", "limits", "marks", "names", "native-frames",
                "resident-memory", "rotation", "time-samples", "types")

    def prepare(self, knowledge: str = "") -> None:
        if self._pid not in (0, os.getpid()):
            # a forked child: its parent's lock and sampling
            self._leave_parent()
        with self._lock:
            refuse_second(self._pid)

    def _leave_parent(self) -> None:
        self._lock = RLock()
        self._pid = 0
        self._child = None
        self._disable()

    def _disable(self) -> str:
        """Returns what went wrong, or an empty string."""
        try:
            # vmprof.disable() would read the whole profile again, to look up
            # the names of native frames, of which there are none
            self._vmprof.disable()
        except self._vmprof.VMProfError as e:
            return str(e)
        return ""

    def start(self, fd: int, settings: Settings,
              processes: Processes | None = None) -> None:
        with self._lock:
            self.prepare()
            empty(fd)
            try:
                self._enable(fd, settings, processes)
                if processes is not None and settings.follow and not settings.memory:
                    self._following = Following(settings, processes)
            except self._vmprof.VMProfError as e:
                raise AllocationSamplingError("vmprof refuses: %s" % e) from e
            except (AttributeError, TypeError) as e:
                self._disable()
                raise AllocationSamplingError(
                    "this PyPy was translated with another version of the patches "
                    "(%s); translate it anew" % e) from e
            except BaseException:
                self._disable()
                self._pid = 0
                raise

    def _enable(self, fd: int, settings: Settings,
                processes: Processes | None) -> None:
        # no lines, CPU time; not vmprof.enable(), which prints to stdout
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
        if self._pid == os.getpid():
            return self._child is not None
        if not self._pid or self._following is None:
            return False
        # whatever goes wrong: it runs as it would without us
        try:
            child = self._following.child(self._pid)
        except Exception:
            child = None
        if child is None:
            return False        # what the GC samples on counts it as not sampled
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
        return "" if self._child is None else self._child.path

    def _is_on(self) -> bool:
        return self._pid == os.getpid() and bool(self._vmprof.is_enabled())

    def set_interval(self, interval: int) -> None:
        with self._lock:
            if self._is_on():
                self._vmprof.set_allocation_interval(interval)

    def rotate(self, fd: int, settings: Settings, processes: Processes | None,
               part: int) -> str:
        with self._lock:
            if settings.in_memory:
                raise AllocationSamplingError(
                    "what tracemalloc keeps is in memory, and has one part")
            if not self._is_on():
                raise AllocationSamplingError("allocation sampling is not on")
            empty(fd)
            self._name_threads()
            try:
                incomplete = self._vmprof.rotate_allocations(
                    fd, allocation_settings=_describe(processes, part))
            except self._vmprof.VMProfError as e:
                raise AllocationSamplingError(
                    "the next profile can't be written: %s; the present one goes "
                    "on" % e) from e
            self._fd = fd
            self._name(0, thread_names.of_command())    # each part says it
            return _why(incomplete)

    def define_label(self, text: str) -> int:
        return int(self._vmprof.define_label(_encodable(text)))

    def label(self, number: int) -> None:
        self._vmprof.label(number)

    def writes_to(self, fd: int) -> bool:
        return self._is_on() and self._fd == fd

    def mark(self, name: str) -> None:
        with self._lock:
            if self._is_on():
                self._vmprof.mark(_encodable(name))

    def stop(self) -> None:
        with self._lock:
            if self._pid == 0:
                return
            # the program may have disabled vmprof; or an interrupt came
            # between this and the next line, the last time
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
        return (vars(self),)

    def restore(self, state: tuple[Any, ...]) -> None:
        # a fork changes it, of whichever engine
        self.__dict__, = state

    def ending(self, has_snapshot: bool) -> Ending:
        return BuiltinEnding(self)

    def alive(self) -> list[Alive]:
        with self._lock:
            if not self._is_on():
                return []
            numbers = iter(self._vmprof.alive_allocations())
            return [Alive(*fields) for fields in zip(*[numbers] * FIELDS)]

    def find_alive(self, address: int) -> Alive | None:
        for object_ in self.alive():
            if object_.address == address:
                return object_
        return None

    def forget_alive(self) -> None:
        with self._lock:
            if self._is_on():
                self._vmprof.alive_allocations(forget=True)

    def alive_bytes(self) -> tuple[float, float]:
        with self._lock:
            if not self._is_on():
                return 0.0, 0.0
            alive, peak = self._vmprof.alive_allocation_bytes()
            return float(alive), float(peak)

    def reset_peak(self) -> None:
        with self._lock:
            if self._is_on():
                self._vmprof.alive_allocation_bytes(reset_peak=True)

    def ignore(self, ignored: bool) -> bool:
        return bool(self._vmprof.ignore_allocations(ignored))

    def flush(self) -> str:
        """Do nothing: alive() has written what waits, and _vmprof returns no error."""
        return ""

    def statistics(self) -> Statistics:
        result = Statistics()
        counted = self._vmprof.allocation_statistics()
        for name in Statistics.__slots__:
            # the GC itself counts: memory pressures hide nothing from it,
            # and nothing can surprise it
            setattr(result, name, counted.get(name, 0))
        return result


class BuiltinEnding(Ending):
    """Of this engine there is little, so that it stays."""

    __slots__ = ("_engine",)

    def __init__(self, engine: BuiltinEngine) -> None:
        self._engine = engine

    def ignore(self, ignored: bool) -> bool:
        return self._engine.ignore(ignored)

    def end(self) -> bool:
        self._engine.stop()
        return True

    def forked(self) -> None:
        self._engine.is_sampled_child()

    def end_child(self) -> None:
        if self._engine.is_sampled_child():
            self._engine.stop()


def _encodable(text: str) -> str:
    """As the module takes it, in UTF-8: a surrogate is no character."""
    return text.encode("utf-8", "replace").decode()


def _why(problem: str) -> str:
    """What vmprof says of a profile that is not complete, in our words."""
    return next((text for error, text in INCOMPLETE.items()
                 if os.strerror(error) == problem), problem)


def _describe(processes: Processes | None, part: int = 1) -> str:
    """What a profile says of the run that it belongs to: PROFILE.rst."""
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
    """The one engine of this process; `vmprof`: choose.sampling_vmprof()."""
    global _engine
    if _engine is None:
        _engine = BuiltinEngine(vmprof)
    return _engine
