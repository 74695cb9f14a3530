"""Our descriptors are none that the program would get without us."""
from __future__ import annotations

import fcntl
import os

#: Linux's; it has no name in PyPy
F_DUPFD_CLOEXEC = 1030


def move_up(fd: int) -> int:
    """The same file under a number that is out of the program's way: it gets
    the numbers that it would get without us, and what it writes to a number
    that it takes for its output does not end up in the profile."""
    for lowest in 512, 3:
        try:
            high = fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue        # there are not so many; or it is not Linux
        os.close(fd)
        return high
    return fd
