"""Which files are the profiles of a run: those that are named, or the first one,
and what lies beside it.  And what is in them."""
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
from vmprof_convert.errors import FileError, ProfileError, about
from vmprof_convert.profile import merging
from vmprof_convert.readers import Head, container

if TYPE_CHECKING:
    import argparse

    from vmprof_convert.profile.model import Profile

#: standard input, or output
STANDARD = "-"

#: app.vmprof, and a child's: app.4711.vmprof; of another one with that number:
#: app.4711-2.vmprof; and later parts of it: app.4711.w2.vmprof
_CHILD = re.compile(r"\.\d+(?:-\d+)?(?:\.w\d+)?", re.ASCII)
#: and a later part of the same process's: app.w2.vmprof
_PART = re.compile(r"\.w\d+", re.ASCII)


class File(NamedTuple):
    path: str
    #: the later parts of the same process's profile (PROFILE.rst), in their order
    later: tuple[str, ...] = ()
    #: nanoseconds after the start of the first
    begin: int = 0
    #: nobody named it: it may be that of a child that was killed, and what is whole
    #: of it counts
    is_found: bool = False

    @property
    def name(self) -> str:
        return "standard input" if self.path == STANDARD else self.path

    @property
    def sources(self) -> list[str | int]:
        """For who opens them; what is closed then is a copy of standard input."""
        if self.path != STANDARD:
            return [self.path, *self.later]
        if sys.__stdin__ is None:
            raise ProfileError("it is closed")
        return [os.dup(sys.__stdin__.fileno())]


class Found(NamedTuple):
    files: list[File]
    #: why others that seem to belong to them are not among them, a line each
    left_out: list[str]


def check_not_a_profile(target: str) -> None:
    """Raise FileError if the output would replace a profile of another run."""
    if not os.path.isfile(target):
        return
    with about(target), open(target, "rb") as file:
        if container.is_log(file.read(64)):
            raise ProfileError("this is a profile, which the output would replace; "
                               "name another file after -o")


def find(paths: Sequence[str], beside: str | None = None) -> Found:
    """The profiles of the run that `paths` are of.  `beside`: this is asked for, too,
    by itself; if it is a later part of the same profile, parts are meant one by one.
    Raises FileError, or ProfileError if they are not of one run."""
    for path in paths:
        if path != STANDARD:
            with about(path):
                _check(path)
    left_out: list[str] = []
    named = frozenset(paths)
    if len(paths) == 1:
        paths = [*paths, *_beside(paths[0], left_out, beside)]
    if len(paths) == 1:
        return Found([File(paths[0])], left_out)
    if len(set(map(_identity, paths))) < len(paths):
        raise ProfileError("a profile was named twice")
    heads = [_head(path) for path in paths]
    for path, head in zip(paths, heads):
        if not head.settings.get("run"):
            with about(path):
                raise ProfileError("does not say of which run it is (nor do stock "
                                   "vmprof's profiles): look at it alone")
    runs = {head.settings["run"] for head in heads}
    if len(runs) > 1:
        raise ProfileError("the %d profiles are of %d runs: look at each run alone"
                           % (len(heads), len(runs)))
    paths, heads = _each_once(paths, heads, left_out)
    parts = _parts(paths, heads)
    begins = merging.begins([(_number(head.settings.get("clock", "")),
                                head.start_time) for head, _ in parts])
    return Found([File(path, tuple(later), begin, not named.issuperset([path, *later]))
                  for (_, (path, *later)), begin in zip(parts, begins)], left_out)


def by_run(paths: Sequence[str]) -> dict[str, list[str]]:
    """Which of the paths are of the same run; of each run, what tells it from others.
    Raises FileError or ProfileError."""
    runs: dict[str, list[str]] = {}
    for path in paths:
        with about(path):
            _check(path)
        run = _head(path).settings.get("run") or "%s %s" % _identity(path)
        runs.setdefault(run, []).append(path)
    return runs


def read(files: Sequence[File], asked: argparse.Namespace,
         look: Callable[[Profile], object] | None = None) -> Profile:
    """The profile of all, with the samples that were asked for; `look` gets it before
    they are chosen."""
    from vmprof_convert.analysis.selection import select
    from vmprof_convert.cli import options
    from vmprof_convert.cli.progress import progress_bar
    parts = []
    limit = options.limit_of(asked)
    for file in files:
        with about(file.name), progress_bar("reading", "B") as progress:
            parts.append(merging.Read(readers.read(
                file.sources, salvage=asked.salvage or file.is_found,
                progress=progress, samples=limit.table(), raw=asked.raw),
                file.path, file.begin))
    selection = options.selection(asked)
    profile = merging.merge(merging.chosen(parts, selection.processes)).profile
    profile.thinned = limit.thinned()
    if look is not None:
        look(profile)
    return select(profile, selection)


