"""Define and parse the options that several commands share.

Each command adds its own options to a Parser, and calls the functions of this module
for the other options.
"""
from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from functools import partial
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

#: default maximum number of rows of a table, and of each table of `callers`
DEFAULT_LIMIT, DEFAULT_PART = 25, 8

#: default maximum number of allocation samples in formats that contain single samples
DEFAULT_SAMPLES = 1_000_000

#: the forms of a report, and the endings of their files
TABLE, MARKDOWN, JSON, CSV = "table", "markdown", "json", "csv"
FORMS = {TABLE: ".txt", MARKDOWN: ".md", JSON: ".json", CSV: ".csv"}
#: name of a file that means standard input or output
STANDARD = "-"


class Parser(argparse.ArgumentParser):
    """A parser for the options of one command."""

    def __init__(self, **more: Any) -> None:
        """Create a parser without options.

        Args:
            more: the arguments of argparse.ArgumentParser.
        """
        super().__init__(
            formatter_class=partial(argparse.HelpFormatter, max_help_position=24),
            add_help=False, allow_abbrev=False, **more)
        self.add_argument("-h", "--help", action="help", help="show this help")

    def error(self, message: str) -> NoReturn:
        """Raise ProfileError with one line, instead of exiting."""
        raise ProfileError(message)

    def parse(self, arguments: Sequence[str], commands: Sequence[str]
              ) -> argparse.Namespace:
        """Parse the arguments of a command, in any order.

        Args:
            arguments: the arguments.
            commands: names of all commands, for suggestions.

        Raises:
            ProfileError: the arguments are invalid.
        """
        options, unknown = self.parse_known_intermixed_args(arguments)
        if unknown:
            self.error("unrecognized arguments: %s%s" % (" ".join(unknown), misspelt(
                unknown[0], [*self._option_string_actions, *commands])))
        return options


def misspelt(word: str, known: Sequence[str]) -> str:
    """Return a suggestion for an error message, or "" if no known word is similar.

    Args:
        word: an unknown option or command.
        known: the options and commands that can be meant.
    """
    from difflib import get_close_matches
    names = {one.lstrip("-"): one for one in reversed(known)}
    found = get_close_matches(word.partition("=")[0].lstrip("-"), names, 1)
    return "; did you mean %s?" % names[found[0]] if found else ""


def add_profiles(parser: argparse.ArgumentParser, example: str, more: str = "") -> None:
    """Add the profiles of a run and the options of all commands that read them.

    Args:
        parser: the parser of the command.
        example: the arguments of an example, for the end of the help.
        more: positional arguments after the profiles, for the first line of the help.
    """
    parser.usage = "%(prog)s [OPTIONS] FILE..." + more
    parser.epilog = "example: %(prog)s " + example
    parser.add_argument("profiles", metavar="FILE", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--salvage", action="store_true",
                        help="read a profile that was cut off in a record")
    # name of each profile in messages, if the path means nothing to the user
    parser.add_argument("--called", action="append", default=[], help=argparse.SUPPRESS)


def add_forms(parser: argparse.ArgumentParser, *forms: str) -> None:
    """Add -o, --color and an option for each form of the report, such as --json.

    Args:
        parser: the parser of the command.
        forms: the forms that the report has in addition to TABLE.
    """
    add_json_and_markdown(parser, *forms)
    endings = [FORMS[form] for form in (TABLE, *forms)]
    parser.add_argument(
        "-o", "--output", metavar="OUT",
        help="write to OUT, which ends in %s or %s" % (
            ", ".join(endings[:-1]), endings[-1]))
    add_color(parser)
    parser.set_defaults(forms=(TABLE, *forms))


