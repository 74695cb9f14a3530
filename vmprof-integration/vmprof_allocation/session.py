"""One run of the sampler: a carrier, its settings, and the file it fills."""
from __future__ import annotations

import atexit
import os
import stat

from vmprof_allocation.carrier import Carrier, Settings, Statistics, choose
from vmprof_allocation.errors import AllocationSamplingError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from vmprof_allocation.carrier import Gaps
    Path = Union[str, os.PathLike[str]]

MAX_SEED = 2**64 - 1


def make_settings(interval: int | str, seed: int | None = None,
                  gaps: Gaps = "exponential", period: float | None = None,
                  memory: bool = False) -> Settings:
    """Check what the user asks for; see :class:`carrier.Settings`.

    `interval` may be text such as ``128k``, or a limit such as ``auto``, which
    it then follows.  Without `seed` each run gets a new one; the profile tells
    which.  Raises AllocationSamplingError.
    """
    from vmprof_allocation.sizes import FIRST_INTERVAL, make_interval, parse_limit
    limit = parse_limit(interval) if isinstance(interval, str) else None
    interval = FIRST_INTERVAL if limit else make_interval(interval)
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    elif not 0 <= seed <= MAX_SEED:
        raise AllocationSamplingError(
            "the seed %d is out of range; it must be between 0 and 2**64 - 1"
            % seed)
    if gaps not in ("exponential", "fixed"):
        raise AllocationSamplingError(
            "the gaps %r are not known; they are exponential or fixed" % gaps)
    # vmprof's own limits
    if period is not None and not 1e-6 <= period < 1.0:
        raise AllocationSamplingError(
            "the period %r is out of range; it must be at least 0.000001 and "
            "less than 1.0 seconds" % period)
    if limit is not None and gaps == "fixed":
        raise AllocationSamplingError(
            "fixed gaps can't follow a limit: choosing every n-th byte while n "
            "changes is not fair to all bytes; leave --allocation-gaps out")
    return Settings(interval, seed, gaps, period, memory, limit)


_running: list[Session] = []


@atexit.register
def _stop_all() -> None:
    for session in _running[:]:
        session.stop()


class Session:
    """Samples from start() to stop(), in the process that called start().
    A context manager that does both."""

    def __init__(self, settings: Settings, output: Path | None = None):
        """`output` is where the profile goes; None: a temporary file, which
        belongs to the caller."""
        self.settings = settings
        #: the profile's path; after start() never None
        self.output = None if output is None else os.fspath(output)
        self._carrier: Carrier | None = None
        self._fd = -1
        self._file: tuple[int, int] | None = None
        self._pid = 0

    def start(self) -> None:
        """Begin to sample; a profile that was there before is replaced.

        Raises AllocationSamplingError, and puts everything back.  What
        `output` held is still there if the request, the interpreter or the
        file were refused, that is before any hook is set.
        """
        carrier = choose()
        created = self._open()
        self._file = self._file_id()
        try:
            if stat.S_ISREG(os.fstat(self._fd).st_mode):
                os.ftruncate(self._fd, 0)
            carrier.start(self._fd, self.settings)
        except BaseException:
            os.close(self._fd)
            if created and self.output is not None:
                os.unlink(self.output)
            raise
        self._carrier, self._pid = carrier, os.getpid()
        _running.append(self)

    def _open(self) -> bool:
        """Returns whether the file is new."""
        if self.output is None:
            import tempfile
            self._fd, self.output = tempfile.mkstemp(suffix=".vmprof")
            return True
        try:
            try:
                self._fd = os.open(self.output, os.O_RDWR | os.O_CREAT
                                   | os.O_EXCL | os.O_CLOEXEC, 0o666)
                return True
            except FileExistsError:
                self._fd = os.open(self.output, os.O_RDWR | os.O_CLOEXEC)
                return False
        except OSError as e:
            raise AllocationSamplingError(
                "can't write the profile to %r: %s"
                % (self.output, e.strerror)) from None

    @property
    def is_parent(self) -> bool:
        """False in a forked child of the process that called start()."""
        return self._pid == os.getpid()

    def __enter__(self) -> Session:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def set_interval(self, interval: int | str) -> None:
        """Another mean interval, in bytes, from the next allocation on; a
        limit ends."""
        if self._carrier is None:
            raise AllocationSamplingError("allocation sampling is not on")
        from vmprof_allocation.sizes import make_interval
        self._carrier.set_interval(make_interval(interval))

    def statistics(self) -> Statistics:
        if self._carrier is None:
            raise AllocationSamplingError("allocation sampling is not on")
        return self._carrier.statistics()

    def stop(self) -> None:
        """End the sampling and finish the profile.  Once is enough; in a
        forked child, which is not sampled, it does nothing.

        Raises AllocationSamplingError if the profile could not be written to
        the end, after everything else was put back.
        """
        carrier = self._carrier
        if carrier is None:
            return
        if self.is_parent:
            try:
                carrier.stop()
            except KeyboardInterrupt:
                raise           # the exit handler tries again
            except BaseException:
                self._close()
                raise
        self._close()

    def _close(self) -> None:
        self._carrier = None
        _running.remove(self)
        # a forked child has closed it; the program may have, and have opened
        # a file of its own that got the same number
        if self.is_parent and self._file_id() == self._file:
            os.close(self._fd)

    def _file_id(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._fd)
        except OSError:
            return None
        return status.st_dev, status.st_ino
