"""Test that the commands in the documents exist, with their options."""
from __future__ import annotations

import functools
import io
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import ROOT
from vmprof_allocation.commands import program
from vmprof_convert import cli

DOCUMENTS = sorted(
    str(path.relative_to(ROOT)) for folder in (
        ".", "converter", "vmprof-integration", "rpython", "pypy-branch", "benchmarks")
    for path in (ROOT / folder).glob("*.rst" if folder == "." else "**/*.rst")
    if path.name != "CHANGELOG.rst" and "build" not in path.parts)
#: a command in a literal, up to the end of the literal, line or shell command
COMMAND = re.compile(
    r"(?P<program>pypy-alloc|vmprof-convert|-m vmprof_allocation|-m vmprof_convert)"
    r"(?P<words>[ \n][^`\n;|&]*)")


class Documented(NamedTuple):
    """A command in a document."""

    #: the program, without "-m "
    program: str
    words: list[str]


def commands(text: str) -> list[Documented]:
    """Return the commands in the literals and literal blocks of a document."""
    literals = re.findall(r"``([^`]+)``", text)
    blocks = [line for line in text.splitlines() if line.startswith("    ")]
    return [Documented(found["program"].removeprefix("-m "), found["words"].split())
            for literal in (*(" ".join(one.split()) for one in literals), *blocks)
            for found in COMMAND.finditer(literal)]


@functools.cache
def help_of(name: str, *words: str) -> str:
    """Return the text of --help; it is empty if the command does not exist.

    Args:
        name: the program.
        words: the command, and further arguments before --help.
    """
    main = (program.main if name in ("pypy-alloc", "vmprof_allocation") else cli.main)
    out = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            main([*words, "--help"])
    except SystemExit:
        pass
    return out.getvalue()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_options_exist(document: str) -> None:
    unknown = []
    for found in commands((ROOT / document).read_text(encoding="utf-8")):
        command = found.words[0]
        if not re.fullmatch("[a-z]+", command):
            continue                # a placeholder, or an option of the program
        text = help_of(found.program, command)
        if not text:
            unknown.append(command)
        if command == "control":    # its commands have their own options
            text += "".join(help_of(found.program, "control", "1", word)
                            for word in found.words)
        elif command == "live":     # it takes the options of report, too
            text += help_of(found.program, "report")
        unknown += ["%s %s" % (command, word) for word in found.words
                    if re.fullmatch("--[a-z-]+", word) and word not in text]
    assert not unknown


def test_most_documents_have_commands() -> None:
    count = sum(len(commands((ROOT / document).read_text(encoding="utf-8")))
                for document in DOCUMENTS)
    assert count > 100


def test_an_unknown_option_is_found(tmp_path: Path) -> None:
    found, = commands("Write ``pypy-alloc report app.vmprof --lekas``.\n")
    assert found == ("pypy-alloc", ["report", "app.vmprof", "--lekas"])
    assert "--lekas" not in help_of("pypy-alloc", "report")
    assert "--by" in help_of("pypy-alloc", "report")
