"""The live sampled objects of this process, and the stacks that allocated them.

The functions of the package use `Tracer`, which controls an engine (engines/base.py).
"""
from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

from vmprof_allocation.critical.descriptors import move_up
from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session import snapshots
from vmprof_allocation.session.profile_file import file_id
from vmprof_allocation.session.session import make_room
from vmprof_allocation.settings.parsing import make_settings
from vmprof_allocation.tracemalloc.frames import RawTraceback
from vmprof_allocation.tracemalloc.snapshot import RawTrace

#: folders of this package; stacks with a frame from these folders are left out
_OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep,)
#: CPython's traceback for an unknown stack
UNKNOWN: RawTraceback = (("<unknown>", 0),)

_starts = itertools.count()


def _address(object_: object) -> int:
    """Return the address of the memory of `object_`, or 0 if it has no memory.

    PyPy computes the id() of a number, a character and an empty tuple from the value,
    and sets the lowest bit.  The id() of a longer text is the address of its characters
    plus 2.
    """
    number = id(object_)
    return 0 if number & 1 or not 0 <= number < 2**64 else number & ~7


class Tracer:
    """A period of tracing, from its creation to stop().

    The engine keeps the sampled objects, and writes their stacks into a file in memory.
    `Tracer` reads the file only when a snapshot or a traceback is requested.
    """

    def __init__(self, nframe: int, interval: int | str) -> None:
        """Start the engine.

        Args:
            nframe: The number of innermost frames that a traceback keeps.
            interval: Mean bytes between two samples, as a number or a text.

        Raises:
            AllocationSamplingError: The interval is invalid or ``auto``, or this
                process cannot be sampled.
        """
        self.nframe = nframe
        settings = make_settings(interval)
        if settings.limit is not None:
            raise AllocationSamplingError(
                "invalid sample interval %r: tracemalloc needs a fixed interval "
                "instead of a limit. Write for example 16k" % (interval,))
        settings.in_memory = True
        if settings.interval == 1:
            settings.gaps = "fixed"         # sample each byte
        self._gaps = settings.gaps
        # A later import could run within a signal handler, in the middle of other code.
        import vmprof_convert.meaning.estimator
        import vmprof_convert.meaning.visible_stacks
        import vmprof_convert.readers  # noqa: F401
        make_room()
        self._engine: Engine = choose()
        settings.lines = "lines" in self._engine.capabilities()
        if "lifetimes" not in self._engine.capabilities():
            raise AllocationSamplingError(
                "cannot trace: in this build of PyPy, the sampler cannot find the live "
                "objects")
        self._pid = os.getpid()
        self._fd = move_up(os.memfd_create("tracemalloc", os.MFD_CLOEXEC))
        self._file = file_id(self._fd)
        self._id = time.time_ns(), next(_starts)
        self._lost = 0
        #: for the number of each known stack: its frames, and their total number; None
        #: for a stack with frames of this package
        self._tracebacks: dict[int, tuple[RawTraceback, int] | None] = {}
        try:
            self._engine.start(self._fd, settings)
        except BaseException:
            os.close(self._fd)
            raise
        atexit.register(self._end)

    @property
    def is_on(self) -> bool:
        """Return whether tracing is active in this process, and not in its parent."""
        return self._fd >= 0 and self._pid == os.getpid()

    def _is_ours(self) -> bool:
        """Return whether the descriptor still refers to this tracer's file.

        The program may have closed the descriptor, and opened another file.
        """
        return file_id(self._fd) == self._file

    def _end(self) -> None:
        """Stop tracing at the program's end, without reporting a problem."""
        with contextlib.suppress(AllocationSamplingError):
            self.stop()

    def stop(self) -> None:
        """Stop the engine and close the file.  A second call has no effect."""
        if not self.is_on:
            return
        atexit.unregister(self._end)
        is_ours = self._is_ours()
        fd, self._fd = self._fd, -1
        try:
            self._engine.stop()
        finally:
            if is_ours:
                os.close(fd)

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """Ignore this thread's allocations in a `with` block."""
        engine = self._engine
        before = engine.ignore(True)
        try:
            yield
        finally:
            engine.ignore(before)

    def clear(self) -> None:
        """Discard the traces of all earlier allocations."""
        self._engine.forget_alive()

    def _warn(self) -> None:
        lost = self._engine.statistics().not_followed
        if lost > self._lost:
            self._lost = lost
            import warnings
            warnings.warn(
                "%d sampled objects are not traced, because the table is full. Call "
                "start() with a larger sample_interval" % lost,
                RuntimeWarning, stacklevel=4)

    def bytes(self) -> tuple[int, int]:
        """Return the estimated live bytes and their peak since reset_peak()."""
        self._warn()
        now, peak = self._engine.alive_bytes()
        return round(now), round(peak)

    def reset_peak(self) -> None:
        """Set the peak of the live bytes to their current value."""
        self._engine.reset_peak()

    def memory(self) -> int:
        """Return the bytes of memory of the engine's tables and of the stacks' file."""
        written = os.fstat(self._fd).st_size if self._is_ours() else 0
        return self._engine.statistics().memory + written

    def end_garbage(self) -> str:
        """Stop tracing the objects that the program cannot reach.

        A heap snapshot finds these objects.

        Returns:
            The reason why no heap snapshot is possible, so that garbage is still
            traced. It is "" after success, and for an engine without heap snapshots.
        """
        if "held" not in self._engine.capabilities():
            return ""
        try:
            snapshots.in_turn(self._take_heap_snapshot)
        except AllocationSamplingError as e:
            return str(e)
        return ""

    def _take_heap_snapshot(self) -> None:
        wait = self._engine.ask_held(False, True)
        try:
            wait()
        finally:
            self._engine.take_held()

    def traces(self) -> list[RawTrace]:
        """Return the traces of the live objects."""
        self._warn()
        from vmprof_convert.profile.probability import probability
        alive = self._engine.alive()
        self._learn({object_.stack for object_ in alive})
        traces: list[RawTrace] = []
        for object_ in alive:
            found = self._traceback(object_.stack)
            if found is None:
                continue
            frames, total = found
            p = probability(object_.size, object_.interval, self._gaps)
            objects = 1.0 / p
            bytes_ = object_.live_size / p
            traces.append((
                0, round(bytes_), frames, total, objects,
                (1.0 - p) * bytes_ ** 2, (1.0 - p) * objects ** 2,
                (self._id, object_.key, object_.address)))
        return traces

    def traceback_of(self, object_: object) -> tuple[RawTraceback, int] | None:
        """Return the frames of the stack that allocated `object_`, and their total.

        The result is None if `object_` was not sampled.
        """
        address = _address(object_)
        found = self._engine.find_alive(address) if address else None
        if found is None:
            return None
        self._learn({found.stack})
        return self._traceback(found.stack)

    def _traceback(self, stack: int) -> tuple[RawTraceback, int] | None:
        return self._tracebacks.get(stack, (UNKNOWN, 1))

    def _learn(self, stacks: set[int]) -> None:
        """Read the frames of those stacks whose frames are still unknown."""
        new = stacks - self._tracebacks.keys()
        if not new:
            return
        self._engine.flush()
        if not self._is_ours():
            raise RuntimeError(
                "the program has closed the file in which tracemalloc stores stacks. "
                "Call stop() and start() again")
        size = os.fstat(self._fd).st_size
        from vmprof_convert import readers
        from vmprof_convert.meaning.visible_stacks import Program
        from vmprof_convert.profile.model import PYTHON
        from vmprof_convert.profile.stacks import Frame
        profile, numbers = readers.read_stacks(os.pread(self._fd, size, 0), new)
        program = Program(profile)
        known: dict[Frame, tuple[str, int]] = {}
        for stack, number in numbers.items():
            frames: list[Any] = []
            is_ours = False
            for frame in reversed(program.frames(profile.stacks[number])):
                place = known.get(frame)
                if place is None:
                    function = profile.function(frame.address)
                    line = program.line(frame)
                    place = known[frame] = (
                        function.file if function.kind == PYTHON else "",
                        line if line > 0 else function.line)
                is_ours = is_ours or place[0].startswith(_OURS)
                if place[0]:
                    frames.append(place)
            self._tracebacks[stack] = (
                None if is_ours else
                (tuple(frames[:self.nframe]), len(frames)) if frames
                else (UNKNOWN, 1))
