"""What carries the samples: the interface, and the choice.

There are two ways to get at the allocations, with one profile as the result:
the *live* carrier (:mod:`vmprof_allocation.live`) hooks a stock PyPy; a PyPy
that was translated with the patch does it itself.  Everything else in this
package only knows the interface below.
"""
from __future__ import annotations

import dataclasses
from typing import Literal, Protocol

Gaps = Literal["exponential", "fixed"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user asks for."""

    #: mean number of bytes between two samples, 1 to 2**62
    interval: int
    #: seed of the generator of gaps, 0 to 2**64 - 1
    seed: int
    gaps: Gaps = "exponential"
    #: seconds between two time samples; None: no time samples
    period: float | None = None
    #: vmprof's own switch for its resident memory column
    memory: bool = False


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counted since the start."""

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


class Carrier(Protocol):
    """One way to take samples.  One run at a time in a process."""

    name: str

    def prepare(self) -> None:
        """Find out whether this carrier works here; changes nothing.

        Raises AllocationSamplingError if not.
        """

    def start(self, fd: int, settings: Settings) -> None:
        """Enable vmprof on `fd` and begin to sample.

        Raises AllocationSamplingError, after having put everything back.
        """

    def set_interval(self, interval: int) -> None:
        """Change the mean interval, in bytes, from the next object on."""

    def stop(self) -> None:
        """End the sampling, put everything back, finish the profile.

        Raises AllocationSamplingError if the profile is not complete,
        after everything was put back.
        """

    def statistics(self) -> Statistics: ...


def choose() -> Carrier:
    """The carrier for this process.

    Raises AllocationSamplingError where there is none.
    """
    from vmprof_allocation import live
    carrier = live.carrier()
    carrier.prepare()
    return carrier
