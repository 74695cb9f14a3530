"""Find the profiles of a run, and read them.

A run has a profile per process, and per segment of a rotated profile. If the user names
only the profile of the first process, the other profiles are found in the same folder
by their names.
"""
from __future__ import annotations

import functools
import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmprof_convert import readers
from vmprof_convert.cli.options import STANDARD, limit_of, selection
from vmprof_convert.errors import FileError, ProfileError, about
from vmprof_convert.profile import merging
from vmprof_convert.readers import Head, container

if TYPE_CHECKING:
    import argparse

    from vmprof_convert.profile.model import Profile

#: Part of a child's file name. The child with the pid 4711 writes app.4711.vmprof, and
#: later segments app.4711.w2.vmprof. A second child with this pid writes
#: app.4711-2.vmprof.
_CHILD = re.compile(r"\.\d+(?:-\d+)?(?:\.w\d+)?", re.ASCII)
#: part of the file name of a later segment of the first process: app.w2.vmprof
_PART = re.compile(r"\.w\d+", re.ASCII)


class File(NamedTuple):
    """The profile of one process, with its later segments."""

    #: the first segment, or STANDARD
    path: str
    #: the later segments (see PROFILE.rst), in their order
    later: tuple[str, ...] = ()
    #: ns from the start of the run's first process to the start of this one
    begin: int = 0
    #: Whether the file was found in the folder, and the user did not name it. Its
    #: process may have been killed, so it is read up to its last complete record.
    is_found: bool = False

    @property
    def name(self) -> str:
        """The name of the profile in messages."""
        return "standard input" if self.path == STANDARD else self.path

    @property
    def sources(self) -> list[str | int]:
        """The paths of the segments, or a new descriptor of standard input.

        The reader closes the descriptor.
        """
        if self.path != STANDARD:
            return [self.path, *self.later]
        if sys.__stdin__ is None:
            raise ProfileError("it is closed")
        return [os.dup(sys.__stdin__.fileno())]


class Found(NamedTuple):
    """The profiles of a run."""

    files: list[File]
    #: a line for each file that was left out although it seems to belong to the run
    left_out: list[str]


def check_not_a_profile(target: str) -> None:
    """Raise FileError if the output file `target` exists and is a profile."""
    if not os.path.isfile(target):
        return
    with about(target), open(target, "rb") as file:
        if container.is_log(file.read(64)):
            raise ProfileError("this is a profile, which the output would replace: "
                               "name another file after -o")


def check_output(target: str, files: Sequence[File], *, is_profile: bool = False
                 ) -> None:
    """Check that the output file can be written, before the work starts.

    Args:
        target: path of the output.
        files: the profiles that are read.
        is_profile: whether the output is a profile, which may replace another one.

    Raises:
        FileError: the output would replace a profile.
        OutputError: the output cannot be written.
    """
    from vmprof_convert.cli import output
    for file in files:
        output.check_target(target, file.path)
    if not is_profile:
        check_not_a_profile(target)


def find(paths: Sequence[str], other: str | None = None) -> Found:
    """Return the profiles of a run.

    Args:
        paths: the files that the user named.  If there is only one, the other profiles
            of the run are searched for in its folder.
        other: a second profile, to be compared with the first one.  If it is a later
            segment of the same process, the segments are treated as separate profiles.

    Raises:
        FileError: a file cannot be read.
        ProfileError: the files do not belong to one run.
    """
    for path in paths:
        if path != STANDARD:
            with about(path):
                _check(path)
    left_out: list[str] = []
    named = frozenset(paths)
    if len(paths) == 1:
        paths = [*paths, *_beside(paths[0], left_out, other)]
    if len(paths) == 1:
        return Found([File(paths[0])], left_out)
    if len(set(map(_identity, paths))) < len(paths):
        raise ProfileError("a profile was named twice")
    heads = [_head(path) for path in paths]
    for path, head in zip(paths, heads):
        if not head.settings.get("run"):
            with about(path):
                raise ProfileError("cannot be merged with other profiles, because it "
                                   "has no run ID (stock vmprof's profiles have none): "
                                   "open it separately")
    runs = {head.settings["run"] for head in heads}
    if len(runs) > 1:
        raise ProfileError("the %d profiles are of %d runs: open each run separately"
                           % (len(heads), len(runs)))
    paths, heads = _each_once(paths, heads, left_out)
    parts = _parts(paths, heads)
    begins = merging.begins([(_number(head.settings.get("clock", "")),
                                head.start_time) for head, _ in parts])
    return Found([File(path, tuple(later), begin, not named.issuperset([path, *later]))
                  for (_, (path, *later)), begin in zip(parts, begins)], left_out)


def by_run(paths: Sequence[str]) -> dict[str, list[str]]:
    """Group the paths by run.

    Args:
        paths: profiles of several runs.

    Returns:
        The paths by run ID.  A profile without a run ID has its device and inode
        instead.

    Raises:
        FileError: a file cannot be read.
        ProfileError: a file can be read only once, such as a pipe.
    """
    runs: dict[str, list[str]] = {}
    for path in paths:
        with about(path):
            _check(path)
        run = _head(path).settings.get("run") or "%s %s" % _identity(path)
        runs.setdefault(run, []).append(path)
    return runs


