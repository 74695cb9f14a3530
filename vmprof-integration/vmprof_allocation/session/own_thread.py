"""Name the threads that the sampler starts in the program's process."""
from __future__ import annotations

import os


def declare() -> None:
    """Declare the calling thread as the sampler's.

    native/shared/flusher.c ends a process whose other threads have all ended.  It does
    not count threads of this name.
    """
    try:
        number = os.readlink("/proc/thread-self").rpartition("/")[2]
        fd = os.open("/proc/thread-self/comm", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"vmprof " + os.fsencode(number))
        finally:
            os.close(fd)
    except OSError:
        pass            # there is no /proc
