"""Where the memory of a process was when its profile ended: from files to a report."""
from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmprof_convert import readers
from vmprof_convert.cli.options import JSON, MARKDOWN, selection
from vmprof_convert.errors import ProfileError, about
from vmprof_convert.profile import merging
from vmprof_convert.report import where_memory

if TYPE_CHECKING:
    from vmprof_convert.cli.run_files import File
    from vmprof_convert.profile.merging import Read
    from vmprof_convert.text.terminal import Terminal

_FACTS = re.compile(r"(?:[a-z][a-z.]{0,30} [0-9]{1,19}(?:,|$)){1,200}", re.ASCII)


class _Asked(NamedTuple):
    process: Read
    #: None: it does not say
    facts: dict[str, int] | None


def make(files: Sequence[File], options: argparse.Namespace, on: Terminal) -> str:
    """Raises ProfileError, or FileError if that is about one of the files."""
    asked = _read(files, options)
    text = io.StringIO()
    if options.form == JSON:
        json.dump(where_memory.of_processes(
            (part.profile, facts) for part, facts in asked), text, indent=1)
        return text.getvalue() + "\n"
    for number, (part, facts) in enumerate(asked):
        if number:
            print(file=text)
        sheet = where_memory.of_profile(part.profile, facts)
        if options.form == MARKDOWN:
            from vmprof_convert.report import markdown
            markdown.write(sheet, text)
        else:
            from vmprof_convert.report import terminal_table
            terminal_table.write(sheet, text, on)
    return text.getvalue()


def _read(files: Sequence[File], options: argparse.Namespace) -> list[_Asked]:
    chosen = selection(options)
    if options.mine or not chosen.is_everything:
        raise ProfileError("--memory is about whole processes: of what chooses "
                           "samples, --process alone goes with it")
    parts = []
    for file in files:
        with about(file.name):
            part = merging.Read(readers.read_events(
                file.sources, salvage=options.salvage or file.is_found),
                file.path, file.begin)
            parts.append(_Asked(part, _facts(part.profile.settings.get("memory", ""))))
    among = merging.chosen([part for part, _ in parts], chosen.processes)
    asked = [part for part in parts if part.process in among]
    if all(facts is None for _, facts in asked):
        raise ProfileError(
            "nothing in this profile says where the memory was: ask while the program "
            "runs (python -m vmprof_allocation ctl PID memory), or write --memory "
            "where it is started, for its end")
    return asked


def _facts(text: str) -> dict[str, int] | None:
    """Of PROFILE.rst's `memory`; None: it is empty.  Raises ProfileError."""
    if not text:
        return None
    if not _FACTS.fullmatch(text):
        raise ProfileError("what it says of where the memory was is damaged")
    facts = {name: int(value) for name, _, value in (
        fact.partition(" ") for fact in text.split(",") if fact)}
    try:
        where_memory.json(facts, 0)
    except KeyError as error:
        raise ProfileError("what it says of where the memory was is damaged: %s is not "
                           "there" % error) from None
    return facts