def add_json_and_markdown(parser: argparse._ActionsContainer,
                          *forms: str) -> argparse._MutuallyExclusiveGroup:
    """Add an option for each form of the report, and return their group."""
    group = parser.add_mutually_exclusive_group()
    for form, help_ in ((JSON, "write JSON with all figures and bounds"),
                        (MARKDOWN, "write the tables as Markdown"),
                        (CSV, "write the rows as CSV, with the columns of JSON")):
        if form in forms:
            group.add_argument("--" + form, action="store_const", dest="form",
                               const=form, help=help_)
    group.set_defaults(form=TABLE)
    return group


def add_color(parser: argparse._ActionsContainer) -> None:
    """Add the option --color."""
    parser.add_argument("--color", choices=("auto", "always", "never"), metavar="WHEN",
                        default="auto",
                        help="use colors: auto (in a terminal), always or never")


def choose_form(options: argparse.Namespace) -> None:
    """Choose the form of the report by the ending of the output's name.

    Raises:
        ProfileError: no form has this ending.
    """
    if options.output == STANDARD:
        options.output = None
    if options.output is None or options.form != TABLE:
        return
    for form in options.forms:
        if options.output.endswith(FORMS[form]):
            options.form = form
            return
    raise ProfileError(
        "%s: the output's name must end with %s; the command export writes other "
        "formats" % (options.output,
                     " or ".join(FORMS[form] for form in options.forms)))


def add_limit(parser: argparse._ActionsContainer, default: int = DEFAULT_LIMIT) -> None:
    """Add the option -n."""
    parser.add_argument(
        "-n", "--limit", type=_positive, metavar="N",
        help="show the N largest rows (default: %d; with --json all)" % default)


def add_group_storage(parser: argparse._ActionsContainer) -> None:
    """Add the option --group-storage."""
    parser.add_argument("--group-storage", action="store_true",
                        help="add storage, such as a list's items, to its owner")


def _add_process(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--process", type=_process, metavar="NAME", action="append",
                        help="select a process by its number, command or file")


def add_process(parser: argparse._ActionsContainer) -> None:
    """Add --process as the only filter, for reports on whole processes."""
    _add_process(parser)
    parser.set_defaults(user_code=False, native_memory=False, **dict.fromkeys(
        ("time", "thread", "function", "file", "type", "label", "outcome")))


def add_filters(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *,
                has_outcomes: bool = True) -> None:
    """Add the options that select samples and frames.

    Args:
        parser: the parser, or a group of its options.
        has_outcomes: whether the command can select the outcome of objects.
    """
    group = parser
    if isinstance(parser, argparse.ArgumentParser):
        group = parser.add_argument_group(
            "select samples (NAME may contain *; repeat an option to select several)")
    group.add_argument("--user-code", action="store_true",
                       help="show user code, with the bytes of its calls")
    group.add_argument("--native-memory", action="store_true",
                       help="show memory of malloc instead of the GC's heap")
    group.add_argument("--time", type=_times, metavar="A..B",
                       help="select from A to B in seconds: 1.5..3 or 2..")
    _add_process(group)
    group.add_argument("--thread", type=_thread, metavar="NAME", action="append",
                       help="select a thread by its name or number")
    group.add_argument("--function", metavar="NAME", action="append",
                       help="select a function and callees: main, app.py:main")
    group.add_argument("--file", metavar="PATH", action="append",
                       help="select a file's or folder's functions and callees")
    group.add_argument("--type", metavar="NAME", action="append",
                       help="select the objects of a type")
    group.add_argument("--label", metavar="KEY=VALUE", type=_label, action="append",
                       help="select the allocations with a label")
    if has_outcomes:
        from vmprof_convert.meaning.lifetimes import FATES
        group.add_argument("--outcome", type=_fates, metavar="WHAT", action="append",
                           help="select %s or %s objects" % (
                               ", ".join([*FATES][1:-1]), [*FATES][-1]))
    else:
        group.set_defaults(outcome=None)


