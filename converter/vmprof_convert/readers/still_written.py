"""Detection of a profile that a process is still writing.

The profile has no end, and /proc shows that its process has this file open for writing.
The process number and the time alone would be a guess, because another machine,
container or boot can have a process of the same number. Without permission to read
/proc, the profile counts as finished.
"""
from __future__ import annotations

import contextlib
import os
import re


def is_written(file: int, pid: int) -> bool:
    """Return whether a process has a file open for writing.

    Args:
        file: A descriptor of the file.
        pid: The kernel's number of the process, 0 if unknown.
    """
    if not pid:
        return False
    wanted = os.fstat(file)
    folder = "/proc/%d" % pid
    with contextlib.suppress(OSError):
        for number in os.listdir(folder + "/fd"):
            # ignore a descriptor that the process closes meanwhile
            with contextlib.suppress(OSError):
                status = os.stat("%s/fd/%s" % (folder, number))
                if os.path.samestat(status, wanted) and _is_to_write(
                        "%s/fdinfo/%s" % (folder, number)):
                    return True
    return False


def _is_to_write(path: str) -> bool:
    with open(path, encoding="ascii") as file:
        match = re.search(r"^flags:\s*([0-7]+)$", file.read(), re.MULTILINE)
    return match is not None and int(match[1], 8) & (os.O_WRONLY | os.O_RDWR) != 0
