"""What find.py and probe/ found out about a build, for the next time.

Addresses that are wrong would be written to.  So a file is believed only if it
is this user's own, nobody else may write to it, and it is whole.
"""
from __future__ import annotations

import os
import stat
import zlib

#: raise this when a change in these makes older answers worthless
VERSION = 5
_MAX_SIZE = 65536


def path(build_id: str) -> str | None:
    """Where the answer for a build is kept; None: this user has no place."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):         # as its specification says
        base = os.path.expanduser(os.path.join("~", ".cache"))
    if not os.path.isabs(base):
        return None
    return os.path.join(base, "vmprof-allocation",
                        "%s-%d" % (build_id, VERSION))


def _check(text: str) -> str:
    return "check=%08x\n" % zlib.crc32(text.encode())


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def load(file: str) -> str | None:
    """The text that save() left in `file`; None if there is none that can be
    believed."""
    try:
        if not _is_ours(os.stat(os.path.dirname(file))):
            return None
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
                     | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            if not (stat.S_ISREG(status.st_mode) and _is_ours(status)
                    and status.st_size <= _MAX_SIZE):
                return None
            text = os.read(fd, _MAX_SIZE).decode("ascii")
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None
    start = text.rfind("check=")
    return text[:start] if start >= 0 and text[start:] == _check(
        text[:start]) else None


def save(file: str, text: str) -> None:
    """Leave `text` in `file`, or don't: it can be found out again."""
    import tempfile
    folder = os.path.dirname(file)
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if os.stat(folder).st_uid == os.geteuid():
                # one that others may write to would not be believed
                os.chmod(folder, 0o700)
        handle, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "w") as out:
                out.write(text + _check(text))
            os.replace(temporary, file)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError:
        pass