def add_samples(parser: argparse._ActionsContainer, condition: str = "") -> None:
    """Add the option --samples.

    Args:
        parser: the parser.
        condition: the beginning of the help, if the option needs another one.
    """
    parser.add_argument(
        "--samples", type=_samples, metavar="N",
        help="%skeep at most N samples (default: %d; 0: all)" % (
            condition, DEFAULT_SAMPLES))


def add_at(parser: argparse._ActionsContainer) -> None:
    """Add the option --at."""
    parser.add_argument(
        "--at", type=_moment, metavar="SECONDS",
        help="end the profile SECONDS after its start, or at the peak of live bytes: "
             "peak")


def add_sort(parser: argparse._ActionsContainer) -> None:
    """Add the option --sort."""
    parser.add_argument("--sort", choices=_SORT, metavar="KEY",
                        help="sort by self (default), total, objects or alive")


def add_notes(parser: argparse._ActionsContainer) -> None:
    """Add the option --notes."""
    parser.add_argument("--notes", action="store_true",
                        help="show all notes on the figures (--json always does)")


def add_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of a table of allocations."""
    add_by(parser, "make rows of %s or label:KEY, or of one and type: line,type "
                   "(default: lines or functions of user code)"
                   % ", ".join(_BY))
    parser.add_argument("--of", choices=_OF, metavar="AMOUNT",
                        help="sum bytes (default), time (CPU) or rss (resident)")
    add_sort(parser)
    add_limit(parser)
    add_at(parser)
    add_group_storage(parser)
    parser.add_argument("--hide-internal", action="store_true",
                        help="omit internal objects, such as <JIT frame>")
    add_notes(parser)
    # a table in the terminal needs no option of an output
    parser.set_defaults(form=TABLE, samples=None)


def add_by(parser: argparse._ActionsContainer, help_: str) -> None:
    """Add the option --by."""
    parser.add_argument("--by", type=_by, metavar="WHAT", help=help_)


def check(options: argparse.Namespace) -> None:
    """Check that the given options of a report can be combined.

    Raises:
        ProfileError: two options exclude each other.
    """
    if options.samples is not None and options.of != RESIDENT:
        raise ProfileError("--samples limits the formats that contain single samples, "
                           "and a report sums all samples: leave it out")
    if options.of not in (TIME, RESIDENT):
        return
    for given in "native_memory", "at", "hide_internal":
        if getattr(options, given) not in (None, False):
            raise ProfileError("--%s is about bytes: leave out --of %s" % (
                given.replace("_", "-"), options.of))
    if options.sort in ("objects", "alive"):
        raise ProfileError("--sort %s is about bytes: write self or total, or leave "
                           "out --of %s" % (options.sort, options.of))
    if options.of == TIME and "type" in (options.by or ()):
        raise ProfileError("CPU time has no types: leave out --by type")


def selection(options: argparse.Namespace) -> Selection:
    """Return the selection of samples that the filters describe."""
    from vmprof_convert.analysis.selection import Selection
    return Selection(
        options.time, tuple(options.thread or ()), tuple(options.function or ()),
        tuple(options.file or ()), tuple(options.type or ()),
        tuple(dict.fromkeys(fate for fates in options.outcome or () for fate in fates)),
        options.user_code, tuple(options.label or ()), tuple(options.process or ()))


def limit_of(options: argparse.Namespace) -> Limit:
    """Return a limit for the number of allocation samples of a run, from --samples."""
    from vmprof_convert.profile.thin import Limit
    return Limit(DEFAULT_SAMPLES if options.samples is None else options.samples)


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


def by_place(text: str) -> tuple[str, ...]:
    """Parse a value of --by for the call tree, which has neither types nor parts."""
    found = _by(text)
    if len(found) > 1 or found[0] in (*_PARTS, "type"):
        raise argparse.ArgumentTypeError(
            "invalid kind of row %r: write function, line, file, module or label:KEY, "
            "or select one thread, process or type with --thread, --process or --type"
            % text)
    return found


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
