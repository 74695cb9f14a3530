"""Engines: the interface.

There are two ways to get at the allocations, with one profile as the result:
the *hook* engine (:mod:`.hook`) hooks a stock PyPy; a PyPy that was translated
with our patches has one of its own, the *builtin* engine (:mod:`.builtin`).
Everything else in this package only knows the interface below.

What is imported here, and by all that the start needs, is in the program's process:
it takes time, and what stays there (resident.py) is on the program's heap, and visited
by each major collection.  So: no dataclasses, no typing.
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
    """Counted since the start."""

    __slots__ = ("allocated", "collections", "dropped", "lost", "memory",
                 "not_followed", "pressures", "samples", "surprises",
                 "time_samples")

    #: bytes allocated, by the GC's own pointers
    allocated: int
    #: minor collections
    collections: int
    #: memory pressures; each hides from `allocated` what was allocated since
    #: the last sample or collection
    pressures: int
    #: how often the GC changed its state unseen; 0 on every known build
    surprises: int
    #: allocation samples, and those of them without a stack
    samples: int
    lost: int
    #: time samples, and those that met another sample
    time_samples: int
    dropped: int
    #: sampled objects of which it is not known: there was no room for more
    not_followed: int
    #: bytes that it took to know what becomes of sampled objects, at most
    memory: int

    def __repr__(self) -> str:
        return "Statistics(%s)" % ", ".join(
            "%s=%d" % (name, getattr(self, name)) for name in self.__slots__)


class Alive:
    """A sampled object that was not freed yet."""

    __slots__ = ("address", "interval", "key", "live_size", "size", "stack", "type")

    def __init__(self, address: int, key: int, stack: int, size: int, live_size: int,
                 interval: int, type_: int) -> None:
        #: its id()
        self.address = address
        #: of the sample
        self.key = key
        #: number of the stack in the profile; 0: it got lost
        self.stack = stack
        #: bytes with the header: reserved for it; and that it takes, which is less
        #: if the program has shrunk it
        self.size = size
        self.live_size = live_size
        #: mean bytes between two samples, when it was chosen
        self.interval = interval
        #: number of the type in the profile; 0: not known
        self.type = type_


class Engine:
    """One way to take samples.  One run at a time in a process."""

    name = ""

    def capabilities(self) -> tuple[str, ...]:
        """What this engine can record, in words that PROFILE.rst defines;
        whether it is asked to, the settings say.  They stand in the profile."""
        raise NotImplementedError

    def prepare(self, knowledge: str = "") -> None:
        """Find out whether this engine can start, and get ready.

        `knowledge` is what another process found out, which ran the same
        interpreter.  Raises AllocationSamplingError if it can't.
        """
        raise NotImplementedError

    def knowledge(self, folder: str = "") -> str:
        """What prepare() found out, for a process that goes on; or for one of another
        user, who owns `folder`: what is too much to be told is left there, in a file.
        """
        return ""

    def gc_state(self) -> str:
        """For memory.facts.read() in another process that runs this interpreter.  After
        prepare().  Empty: it is not known when this GC sweeps."""
        return ""

    def start(self, fd: int, settings: Settings,
              processes: Processes | None = None) -> None:
        """Empty the file `fd`, enable vmprof, and begin to sample.  After
        prepare().  `processes`: the profile is one of these, and children are
        followed, if this engine can.

        Raises AllocationSamplingError, after having put everything back.
        """
        raise NotImplementedError

    def set_interval(self, interval: int) -> None:
        """Change the mean interval, in bytes, from the next object on."""
        raise NotImplementedError

    def rotate(self, fd: int, settings: Settings, processes: Processes | None,
               part: int) -> str:
        """The profile ends whole, and the run's next one begins in the file `fd`,
        which is number `part`: PROFILE.rst.

        Returns why the one that ended is not complete, or an empty string.
        Raises AllocationSamplingError if the next one can't be written: then the
        present one goes on.  After any other exception, writes_to() says which.
        """
        raise NotImplementedError

    def writes_to(self, fd: int) -> bool:
        """That is where the present profile goes."""
        raise NotImplementedError

    def define_label(self, text: str) -> int:
        """The number of a set of labels, "key=value" with 0x1f between them; 0: this
        engine has no room for it, or has none at all (capability ``labels``)."""
        return 0

    def label(self, number: int) -> None:
        """What the calling thread allocates from now on has this set; 0: none."""

    def stop(self) -> None:
        """End the sampling, put everything back, finish the profile.

        Raises AllocationSamplingError if the profile is not complete,
        after everything was put back.
        """
        raise NotImplementedError

    def mark(self, name: str) -> None:
        """Name this moment, in the profile.  Harmless while nothing is
        sampled, and without the capability ``marks``."""

    def note(self, text: str) -> None:
        """Add to the settings in the profile, "key=value" in ASCII (PROFILE.rst).
        Harmless while nothing is sampled.  The hook engine alone can do it."""

    # While it samples with Settings.in_memory; to be asked while what this
    # thread allocates is ignored:

    def alive(self) -> list[Alive]:
        """The sampled objects that survived a minor collection, and that no
        major one has found dead.  Costs a minor collection, and time in what
        there is of them."""
        raise NotImplementedError

    def find_alive(self, address: int) -> Alive | None:
        """The one with this id(), if it was sampled."""
        raise NotImplementedError

    def forget_alive(self) -> None:
        """Only what is allocated from now on counts."""
        raise NotImplementedError

    def alive_bytes(self) -> tuple[float, float]:
        """Estimated bytes of them, and the most that they were after a minor
        collection since the start or reset_peak().  Costs a minor
        collection."""
        raise NotImplementedError

    def reset_peak(self) -> None:
        raise NotImplementedError

    def collect_every(self, bytes_: int) -> None:
        """Have a minor collection run after each `bytes_` of allocation.

        The GC may run one earlier.  This ends with the profile.  The engine needs the
        capability ``held``.
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
            holders: also find the retainers of the objects.  This takes twice the time.
            ends_garbage: refuse if it would not be certain which objects are garbage.
            is_bounded: refuse if the heap is too large for a snapshot that nobody
                requested.

        Returns:
            A function that waits for the process.  The program runs meanwhile.

        Raises:
            AllocationSamplingError: no snapshot is possible.
            SamplingBusy: another thread takes one.
        """
        raise NotImplementedError

    def take_held(self) -> float:
        """Write the snapshot into the profile; end a process that is still at work.

        Sampled objects that the program cannot reach end at the time of the snapshot.

        Returns:
            The seconds that it cost: how long the program stopped, and the processor
            time of the process.

        Raises:
            AllocationSamplingError: there is no snapshot.
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
        """Write the snapshot into the profile; end a process that is still at work."""

    def ignore(self, ignored: bool) -> bool:
        """What this thread allocates is not the program's, nor, with the hook
        engine, is a major collection that it asks for, until it is not `ignored`
        any more.  Returns what was so before."""
        raise NotImplementedError

    def flush(self) -> str:
        """Write the records that wait: stacks, types and names.

        Returns:
            The reason why no more records reach the profile. Empty if they do, if
            nothing is sampled, or if this engine can't tell.
        """
        raise NotImplementedError

    def state(self) -> tuple[object, ...] | None:
        """While it samples: for restore() of another engine of this process, which
        then goes on in its place; None: that can't be."""
        return None

    def restore(self, state: tuple[object, ...]) -> None:
        """Go on with what state() returned; also in a forked child, as if this were its
        parent's."""
        raise NotImplementedError

    def ending(self, has_snapshot: bool) -> Ending:
        """Return what ends the run when the engine's modules are gone.

        Args:
            has_snapshot: it begins with a heap snapshot.
        """
        raise NotImplementedError

    def is_sampled_child(self) -> bool:
        """In a forked child: it is sampled, as its parent was; stop() ends it."""
        return False

    def leave_child(self) -> None:
        """In a forked child that is not sampled: what would still take time there ends.
        Imports nothing."""

    def child_path(self) -> str:
        """There, the profile; empty: there is none, as there is no sample."""
        return ""

    def statistics(self) -> Statistics:
        """Since start(); after stop() of the run that ended."""
        raise NotImplementedError


def empty(fd: int) -> None:
    """What was in the profile's file goes, if it is one."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)


def refuse_second(pid: int) -> None:
    """Raise AllocationSamplingError if this process samples already; `pid`
    is the one in which the engine did."""
    import _vmprof
    if pid == os.getpid():
        raise AllocationSamplingError(
            "allocation sampling is already on in this process; stop it first")
    if hasattr(_vmprof, "is_enabled") and _vmprof.is_enabled():
        raise AllocationSamplingError(
            "vmprof is already enabled in this process; call vmprof.disable() "
            "first")
