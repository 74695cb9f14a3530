"""Write the output whole or not at all."""
from __future__ import annotations

import contextlib
import gzip
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import BinaryIO

#: bytes that are written together
_TOGETHER = 2**16


class OutputError(Exception):
    """The output can't be written there; the message is one line."""


def check_target(path: str, source: str) -> None:
    """Raises OutputError if `path` is no place for what comes from the file
    `source`: better before the work than after it."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise OutputError("%s: there is no such folder" % folder)
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise OutputError("%s: is not a regular file" % path)
        if os.path.exists(source) and os.path.samefile(path, source):
            raise OutputError("%s: is the profile itself" % path)


def write(path: str, data: bytes) -> None:
    """See replacing()."""
    with replacing(path) as out:
        out.write(data)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """What is written to this stream is at `path` in the end, compressed if the name
    says so.

    Until then, and if anything is raised, what was at `path` stays.  Raises
    OutputError.
    """
    try:
        with _ended_by_sigterm(), _replacing(path) as out:
            yield out
    except OSError as error:
        raise OutputError("%s: %s" % (path, error.strerror)) from error


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM raise SystemExit, so that the temporary file is removed."""
    if (threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    # a link stays one
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    descriptor, temporary = tempfile.mkstemp(prefix="." + name[:100],
                                             dir=folder)
    try:
        with open(descriptor, "wb", _TOGETHER) as file:
            if path.endswith(".gz"):
                # no time: the same profile makes the same file
                # a tenth more than level 6 makes of it, in a third of the time
                with io.BufferedWriter(gzip.GzipFile(
                        "", "wb", 4, file, mtime=0), _TOGETHER) as out:
                    yield out
            else:
                yield file
            file.flush()
            os.fsync(descriptor)
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: str) -> int:
    """The permissions of the file at `path`, or those of a new one."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        # mkstemp's are 0600; there is no other way to ask
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
