"""Where a report will be seen, and what fits there."""
from __future__ import annotations

import textwrap
from typing import NamedTuple, TextIO

#: stands for what was cut off
DOTS = "\u2026"


class Terminal(NamedTuple):
    """Where the report will be seen."""

    width: int = 100
    colours: bool = False
    #: whether it can show all characters: \u00b1 and \u2026
    unicode: bool = True


#: what is written to a file, or into a pipe
NO_TERMINAL = Terminal()


def print_prose(line: str, out: TextIO, terminal: Terminal) -> None:
    """In as many lines as it takes; what follows the first one is indented."""
    indent = " " * (len(line) - len(line.lstrip()))
    for part in textwrap.wrap(
            plain(line, terminal), max(terminal.width, 8),
            subsequent_indent=indent + "  ") or [""]:
        print(part.rstrip(), file=out)


def plain(text: str, terminal: Terminal) -> str:
    """`text` in the characters that the terminal has, perhaps more of them."""
    if terminal.unicode:
        return text
    return text.replace("\u00b1", "+-").replace(DOTS, "~").encode(
        "ascii", "backslashreplace").decode("ascii")
