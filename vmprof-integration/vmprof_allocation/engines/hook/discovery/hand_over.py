"""What another process is told of this build, which may not read our cache: a worker of
another user, a service without a home.  It would have to look for it all itself."""
from __future__ import annotations

import os
from typing import Any

from vmprof_allocation.engines.hook.discovery.layout import Layout
from vmprof_allocation.engines.hook.discovery.process_layout import ProcessLayout


def leave(place: ProcessLayout, folder: str) -> str:
    """As Layout.text(), with the names of types in a file in `folder`, which belongs to
    that process's user; without it, if it can't be written."""
    layout = place.layout
    # a line of the text, and between tabs
    if not layout.types_size or not place.types or not folder.isprintable():
        return layout.text()
    path = os.path.join(folder, "types")
    try:
        _write(path, place.ffi.buffer(place.types, layout.types_size))
    except OSError:
        return layout.text()
    return Layout(**{**layout.__dict__, "types_file": path}).text()


def _write(path: str, types: Any) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(types)
        owner = os.stat(os.path.dirname(path))
        if owner.st_uid != os.geteuid():
            os.fchown(fd, owner.st_uid, owner.st_gid)
