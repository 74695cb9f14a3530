"""Define and parse the options of reports, and the options of all formats."""
from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn

from vmprof_convert.errors import ProfileError

if TYPE_CHECKING:
    from vmprof_convert.analysis.selection import Selection
    from vmprof_convert.profile.thin import Limit

_PLACES = ("function", "line", "file", "module")
_PARTS = ("thread", "process")
_BY = (*_PLACES, *_PARTS, "type")
#: value of --at: the moment at which the most bytes were alive
PEAK = "peak"
#: prefix of a value of --by: the values of this label
LABEL = "label:"
#: values of --of: the amount that a report sums
BYTES, TIME, RESIDENT = _OF = ("bytes", "time", "rss")
_SORT = ("self", "total", "objects", "alive")

#: maximum number of rows of a table, and of each table of --focus
DEFAULT_LIMIT, DEFAULT_PART = 25, 8

#: maximum number of allocation samples in the formats that contain single samples
DEFAULT_SAMPLES = 1_000_000

#: the forms of a report
TABLE, JSON, MARKDOWN = "table", "json", "markdown"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ProfileError with one line instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise ProfileError."""
        raise ProfileError(message)


def add_filters(parser: argparse._ActionsContainer) -> None:
    """Add the options that select samples and frames, for all formats."""
    from vmprof_convert.meaning.lifetimes import FATES
    parser.add_argument(
        "--mine", action="store_true",
        help="only the program's own code; what libraries allocate counts for who "
             "calls them")
    parser.add_argument(
        "--raw", action="store_true",
        help="instead of the objects of the GC's heap, the memory that C code had of "
             "malloc, as --raw-memory samples it")
    parser.add_argument(
        "--time", type=_times, metavar="A..B",
        help="what was allocated from A to B, in seconds after the start, such as "
             "1.5..3 or 2..")
    parser.add_argument(
        "--process", type=_process, metavar="NAME", action="append",
        help="of several processes, what this one allocated: its number, its "
             "command or its file, perhaps with *; more than once: these processes")
    parser.add_argument(
        "--thread", type=_thread, metavar="NAME", action="append",
        help="what this thread allocated: its name, perhaps with *, or its number "
             "in the kernel; more than once: these threads; likewise with those "
             "below")
    parser.add_argument(
        "--function", metavar="NAME", action="append",
        help="what this function allocated, and what it calls: a name, perhaps with "
             "* or with its file (app.py:main)")
    parser.add_argument(
        "--file", metavar="PATH", action="append",
        help="likewise, the functions of a file or folder: its end, or with *")
    parser.add_argument(
        "--type", metavar="NAME", action="append",
        help="objects of this type; perhaps with *")
    parser.add_argument(
        "--label", metavar="KEY=VALUE", type=_label, action="append",
        help="what was allocated with this label (vmprof_allocation.labels); perhaps "
             "with *")
    parser.add_argument(
        "--fate", type=_fates, metavar="WHAT", action="append",
        help="what became of the objects: %s" % ", ".join(FATES))


    parser.add_argument(
        "--samples", type=_samples, metavar="N",
        help="of the allocation samples of a run, at most so many (default: %d; 0: "
             "all). Of more, some are left out, and the others stand for them, as "
             "though there had been fewer from the beginning. Time samples are all "
             "there; and a report adds up all samples" % DEFAULT_SAMPLES)


def add_options(parser: argparse._ActionsContainer, **helps: str) -> None:
    """Add the options of reports.

    Args:
        parser: the parser.
        helps: help texts by name of the option, where they differ from the report's.
            argparse.SUPPRESS hides an option.
    """
    def add(*flags: str, help: str, **more: Any) -> None:
        name = flags[-1].lstrip("-").replace("-", "_")
        parser.add_argument(*flags, help=helps.get(name, help), **more)

    add(
        "-n", "--limit", type=_positive, metavar="N",
        help="show the N largest rows (default: %d; with --json all)"
             % DEFAULT_LIMIT)
    add(
        "--of", choices=_OF,
        help="what is added up: bytes allocated; time, as far as there are time "
             "samples; or what resident memory grew by (default: bytes, or time where "
             "no allocations were sampled)")
    add(
        "--by", type=_by, metavar="WHAT",
        help="what a row is of: function, line, file, module, thread, process or "
             "type; or one of these and type: line,type (default: the lines of the "
             "program's own code, as with --mine, or its functions where lines are "
             "not known)")
    add(
        "--sort", choices=_SORT,
        help="what comes first: the bytes that a row allocated itself (the "
             "default), or with what it calls; its objects; or what of it is "
             "still alive")
    add(
        "--focus", metavar="NAME",
        help="one function: who calls it, and what it calls")
    add(
        "--tree", action="store_true",
        help="who calls whom, from the outside in: the largest branches")
    add(
        "--at", type=_moment, metavar="SECONDS",
        help="as though the profile ended so many seconds after its start: what "
             "was alive then; peak: at the moment at which most was")
    add(
        "--group-storage", action="store_true",
        help="count storage, such as the items of a list, as what it belongs to, where "
             "that is one type")
    add(
        "--hide-internal", action="store_true",
        help="leave out what only the interpreter knows, such as <JIT frame>")
    add(
        "--leaks", action="store_true",
        help="instead of the table: what is held more and more, between marks, or "
             "in a run without its beginning")
    add(
        "--held", action="store_true",
        help="instead of the table: who holds what was alive, when somebody asked (ctl "
             "PID held, or --held where the program was started); also as a tree for "
             "pprof, speedscope or flamegraph.pl")
    add(
        "--memory", action="store_true",
        help="instead of the table: where the memory of each process was when its "
             "profile ended (--memory where the program was started)")
    add(
        "--remarks", action="store_true",
        help="all that is to be known about the figures, and not only the few lines "
             "that change most (with --json always)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_const", dest="form", const=JSON, default=TABLE,
        help="for programs: the same, with every figure and bound")
    form.add_argument(
        "--markdown", action="store_const", dest="form", const=MARKDOWN,
        help="the same as a table in Markdown")


def are_given(options: argparse.Namespace) -> list[str]:
    """Return the options of add_options() whose values are not the defaults."""
    given = ["--" + name.replace("_", "-") for name in (
        "limit", "of", "by", "sort", "focus", "tree", "at", "group_storage",
        "hide_internal", "leaks", "held", "memory", "remarks")
        if getattr(options, name) not in (None, False)]
    return given + ["--" + options.form] * (options.form != TABLE)


def selection(options: argparse.Namespace) -> Selection:
    """Return the values of the options of add_filters()."""
    from vmprof_convert.analysis.selection import Selection
    return Selection(
        options.time, tuple(options.thread or ()), tuple(options.function or ()),
        tuple(options.file or ()), tuple(options.type or ()),
        tuple(dict.fromkeys(fate for fates in options.fate or () for fate in fates)),
        options.mine, tuple(options.label or ()), tuple(options.process or ()))


def limit_of(options: argparse.Namespace) -> Limit:
    """Return the limit for the number of samples in a table."""
    from vmprof_convert.profile.thin import Limit
    return Limit(DEFAULT_SAMPLES if options.samples is None else options.samples)


def check(options: argparse.Namespace) -> None:
    """Check the combination of the options.

    Raises:
        ProfileError: two options exclude each other.
    """
    if options.samples is not None and options.of != RESIDENT:
        raise ProfileError("--samples is for what holds each sample, and a report adds "
                           "up all of them: leave it out")
    for name in "held", "memory", "of":
        if options.raw and getattr(options, name) not in (None, False, BYTES):
            raise ProfileError("--raw is about what C code had of malloc: leave it "
                               "out, or --%s" % name)
    if options.of in (TIME, RESIDENT):
        for given in ("focus", "tree", "at", "hide_internal", "leaks", "held",
                      "memory"):
            if getattr(options, given) not in (None, False):
                raise ProfileError("--%s is about bytes: leave out --of %s" % (
                    given.replace("_", "-"), options.of))
        if options.sort in ("objects", "alive"):
            raise ProfileError("--sort %s is about bytes: write self or total, or "
                               "leave out --of %s" % (options.sort, options.of))
        if options.of == TIME and "type" in (options.by or ()):
            raise ProfileError("time is of no type: leave out --by type")
    for mode in "focus", "tree":
        if not getattr(options, mode):
            continue
        if mode == "focus" and options.tree:
            raise ProfileError("--focus and --tree are two reports: write one of "
                               "them")
        if options.by and (mode == "focus" or "type" in options.by):
            raise ProfileError("--%s goes without --by%s: leave it out, or choose "
                               "a type with --type" % (
                                   mode, "" if mode == "focus" else " type"))
        if options.by and options.by[0] in _PARTS:
            raise ProfileError("--%s goes without --by %s: leave it out, or choose "
                               "one with --%s" % (mode, *options.by[:1] * 2))
        if options.hide_internal:
            raise ProfileError("--%s goes without --hide-internal" % mode)


def _positive(text: str) -> int:
    """Parse a number of rows."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            "%r is no number of rows: write 1 or more" % text)
    return number


