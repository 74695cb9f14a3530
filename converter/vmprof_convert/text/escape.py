"""Escaping of names for terminals; names from a profile may contain any characters."""
from __future__ import annotations

from collections.abc import Iterable

#: largest number of characters of a name in a report
MAX_NAME = 200


def printable(text: str) -> str:
    """Return `text` in one line, with "?" in place of unprintable characters.

    Unprintable are control characters, characters that change the direction of the
    following text, and invisible characters.
    """
    return "".join(c if c.isprintable() else "?" for c in text)


def shortened(text: str, length: int = MAX_NAME) -> str:
    """Return a printable text of at most `length` characters."""
    text = printable(text[:length + 1])
    return text if len(text) <= length else text[:length - 3] + "..."


def shortened_path(path: str, length: int = MAX_NAME) -> str:
    """Return a printable reference path of at most `length` characters.

    A longer path is cut in the middle, because its end names the retainer.
    """
    if len(path) <= length:
        return printable(path)
    end = (length - 3) // 2
    return "%s...%s" % (printable(path[:length - 3 - end]), printable(path[-end:]))


def similar(name: str, known: Iterable[str]) -> str:
    """Return similar names, for the end of a message that `name` does not exist.

    The text lists up to three of the known names, or is empty if no name is similar.
    """
    import difflib
    found = difflib.get_close_matches(name, sorted(set(known)), 3)
    if not found:
        return ""
    return "; there is %s" % ", ".join("'%s'" % shortened(other) for other in found)
