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
#: prefix of a value of --by: label:KEY makes a row for each value of the label KEY
LABEL = "label:"
#: values of --of: the amount that a report sums
BYTES, TIME, RESIDENT = _OF = ("bytes", "time", "rss")
_SORT = ("self", "total", "objects", "alive")

#: default maximum number of rows of a table, and of each table of --focus
DEFAULT_LIMIT, DEFAULT_PART = 25, 8

#: default maximum number of allocation samples in formats that contain single samples
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
        help="show only user code; bytes that libraries allocate are attributed to the "
             "calling function")
    parser.add_argument(
        "--raw", action="store_true",
        help="show native memory (malloc), as --raw-memory samples it, instead of the "
             "GC's heap")
    parser.add_argument(
        "--time", type=_times, metavar="A..B",
        help="select allocations from A to B, in seconds after the start, such as "
             "1.5..3 or 2..")
    parser.add_argument(
        "--process", type=_process, metavar="NAME", action="append",
        help="select the allocations of a process by its number, its command or its "
             "file, which may contain *; repeat the option to select several")
    parser.add_argument(
        "--thread", type=_thread, metavar="NAME", action="append",
        help="select the allocations of a thread by its name, which may contain *, or "
             "its number in the kernel; this option and the options below may be "
             "repeated to select several")
    parser.add_argument(
        "--function", metavar="NAME", action="append",
        help="select the allocations of a function and its callees: a name, which may "
             "contain *, or a file and a name (app.py:main)")
    parser.add_argument(
        "--file", metavar="PATH", action="append",
        help="select the allocations of the functions of a file or folder and their "
             "callees: the end of its path, or a pattern with *")
    parser.add_argument(
        "--type", metavar="NAME", action="append",
        help="select the objects of a type, which may contain *")
    parser.add_argument(
        "--label", metavar="KEY=VALUE", type=_label, action="append",
        help="select the allocations with this label (vmprof_allocation.labels), which "
             "may contain *")
    parser.add_argument(
        "--fate", type=_fates, metavar="WHAT", action="append",
        help="select the objects with this outcome: %s" % ", ".join(FATES))


    parser.add_argument(
        "--samples", type=_samples, metavar="N",
        help="keep at most N allocation samples of a run (default: %d; 0 keeps all). "
             "The kept samples also represent the other samples, as though the "
             "interval had been larger from the beginning. CPU samples are all kept, "
             "and a report sums all samples" % DEFAULT_SAMPLES)


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
        help="sum allocated bytes, CPU time, or the growth of resident memory "
             "(default: bytes, or time if no allocations were sampled)")
    add(
        "--by", type=_by, metavar="WHAT",
        help="make a row for each function, line, file, module, thread, process or "
             "type, or for one of these and type: line,type (default: the lines of "
             "user code, as with --mine, or its functions if lines are unknown)")
    add(
        "--sort", choices=_SORT,
        help="sort the rows by the bytes that they allocate themselves (self, the "
             "default), by the bytes including callees (total), by objects, or by live "
             "bytes (alive)")
    add(
        "--focus", metavar="NAME",
        help="show the callers and the callees of a function")
    add(
        "--tree", action="store_true",
        help="show the largest branches of the call tree, from the outermost functions")
    add(
        "--at", type=_moment, metavar="SECONDS",
        help="show the profile as though it ended SECONDS after its start, with the "
             "objects that were alive then; peak is the moment with the most live "
             "bytes")
    add(
        "--group-storage", action="store_true",
        help="add storage, such as the items of a list, to the type that owns it, if "
             "only one type does")
    add(
        "--hide-internal", action="store_true",
        help="leave out internal objects of the interpreter, such as <JIT frame>")
    add(
        "--leaks", action="store_true",
        help="show the places whose live memory grows, between marks or in a run "
             "without its beginning, instead of the table")
    add(
        "--held", action="store_true",
        help="show the retainers of the live objects instead of the table, if the "
             "profile has them (ctl PID held, or --held when the program is started); "
             "also as a tree for pprof, speedscope or flamegraph.pl")
    add(
        "--memory", action="store_true",
        help="show the use of each process's memory at the end of its profile instead "
             "of the table, if the profile has it (--memory when the program is "
             "started)")
    add(
        "--remarks", action="store_true",
        help="show all notes on the figures, and not only the most important ones "
             "(--json always does)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_const", dest="form", const=JSON, default=TABLE,
        help="write the report for programs, with all figures and bounds")
    form.add_argument(
        "--markdown", action="store_const", dest="form", const=MARKDOWN,
        help="write the tables as Markdown")


