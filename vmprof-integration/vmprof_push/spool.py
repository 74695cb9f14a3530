"""The folder between a program and its pusher: windows, each a profile.

PID.w7.vmprof is the seventh one of the process PID that began, and PID.CHILD.w2.vmprof
the second one of a child.  Who writes holds a lock on the file: what nobody holds has
ended, or its process is gone.  What waits is bounded, in number and bytes: the oldest
goes first.  PID.vmprof stays, emptied, as long as somebody writes: children look for
it.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from vmprof_push.folder import MAX_BYTES, MAX_WINDOWS, SUFFIX

#: a larger one is not read, as that takes memory
MAX_WINDOW = 8 * 2**20
#: an empty file that nobody holds may be about to be begun, so many seconds long
_BEGINNING = 60.0
#: how many we have dropped
DROPPED = "dropped"
#: how often the window was begun to be read that is being read, and its name
_READ = "read"
#: of the process that began
_FIRST = re.compile(r"\d+%s" % re.escape(SUFFIX), re.ASCII)


class Window(NamedTuple):
    #: when it ended, in nanoseconds
    ended: int
    path: str
    size: int


class Spool:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        #: somebody writes a window, or will
        self.is_used = False
        #: windows that this and a pusher before it dropped
        self.dropped = _count(os.path.join(folder, DROPPED))
        #: of PID.vmprof
        self._emptied: set[str] = set()
        #: what was being read when the pusher before this one ended
        self._suspect = ""

    def scan(self) -> list[Window]:
        """Those that have ended, the oldest first, within the bounds."""
        self.is_used = False
        found = []
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if name.endswith(SUFFIX) and path not in self._emptied:
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
            status = os.fstat(fd)
            if status.st_size == 0 and time.time() - status.st_mtime <= _BEGINNING:
                # a lock of ours could be in the way of the one that its process is
                # about to get
                self.is_used = True
                return None
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            status = os.fstat(fd)
        except BlockingIOError:
            self.is_used = True
            return None
        finally:
            os.close(fd)
        if status.st_size == 0:
            self.remove(path)
            return None
        return Window(status.st_mtime_ns, path, status.st_size)

    def take(self, window: Window) -> bool:
        """It need not wait any more.  False: it doesn't, somebody else took it."""
        if not _FIRST.fullmatch(os.path.basename(window.path)):
            return self.remove(window.path)
        self._emptied.add(window.path)
        with contextlib.suppress(FileNotFoundError):
            os.truncate(window.path, 0)
        return True

    def drop(self, window: Window) -> None:
        if self.take(window):
            self.dropped += 1
            self._note(DROPPED, str(self.dropped))

    def _note(self, name: str, text: str) -> None:
        """For a pusher that comes after us."""
        # a disk may be full: then it won't know
        with contextlib.suppress(OSError), open(
                os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    @contextlib.contextmanager
    def read(self, window: Window) -> Iterator[None]:
        """While that is so, it may be our end: see drop_fatal()."""
        name = os.path.basename(window.path)
        self._note(_READ, "%d %s" % (2 if name == self._suspect else 1, name))
        try:
            yield
        finally:
            self.remove(os.path.join(self.folder, _READ))

    def drop_fatal(self) -> bool:
        """The window that two pushers before us did not survive: the first one may
        have been killed by chance.  False: there is none."""
        path = os.path.join(self.folder, _READ)
        try:
            with open(path, encoding="utf-8") as file:
                count, _, name = file.read(256).partition(" ")
        except (OSError, ValueError):
            return False
        name = os.path.basename(name)
        if not name.endswith(SUFFIX):
            return False            # the note was cut off
        if count != "2":
            self._suspect = name
            return False
        self.remove(path)
        self.drop(Window(0, os.path.join(self.folder, name), 0))
        return True

    def remove(self, path: str) -> bool:
        """False: somebody else did."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True


def _count(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return int(file.read(20) or 0)
    except (OSError, ValueError):
        return 0
