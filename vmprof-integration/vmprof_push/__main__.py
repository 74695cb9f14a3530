"""Send the segments that a program writes into a folder until the program ends.

::

    python -m vmprof_push FOLDER [STDERR IDENTITY]

spool.py describes the FOLDER.  Messages are written to the file STDERR if it has the
given IDENTITY (messages.py).  The shell script of start.py runs this module.  The exit
code is 0 after a normal end, 1 after an unexpected error, and 2 if a setting or a
credential is invalid.
"""
from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.text.escape import printable
from vmprof_push import credentials, service
from vmprof_push.backoff import Backoff
from vmprof_push.folder import LOCK, SETTINGS, remove
from vmprof_push.messages import write
from vmprof_push.protocols import MAKE, Body
from vmprof_push.sending import Outcome, send
from vmprof_push.spool import MAX_WINDOW, Spool, Window
from vmprof_push.target import Target

#: nice value of the pusher, so that the program gets the processor first
_NICE = 10
#: longest time between two scans of the folder, in seconds
_LOOK = 1.0
#: longest time from the pusher's start to the program's first segment, in seconds
_BEGIN = 60.0


class Pusher:
    """The loop that sends the segments of one folder to one server."""

    def __init__(self, folder: str, settings: dict[str, Any],
                 stderr: Sequence[str] = ()) -> None:
        """Read the settings and check the credentials.

        Args:
            folder: The folder that start.py made.
            settings: The contents of settings.json.  Times are in seconds.
            stderr: The arguments of `say()` after the text.

        Raises:
            AllocationSamplingError: The address, a time, or a header is invalid.
        """
        self._spool = Spool(folder)
        self._target = Target(settings["url"])
        self._every = float(settings["every"])
        self._timeout = float(settings["timeout"])
        self._quiet = float(settings["quiet"])
        self._drain = float(settings["drain"])
        self._owner = int(settings["owner"])
        self._stderr = stderr
        self._service = service.read(settings["service"], settings["version"])
        credentials.read(self._target.protocol)
        self._backoff = Backoff(self._every)
        self._sent = 0
        #: path and request body of the oldest segment, kept for further attempts
        self._body: tuple[str, Body] | None = None
        #: time.monotonic() before which no request is sent; 0 after a success
        self._not_before = 0.0
        #: the last message, so that an equal message is not written again
        self._said = ""

    def run(self) -> None:
        """Send segments until the program has ended and the folder is empty.

        The program has ended if no process has written a segment for `quiet` seconds.
        Before the first segment, this limit is `_BEGIN` seconds while the process that
        started the pusher lives.  After the program's end, the pusher sends the
        remaining segments.  It drops them when the server has accepted none for
        `drain` seconds.
        """
        if self._spool.drop_fatal():
            say("dropped a segment that had ended the process that pushes the "
                "profiles", *self._stderr)
        has_begun, since = False, time.monotonic()
        draining: float | None = None
        while True:
            windows = self._spool.scan()
            now = time.monotonic()
            has_begun = has_begun or self._spool.is_used or bool(windows)
            if self._spool.is_used:
                since, draining = now, None
            elif draining is None and now - since > (
                    _BEGIN if not has_begun and _is_there(self._owner)
                    else self._quiet):
                draining = now + self._drain
            if draining is not None and (not windows or now > draining):
                break
            if windows and now >= self._not_before:
                sent = self._sent
                self._push(windows[0])
                if draining is not None and self._sent > sent:
                    # each segment that the server accepts prolongs the draining
                    draining = time.monotonic() + self._drain
                if len(windows) > 1 and not self._not_before:
                    continue
            wait = max(self._not_before - time.monotonic(), 0.0)
            time.sleep(max(0.01, min(_LOOK, self._every, wait or _LOOK)))
        for window in windows:
            self._spool.drop(window)
        self._end()

    def _push(self, window: Window) -> None:
        body = self._make(window)
        if body is None:
            return
        try:
            secret = credentials.read(self._target.protocol)
        except AllocationSamplingError as error:
            outcome = Outcome(False, str(error))
        else:
            outcome = send(self._target, body, secret, self._timeout)
        if outcome.is_sent or outcome.is_final:
            self._body = None
        if outcome.is_sent:
            self._sent += 1
            self._not_before = 0.0
            self._backoff.succeeded()
            self._spool.take(window)
            if self._said and not outcome.problem:
                say("%s accepts profiles again%s" % (self._target, self._losses()),
                    *self._stderr)
            self._said = ""
        elif outcome.is_final:
            self._spool.drop(window)
        else:
            self._not_before = time.monotonic() + self._backoff.failed(
                outcome.retry_after)
        if outcome.problem:
            self._say_once("cannot push to %s: %s%s" % (
                self._target, outcome.problem, "; rejected profiles are dropped"
                if outcome.is_final or outcome.is_sent else "; trying again"))

    def _make(self, window: Window) -> Body | None:
        """Return the segment's request body, or None after removing the segment.

        A segment without samples is removed as if it had been sent.  An unreadable or
        too large segment is dropped with a message.
        """
        if self._body is not None and self._body[0] == window.path:
            return self._body[1]
        try:
            if window.size > MAX_WINDOW:
                raise ProfileError("it is larger than %d MiB" % (MAX_WINDOW >> 20))
            with self._spool.read(window):
                body = self._body_of(window)
        except Exception as error:
            if os.path.exists(window.path):     # else the program removed the segment
                self._spool.drop(window)
                self._say_once(
                    "cannot read a segment, and dropped it: %s" % _why(error))
            return None
        if body is None:
            self._spool.take(window)
            return None
        self._body = window.path, body
        return body

    def _body_of(self, window: Window) -> Body | None:
        profile = readers.read(window.path, salvage=True)
        if not (len(profile.samples) or profile.samples.carried):
            return None
        return MAKE[self._target.protocol](
            profile, self._service, int(profile.settings.get("part", "1")))

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            say(text, *self._stderr)

    def _losses(self) -> str:
        lost = self._spool.dropped
        return "; %d segments were dropped" % lost if lost else ""

    def _end(self) -> None:
        losses = self._losses()
        if losses:
            say("%d segments were pushed to %s%s" % (
                self._sent, self._target, losses), *self._stderr)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass            # the process exists, and belongs to another user
    return True


