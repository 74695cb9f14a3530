"""The terminal of a report: its width, colours and characters."""
from __future__ import annotations

import textwrap
from typing import NamedTuple, TextIO

#: replacement of text that was cut off
DOTS = "\u2026"


class Terminal(NamedTuple):
    """The properties of the terminal that shows a report."""

    width: int = 100
    colours: bool = False
    #: whether the terminal can show non-ASCII characters such as \u00b1 and \u2026
    unicode: bool = True


#: properties for a report that is written to a file or a pipe
NO_TERMINAL = Terminal()


def print_prose(line: str, out: TextIO, terminal: Terminal) -> None:
    """Write a text to `out` in lines of the terminal's width.

    All lines after the first one are indented by two more spaces.
    """
    indent = " " * (len(line) - len(line.lstrip()))
    for part in textwrap.wrap(
            plain(line, terminal), max(terminal.width, 8),
            subsequent_indent=indent + "  ") or [""]:
        print(part.rstrip(), file=out)


def plain(text: str, terminal: Terminal) -> str:
    """Return `text` in characters that the terminal can show.

    The result may be longer than `text`.
    """
    if terminal.unicode:
        return text
    return text.replace("\u00b1", "+-").replace(DOTS, "~").encode(
        "ascii", "backslashreplace").decode("ascii")
