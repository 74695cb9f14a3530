"""The interface of the engines, which observe a program's allocations.

The *hook* engine (:mod:`.hook`) hooks a stock PyPy.  The *builtin* engine
(:mod:`.builtin`) calls the sampler of a PyPy that was translated with this project's
patches.  Both write the same profile, and the rest of this package uses only this
interface.

The start of the sampling loads this module into the program's process.  Imports take
time there, and each major collection visits the objects that remain (resident.py).
For this reason, the module imports neither dataclasses nor typing.
"""
from __future__ import annotations

import os
import stat

from vmprof_allocation.errors import AllocationSamplingError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.engines.ending import Ending
    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


class Statistics:
    """Numbers that the engine counts from the start of a run."""

    __slots__ = ("allocated", "collections", "dropped", "lost", "memory",
                 "not_followed", "pressures", "samples", "surprises",
                 "time_samples")

    #: allocated bytes, from the GC's own pointers
    allocated: int
    #: number of minor collections
    collections: int
    #: number of memory pressures.  Each one hides from `allocated` the bytes that were
    #: allocated since the last sample or collection.
    pressures: int
    #: number of changes of the GC's state that the engine missed; 0 on all known builds
    surprises: int
    #: number of allocation samples
    samples: int
    #: number of allocation samples without a stack
    lost: int
    #: number of CPU samples
    time_samples: int
    #: number of CPU samples that were dropped because another sample was being taken
    dropped: int
    #: number of sampled objects whose outcome is unknown because the table of the
    #: tracked objects was full
    not_followed: int
    #: largest size in bytes of the tables that track the outcomes of sampled objects
    memory: int

    def __repr__(self) -> str:
        """Return the names and the values."""
        return "Statistics(%s)" % ", ".join(
            "%s=%d" % (name, getattr(self, name)) for name in self.__slots__)


class Alive:
    """A sampled object that is not known to be freed."""

    __slots__ = ("address", "interval", "key", "live_size", "size", "stack", "type")

    def __init__(self, address: int, key: int, stack: int, size: int, live_size: int,
                 interval: int, type_: int) -> None:
        """Create the description of an object; see the attributes."""
        #: id() of the object
        self.address = address
        #: key of the sample
        self.key = key
        #: number of the stack in the profile; -1 if the stack was lost
        self.stack = stack
        #: allocated bytes, with the header
        self.size = size
        #: bytes that the object takes now; fewer than `size` if the program shrank it
        self.live_size = live_size
        #: mean number of bytes between two samples when this object was sampled
        self.interval = interval
        #: number of the type in the profile; 0 if the type is unknown
        self.type = type_


