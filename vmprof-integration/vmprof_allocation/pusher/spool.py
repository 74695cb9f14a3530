"""The folder between a program and its pusher: windows, each a profile.

PID-7.vmprof is the seventh one of process PID, and PID.CHILD.vmprof the first one of a
child.  Who writes holds a lock on the file: what nobody holds has ended, or its process
is gone.  What waits is bounded, in number and bytes: the oldest goes first.  PID.vmprof
is empty, and there as long as children of that process may begin.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from vmprof_allocation.push_folder import (
    DROPPED,
    MAX_BYTES,
    MAX_WINDOWS,
    SUFFIX,
)

#: a larger one is not read, as that takes memory
MAX_WINDOW = 8 * 2**20
#: an empty file that nobody holds may be about to be begun, so many seconds long
_BEGINNING = 60.0
#: how many we have dropped
_OURS = "pusher" + DROPPED
_NUMBERED = re.compile(r"\d+-(\d+)%s" % re.escape(SUFFIX), re.ASCII)

_OF_PROCESS = re.compile(r"(\d{1,9})%s" % re.escape(SUFFIX), re.ASCII)


class Window(NamedTuple):
    #: when it ended, in nanoseconds
    ended: int
    path: str
    size: int

    @property
    def number(self) -> int:
        """Of its process; 0: not known."""
        match = _NUMBERED.fullmatch(os.path.basename(self.path))
        return int(match[1]) if match else 0


class Spool:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        #: somebody writes a window
        self.is_used = False

    def scan(self) -> list[Window]:
        """Those that have ended, the oldest first, within the bounds."""
        self.is_used = False
        found = []
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if name.endswith(SUFFIX):
                window = self._look_at(path)
                if window is not None:
                    found.append(window)
        found.sort()
        total = sum(window.size for window in found)
        while found and (len(found) > MAX_WINDOWS or total > MAX_BYTES):
            total -= found[0].size
            self.drop(found.pop(0))
        return found

    def _look_at(self, path: str) -> Window | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None         # the program dropped it
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            status = os.fstat(fd)
        except BlockingIOError:
            self.is_used = True
            return None
        finally:
            os.close(fd)
        if status.st_size == 0:
            self._look_at_empty(path, time.time() - status.st_mtime)
            return None
        return Window(status.st_mtime_ns, path, status.st_size)

    def _look_at_empty(self, path: str, seconds: float) -> None:
        match = _OF_PROCESS.fullmatch(os.path.basename(path))
        if match:
            if not is_there(int(match[1])):
                self.remove(path)
        elif seconds > _BEGINNING:
            self.remove(path)
        else:
            self.is_used = True

    @contextlib.contextmanager
    def held(self, window: Window) -> Iterator[bool]:
        """So that the program doesn't drop it now; False: it has."""
        try:
            fd = os.open(window.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            yield False
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield os.fstat(fd).st_nlink > 0
        finally:
            os.close(fd)

    def drop(self, window: Window) -> None:
        if self.remove(window.path):
            path = os.path.join(self.folder, _OURS)
            count = _count(path) + 1
            with open(path, "w", encoding="ascii") as file:
                file.write(str(count))

    def remove(self, path: str) -> bool:
        """False: somebody else did."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    @property
    def dropped(self) -> int:
        """Windows that were not sent: by us, also before we were killed and came
        again, and by programs, which could not wait for us."""
        return sum(_count(os.path.join(self.folder, name))
                   for name in os.listdir(self.folder) if name.endswith(DROPPED))

    def clear(self) -> None:
        """Remove the folder, and all that is in it."""
        for name in os.listdir(self.folder):
            self.remove(os.path.join(self.folder, name))
        os.rmdir(self.folder)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _count(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return int(file.read(20) or 0)
    except (OSError, ValueError):
        return 0
