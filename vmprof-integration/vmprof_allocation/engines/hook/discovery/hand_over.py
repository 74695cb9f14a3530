"""Give the build profile of this PyPy to the sampled process.

The process may be unable to read the command's cache: a worker of another user, or a
service without a home.  It would have to search the build itself, which takes seconds.
"""
from __future__ import annotations

import os
from typing import Any

from vmprof_allocation.engines.hook.discovery.layout import Layout
from vmprof_allocation.engines.hook.discovery.process_layout import ProcessLayout
from vmprof_allocation.errors import AllocationSamplingError

_NAME = "types"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def leave(place: ProcessLayout, folder: str) -> str:
    """Return Layout.text(), with the names of types in a file in `folder`.

    If the cache cannot be written, the layout contains the names (100 kB), and is then
    too long for a message.

    Args:
        place: the layout of this process.
        folder: a folder that belongs to the user of the sampled process.

    Raises:
        AllocationSamplingError: the names are in no cache, and the file cannot be
            written.
    """
    layout = place.layout
    if not layout.types_size or not place.types:
        return layout.text()
    path = os.path.join(folder, _NAME)
    problem = "its name contains unprintable characters"
    if folder.isprintable():        # the layout's text has a line for each field
        try:
            _write(folder, place.ffi.buffer(place.types, layout.types_size))
            return Layout(**{**layout.__dict__, "types": "", "types_file": path}).text()
        except OSError as e:
            problem = str(e.strerror)
    if layout.types:
        raise AllocationSamplingError(
            "cannot write the names of types for the program into the temporary folder "
            "%r: %s. Set TMPDIR to another folder" % (folder, problem))
    return layout.text()


def _write(folder: str, types: Any) -> None:
    """Write the names for the owner of the folder.

    Another user may have replaced the folder by a link.

    Raises:
        OSError: the file cannot be written.
    """
    at = os.open(folder, _FLAGS)
    try:
        owner = os.fstat(at)
        fd = os.open(_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600,
                     dir_fd=at)
        with os.fdopen(fd, "wb") as file:
            file.write(types)
            if owner.st_uid != os.geteuid():
                os.fchown(fd, owner.st_uid, owner.st_gid)
    finally:
        os.close(at)
