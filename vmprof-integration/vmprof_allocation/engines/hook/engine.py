"""The hook engine: sampling in a stock PyPy.

native/hook does the work.  The Python side examines the process
(:mod:`.discovery.process`), and stores the entry patch (native/hook/hook.h).  One
machine instruction stores this patch, through a cffi pointer, while the interpreter
holds the GIL.  Without the GIL, no other thread can be inside the GC.
"""
from __future__ import annotations

import errno
import os
import sys

from vmprof_allocation.critical.interrupts import Lock, Section, Uninterrupted
from vmprof_allocation.engines import thread_names
from vmprof_allocation.engines.base import (
    Alive,
    Engine,
    Statistics,
    empty,
    refuse_second,
)
from vmprof_allocation.engines.ending import INCOMPLETE
from vmprof_allocation.engines.hook.ending import (
    NO_CHILD,
    WITH_PROFILE,
    HookEnding,
    begin_last,
    check_complete,
    finish_last,
    most_heap,
)
from vmprof_allocation.engines.hook.heap_snapshot import (
    ANY_HEAP,
    HeapSnapshot,
    may_hide_references,
)
from vmprof_allocation.engines.hook.safepoint import reach_safepoint
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.settings.processes import VARIABLE

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.engines.ending import Ending
    from vmprof_allocation.engines.hook.discovery.process_layout import ProcessLayout
    from vmprof_allocation.errors import Finding
    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings

#: Constants of native/hook/hook.h: the properties to record of sampled objects
#: (hook_hook()), and the questions of hook_ask().
TYPES, LIFETIMES, IN_MEMORY = 1, 2, 4
SNAPSHOT, CLEAR, RESET_PEAK = 1, 2, 3


_FOR_THE_START = ("discovery.process", "discovery.lookup", "discovery.cache", "library")


def _look(knowledge: str) -> tuple[ProcessLayout, list[Finding], Callable[[], None]]:
    """Run process.look(), and remove the modules that only the start needs.

    No method of these modules' objects is called here, because PyPy would keep a
    reference to the method in the code of this function.
    """
    names = ["%s.%s" % (__package__, name) for name in _FOR_THE_START]
    # a signal handler that also starts sampling would find a half-imported module
    with Uninterrupted():
        from vmprof_allocation.engines.hook.discovery import process
        for name in names:
            __import__(name)
    try:
        return process.look(knowledge)
    finally:
        for name in names:
            sys.modules.pop(name, None)
            package, _, module = name.rpartition(".")
            sys.modules[package].__dict__.pop(module, None)


def _has_jitlog() -> bool:
    return "_jitlog" in sys.builtin_module_names


