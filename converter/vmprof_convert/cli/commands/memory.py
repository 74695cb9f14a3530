"""The command memory: show the resident memory of each process by use."""
from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmprof_convert.cli import report, run_files
from vmprof_convert.cli.options import (
    JSON,
    MARKDOWN,
    add_forms,
    add_process,
    add_profiles,
    selection,
)
from vmprof_convert.errors import ProfileError, about
from vmprof_convert.profile import merging
from vmprof_convert.report import where_memory

if TYPE_CHECKING:
    from vmprof_convert.cli.run_files import File
    from vmprof_convert.profile.model import Profile
    from vmprof_convert.text.terminal import Terminal

_FACTS = re.compile(r"(?:[a-z][a-z.]{0,30} [0-9]{1,19}(?:,|$)){1,200}", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_forms(parser, MARKDOWN, JSON)
    add_profiles(parser, "app.vmprof (record with --memory)")
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
    counts = _read(files, options)
    if options.form == JSON:
        import json
        return json.dumps(where_memory.of_processes(counts), indent=1) + "\n"
    return report.write_sheets([where_memory.of_profile(*one) for one in counts],
                               options, on)


def _read(files: Sequence[File], options: argparse.Namespace
          ) -> list[tuple[Profile, dict[str, int] | None]]:
    """Return the profile and the memory counts of each selected process.

    The counts are None for a process whose profile does not contain them.

    Raises:
        ProfileError: none of the profiles contains memory counts.
        FileError: a file cannot be read.
    """
    parts = []
    for file in files:
        part = run_files.read_events(file, options)
        with about(file.name):
            parts.append((part, _facts(part.profile.settings.get("memory", ""))))
    among = merging.chosen([part for part, _ in parts], selection(options).processes)
    asked = [(part.profile, facts) for part, facts in parts if part in among]
    if all(facts is None for _, facts in asked):
        raise ProfileError(
            "this profile does not contain the use of the memory: request it while the "
            "program runs (pypy-alloc memory PID), or start the "
            "program with --memory, which records it at the end")
    return asked


def _facts(text: str) -> dict[str, int] | None:
    """Parse the setting `memory` of a profile (see PROFILE.rst).

    Returns:
        The counts, or None if the setting is empty.

    Raises:
        ProfileError: the setting is damaged.
    """
    if not text:
        return None
    if not _FACTS.fullmatch(text):
        raise ProfileError("the setting memory is damaged")
    facts = {name: int(value) for name, _, value in (
        fact.partition(" ") for fact in text.split(",") if fact)}
    try:
        where_memory.json(facts, 0)
    except KeyError as error:
        raise ProfileError("the setting memory is damaged: %s is missing"
                           % error) from None
    return facts