class Engine:
    """A way to sample the allocations of this process, in one run at a time."""

    name = ""

    def capabilities(self) -> tuple[str, ...]:
        """Return the names of the features of this engine.

        PROFILE.rst defines the names, and the profile contains them.  The settings
        choose the features of a run.
        """
        raise NotImplementedError

    def prepare(self, knowledge: str = "") -> None:
        """Check that this engine can start, and prepare the start.

        Args:
            knowledge: The result of knowledge() in another process that runs the same
                interpreter, or "".

        Raises:
            AllocationSamplingError: The engine cannot start.
        """
        raise NotImplementedError

    def knowledge(self, folder: str = "") -> str:
        """Return the build profile that prepare() found, for another process.

        Args:
            folder: The folder that receives the data that are too large for the
                result; the user of the other process owns it.  "" if this process
                itself becomes the other process, by exec.
        """
        return ""

    def gc_state(self) -> str:
        """Return where memory.facts.read() finds out whether the GC sweeps.

        Call it after prepare().  The result is valid in all processes that run this
        interpreter.  It is "" if the sampler cannot find out whether the GC sweeps.
        """
        return ""

    def start(self, fd: int, settings: Settings,
              processes: Processes | None = None) -> None:
        """Empty the file, enable vmprof, and begin to sample.  Call prepare() before.

        Args:
            fd: The descriptor of the profile.
            settings: The settings.
            processes: The run that the profile belongs to.  If it is given, this
                engine also samples children if it can.

        Raises:
            AllocationSamplingError: Sampling is not possible.  All changes are undone.
        """
        raise NotImplementedError

    def set_interval(self, interval: int) -> None:
        """Change the mean interval in bytes, from the next object on."""
        raise NotImplementedError

    def rotate(self, fd: int, settings: Settings, processes: Processes | None,
               part: int) -> str:
        """End the profile, and begin the run's next profile.

        After any exception other than AllocationSamplingError, the caller asks
        writes_to() which of the two profiles the engine writes.

        Args:
            fd: The descriptor of the next profile.
            settings: The settings.
            processes: The run, as in start().
            part: The number of the next segment (PROFILE.rst).

        Returns:
            The reason why the ended profile is incomplete, or "".

        Raises:
            AllocationSamplingError: The next profile cannot be written.  The present
                profile continues.
        """
        raise NotImplementedError

    def writes_to(self, fd: int) -> bool:
        """Return whether the engine writes the present profile to `fd`."""
        raise NotImplementedError

    def define_label(self, text: str) -> int:
        """Return the number of a new set of labels.

        Args:
            text: The set: "key=value" with 0x1f between two pairs.

        Returns:
            The number, or 0 if the table of sets is full or this engine has no labels
            (capability ``labels``).
        """
        return 0

    def label(self, number: int) -> None:
        """Give further allocations of the calling thread a set of labels.

        Args:
            number: The number from define_label(), or 0 for no labels.
        """

    def stop(self) -> None:
        """End the sampling, undo all changes, and finish the profile.

        Raises:
            AllocationSamplingError: The profile is incomplete.  All changes are undone.
        """
        raise NotImplementedError

    def mark(self, name: str) -> None:
        """Give this moment a name in the profile.

        This has no effect while the engine does not sample, or without the capability
        ``marks``.
        """

    def note(self, text: str) -> None:
        """Add a setting to the profile.

        This has no effect while the engine does not sample.  Only the hook engine
        implements it.

        Args:
            text: The setting: "key=value" in ASCII (PROFILE.rst).
        """

    # The functions from alive() to reset_peak() need Settings.in_memory.  While the
    # caller uses them, the engine ignores the caller's allocations (see ignore()).

    def alive(self) -> list[Alive]:
        """Return the sampled objects that a minor collection found alive.

        Objects that a major collection found dead are not among them.  The call makes
        a minor collection, and its time grows with the number of objects.
        """
        raise NotImplementedError

    def find_alive(self, address: int) -> Alive | None:
        """Return the sampled object whose id() is `address`, or None."""
        raise NotImplementedError

    def forget_alive(self) -> None:
        """Forget all sampled objects; later objects are recorded."""
        raise NotImplementedError

    def alive_bytes(self) -> tuple[float, float]:
        """Return the estimated bytes of the live objects, and their maximum.

        The maximum is the largest number after any minor collection since the start or
        reset_peak().  The call makes a minor collection.
        """
        raise NotImplementedError

    def reset_peak(self) -> None:
        """Forget the maximum of alive_bytes()."""
        raise NotImplementedError

    def collect_every(self, bytes_: int) -> None:
        """Have a minor collection run after each `bytes_` of allocation.

        The GC may run some collections earlier.  The effect ends with the profile.  The
        engine needs the capability ``held``.
        """
        raise NotImplementedError

    def survived_bytes(self) -> float:
        """Return the estimated bytes that survived the last minor collection.

        Unreachable objects count until a major collection or a heap snapshot finds
        them.  The engine needs the capability ``held``.
        """
        raise NotImplementedError

    def ask_held(self, holders: bool, ends_garbage: bool,
                 is_bounded: bool = False) -> Callable[[], None]:
        """Have a forked process take a heap snapshot (capability ``held``).

        The snapshot finds the sampled objects that the program can reach.

        Args:
            holders: Also find the retainers of the objects.  This takes twice the time.
            ends_garbage: Refuse if the snapshot could take live objects for garbage.
            is_bounded: Refuse if the heap is too large for a snapshot that the user did
                not request.

        Returns:
            A function that waits for the forked process; the program's other threads
            run meanwhile.

        Raises:
            AllocationSamplingError: No snapshot is possible.
            SamplingBusy: Another thread takes a snapshot.
        """
        raise NotImplementedError

    def take_held(self) -> float:
        """Write the heap snapshot of ask_held() into the profile.

        If the forked process still runs, it is killed.  Sampled objects that the
        program cannot reach end at the time of the snapshot.

        Returns:
            The cost in seconds: the program's pause and the processor time of the
            forked process.

        Raises:
            AllocationSamplingError: The snapshot failed.
        """
        raise NotImplementedError

    def ask_last_snapshot(self) -> Callable[[], None] | None:
        """Begin the heap snapshot that finds the live objects at the profile's end.

        Returns:
            A function that waits for the snapshot, before take_last_snapshot().  None
            if no snapshot is possible or the heap is too large.
        """
        return None

    def take_last_snapshot(self) -> None:
        """Write the snapshot of ask_last_snapshot() into the profile.

        If the snapshot's process still runs, it is killed.
        """

    def ignore(self, ignored: bool) -> bool:
        """Ignore the allocations of this thread, or stop ignoring them.

        The hook engine also ignores the major collections that the thread requests.

        Args:
            ignored: Whether to ignore further allocations.

        Returns:
            Whether allocations were ignored before the call.
        """
        raise NotImplementedError

    def flush(self) -> str:
        """Write the waiting records: stacks, types and names.

        Returns:
            The reason why no more records reach the profile.  It is empty if records
            reach the profile, if the engine does not sample, or if the engine cannot
            know.
        """
        raise NotImplementedError

    def state(self) -> tuple[object, ...] | None:
        """Return the state of a running engine for restore() of a new engine object.

        The new object then replaces this one in this process.  The result is None if
        no other engine object can continue the run.
        """
        return None

    def restore(self, state: tuple[object, ...]) -> None:
        """Continue with the result of state().

        A forked child calls it with the parent's state, too.
        """
        raise NotImplementedError

    def ending(self, has_snapshot: bool) -> Ending:
        """Return an object that ends the run after the engine's modules are removed.

        Args:
            has_snapshot: Whether the end begins with a heap snapshot.
        """
        raise NotImplementedError

    def is_sampled_child(self) -> bool:
        """Return whether this is a forked child that is sampled like its parent.

        In such a child, stop() ends the sampling.
        """
        return False

    def leave_child(self) -> None:
        """End all that would take time in a forked child that is not sampled.

        This function imports nothing.
        """

    def child_path(self) -> str:
        """Return the profile of a sampled child, or "" before its first sample."""
        return ""

    def statistics(self) -> Statistics:
        """Return the statistics of this run, or of the last run after stop()."""
        raise NotImplementedError


def empty(fd: int) -> None:
    """Empty the profile if it is a regular file."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)


def refuse_second(pid: int) -> None:
    """Check that this process is not sampled yet.

    Args:
        pid: The process that the engine samples, or 0.  In a forked child, it is the
            parent.

    Raises:
        AllocationSamplingError: The process is sampled already.
    """
    import _vmprof
    if pid == os.getpid():
        raise AllocationSamplingError(
            "allocation sampling is already on in this process; stop it first")
    if hasattr(_vmprof, "is_enabled") and _vmprof.is_enabled():
        raise AllocationSamplingError(
            "vmprof is already enabled in this process; call vmprof.disable() "
            "first")
