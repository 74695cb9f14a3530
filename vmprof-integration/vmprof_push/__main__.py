"""python -m vmprof_push FOLDER [STDERR IDENTITY]

Send the windows that a program leaves in FOLDER (spool.py) until the program ends.
Write messages to the file STDERR (messages.py).
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

#: of the processor, which is the program's
_NICE = 10
#: seconds between two looks into the folder
_LOOK = 1.0
#: the program that began this takes at most so many seconds to its first window
_BEGIN = 60.0


class Pusher:
    def __init__(self, folder: str, settings: dict[str, Any],
                 stderr: Sequence[str] = ()) -> None:
        """Raises AllocationSamplingError.  `stderr` has the arguments of say()."""
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
        #: the body of the oldest window, which is made once
        self._body: tuple[str, Body] | None = None
        self._not_before = 0.0
        #: the last thing that was said, so that it is said once
        self._said = ""

    def run(self) -> None:
        if self._spool.drop_fatal():
            say("a window ended the process that pushes, and is dropped", *self._stderr)
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
                    # an engine that takes them is not away, however slow we are
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
                say("%s takes profiles again%s" % (self._target, self._losses()),
                    *self._stderr)
            self._said = ""
        elif outcome.is_final:
            self._spool.drop(window)
        else:
            self._not_before = time.monotonic() + self._backoff.failed(
                outcome.retry_after)
        if outcome.problem:
            self._say_once("can't push to %s: %s%s" % (
                self._target, outcome.problem, "; what it does not take is dropped"
                if outcome.is_final or outcome.is_sent else "; trying again"))

    def _make(self, window: Window) -> Body | None:
        """None: there is nothing in it to be sent, and it is gone."""
        if self._body is not None and self._body[0] == window.path:
            return self._body[1]
        try:
            if window.size > MAX_WINDOW:
                raise ProfileError("it is larger than %d MiB" % (MAX_WINDOW >> 20))
            with self._spool.read(window):
                body = self._body_of(window)
        except Exception as error:
            if os.path.exists(window.path):     # the program didn't drop it
                self._spool.drop(window)
                self._say_once(
                    "a window can't be read, and is dropped: %s" % _why(error))
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
        return "; %d windows were dropped" % lost if lost else ""

    def _end(self) -> None:
        losses = self._losses()
        if losses:
            say("%d windows were pushed to %s%s" % (
                self._sent, self._target, losses), *self._stderr)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass            # it is another user's
    return True


def _why(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    if isinstance(error, (ProfileError, OSError)):
        return str(error)
    # ours, and not what it says, which may hold a header
    return "there was a %s" % type(error).__name__


def say(text: str, *stderr: str) -> None:
    """Write one line for the user to the file that write() opens."""
    write(printable(text), *stderr)


def _hold(folder: str) -> bool:
    """That there is a pusher; False: there is another one.  The descriptor stays
    open until this process ends."""
    fd = os.open(os.path.join(folder, LOCK),
                 os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(20):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)    # it may be a program that looks whether we are there
    return False


def main() -> int:
    folder, *stderr = sys.argv[1:]
    os.umask(0o077)
    os.nice(_NICE)
    try:
        if not _hold(folder):
            return 0
    except FileNotFoundError:
        return 0        # somebody tidied up
    code = 0
    try:
        with open(os.path.join(folder, SETTINGS), "rb") as file:
            settings = json.load(file)
        Pusher(folder, settings, stderr).run()
    except AllocationSamplingError as error:
        say(str(error), *stderr)
        code = 2
    except FileNotFoundError:
        pass            # likewise: there is nothing to be sent any more
    except Exception as error:
        # not what it says, which may hold a header
        say("the process that pushes ends: there was a %s" % type(error).__name__,
            *stderr)
        code = 1
    remove(folder)      # the program ends the sampling then
    return code


if __name__ == "__main__":
    sys.exit(main())
