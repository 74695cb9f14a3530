"""Name the threads that the sampler starts in the program's process."""
from __future__ import annotations

import os


def declare() -> None:
    """Give the calling thread the name of the sampler's threads.

    If only threads of this name still run in a process, native/shared/flusher.c ends
    the process.
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