def are_given(options: argparse.Namespace) -> list[str]:
    """Return the options of add_options() whose values are not the defaults."""
    given = ["--" + name.replace("_", "-") for name in (
        "limit", "of", "by", "sort", "focus", "tree", "at", "group_storage",
        "hide_internal", "leaks", "held", "memory", "remarks")
        if getattr(options, name) not in (None, False)]
    return given + ["--" + options.form] * (options.form != TABLE)


def selection(options: argparse.Namespace) -> Selection:
    """Return the selection of samples that the options of add_filters() describe."""
    from vmprof_convert.analysis.selection import Selection
    return Selection(
        options.time, tuple(options.thread or ()), tuple(options.function or ()),
        tuple(options.file or ()), tuple(options.type or ()),
        tuple(dict.fromkeys(fate for fates in options.fate or () for fate in fates)),
        options.mine, tuple(options.label or ()), tuple(options.process or ()))


def limit_of(options: argparse.Namespace) -> Limit:
    """Return a limit for the number of allocation samples of a run, from --samples."""
    from vmprof_convert.profile.thin import Limit
    return Limit(DEFAULT_SAMPLES if options.samples is None else options.samples)


def check(options: argparse.Namespace) -> None:
    """Check that the given options of a report can be combined.

    Raises:
        ProfileError: two options exclude each other.
    """
    if options.samples is not None and options.of != RESIDENT:
        raise ProfileError("--samples limits the formats that contain single samples, "
                           "and a report sums all samples: leave it out")
    for name in "held", "memory", "of":
        if options.raw and getattr(options, name) not in (None, False, BYTES):
            raise ProfileError("--raw selects native memory, which --%s does not show: "
                               "leave one of them out" % name)
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
            raise ProfileError("CPU time has no types: leave out --by type")
    for mode in "focus", "tree":
        if not getattr(options, mode):
            continue
        if mode == "focus" and options.tree:
            raise ProfileError("--focus and --tree are two reports: write one of "
                               "them")
        if options.by and (mode == "focus" or "type" in options.by):
            raise ProfileError("--%s does not support --by%s: leave it out, or select "
                               "a type with --type" % (
                                   mode, "" if mode == "focus" else " type"))
        if options.by and options.by[0] in _PARTS:
            raise ProfileError("--%s does not support --by %s: leave it out, or select "
                               "one with --%s" % (mode, *options.by[:1] * 2))
        if options.hide_internal:
            raise ProfileError("--%s does not support --hide-internal: leave it out"
                               % mode)


def _positive(text: str) -> int:
    """Parse a number of rows."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            "invalid number of rows %r: write 1 or more" % text)
    return number


def _samples(text: str) -> int:
    if re.fullmatch("[0-9]{1,18}", text, re.ASCII):
        return int(text)
    raise argparse.ArgumentTypeError(
        "invalid number of samples %r: write 1 or more, or 0 for all" % text)


def _by(text: str) -> tuple[str, ...]:
    words = text.split(",")
    known = [word for word in _BY if word in words]
    known[:0] = [word for word in words if word.startswith(LABEL) and word != LABEL]
    if sorted(known) != sorted(words) or len(set(known) - {"type"}) > 1:
        raise argparse.ArgumentTypeError(
            "invalid kind of row %r: write function, line, file, module, thread, "
            "process, type or label:KEY, or one of these and type, such as line,type"
            % text)
    return tuple(known)


def _label(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(
            "invalid label %r: write KEY=VALUE, such as endpoint=/users" % text)
    return text


def _times(text: str) -> tuple[int, int | None]:
    """Parse a period into its begin and end in ns; the end is None if it is open."""
    begin, dots, end = text.partition("..")
    try:
        first = _seconds(begin) if begin else 0
        last = _seconds(end) if end else None
    except argparse.ArgumentTypeError:
        dots = ""
    if not dots or text == ".." or (last is not None and last <= first):
        raise argparse.ArgumentTypeError(
            "invalid period %r: write from..to in seconds, such as 1.5..3, 2.. or ..2.5"
            % text)
    return first, last


def _thread(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "invalid thread %r: write its name, or its number in the kernel" % text)
    return text


def _process(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "invalid process %r: write its number, its command or its file" % text)
    return text


def _fates(text: str) -> list[str]:
    from vmprof_convert.meaning.lifetimes import FATES
    fates = text.split(",")
    if not set(fates) <= set(FATES):
        raise argparse.ArgumentTypeError(
            "invalid outcome %r: write %s, or several of these with commas"
            % (text, ", ".join(FATES)))
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
            "invalid number of seconds %r: write 0 or more, such as 2.5" % text)
    return round(seconds * 1e9)
