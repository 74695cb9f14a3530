"""Read the retainers that heap snapshots found: for reports, and as a tree."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmprof_convert.cli import run_files
from vmprof_convert.cli.options import selection
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile import merging

if TYPE_CHECKING:
    from vmprof_convert.analysis.holder_tree import HeldStack, Tree
    from vmprof_convert.cli.run_files import File
    from vmprof_convert.profile.held import Held
    from vmprof_convert.profile.model import Profile


def read(files: Sequence[File], options: argparse.Namespace
         ) -> list[tuple[Profile, Held]]:
    """Return the profile and the last heap snapshot of each selected process.

    Raises:
        ProfileError: none of the profiles has a heap snapshot with retainers.
        FileError: a file cannot be read.
    """
    chosen = selection(options)
    if options.user_code or not chosen.is_everything:
        raise ProfileError("--retainers shows all live objects: leave out filters such "
                           "as --user-code or --function")
    parts = [run_files.read_events(file, options) for file in files]
    asked = [(part.profile, part.profile.last_held)
             for part in merging.chosen(parts, chosen.processes)]
    found = [(profile, last) for profile, last in asked if last is not None]
    if not found:
        raise ProfileError(
            "this profile has no retainers: request them while the program runs "
            "(pypy-alloc control PID snapshot), or start the program with "
            "--retainers, which records them at the end")
    return found


def tree(files: Sequence[File], options: argparse.Namespace) -> Tree:
    """Return the tree of retainers of all processes, from their last heap snapshots.

    Raises:
        ProfileError: none of the profiles has a complete heap snapshot with retainers.
        FileError: a file cannot be read.
    """
    from vmprof_convert.analysis.holder_tree import Tree, reached
    from vmprof_convert.report import held as report
    from vmprof_convert.text.escape import shortened
    from vmprof_convert.text.units import format_estimate

    asked = read(files, options)
    stacks: list[HeldStack] = []
    left_out: list[str] = []
    for profile, last in asked:
        name = " ".join(filter(None, (
            "process %d" % profile.pid, shortened(profile.command)))) if (
                len(asked) > 1) else ""
        if last.problem:
            left_out.append(report.not_known(
                last, " in process %d" % profile.pid if name else ""))
            continue
        found = reached(profile, last, group_storage=options.group_storage)
        stacks += [stack._replace(holders=(name, *stack.holders)) if name else stack
                   for stack in found.stacks]
        if found.no_path.value:
            left_out.append("not included: %s%s, which no reference path reaches; it "
                            "is uncollected garbage, or held by C code" % (
                                format_estimate(found.no_path.low, found.no_path.value,
                                                found.no_path.high),
                                " of " + name if name else ""))
    if not stacks:
        raise ProfileError("; ".join(left_out))
    return Tree(asked[0][0], stacks, left_out)
