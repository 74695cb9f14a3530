"""The command retainers: show what retains the live objects."""
from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from vmprof_convert.cli import held, report
from vmprof_convert.cli.options import (
    DEFAULT_LIMIT,
    JSON,
    MARKDOWN,
    add_forms,
    add_group_storage,
    add_limit,
    add_process,
    add_profiles,
)

if TYPE_CHECKING:
    from vmprof_convert.cli.run_files import File
    from vmprof_convert.text.terminal import Terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_limit(parser)
    add_group_storage(parser)
    add_forms(parser, MARKDOWN, JSON)
    add_profiles(parser, "app.vmprof (record with --retainers)")
    add_process(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    return report.run(options, make)


def make(files: Sequence[File], options: argparse.Namespace, on: Terminal) -> str:
    """Return the text of the report.

    Args:
        files: the profiles of a run.
        options: the options of the command.
        on: the terminal for the text.
    """
    from vmprof_convert.analysis import holders
    from vmprof_convert.report import held as tables

    find = partial(holders.find, group_storage=options.group_storage)
    found = held.read(files, options)
    if options.form == JSON:
        text = io.StringIO()
        tables.write_json([
            (profile, [find(profile, one) for one in profile.held])
            for profile, _ in found], text, options.limit)
        return text.getvalue()
    return report.write_sheets([
        tables.of(profile, find(profile, last), options.limit or DEFAULT_LIMIT,
                  is_one_of_several=len(found) > 1) for profile, last in found],
        options, on)
