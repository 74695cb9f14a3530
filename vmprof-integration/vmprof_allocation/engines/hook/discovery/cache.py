"""What search.py and probe/ found out about a build, for the next time.

Addresses that are wrong would be written to.  So a file is believed only if it
is this user's own, nobody else may write to it, and it is whole.  There are two:
the layout, and the names of the GC's types, which are many, and which the
layout has the size and the checksum of.
"""
from __future__ import annotations

import errno
import os
import stat
import zlib

from vmprof_allocation.memory.room import may_write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: raise this when a change in these makes older answers worthless
VERSION = 23
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


def types_path(file: str) -> str:
    """Where the names are, if the layout is in `file`."""
    return file + ".types"


def _check(text: str) -> str:
    return "check=%08x\n" % zlib.crc32(text.encode())


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _open(file: str) -> tuple[int, int]:
    """Returns the descriptor, and the size.  Raises OSError, or ValueError if
    it can't be believed."""
    if not _is_ours(os.stat(os.path.dirname(file))):
        raise ValueError(file)
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
                 | os.O_NONBLOCK)
    status = os.fstat(fd)
    if not (stat.S_ISREG(status.st_mode) and _is_ours(status)):
        os.close(fd)
        raise ValueError(file)
    return fd, status.st_size


def load(file: str) -> str | None:
    """The text that save() left in `file`; None if there is none that can be
    believed."""
    try:
        fd, size = _open(file)
        try:
            if size > _MAX_SIZE:
                return None
            text = os.read(fd, _MAX_SIZE).decode("ascii")
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None
    start = text.rfind("check=")
    return text[:start] if start >= 0 and text[start:] == _check(
        text[:start]) else None


def fill(file: str, room: Any, check: int) -> bool:
    """Read the names into `room`, a buffer of their size, which is no object of
    Python's; False if there are none that can be believed."""
    try:
        fd, size = _open(file)
        with os.fdopen(fd, "rb", 0) as names:
            return (size == len(room)
                    and names.readinto(room) == size
                    and zlib.crc32(room) == check)
    except (OSError, ValueError):
        return False


def save(file: str, text: str, types: bytes | None = None) -> str:
    """Write `text` to `file`, and the names of types to types_path(file).

    Args:
        file: See path().
        text: The layout.
        types: The names of types; None to leave that file unchanged.

    Returns:
        The reason why the next search does not find them, or "".
    """
    folder = os.path.dirname(file)
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if os.stat(folder).st_uid == os.geteuid():
                # one that others may write to would not be believed
                os.chmod(folder, 0o700)
        if types is not None:
            _replace(types_path(file), types)
        _replace(file, (text + _check(text)).encode())
    except OSError as e:
        return e.strerror or str(e)
    return "" if load(file) == text else "its content differs from the text"


def _replace(file: str, content: bytes) -> None:
    import tempfile
    if not may_write(len(content)):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), file)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(file))
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