def _why(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    if isinstance(error, (ProfileError, OSError)):
        return str(error)
    # an error of this package; its text is omitted because it may contain a header
    return "there was a %s" % type(error).__name__


def say(text: str, *stderr: str) -> None:
    """Write a line for the user.

    Args:
        text: The line.
        stderr: The path and the identity for `messages.write()`, or nothing.
    """
    write(printable(text), *stderr)


def _hold(folder: str) -> bool:
    """Lock the folder for this process, and return whether the lock was free.

    The lock's descriptor stays open until this process ends.  The function fails if
    another pusher holds the lock for one second.

    Raises:
        FileNotFoundError: The folder was removed.
    """
    fd = os.open(os.path.join(folder, LOCK),
                 os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(20):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            # another program may only test whether a pusher holds the lock
            time.sleep(0.05)
    return False


def main() -> int:
    """Run the pusher of the folder in `sys.argv`, and return the exit code.

    The folder is removed at the end.  The program stops sampling when its folder is
    gone.
    """
    folder, *stderr = sys.argv[1:]
    os.umask(0o077)
    os.nice(_NICE)
    try:
        if not _hold(folder):
            return 0
    except FileNotFoundError:
        return 0        # the folder was removed
    code = 0
    try:
        with open(os.path.join(folder, SETTINGS), "rb") as file:
            settings = json.load(file)
        Pusher(folder, settings, stderr).run()
    except AllocationSamplingError as error:
        say(str(error), *stderr)
        code = 2
    except FileNotFoundError:
        pass            # the folder was removed, with everything that was to be sent
    except Exception as error:
        # the error's text is omitted because it may contain a header
        say("the process that pushes the profiles ends: there was a "
            "%s" % type(error).__name__,
            *stderr)
        code = 1
    remove(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
