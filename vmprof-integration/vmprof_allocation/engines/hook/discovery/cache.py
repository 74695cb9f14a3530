"""The cache of build profiles, with the results of search.py and probe/.

The sampler writes to the addresses in a build profile, so wrong ones do damage.  A file
is used only if it belongs to this user, no other user can write to it, and its checksum
is right.  A build profile has two files: the layout, and the names of the GC's types.
The names are large, and the layout contains their size and checksum.
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

#: The version of the build profiles.  Increase it when a change makes older files
#: invalid.
VERSION = 23
#: Maximum size of a layout in bytes.
_MAX_SIZE = 65536


def path(build_id: str) -> str | None:
    """Return the cache file for the layout of the build with this build-id.

    Returns:
        None if this user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # relative paths are invalid by the XDG specification
    if not os.path.isabs(base):
        base = os.path.expanduser(os.path.join("~", ".cache"))
    if not os.path.isabs(base):
        return None
    return os.path.join(base, "vmprof-allocation",
                        "%s-%d" % (build_id, VERSION))


def types_path(file: str) -> str:
    """Return the cache file for the names of types that belongs to a layout's file."""
    return file + ".types"


def _check(text: str) -> str:
    return "check=%08x\n" % zlib.crc32(text.encode())


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _open(file: str) -> tuple[int, int]:
    """Open a file of the cache.

    Returns:
        The descriptor, and the size in bytes.

    Raises:
        OSError: the file cannot be opened.
        ValueError: another user may have changed the file.
    """
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
    """Return the text that save() wrote to `file`, or None if it is not valid."""
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
    """Read the names of types into a buffer.

    Args:
        file: see types_path().
        room: a buffer of the size of the names, outside of Python's heap.
        check: the CRC-32 of the names.

    Returns:
        False if the file is missing or invalid; `room` may then contain anything.
    """
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
        file: see path().
        text: the layout.
        types: the names of types; None to leave their file unchanged.

    Returns:
        The reason why the next process cannot load the layout, or "".
    """
    folder = os.path.dirname(file)
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if os.stat(folder).st_uid == os.geteuid():
                # load() ignores a folder to which others can write
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
