"""Give the build profile of this PyPy to the sampled process.

A command finds the build profile, for example `attach`, and another process is sampled.
The sampled process may be unable to read the command's cache, because it belongs to
another user or is a service without a home folder.  It would then have to search for
the GC itself, which takes seconds.
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
    """Write the names of types to a file in `folder`, and return Layout.text().

    If the cache cannot be written, the layout contains the names (100 kB), and its text
    is too long for a message to the sampled process.

    Args:
        place: the layout of this process.
        folder: a folder that belongs to the user of the sampled process.

    Returns:
        The text of a layout that refers to the file.  If the file cannot be written,
        the text refers to the cache.

    Raises:
        AllocationSamplingError: neither the cache nor the file can be written.
    """
    layout = place.layout
    if not layout.types_size or not place.types:
        return layout.text()
    path = os.path.join(folder, _NAME)
    problem = "its name contains unprintable characters"
    if folder.isprintable():        # a line break would end the field of the text
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
    """Write the names of types to a file that belongs to the owner of the folder.

    A link in the place of the folder is not followed, because another user may have
    made it.

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