def _samples(text: str) -> int:
    if re.fullmatch("[0-9]{1,18}", text, re.ASCII):
        return int(text)
    raise argparse.ArgumentTypeError(
        "%r is no number of samples: write 1 or more, or 0 for all" % text)


def _by(text: str) -> tuple[str, ...]:
    words = text.split(",")
    known = [word for word in _BY if word in words]
    known[:0] = [word for word in words if word.startswith(LABEL) and word != LABEL]
    if sorted(known) != sorted(words) or len(set(known) - {"type"}) > 1:
        raise argparse.ArgumentTypeError(
            "%r is nothing that a row can be of: write function, line, file, module, "
            "thread, process, type or label:KEY, or one of these and type, such as "
            "line,type" % text)
    return tuple(known)


def _label(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(
            "%r is no label: write KEY=VALUE, such as endpoint=/users" % text)
    return text


def _times(text: str) -> tuple[int, int | None]:
    """Parse a period into its begin and its end, in ns; the end may be None."""
    begin, dots, end = text.partition("..")
    try:
        first = _seconds(begin) if begin else 0
        last = _seconds(end) if end else None
    except argparse.ArgumentTypeError:
        dots = ""
    if not dots or text == ".." or (last is not None and last <= first):
        raise argparse.ArgumentTypeError(
            "%r is no time: write from..to in seconds, such as 1.5..3, 2.. or ..2.5"
            % text)
    return first, last


def _thread(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "%r is no thread: write its name, or its number in the kernel" % text)
    return text


def _process(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "%r is no process: write its number, its command or its file" % text)
    return text


def _fates(text: str) -> list[str]:
    from vmprof_convert.meaning.lifetimes import FATES
    fates = text.split(",")
    if not set(fates) <= set(FATES):
        raise argparse.ArgumentTypeError(
            "%r is nothing that becomes of objects: write %s, or several of these "
            "with commas" % (text, ", ".join(FATES)))
    return fates


def _moment(text: str) -> int | str:
    """Parse a moment into ns, or PEAK."""
    if text == PEAK:
        return text
    try:
        return _seconds(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError("%s, or peak" % error) from None


def _seconds(text: str) -> int:
    """Parse a number of seconds into ns."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(
            "%r is no number of seconds: write 0 or more, such as 2.5" % text)
    return round(seconds * 1e9)
