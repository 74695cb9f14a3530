"""End a profile and begin the next one of the run.  Session.rotate() calls this."""
from __future__ import annotations

import os
import stat

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.profile_file import ProfileFile, file_id
from vmprof_allocation.settings.parsing import check_output

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.engines.base import Engine
    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


#: run ID of the session that rotated last, and the absolute paths of its segments
_run = ""
_parts: set[str] = set()
#: if _parts has at least this number of paths, paths of removed files are dropped
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
    """End a profile, and begin the next one at the same moment.

    Args:
        engine: the running engine.
        settings: the settings for the next profile.
        run: names the profiles of this run; None if the profile is a pipe.
        file: the open file of the profile that ends. None in a forked child, where
            the engine opens and closes the files.
        present: the path of this profile.
        part: number of the next segment.
        output: path of the next profile.
        go_on_in: is called with the next profile as soon as the engine writes there.

    Raises:
        AllocationSamplingError: the next profile cannot be written, or the profile that
            ended is incomplete.
    """
    path = check_output(output)
    if run is None:
        raise AllocationSamplingError(
            "cannot rotate the profile, because %r is a pipe. Write into a file to get "
            "several profiles" % present)
    if not present:
        raise AllocationSamplingError(
            "this forked process has no profile until its first sample")
    following = ProfileFile(path)
    status = os.stat(path) if os.path.exists(path) else None
    if status is not None and stat.S_ISFIFO(status.st_mode):
        raise AllocationSamplingError("%r is a pipe; rotate() needs a file" % path)
    if status is not None and (status.st_dev, status.st_ino) == (
            _path_id(present) if file is None else file_id(file.fd)):
        raise AllocationSamplingError(
            "%r is the profile that is being written. Choose another file for the next "
            "profile" % path)
    _remember(run, present if file is None else file.where())
    if status is not None and os.path.realpath(path) in _parts:
        raise AllocationSamplingError(
            "%r is an earlier profile of this run. Remove it, or choose another file "
            "for the next profile" % path)
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
            "the profile %r is not complete: %s; sampling continues in %r"
            % (present, incomplete, path))


def _path_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None             # the program removed the file
    return status.st_dev, status.st_ino
