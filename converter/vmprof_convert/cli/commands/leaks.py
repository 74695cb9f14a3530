"""The command leaks: show the places whose live memory grows, and what retains it."""
from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from vmprof_convert.cli import report, run_files
from vmprof_convert.cli.options import (
    DEFAULT_LIMIT,
    JSON,
    STANDARD,
    add_filters,
    add_forms,
    add_group_storage,
    add_limit,
    add_profiles,
    selection,
)
from vmprof_convert.errors import ProfileError, about

if TYPE_CHECKING:
    from vmprof_convert.analysis.leaks.search import Leaks, OldObjects, Process
    from vmprof_convert.analysis.selection import Selection
    from vmprof_convert.cli.run_files import File
    from vmprof_convert.profile.merging import Read
    from vmprof_convert.text.terminal import Terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_limit(parser)
    add_group_storage(parser)
    add_forms(parser, JSON)
    add_profiles(parser, "app.vmprof (record with --leaks)")
    add_filters(parser, has_outcomes=False)
    parser.set_defaults(samples=None)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    return report.run(options, partial(report.with_native_memory, make,
                                       is_optional=True))


def make(files: Sequence[File], options: argparse.Namespace, on: Terminal) -> str:
    """Return the text of the report.

    Args:
        files: the profiles of a run.
        options: the options of the command.
        on: the terminal for the text.

    Raises:
        ProfileError: the profiles lack data that the report needs.
        FileError: a file cannot be read.
    """
    from vmprof_convert.analysis.leaks.search import find_leaks
    from vmprof_convert.analysis.leaks.windows import TooFewCollections
    from vmprof_convert.errors import NotThere
    from vmprof_convert.profile import merging
    from vmprof_convert.report.leaks.as_json import (
        content_of_process,
        content_of_processes,
        write_json,
    )
    from vmprof_convert.report.leaks.text import ProcessLeaks, write_leaks

    asked = selection(options)
    if options.native_memory:
        _check_raw(files, options)
    read = [_read_old(file, options) for file in files]
    chosen = merging.chosen([part for part, _ in read], asked.processes)
    read = [(part, objects) for part, objects in read if part in chosen]
    able, found, parts, absent = [], [], [], []
    why, blamed = "", 0
    for part, objects in read:
        alone: Leaks | str
        try:
            process = _process(part, objects, asked)
            alone = find_leaks([process], group_storage=options.group_storage)
            able.append(process)
            found.append(alone)
        except NotThere as error:
            absent.append(error)
            if len(absent) == len(read):
                raise
            alone = error.short
        except ProfileError as error:
            if len(read) == 1:
                raise
            why, blamed = str(error), part.profile.pid
            # the full message has advice that does not help if other processes have a
            # result
            alone = error.short if isinstance(error, TooFewCollections) else why
        parts.append(ProcessLeaks(part.name, part.profile, alone))
    if not able:
        raise ProfileError("none of the %d processes can be examined; process %d: %s"
                           % (len(parts), blamed, why))
    together = find_leaks(able, group_storage=options.group_storage) if (
        len(able) > 1) else found[0]
    text = io.StringIO()
    if options.form == JSON:
        write_json(
            content_of_processes([part[1:] for part in parts], together,
                                 options.limit) if len(parts) > 1
            else content_of_process(able[0].profile, together, options.limit), text)
        return text.getvalue()
    write_leaks(able[0].profile, together, text, options.limit or DEFAULT_LIMIT,
                parts=parts if len(parts) > 1 else (), terminal=on,
                only=str(asked))
    return text.getvalue()


def _check_raw(files: Sequence[File], options: argparse.Namespace) -> None:
    """Check that the sampler missed no calls of free(), which would look like leaks.

    Raises:
        ProfileError: some calls were missed.
    """
    from vmprof_convert.analysis import thresholds
    if all(file.path != STANDARD for file in files):
        run_files.read(files, options,
                       partial(thresholds.check_frees, "leaks of native memory"))


def _read_old(file: File, options: argparse.Namespace) -> tuple[Read, OldObjects]:
    from vmprof_convert import readers
    from vmprof_convert.analysis.leaks.search import OldObjects
    from vmprof_convert.profile.merging import Read

    objects = OldObjects()
    with about(file.name):
        profile = readers.read_into(file.sources, objects,
                                    salvage=options.salvage or file.is_found,
                                    raw=options.native_memory)
    return Read(profile, file.path, file.begin, frozenset(objects.thread)), objects


def _process(part: Read, objects: OldObjects, asked: Selection) -> Process:
    from vmprof_convert.analysis.leaks.search import Process
    from vmprof_convert.analysis.selection import Selected, chosen_threads
    from vmprof_convert.meaning.lifetimes import NOT_RECORDED
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.meaning.user_code import has_own_code, only_own

    profile = part.profile
    origins = Origins(profile)
    own = only_own(profile, origins) if has_own_code(profile, origins) else None
    asked = asked.after(part.begin)
    includes = None
    if not asked._replace(time=None).is_everything:
        selected = Selected(profile, asked, origins)
        threads = chosen_threads(profile, asked, part.threads)

        def includes(stack: int, type_: int, thread: int) -> bool:
            return thread in threads and selected.includes(stack, type_, NOT_RECORDED)

    return Process(profile, objects, own, asked.time, includes)