class HookEngine(Engine):
    """The hook engine: see :class:`vmprof_allocation.engines.base.Engine`."""

    name = "hook"

    def __init__(self) -> None:
        """Create an engine that is not prepared."""
        #: The addresses of the GC in this process; None before prepare().
        self._place: ProcessLayout | None = None
        self._lib: Any = None
        self.findings: list[Finding] = []
        self._pid = 0
        self._lock = Lock()
        self._was_forked = False
        #: The errno because of which children of the last run were not sampled, or 0.
        self.follow_errno = 0
        #: False while the effects of start() have to be undone.
        self._is_on = False
        #: Ends PyPy's log of compiled code; None if lines are not recorded.
        self._end_log: Callable[[], None] | None = None

    def capabilities(self) -> tuple[str, ...]:
        """Return the capabilities of this engine in this process."""
        known: tuple[str, ...] = ("labels", "limits", "marks", "names",
                                  "resident-memory", "rotation", "time-samples")
        if self._lib is not None and self._lib.hook_native_is_possible():
            known += ("native-frames",)
        if self._lib is not None and self._lib.hook_knows_objects():
            known += ("lifetimes", "types")
        if self._lib is not None and self._lib.hook_knows_callers():
            known += ("callers",)
        if self._place is not None and self._place.layout.references:
            known += ("held",)
        if (self._lib is not None and self._lib.hook_knows_code()
                and self._lib.hook_knows_lines() and _has_jitlog()):
            known += ("lines",)
        if self._lib is not None and self._lib.hook_raw_memory_is_possible():
            known += ("raw-memory",)
        return tuple(sorted(known))

    def _facts(self, settings: Settings) -> tuple[str, ...]:
        """Return the properties that the profile contains of all sampled objects."""
        wanted = ("types", "lifetimes") if settings.lifetimes else ("types",)
        if settings.in_memory:
            return ()           # sampled objects are not in the profile
        return tuple(fact for fact in wanted if fact in self.capabilities())

    def _facts_wanted(self, settings: Settings) -> int:
        return (TYPES + (LIFETIMES if settings.lifetimes else 0)
                + (IN_MEMORY if settings.in_memory else 0))

    def knowledge(self, folder: str = "") -> str:
        """Return the build profile: see Engine.knowledge()."""
        if self._place is None:
            return ""
        if folder:
            from vmprof_allocation.engines.hook.discovery import hand_over
            return hand_over.leave(self._place, folder)
        return self._place.layout.text()

    def gc_state(self) -> str:
        """Return where to read whether the GC sweeps: see Engine.gc_state()."""
        from vmprof_allocation.memory import facts
        assert self._place is not None
        layout = self._place.layout
        if layout.heap_is_counted_on:
            return facts.COUNTED_ON
        if layout.gc_state < 0:
            return ""
        return facts.gc_state(self._place.path, layout.gc + layout.gc_state)

    def prepare(self, knowledge: str = "") -> None:
        """Find the build profile, and prepare the hooks: see Engine.prepare()."""
        found = None
        if self._place is None:
            try:
                # takes seconds, and can be interrupted
                found = _look(knowledge)
            except AllocationSamplingError:
                # A signal handler may have prepared the engine and set hooks meanwhile.
                # Then process.look() does not recognize PyPy's changed code.
                if self._place is None:
                    raise
        with self._section():
            if self._place is None:
                assert found is not None
                place, self.findings, prepare_hooks = found
                prepare_hooks()
                self._place, self._lib = place, place.lib
            self._prepare()

    def _section(self) -> Section:
        if self._lock.was_forked():
            self._was_forked = self._pid != 0
        return Section(self._lock)

    def _prepare(self) -> None:
        if self._was_forked:
            self._undo(True)            # ends the parent's sampling
            self._was_forked = False
        if self._pid and not self._is_on:
            self._undo()                # an earlier attempt to undo start() failed
        refuse_second(self._pid)

    @staticmethod
    def _check(error: int, what: str) -> None:
        if error:
            raise AllocationSamplingError(
                "%s failed: %s; nothing is being sampled" % (
                    what, INCOMPLETE.get(error, os.strerror(error))))

    def start(self, fd: int, settings: Settings,
              processes: Processes | None = None) -> None:
        """Begin to sample: see Engine.start()."""
        import _vmprof
        with self._section():
            self._prepare()
            empty(fd)
            try:
                self._pid = os.getpid()
                # with settings.memory, vmprof would read the resident memory of this
                # process in each child
                is_to_follow = (processes is not None and settings.follow
                                and not settings.memory)
                decoy = int(self._lib.hook_open(fd))
                self._check(-min(decoy, 0), "redirecting vmprof's output")
                # Not vmprof.enable(), which prints to stdout.  vmprof cannot be enabled
                # without CPU samples, so the period is the longest that it accepts, and
                # hook_enabled() stops the timer.  The other arguments mean: no lines,
                # no native frames of CPU samples (hook_native() finds native frames of
                # allocations), processor time.
                _vmprof.enable(decoy, settings.period or 0.99,
                               int(settings.memory), 0, 0, 0)
                self._check(self._lib.hook_watch_forks(), "watching for forks")
                self._check(self._lib.hook_enabled(
                    self._describe(settings, processes).encode("ascii"),
                    settings.period is not None), "starting the profile")
                if settings.native:
                    from vmprof_allocation.engines.hook import native_frames
                    native_frames.start(self._lib)
                if self._logs(settings):
                    self._log_lines(settings)
                if settings.raw_memory:
                    self._check(self._lib.hook_raw_memory(
                        settings.raw_memory, settings.seed,
                        settings.gaps == "fixed"),
                        "looking for malloc()")
                if processes is not None and is_to_follow:
                    self._follow(settings, processes)
                if settings.limit is not None:
                    self._lib.hook_limit(settings.limit.per_second,
                                         settings.limit.share)
                if not settings.in_memory:
                    self._name(0, thread_names.of_command())
                self._hook(settings)
                if settings.raw_memory and not self._lib.hook_samples_raw_memory():
                    raise AllocationSamplingError(
                        "cannot sample native memory: the pointers to malloc() cannot "
                        "be changed in this process. Omit --native-memory, or "
                        "native_memory=")
            except BaseException as e:
                try:
                    self._undo()
                finally:
                    empty(fd)       # an incomplete profile is useless
                if isinstance(e, _vmprof.VMProfError):
                    raise AllocationSamplingError("cannot start the sampling: vmprof "
                                                  "reports: %s" % e) from e
                raise

    def _logs(self, settings: Settings) -> bool:
        """Return whether PyPy has to log compiled code.

        The log is needed for lines.  On AArch64, it is also needed for the inlined
        functions, which PyPy's table of compiled code lacks.
        """
        return settings.lines or (not self._lib.hook_knows_callers()
                                  and "lines" in self.capabilities())

    def _log_lines(self, settings: Settings) -> None:
        import _jitlog
        log = int(self._lib.hook_lines())
        self._check(-min(log, 0), "reserving memory for lines")
        self._end_log = _jitlog.disable
        _jitlog.enable(log)
        if not self._lib.hook_lines_are_as_known():
            if not settings.lines:
                self._log_no_lines()
                return
            raise AllocationSamplingError(
                "cannot record lines with this PyPy: its log of compiled code has an "
                "unknown format. Omit --lines, or lines=True")

    def _log_no_lines(self) -> None:
        end, self._end_log = self._end_log, None
        if end is not None:
            end()

    def _follow(self, settings: Settings, processes: Processes) -> None:
        """Sample later children if possible.  Otherwise, they are only counted."""
        self.follow_errno = self._lib.hook_sample_children(*map(os.fsencode, (
            processes.path, processes.suffix,
            ";".join("%s=%s" % pair for pair in
                     self._common(settings, None, processes.run)),
            "%s=%s" % (VARIABLE, processes.pack(settings, self.knowledge())),
            sys.executable)), processes.parent, settings.seed)

    def state(self) -> tuple[object, ...] | None:
        """Return the state for restore(): see Engine.state()."""
        place = self._place
        if place is None or not self._is_on:
            return None
        from vmprof_allocation.engines.hook import library
        handle = int(place.ffi.cast("uintptr_t", self._lib.hook_handle()))
        if not library.is_there(place.ffi, handle):
            return None
        return (place.path, place.base, place.layout.text(),
                int(place.ffi.cast("uintptr_t", place.types)), handle, self._pid,
                self.follow_errno)

    def ending(self, has_snapshot: bool) -> Ending:
        """Return the end of this run: see Engine.ending()."""
        assert self._place is not None
        return HookEnding(
            self._place.ffi, self._lib,
            self._heap_snapshot() if has_snapshot and "held" in self.capabilities()
            else None)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Continue with a state: see Engine.restore()."""
        from vmprof_allocation.engines.hook import library
        from vmprof_allocation.engines.hook.discovery.layout import Layout
        from vmprof_allocation.engines.hook.discovery.process_layout import (
            ProcessLayout,
        )
        path, base, layout, types, handle, self._pid, self.follow_errno = state
        ffi, self._lib = library.load(handle)
        place = ProcessLayout(ffi, self._lib, path, base)
        place.layout = Layout.parse(layout)
        place.types = ffi.cast("char *", types)
        self._place = place
        # in a forked child, the lock belongs to its parent
        self._lock.pid = self._pid
        self._is_on = True
        if self._lib.hook_has_lines():
            import _jitlog
            self._end_log = _jitlog.disable

    def is_sampled_child(self) -> bool:
        """Return whether this is a sampled child: see Engine.is_sampled_child()."""
        if not self._pid or not self._lib.hook_is_sampled_child():
            return False
        self._pid = os.getpid()
        self._lock = Lock()
        return True

    def leave_child(self) -> None:
        """End the log of compiled code: see Engine.leave_child()."""
        self._log_no_lines()

    def child_path(self) -> str:
        """Return the profile of a sampled child: see Engine.child_path()."""
        if self._lib.hook_is_sampled_child() != WITH_PROFILE:
            return ""
        assert self._place is not None
        return os.fsdecode(self._place.ffi.string(
            self._lib.hook_child_path()))

    def _hook(self, settings: Settings) -> None:
        assert self._place is not None
        entry = self._place.entry(2)
        patch = self._lib.hook_entry_patch()
        for _ in range(10):
            self._check(self._lib.hook_hook(
                settings.interval, settings.seed, settings.gaps == "fixed",
                self._facts_wanted(settings)),
                "hooking the garbage collector")
            entry[0] = patch
            self._lib.hook_entry_changed()
            reach_safepoint()
            if self._lib.hook_is_sampling():
                self._is_on = True
                return
            # the GC's slow path did not run, or another thread has just disabled vmprof
            self._check(self._unhook(), "unhooking the garbage collector")
        raise AllocationSamplingError(
            "hooking the garbage collector failed: its slow path did not run; nothing "
            "is being sampled")

    def _name(self, thread: int, name: str) -> None:
        self._lib.hook_named(thread, thread_names.for_native(name))

    def _unhook(self) -> int:
        """Remove the hooks.

        Returns:
            0 or an errno.
        """
        for _ in range(100):
            self._lib.hook_unhook()
            if not self._lib.hook_is_hooked():
                return 0
            try:
                reach_safepoint()
            except MemoryError:
                pass        # the GC ran nevertheless
        return errno.EPERM

    def _undo(self, was_forked: bool = False) -> int:
        """Undo start(), even if it was interrupted.

        Returns:
            0 or an errno.
        """
        import _vmprof
        self._is_on = False
        error = self._unhook()
        self._log_no_lines()
        # from here on, allocations are not sampled
        if not was_forked:
            for thread, name in thread_names.of_threads():
                self._name(thread, name)
        is_disabled = False
        if self._lib.hook_disabling() or was_forked:
            try:
                # vmprof.disable() would read the whole profile again, to find the names
                # of native frames, which the profile does not have
                _vmprof.disable()
                is_disabled = True
            except _vmprof.VMProfError:
                # vmprof has no file, after a fork or after it was disabled
                pass
        if not is_disabled:
            self._lib.hook_await_end()
        error = int(self._lib.hook_close()) or error
        self._pid = 0       # last, so that an interrupted _undo() can be repeated
        return error

    def _describe(self, settings: Settings, processes: Processes | None,
                  part: int = 1) -> str:
        """Return the settings in a profile (PROFILE.rst).

        In later segments, the native half adds the setting `clock` when it begins the
        segment.
        """
        run = "" if processes is None else processes.run
        own: list[tuple[str, object]] = [("pid", os.getpid())]
        # a forked child has its own seed, and takes no CPU samples
        is_child = bool(self._lib.hook_is_sampled_child())
        if not is_child:
            own.append(("seed", settings.seed))
        if part == 1:
            own.append(("clock", self._lib.hook_started()))
        else:
            own.append(("part", part))
        if processes is not None and processes.parent:
            own.append(("parent", processes.parent))
        return ";".join("%s=%s" % pair for pair in (
            *self._common(settings, None if is_child else settings.period, run), *own))

    def _common(self, settings: Settings, period: float | None,
                run: str) -> list[tuple[str, object]]:
        """Return the settings that are the same in all profiles of a run."""
        common: list[tuple[str, object]] = [
            ("engine", self.name),
            ("interval", settings.interval),
            ("gaps", settings.gaps),
            ("period", "" if period is None else period),
            ("limit", settings.limit or ""),
            ("capabilities", ",".join(self.capabilities())),
            ("facts", ",".join(self._facts(settings))),
            ("run", run),
        ]
        if self._logs(settings):
            common.append(("lines", 1))
        if settings.raw_memory:
            common.append(("raw", settings.raw_memory))
        if settings.native:
            from vmprof_allocation.engines.hook import native_frames
            assert self._place is not None
            common.append(("native", native_frames.library_of(self._place.path)))
        return common

    def set_interval(self, interval: int) -> None:
        """Change the mean interval: see Engine.set_interval()."""
        with self._section():
            if self._pid == os.getpid() and self._lib.hook_is_sampling():
                self._lib.hook_set_interval(interval)
                reach_safepoint()

    def rotate(self, fd: int, settings: Settings, processes: Processes | None,
               part: int) -> str:
        """Rotate the profile: see Engine.rotate()."""
        with self._section():
            if not self._is_sampling():
                raise AllocationSamplingError("allocation sampling is not on")
            from vmprof_allocation.engines.hook import rotation
            empty(fd)
            for thread, name in thread_names.of_threads():
                self._name(thread, name)
            assert self._place is not None
            return rotation.rotate(
                self._lib, self._place.ffi.new("int *"), reach_safepoint, fd, settings,
                self._describe(settings, processes, part))

    def writes_to(self, fd: int) -> bool:
        """Return whether the present profile is written to `fd`."""
        return self._pid == os.getpid() and bool(self._lib.hook_writes_to(fd))

    def define_label(self, text: str) -> int:
        """Define a set of labels: see Engine.define_label()."""
        return int(self._lib.hook_define_label(text.encode("utf-8", "replace")))

    def label(self, number: int) -> None:
        """Set the labels of the calling thread: see Engine.label()."""
        self._lib.hook_label(number)

    def stop(self) -> None:
        """End the sampling: see Engine.stop()."""
        with self._section():
            if self._pid == 0:
                return
            is_child = self._lib.hook_is_sampled_child()
            error = self._undo(bool(is_child)
                               and is_child != WITH_PROFILE)
            if error and self._lib.hook_is_hooked():
                raise AllocationSamplingError(
                    "cannot restore PyPy's code; the patched code behaves like the "
                    "original code")
            assert self._place is not None
            check_complete(error, self._place.ffi.string(self._lib.hook_ended()))

    def mark(self, name: str) -> None:
        """Write a mark: see Engine.mark()."""
        with self._section():
            if self._pid == os.getpid():
                self._lib.hook_mark(name.encode("utf-8", "replace"))

    def note(self, text: str) -> None:
        """Add a setting to the profile: see Engine.note()."""
        with self._section():
            if self._pid == os.getpid():
                self._lib.hook_note(text.encode("ascii"))

    def alive(self) -> list[Alive]:
        """Return the tracked objects: see Engine.alive()."""
        with self._section():
            if not self._is_sampling():
                return []
            self._heap_snapshot().collect_nursery()
            return self._snapshot(0)

    def find_alive(self, address: int) -> Alive | None:
        """Return the tracked object with this id(): see Engine.find_alive()."""
        with self._section():
            if not self._is_sampling():
                return None
            found = self._snapshot(address)
            if not found:
                self._heap_snapshot().collect_nursery()     # the object may be young
                found = self._snapshot(address)
            return found[0] if found else None

    def _snapshot(self, address: int) -> list[Alive]:
        assert self._place is not None
        self._ask(SNAPSHOT, address)
        count = self._place.ffi.new("int64_t *")
        copy = self._lib.hook_copy(count)
        if not copy:
            raise MemoryError("no memory for a copy of the live objects")
        try:
            return [Alive(o.address, o.key, o.stack, o.size, o.live_size, o.interval,
                          o.type)
                    for o in copy[0:count[0]]]
        finally:
            self._lib.hook_free(copy)

    def forget_alive(self) -> None:
        """Forget all tracked objects: see Engine.forget_alive()."""
        with self._section():
            if self._is_sampling():
                self._heap_snapshot().collect_nursery()
                self._ask(CLEAR)

    def reset_peak(self) -> None:
        """Forget the maximum of alive_bytes(): see Engine.reset_peak()."""
        with self._section():
            if self._is_sampling():
                self._ask(RESET_PEAK)

    def alive_bytes(self) -> tuple[float, float]:
        """Return the live bytes and their maximum: see Engine.alive_bytes()."""
        with self._section():
            if not self._is_sampling():
                return 0.0, 0.0
            self._heap_snapshot().collect_nursery()
            return self._traced()

    def _traced(self) -> tuple[float, float]:
        assert self._place is not None
        pair = self._place.ffi.new("double[2]")
        self._lib.hook_traced(pair, pair + 1)
        return float(pair[0]), float(pair[1])

    def collect_every(self, bytes_: int) -> None:
        """Cause regular minor collections: see Engine.collect_every()."""
        with self._section():
            if self._is_sampling():
                self._lib.hook_collect_every(bytes_)

    def survived_bytes(self) -> float:
        """Return the surviving bytes: see Engine.survived_bytes()."""
        with self._section():
            return self._traced()[0] if self._is_sampling() else 0.0

    def ask_held(self, holders: bool, ends_garbage: bool,
                 is_bounded: bool = False) -> Callable[[], None]:
        """Begin a heap snapshot: see Engine.ask_held()."""
        with self._section():
            if not self._is_sampling():
                raise AllocationSamplingError("allocation sampling is not on")
            child = self._lib.hook_is_sampled_child()
            if child not in (NO_CHILD, WITH_PROFILE):
                raise AllocationSamplingError(
                    "no heap snapshot is taken: this forked process has no profile "
                    "until its first sample; try again later")
            from vmprof_allocation.engines.hook import held
            if ends_garbage and may_hide_references():
                raise AllocationSamplingError(
                    "no heap snapshot is taken: a C extension module is loaded, and "
                    "objects that only C code holds look like garbage")
            snapshot = self._heap_snapshot()
            held.ask(snapshot, holders, most_heap(child) if is_bounded else ANY_HEAP)
            return lambda: snapshot.wait(held.SECONDS)

    def take_held(self) -> float:
        """Write a heap snapshot: see Engine.take_held()."""
        with self._section():
            from vmprof_allocation.engines.hook import held
            snapshot = self._heap_snapshot()
            held.take(snapshot)
            snapshot.end_garbage()
            return float(self._lib.hook_held_cost() / 1e9)

    def ask_last_snapshot(self) -> Callable[[], None] | None:
        """Begin the last snapshot: see Engine.ask_last_snapshot()."""
        with self._section():
            if self._pid != os.getpid() or "held" not in self.capabilities():
                return None
            return begin_last(self._heap_snapshot(), self._lib.hook_is_sampled_child())

    def take_last_snapshot(self) -> None:
        """Write the last snapshot: see Engine.take_last_snapshot()."""
        with self._section():
            finish_last(self._heap_snapshot())

    def _heap_snapshot(self) -> HeapSnapshot:
        assert self._place is not None
        return HeapSnapshot(self._place.ffi, self._lib, self._place.layout.references)

    def ignore(self, ignored: bool) -> bool:
        """Ignore the allocations of this thread: see Engine.ignore()."""
        return bool(self._lib.hook_ignore(ignored))

    def flush(self) -> str:
        """Write the waiting records: see Engine.flush()."""
        error = int(self._lib.hook_flush()) if self._is_sampling() else 0
        return INCOMPLETE.get(error) or os.strerror(error) if error > 0 else ""

    def _is_sampling(self) -> bool:
        return self._pid == os.getpid() and self._lib.hook_is_sampling()

    def _ask(self, what: int, address: int = 0) -> None:
        self._lib.hook_ask(what, address)
        reach_safepoint()

    def statistics(self) -> Statistics:
        """Return the statistics: see Engine.statistics()."""
        result = Statistics()
        counted: Any = None
        if self._place is not None:
            counted = self._place.ffi.new("struct hook_statistics *")
            self._lib.hook_get_statistics(counted)
        for name in Statistics.__slots__:
            setattr(result, name, int(getattr(counted, name, 0)))
        return result


_engine = HookEngine()


def engine() -> HookEngine:
    """Return the engine of this process."""
    return _engine