def read_raw(files: Sequence[File], asked: argparse.Namespace) -> Profile | None:
    """Raw memory, beside what read() makes of the same files; None: they can't be read
    again, or one of them lacks it, or nothing of it is what was asked for."""
    import argparse
    if any(file.path == STANDARD for file in files):
        return None
    try:
        return read(files, argparse.Namespace(**{**vars(asked), "raw": True}))
    except (ProfileError, FileError):
        return None


def read_events(file: File, asked: argparse.Namespace) -> merging.Read:
    """One of them, without samples.  Raises FileError."""
    with about(file.name):
        return merging.Read(readers.read_events(
            file.sources, salvage=asked.salvage or file.is_found),
            file.path, file.begin)


def _parts(paths: Sequence[str],
           heads: Sequence[Head]) -> list[tuple[Head, list[str]]]:
    """What each process has written, one after the other, behind the head of the
    first.  Raises ProfileError if one is missing between them."""
    of_process: dict[str, list[tuple[int, str, Head]]] = {}
    for path, head in zip(paths, heads):
        pid = head.settings.get("pid", "")
        if "part" not in head.settings and pid in of_process and all(
                "part" not in other.settings for _, _, other in of_process[pid]):
            pid = "%s %s" % (pid, path)     # another one with this number
        of_process.setdefault(pid, []).append(
            (_number(head.settings.get("part", "1")), path, head))
    result = []
    for parts in of_process.values():
        parts.sort(key=lambda part: part[:2])
        numbers = [number for number, _, _ in parts]
        for number, following in zip(numbers, numbers[1:]):
            if following != number + 1:
                raise ProfileError(
                    "of the parts of this profile, number %d is there, and number %d "
                    "is the next one: name all that are between them, or those before "
                    "alone" % (number, following))
        result.append((parts[0][2], [path for _, path, _ in parts]))
    return result


def _each_once(paths: Sequence[str], heads: Sequence[Head],
               left_out: list[str]) -> tuple[list[str], list[Head]]:
    """Without copies of the same process's profile."""
    first: dict[tuple[str, ...], str] = {}
    kept: list[tuple[str, Head]] = []
    for path, head in zip(paths, heads):
        process = tuple(head.settings.get(name, "") for name in ("pid", "clock"))
        if all(process) and process in first:
            left_out.append("%s is of the same process as %s, and is left out"
                            % (path, first[process]))
        else:
            first[process] = path
            kept.append((path, head))
    return [path for path, _ in kept], [head for _, head in kept]


def _check(path: str) -> None:
    # what else there is can block, or never end
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
            raise ProfileError("is read once, from its beginning to its end: where "
                               "there are several profiles, each has to be a file")
        return readers.read_head(path)


def children_of(path: str) -> list[str]:
    """The files beside the profile of a first process that are called as those of its
    children, with their parts."""
    return _called(path, _CHILD)


def _called(path: str, pattern: re.Pattern[str]) -> list[str]:
    stem, suffix = os.path.splitext(path)
    return sorted(
        name for name in glob.glob(glob.escape(stem) + ".*" + glob.escape(suffix))
        if pattern.fullmatch(name[len(stem):len(name) - len(suffix)])
        and os.path.isfile(name))


def _beside(path: str, left_out: list[str], apart: str | None) -> list[str]:
    """If the profile at `path` is that of the process that began a run, the other
    ones of the run, and if it is a child's, its later parts; without parts, if `apart`
    is one of them."""
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
        return []           # who reads all of it says why
    run = settings.get("run", "")
    if not run or "part" in settings:
        return []
    found = []
    for name in parts if settings.get("parent") else names:
        try:
            if readers.read_head(name).settings.get("run") == run:
                found.append(name)
        except ProfileError as error:
            left_out.append("%s may be of this run, and is left out: %s"
                            % (name, error))
        except OSError as error:
            left_out.append("%s may be of this run, and is left out: %s"
                            % (name, error.strerror))
    return found
