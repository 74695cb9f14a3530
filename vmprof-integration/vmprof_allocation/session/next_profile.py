"""One profile ends, and the next one of the run begins: Session.rotate()."""
from __future__ import annotations

import os
import stat

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.profile_file import ProfileFile, file_id
from vmprof_allocation.settings.parsing import check_output

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.engines.base import Engine
    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


#: of the run that rotated last: where its parts are, as far as they are there
_run = ""
_parts: set[str] = set()
#: so many paths are kept before it is looked which of them are there
_MANY = 64


def _remember(run: Processes, path: str) -> None:
    global _run
    if run.run != _run:
        _run = run.run
        _parts.clear()
    _parts.add(os.path.realpath(path))
    if len(_parts) > _MANY:
        _parts.intersection_update([part for part in _parts if os.path.exists(part)])


def rotate(engine: Engine, settings: Settings, run: Processes | None,
           file: ProfileFile | None, present: str, part: int, output: object,
           go_on_in: Callable[[ProfileFile], None]) -> None:
    """From `present`, a profile of the session's, to `output`, which becomes number
    `part` of the `run`; `go_on_in` is told of it at once.  `file` is the present one;
    None: in a forked child it is the engine's, and so is what follows."""
    path = check_output(output)
    if run is None:
        raise AllocationSamplingError(
            "the profile goes to a pipe, %r, and ends with the run; write to files "
            "to have several" % present)
    if not present:
        raise AllocationSamplingError(
            "this process was forked from the one that began to sample, and has no "
            "profile as yet: it has allocated too little to be sampled")
    following = ProfileFile(path)
    status = os.stat(path) if os.path.exists(path) else None
    if status is not None and stat.S_ISFIFO(status.st_mode):
        raise AllocationSamplingError("%r is a pipe; rotate() needs a file" % path)
    if status is not None and (status.st_dev, status.st_ino) == (
            _path_id(present) if file is None else file_id(file.fd)):
        raise AllocationSamplingError(
            "%r is the profile that is being written; choose another file for the "
            "next one" % path)
    _remember(run, present if file is None else file.where())
    if status is not None and os.path.realpath(path) in _parts:
        raise AllocationSamplingError(
            "%r is an earlier profile of this run; remove it first, or choose another "
            "file for the next one" % path)
    following.open()
    try:
        incomplete = engine.rotate(following.fd, settings, run, part)
    except BaseException:
        if engine.writes_to(following.fd):
            go_on_in(following)
            if file is not None:
                file.close()
        else:
            following.close()
            following.discard()
        raise
    go_on_in(following)
    if file is not None:
        try:
            if file.is_ours():
                file.check()
        except AllocationSamplingError as e:
            incomplete = str(e)
        file.close()
    if incomplete:
        raise AllocationSamplingError(
            "the profile %r is not complete: %s; sampling goes on, in %r"
            % (present, incomplete, path))


def _path_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None             # the program removed it
    return status.st_dev, status.st_ino