def read(files: Sequence[File], asked: argparse.Namespace,
         look: Callable[[Profile], object] | None = None) -> Profile:
    """Read and merge the profiles of a run.

    Args:
        files: the profiles.
        asked: the options.
        look: function that is called with the merged profile before the samples are
            selected.

    Returns:
        The profile with the selected samples.
    """
    from vmprof_convert.analysis.selection import select
    from vmprof_convert.cli.progress import progress_bar
    parts = []
    limit = limit_of(asked)
    for file in files:
        with about(file.name), progress_bar("reading") as progress:
            parts.append(merging.Read(readers.read(
                file.sources, salvage=asked.salvage or file.is_found,
                progress=progress, samples=limit.table(), raw=asked.native_memory),
                file.path, file.begin))
    chosen = selection(asked)
    profile = merging.merge(merging.chosen(parts, chosen.processes)).profile
    profile.thinned = limit.thinned()
    if look is not None:
        look(profile)
    return select(profile, chosen)


def read_raw(files: Sequence[File], asked: argparse.Namespace) -> Profile | None:
    """Read the samples of native memory from files that read() has read.

    Returns:
        The profile, or None if these samples cannot be read.  For example, the file is
        standard input, or a file has no samples of native memory.
    """
    import argparse
    if any(file.path == STANDARD for file in files):
        return None
    try:
        return read(files, argparse.Namespace(**{**vars(asked), "native_memory": True}))
    except (ProfileError, FileError):
        return None


def read_events(file: File, asked: argparse.Namespace) -> merging.Read:
    """Read the profile of one process without its samples.

    Raises:
        FileError: the file cannot be read.
    """
    with about(file.name):
        return merging.Read(readers.read_events(
            file.sources, salvage=asked.salvage or file.is_found),
            file.path, file.begin)


def _parts(paths: Sequence[str],
           heads: Sequence[Head]) -> list[tuple[Head, list[str]]]:
    """Group the segments of each process.

    Args:
        paths: the profiles.
        heads: the head of each profile, in the same order.

    Returns:
        For each process, the head of its first segment, and the paths of its segments
        in order.

    Raises:
        ProfileError: a segment is missing.
    """
    of_process: dict[str, list[tuple[int, str, Head]]] = {}
    for path, head in zip(paths, heads):
        pid = head.settings.get("pid", "")
        if "part" not in head.settings and pid in of_process and all(
                "part" not in other.settings for _, _, other in of_process[pid]):
            pid = "%s %s" % (pid, path)     # another process with the same pid
        of_process.setdefault(pid, []).append(
            (_number(head.settings.get("part", "1")), path, head))
    result = []
    for parts in of_process.values():
        parts.sort(key=lambda part: part[:2])
        numbers = [number for number, _, _ in parts]
        for number, following in zip(numbers, numbers[1:]):
            if following != number + 1:
                raise ProfileError(
                    "segments of this profile are missing between number %d and number "
                    "%d: name them, too, or name only the earlier segments"
                    % (number, following))
        result.append((parts[0][2], [path for _, path, _ in parts]))
    return result


def _each_once(paths: Sequence[str], heads: Sequence[Head],
               left_out: list[str]) -> tuple[list[str], list[Head]]:
    """Remove copies of profiles.

    Args:
        paths: the profiles.
        heads: the head of each profile, in the same order.
        left_out: gets a line about each copy.

    Returns:
        The paths and the heads of the other profiles.
    """
    first: dict[tuple[str, ...], str] = {}
    kept: list[tuple[str, Head]] = []
    for path, head in zip(paths, heads):
        process = tuple(head.settings.get(name, "") for name in ("pid", "clock"))
        if all(process) and process in first:
            left_out.append("%s was left out, because it is of the same process as %s"
                            % (path, first[process]))
        else:
            first[process] = path
            kept.append((path, head))
    return [path for path, _ in kept], [head for _, head in kept]


def _check(path: str) -> None:
    # reading a device may block, or never end
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise ProfileError("is not a file")


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_same(path: str, other: str) -> bool:
    return path != STANDARD and os.path.exists(path) and os.path.samefile(path, other)


def _number(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,19}", text, re.ASCII) else 0


def _head(path: str) -> Head:
    with about(path):
        if not os.path.isfile(path):
            raise ProfileError("can be read only once: to read several profiles, name "
                               "only files")
        return readers.read_head(path)


def children_of(path: str) -> list[str]:
    """Return the files that are named like profiles of children, with their segments.

    Args:
        path: the profile of the first process.
    """
    return _called(path, _CHILD)


def _called(path: str, pattern: re.Pattern[str]) -> list[str]:
    stem, suffix = os.path.splitext(path)
    return sorted(
        name for name in glob.glob(glob.escape(stem) + ".*" + glob.escape(suffix))
        if pattern.fullmatch(name[len(stem):len(name) - len(suffix)])
        and os.path.isfile(name))


def _beside(path: str, left_out: list[str], apart: str | None) -> list[str]:
    """Return the paths of the other profiles of a run.

    For the first process of a run, these are its later segments, and all profiles of
    its children. For a child, these are its later segments.

    Args:
        path: the profile that the user named.
        left_out: gets a line about each file that may belong to the run but cannot be
            read.
        apart: if this path is a later segment of the same process, segments are not
            returned.
    """
    if not os.path.isfile(path):
        return []
    parts = _called(path, _PART)
    if apart is not None and any(map(functools.partial(_is_same, apart), parts)):
        parts = []
    names = [*parts, *children_of(path)]
    if not names:
        return []
    try:
        settings = readers.read_head(path).settings
    except (ProfileError, OSError):
        return []           # read() will raise the error with its reason
    run = settings.get("run", "")
    if not run or "part" in settings:
        return []
    found = []
    for name in parts if settings.get("parent") else names:
        try:
            if readers.read_head(name).settings.get("run") == run:
                found.append(name)
        except ProfileError as error:
            left_out.append("%s was left out, although it may be of this run: %s"
                            % (name, error))
        except OSError as error:
            left_out.append("%s was left out, although it may be of this run: %s"
                            % (name, error.strerror))
    return found
