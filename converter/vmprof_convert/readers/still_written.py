"""Whether a profile that has no end is being written: whether the process that it is of
has this very file open to write into it.

That is no guess, as its number and a time would be: both may mean another process, of
another machine, container or boot.  Where nobody may look, the answer is no.
"""
from __future__ import annotations

import contextlib
import os
import re


def is_written(file: int, pid: int) -> bool:
    """`file`: a descriptor; `pid`: the kernel's number of the process, 0 if it is not
    known."""
    if not pid:
        return False
    wanted = os.fstat(file)
    folder = "/proc/%d" % pid
    with contextlib.suppress(OSError):
        for number in os.listdir(folder + "/fd"):
            # one that is closed meanwhile is none of those that count
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
