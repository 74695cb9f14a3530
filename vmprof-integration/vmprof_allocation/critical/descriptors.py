"""Keep the sampler's file descriptors out of the program's way."""
from __future__ import annotations

import fcntl
import os

#: constant of Linux that PyPy's fcntl does not have
F_DUPFD_CLOEXEC = 1030


def move_up(fd: int) -> int:
    """Move a descriptor to a high number, and return this number.

    The program then gets the same numbers for its files as without the sampler. If the
    program assumes the number of an output, it does not write into the profile.
    """
    for lowest in 512, 3:
        try:
            high = fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue        # the limit is lower (ulimit -n), or this is not Linux
        os.close(fd)
        return high
    return fd
