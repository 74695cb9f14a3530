"""The report: its options, and from a file to text.

Two commands have it: `python -m vmprof_allocation report` and `vmprof-convert
--report`.  The first goes on in another process when it knows its options
(with_little_memory): so what makes the report is imported when it is made.
"""
from __future__ import annotations

import argparse
import io
import math
import os

DEFAULT_LIMIT = 25

_BY = ("function", "line", "type")
_SORT = ("self", "total", "objects", "alive")


def add_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "-n", "--limit", type=_positive, metavar="N",
        help="show the N largest rows (default: %d; with --json all)"
             % DEFAULT_LIMIT)
    parser.add_argument(
        "--by", type=_by, metavar="WHAT",
        help="what a row is of: function (the default), line, type, or two of "
             "these: function,type or line,type")
    parser.add_argument(
        "--sort", choices=_SORT,
        help="what comes first: the bytes that a function allocated itself (the "
             "default), or with what it calls; its objects; or what of it is "
             "still alive")
    parser.add_argument(
        "--at", type=_seconds, metavar="SECONDS",
        help="as though the profile ended so many seconds after its start: what "
             "was alive then")
    parser.add_argument(
        "--group-storage", action="store_true",
        help="count storage, such as the items of a list, as what it belongs to")
    parser.add_argument(
        "--hide-internal", action="store_true",
        help="leave out what only the interpreter knows, such as <JIT frame>")
    parser.add_argument(
        "--leaks", action="store_true",
        help="instead of the table: what is held more and more, between marks, or "
             "in a run without its beginning")
    parser.add_argument(
        "--json", action="store_true",
        help="for programs: the same rows, with every figure and bound")


def are_given(options: argparse.Namespace) -> bool:
    """Whether there are other options than the defaults."""
    return any(getattr(options, name) not in (None, False) for name in (
        "limit", "by", "sort", "at", "group_storage", "hide_internal", "leaks", "json"))


def make(path: str | os.PathLike[str], options: argparse.Namespace,
         salvage: bool = False) -> str:
    """The report of the profile at `path`.  Raises ProfileError and OSError."""
    if options.leaks:
        return _make_leaks(path, options, salvage)
    from vmprof_convert import readers
    from vmprof_convert.summary import Choice, Tally
    from vmprof_convert.writers import table

    choice = Choice(by=options.by or ("function",), sort=options.sort or "self",
                    at=options.at, group_storage=options.group_storage,
                    hide_internal=options.hide_internal)
    text = io.StringIO()
    # added up while they are read: a table of the samples takes more memory
    tally = Tally(choice.at)
    profile = readers.read_into(path, tally, salvage=salvage)
    if options.json:
        from vmprof_convert.writers import table_json
        table_json.write(profile, text, options.limit, choice, tally=tally)
    else:
        table.write(profile, text, options.limit or DEFAULT_LIMIT, choice,
                    tally=tally)
    return text.getvalue()


def _make_leaks(path: str | os.PathLike[str], options: argparse.Namespace,
                salvage: bool) -> str:
    from vmprof_convert import leaks, readers
    from vmprof_convert.errors import ProfileError
    from vmprof_convert.writers import leaks as writer

    for name in "by", "sort", "at", "json":
        if getattr(options, name) not in (None, False):
            raise ProfileError("--leaks is another report: --%s is not for it"
                               % name)
    text = io.StringIO()
    objects = leaks.OldObjects()
    profile = readers.read_into(path, objects, salvage=salvage)
    writer.write(profile, leaks.find(
        profile, objects, group_storage=options.group_storage), text,
        options.limit or DEFAULT_LIMIT)
    return text.getvalue()


def _positive(text: str) -> int:
    """A number of rows."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            "%r is no number of functions: write 1 or more" % text)
    return number


def _by(text: str) -> tuple[str, ...]:
    words = text.split(",")
    known = [word for word in _BY if word in words]
    if sorted(known) != sorted(words) or {"function", "line"} <= set(known):
        raise argparse.ArgumentTypeError(
            "%r is nothing that a row can be of: write function, line, type, "
            "function,type or line,type" % text)
    return tuple(known)


def _seconds(text: str) -> int:
    """In nanoseconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(
            "%r is no number of seconds: write 0 or more, such as 2.5" % text)
    return round(seconds * 1e9)
