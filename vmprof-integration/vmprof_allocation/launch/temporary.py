"""Create and remove the temporary profiles of a run without -o."""
from __future__ import annotations

import fcntl
import os
import re
import tempfile

from vmprof_allocation.errors import AllocationSamplingError, say

#: the part that a child's file name has before the suffix of the first process's file
_CHILD = re.compile(r"\.(\d+)(?:-\d+)?", re.ASCII)


def make() -> str:
    """Create an empty file for the first process, and return its path.

    Raises:
        AllocationSamplingError: the file cannot be created.
    """
    try:
        fd, path = tempfile.mkstemp(suffix=".vmprof")
    except OSError as e:
        raise AllocationSamplingError(
            "cannot write the profile to a temporary file: %s. Write the name of a "
            "file after -o, or set TMPDIR to another folder" % e.strerror) from None
    os.close(fd)
    return path


def remove(first: str) -> None:
    """Remove the profiles of a run.

    The profiles of children that still write remain, and a message names them.

    Args:
        first: the profile of the first process, from make().
    """
    path, suffix = os.path.splitext(os.path.abspath(first))
    folder, name = os.path.split(path)
    # when this file is gone, no further process begins a profile
    _unlink(first)
    for other in sorted(os.listdir(folder)):
        child = os.path.join(folder, other)
        match = _CHILD.fullmatch(other[len(name):len(other) - len(suffix)])
        if not (other.startswith(name) and other.endswith(suffix) and match):
            continue
        if _is_held(child):
            say("process %s is still running, and continues to write into %s"
                % (match[1], child))
        else:
            _unlink(child)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _is_held(path: str) -> bool:
    """Return whether a process still writes to a profile, and so locks the file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass                # not all file systems support locks
    finally:
        os.close(fd)
    return False
