"""Names are data: what a profile says of them goes to no terminal as it is."""
from __future__ import annotations

from collections.abc import Iterable

#: of a name so many characters are shown: it may be anything
MAX_NAME = 200


def printable(text: str) -> str:
    """`text` in one line: no control characters, which a terminal obeys, and none
    that change the direction of what follows, or can't be seen."""
    return "".join(c if c.isprintable() else "?" for c in text)


def shortened(text: str, length: int = MAX_NAME) -> str:
    """printable(), and no longer than that."""
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
    """The end of a message that `name` is not there: up to three of `known` that may
    have been meant; empty if none is like it."""
    import difflib
    found = difflib.get_close_matches(name, sorted(set(known)), 3)
    if not found:
        return ""
    return "; there is %s" % ", ".join("'%s'" % shortened(other) for other in found)
