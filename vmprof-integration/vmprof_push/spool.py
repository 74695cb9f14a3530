"""The folder into which a program writes segments, as its pusher sees the folder.

Each segment is a profile in its own file.  PID.w7.vmprof is the seventh segment of the
first process, PID.  PID.CHILD.w2.vmprof is the second segment of a child.  The writer
holds a lock on the file.  A segment without this lock is finished, or its process is
gone.

The number and the total size of the waiting segments are limited (folder.py).  Above
these limits, `Spool.scan()` drops the oldest segments.  PID.vmprof is emptied instead
of removed as long as a process writes, because child processes look for this file.
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

#: size of the largest segment that is read, in bytes; reading takes memory
MAX_WINDOW = 8 * 2**20
#: seconds during which a process may not yet have locked its new, empty file
_BEGINNING = 60.0
#: file with the number of dropped segments
DROPPED = "dropped"
#: file with the number of attempts to read a segment, and the segment's name
_READ = "read"
#: name of the first segment of the first process
_FIRST = re.compile(r"\d+%s" % re.escape(SUFFIX), re.ASCII)


class Window(NamedTuple):
    """A finished segment that waits to be sent."""

    #: time of the file's last change, in nanoseconds since 1970
    ended: int
    path: str
    #: size of the file in bytes
    size: int


class Spool:
    """The pusher's view of the folder."""

    def __init__(self, folder: str) -> None:
        """Read the number of segments that earlier pushers of the folder dropped."""
        self.folder = folder
        #: whether a process writes a segment or may be about to; set by scan()
        self.is_used = False
        #: number of segments that this pusher and its predecessors dropped
        self.dropped = _count(os.path.join(folder, DROPPED))
        #: paths of first segments that were emptied instead of removed
        self._emptied: set[str] = set()
        #: name of the segment that the previous pusher read when it ended
        self._suspect = ""

    def scan(self) -> list[Window]:
        """Return the finished segments, the oldest first, and set `is_used`.

        Segments beyond the limits are dropped.
        """
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
            return None         # the program removed the segment
        try:
            status = os.fstat(fd)
            if status.st_size == 0 and time.time() - status.st_mtime <= _BEGINNING:
                # A lock taken here could make the process fail that has just created
                # the file and is about to lock it.
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
        """Remove a segment that was sent, has no samples, or is dropped.

        Returns:
            False if another process had already removed the segment.
        """
        if not _FIRST.fullmatch(os.path.basename(window.path)):
            return self.remove(window.path)
        self._emptied.add(window.path)
        with contextlib.suppress(FileNotFoundError):
            os.truncate(window.path, 0)
        return True

    def drop(self, window: Window) -> None:
        """Remove a segment that was not sent, and count it as dropped."""
        if self.take(window):
            self.dropped += 1
            self._note(DROPPED, str(self.dropped))

    def _note(self, name: str, text: str) -> None:
        """Write a small file for this pusher's successor."""
        # on a full disk, the successor does without the file
        with contextlib.suppress(OSError), open(
                os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    @contextlib.contextmanager
    def read(self, window: Window) -> Iterator[None]:
        """Record that the segment is being read while the context is active.

        Reading may kill the pusher, for example by its use of memory.  The record
        lets the next pusher recognise such a segment (`drop_fatal()`).
        """
        name = os.path.basename(window.path)
        self._note(_READ, "%d %s" % (2 if name == self._suspect else 1, name))
        try:
            yield
        finally:
            self.remove(os.path.join(self.folder, _READ))

    def drop_fatal(self) -> bool:
        """Drop the segment at which the two previous pushers were killed.

        After one killed pusher, the segment is only remembered as a suspect, because
        the pusher may have been killed for another reason.

        Returns:
            Whether a segment was dropped.
        """
        path = os.path.join(self.folder, _READ)
        try:
            with open(path, encoding="utf-8") as file:
                count, _, name = file.read(256).partition(" ")
        except (OSError, ValueError):
            return False
        name = os.path.basename(name)
        if not name.endswith(SUFFIX):
            return False            # the record is incomplete
        if count != "2":
            self._suspect = name
            return False
        self.remove(path)
        self.drop(Window(0, os.path.join(self.folder, name), 0))
        return True

    def remove(self, path: str) -> bool:
        """Remove a file, and return False if it was already gone."""
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
