"""Print messages to the user, with the name of the program."""
from __future__ import annotations

from collections.abc import Sequence

from vmprof_convert.cli import streams
from vmprof_convert.text.escape import printable


def complain(program: str, lines: Sequence[str]) -> None:
    """Print each message to stderr in one line, after the name of the program."""
    for line in lines:
        streams.complain("%s: %s" % (program, printable(line)))
