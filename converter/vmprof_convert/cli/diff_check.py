"""The commands `vmprof-convert diff` and `vmprof-convert check`.

`diff` compares two profiles, the runs of two versions, or two moments of one run.
`check` compares one run with limits. Both return EXIT_FAILED if a condition of
--fail-if is met.
"""
from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmprof_convert.analysis import process_memory, thresholds
from vmprof_convert.analysis.thresholds import Condition
from vmprof_convert.cli import formats, run_files, streams
from vmprof_convert.cli.formats import DIFF_FORMATS
from vmprof_convert.cli.options import (
    BYTES,
    DEFAULT_LIMIT,
    JSON,
    MARKDOWN,
    TABLE,
    Parser,
    add_filters,
    add_options,
    selection,
)
from vmprof_convert.cli.run_files import STANDARD, File
from vmprof_convert.errors import ProfileError, about
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats
from vmprof_convert.text.escape import printable

if TYPE_CHECKING:
    from vmprof_convert.analysis import diff
    from vmprof_convert.report import diff_tables

EXIT_FAILED = 1
#: options of reports that `diff` does not support, options of its tables, options of
#: its HTML page, and values of --by for the page
_OF_REPORTS = ("focus", "tree", "leaks", "held", "memory", "at", "hide_internal")
_OF_TABLES = ("limit", "by", "sort", "group_storage")
_OF_PAGES = ("by", "sort", "group_storage")
_BY_OF_PAGES = (("function",), ("type",))
#: names of the commands, each the first argument of vmprof-convert
DIFF, CHECK = "diff", "check"


def run(arguments: Sequence[str]) -> int:
    """Run a command.

    Args:
        arguments: the name of the command, and its arguments.

    Returns:
        The exit code.

    Raises:
        FileError: a file cannot be read.
        ProfileError: a profile lacks data that the options need.
        OutputError: the output cannot be written.
    """
    name, *rest = arguments
    options = _parse(name, rest)
    failed = (_diff if name == DIFF else _check)(options)
    return EXIT_FAILED if failed else 0


def _parser(name: str) -> argparse.ArgumentParser:
    if name == CHECK:
        parser = Parser(
            prog="vmprof-convert check",
            description="Report whether a run exceeds limits.")
        parser.add_argument("profiles", metavar="PROFILE", nargs=1)
    else:
        parser = Parser(
            prog="vmprof-convert diff",
            description="Report increases and decreases between the runs of two "
                        "versions (--against), between two profiles, or between two "
                        "moments of one run, and whether they exceed chance and the "
                        "differences between equal runs.")
        parser.add_argument("profiles", metavar="PROFILE", nargs="+",
                            help="a profile from before and a profile from after; with "
                                 "--against, only profiles from before; with "
                                 "--between, one profile")
        parser.add_argument(
            "--against", metavar="PROFILE", nargs="+",
            help="compare with these profiles from after. With two runs per side or "
                 "more, the command measures the differences between equal runs, and a "
                 "row that differs by more grew or shrank")
        parser.add_argument(
            "--between", metavar="A..B",
            help="compare two marks of one run, or seconds after its start: warm..done")
        parser.add_argument(
            "-o", "--output", metavar="OUT",
            help="write to the file OUT, whose suffix selects the format: %s; - is "
                 "standard output" % formats.suffixes(DIFF_FORMATS))
        parser.add_argument(
            "--to", metavar="FORMAT", choices=tuple(DIFF_FORMATS),
            help="select the format: %s (default: the format of the output's suffix, "
                 "or a table)" % ", ".join(DIFF_FORMATS))
        add_options(
            parser.add_argument_group("options of the table or the page"),
            **dict.fromkeys((*_OF_REPORTS, "of"), argparse.SUPPRESS),
            by="make a row for each function, line, file, module or type, or for one "
               "of these and type: line,type; a page has functions or types (default: "
               "the functions of user code; on a page, all functions)",
            sort="compare the bytes that the rows allocate themselves (self, the "
                 "default), the bytes including callees (total), the objects, or the "
                 "live bytes (alive)",
            limit="show the N largest rows of the table (default: %d; with --json "
                  "all)" % DEFAULT_LIMIT)
    parser.add_argument(
        "--fail-if", metavar="CONDITION", type=_condition, action="append",
        required=name == CHECK, default=[] if name == DIFF else None,
        help="end with exit code 1 if CONDITION is certainly true (%.4g %%%%), even "
             "without possible garbage: 'alive > 10M', 'objects > 2M', 'peak > 200M' "
             "(the largest use of the GC's heap), 'rss > 300M', 'private > 90M', "
             "'raw > 50M' (native memory)%s; repeat the option to test several "
             "conditions, of which one suffices%s" % (
                 100 * thresholds.CONFIDENCE,
                 ", 'alive growth > 1M', 'allocated growth > 5%%', 'raw growth > 1M'"
                 if name == DIFF else "",
                 ". A condition is about all samples, or about the selected ones; the "
                 "growth of a --function needs several runs per side"
                 if name == DIFF else ""))
    parser.add_argument("--salvage", action="store_true",
                        help="read a profile that was cut off in the middle of a "
                             "record")
    add_filters(parser.add_argument_group("selection of samples"))
    return parser


def _condition(text: str) -> Condition:
    try:
        return thresholds.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = _parser(name)
    options = parser.parse_args(arguments)
    if options.raw:
        for condition in options.fail_if:
            if condition.is_read:
                parser.error("argument --fail-if: '%s' is about the process, and not "
                             "about native memory: leave --raw out, and write raw "
                             "before the conditions on native memory" % condition.text)
        options.fail_if = [condition._replace(is_raw=True)
                           for condition in options.fail_if]
    if name == CHECK:
        return options
    if options.between and options.against:
        parser.error("--between is about one run, and --against about several: write "
                     "one of them")
    if not options.against and len(options.profiles) != (1 if options.between else 2):
        parser.error("%d profiles were named: name two, or one with --between, or "
                     "several runs per side (%s)" % (
                         len(options.profiles), thresholds.SEVERAL))
    for given in _OF_REPORTS:
        if getattr(options, given) not in (None, False):
            parser.error("--%s is for reports, and not for a difference"
                         % given.replace("_", "-"))
    if options.of not in (None, BYTES):
        parser.error("--of %s is for reports: a difference compares bytes and objects"
                     % options.of)
    if options.output == STANDARD:
        options.output = None
    if options.form != TABLE and options.to not in (None, options.form):
        parser.error("--%s is a format, and so is --to %s: write one of them"
                     % (options.form, options.to))
    if options.to is None:
        options.to = options.form
        if options.output is not None and options.form == TABLE:
            found = formats.of_name(options.output, DIFF_FORMATS)
            if found is None:
                parser.error("%s: the output's name must end with %s; or select the "
                             "format with --to" % (
                                 options.output, formats.suffixes(DIFF_FORMATS)))
            options.to = found.name
    _check_options(parser, options)
    return options


def _check_options(parser: argparse.ArgumentParser,
                   options: argparse.Namespace) -> None:
    """Check that the output format supports the options."""
    format_ = DIFF_FORMATS[options.to]
    if format_.write is None:
        return
    is_page = format_.name == "html"
    if options.against and not is_page:
        parser.error("--against: only a table or a page compares several runs per "
                     "side, and not the format %s" % format_.name)
    given = ["--" + name.replace("_", "-") for name in _OF_TABLES
             if getattr(options, name) not in (None, False)
             and not (is_page and name in _OF_PAGES)]
    if given:
        parser.error("%s: only tables support this, and not the format %s" % (
            ", ".join(given), format_.name))
    if options.by not in (None, *_BY_OF_PAGES):
        parser.error("--by %s: a page has rows for functions, or for types (--by type)"
                     % ",".join(options.by))


def _find(paths: Sequence[str], other: str | None = None) -> list[File]:
    """Return the files of a run.  See run_files.find()."""
    found = run_files.find(paths, other)
    _complain(found.left_out)
    return found.files


def _find_sides(options: argparse.Namespace) -> list[list[list[File]]]:
    """Return the files of each run on each of the two sides that `diff` compares.

    Raises:
        ProfileError: a run is on both sides.
    """
    if not options.against:
        paths = options.profiles
        return [[_find([path], other)] for path, other in zip(
            paths, [*paths[1:], None])]
    sides = [run_files.by_run(paths) for paths in (options.profiles, options.against)]
    for run in sides[0].keys() & sides[1].keys():
        raise ProfileError("%s and %s are profiles of one run, which cannot be on both "
                           "sides: name other runs"
                           % (sides[0][run][0], sides[1][run][0]))
    return [[_find(paths) for paths in side.values()] for side in sides]


def _read(files: list[File], options: argparse.Namespace, is_raw: bool,
          warnings: list[str] | None = None) -> Profile:
    """Read the profile of a run, with the selected samples.

    Args:
        files: the files of the run.
        options: the command's options.
        is_raw: whether to read native memory instead of the GC's heap.
        warnings: gets a line if malloc's own count contradicts the samples.
    """
    def check(profile: Profile) -> None:
        from vmprof_convert.analysis.summary import summarize
        thresholds.check_raw(options.fail_if, profile)
        if warnings is not None:
            warnings.extend("%s: %s" % (files[0].path, line) for line in caveats.missed(
                profile, summarize(profile).figures))

    asked = argparse.Namespace(**{**vars(options), "raw": is_raw})
    with about(files[0].name):
        if files[0].path == STANDARD and is_raw != options.raw:
            raise ProfileError(
                "'raw ...' of --fail-if reads the profile separately, and standard "
                "input can be read only once: name a file, or write --raw")
        return run_files.read(files, asked, check if is_raw else None)


def _complain(lines: Sequence[str]) -> None:
    for line in lines:
        streams.complain("vmprof-convert: %s" % printable(line))


def _check(options: argparse.Namespace) -> bool:
    """Run `check`, and return whether a condition is met."""
    from vmprof_convert.analysis.summary import summarize
    path, = options.profiles
    files = _find([path])
    profiles: dict[bool, Profile] = {}
    for is_raw in sorted({condition.is_raw for condition in options.fail_if}):
        profiles[is_raw] = _read(files, options, is_raw)
        _check_conditions(options, is_raw, [path], [profiles[is_raw]])
    figures = {is_raw: summarize(profile).figures
               for is_raw, profile in profiles.items()}
    found = thresholds.of_run(options.fail_if, profiles, figures)
    lines = [*map(str, found), *caveats.thinned(*profiles.values())]
    for is_raw, profile in profiles.items():
        if is_raw:
            for process in profile.processes:
                lines += ["process %d: %s" % (process.profile.pid, line)
                          for line in process_memory.of_malloc(process.profile)]
            lines += process_memory.of_malloc(profile)
    streams.say("\n".join(lines))
    return any(verdict.failed for verdict in found)


def _check_conditions(options: argparse.Namespace, is_raw: bool, paths: Sequence[str],
                      profiles: Sequence[Profile]) -> None:
    """Check that the profiles contain the data that the conditions of --fail-if need.

    Args:
        options: the command's options.
        is_raw: whether the profiles are of native memory.
        paths: the names of the profiles in messages.
        profiles: the profiles.

    Raises:
        FileError: a profile lacks data.
    """
    conditions = [condition for condition in options.fail_if
                  if condition.is_raw == is_raw]
    thresholds.check_processes(conditions, selection(options).is_everything,
                             bool(getattr(options, "between", None)))
    for path, profile in zip(paths, profiles):
        with about(path):
            thresholds.check(conditions, profile, len(profiles) > 1)


def _diff(options: argparse.Namespace) -> bool:
    """Run `diff`, and return whether a condition is met."""
    from vmprof_convert.analysis import diff
    from vmprof_convert.analysis.summary import Choice
    from vmprof_convert.report import diff_tables
    if not options.output and sys.stdout is None:
        raise ProfileError("cannot write to standard output: it is closed")
    sides_files = _find_sides(options)
    if options.output:
        from vmprof_convert.cli import output
        for side in sides_files:
            for files in side:
                for file in files:
                    output.check_target(options.output, file.path)
        run_files.check_not_a_profile(options.output)
    warnings: list[str] = []
    sides = _sides(options, sides_files, options.raw, warnings)
    raw_sides = None
    if not options.raw and any(condition.is_raw for condition in options.fail_if):
        raw_sides = _sides(options, sides_files, True)
    is_own = options.mine
    if not (is_own or options.by or DIFF_FORMATS[options.to].write):
        # Show user code by default, as in a report.  Its allocations depend much less
        # on the JIT's decisions which function to inline into which.
        own = diff.only_own_code(sides)
        is_own, sides = own is not None, own or sides
    choice = Choice(by=options.by or ("function",), sort=options.sort or "self",
                    group_storage=options.group_storage)
    with about(" and ".join(options.profiles + (options.against or []))):
        difference = diff.compare(sides, choice)
        found = thresholds.of(options.fail_if, difference, raw_sides and diff.compare(
            raw_sides, Choice(by=("function",))))
    names = _names(options, sides_files)
    text = io.StringIO()
    data, left_out = io.BytesIO(), []
    if DIFF_FORMATS[options.to].write is not None:
        left_out = _write_stacks(options.to, difference, names, data)
        text.write("".join("%s\n" % (verdict,) for verdict in found))
    elif options.to == JSON:
        from vmprof_convert.report import diff_json
        diff_json.write(difference, found, text, options.limit, is_own)
    else:
        sheet = diff_tables.of(difference, options.limit or DEFAULT_LIMIT, names,
                              is_own)
        sheet = sheet._replace(notes=[*sheet.notes, *warnings, *map(str, found)])
        warnings = []
        if options.to == MARKDOWN:
            from vmprof_convert.report import markdown
            markdown.write(sheet, text)
        else:
            from vmprof_convert.cli import report
            from vmprof_convert.report import terminal_table
            terminal_table.write(sheet, text,
                        report.file_() if options.output else report.terminal())
    _write(options, text.getvalue(), data.getvalue())
    if data.getvalue():
        left_out = [*caveats.thinned(*sides.runs), *left_out]
    _complain([*warnings, *left_out])
    return any(verdict.failed for verdict in found)


def _sides(options: argparse.Namespace, files: list[list[list[File]]],
           is_raw: bool, warnings: list[str] | None = None) -> diff.Sides:
    """Read the two sides of a comparison.

    Args:
        options: the command's options.
        files: the files of each run, for both sides.
        is_raw: whether to read native memory instead of the GC's heap.
        warnings: see _read().

    Raises:
        ProfileError: the profiles lack data that the options need.
    """
    from vmprof_convert.analysis import diff
    profiles = [[_read(of_run, options, is_raw, warnings) for of_run in side]
                for side in files]
    paths = [of_run[0].path for side in files for of_run in side]
    if options.between:
        (profile,), = profiles
        first, dots, second = options.between.partition("..")
        begin = diff.find_moment(profile, first)
        end = diff.find_moment(profile, second, is_last=True)
        if not dots or end <= begin:
            raise ProfileError("--between %s: write A..B, where A is before B"
                               % (options.between,))
        sides = diff.of_moments(profile, begin, end)
        paths *= 2
    else:
        before, after = profiles
        sides = diff.of_runs(before, after, bool(options.function or options.file))
    _check_conditions(options, is_raw, paths, sides.runs)
    thresholds.check_places(options.fail_if, sides)
    return sides


def _names(options: argparse.Namespace,
           files: list[list[list[File]]]) -> diff_tables.Names:
    if options.between:
        first, _, second = options.between.partition("..")
        return [first], [second]
    before, after = ([of_run[0].path for of_run in side] for side in files)
    return before, after


def _write_stacks(form: str, difference: diff.Difference, names: diff_tables.Names,
                  out: io.BytesIO) -> list[str]:
    from vmprof_convert.analysis.diff import aligned
    if form == "html":
        from vmprof_convert.writers import html
        return html.write_diff(difference, names, out)
    (before,), (after,) = aligned(difference.sides)[:2]
    if form == "pprof":
        from vmprof_convert.writers import pprof
        return pprof.write_diff(before, after, out)
    if form == "speedscope":
        from vmprof_convert.writers import speedscope
        return speedscope.write_diff(before, after, out)
    from vmprof_convert.writers import collapsed
    return collapsed.write_diff(before, after, out)


def _write(options: argparse.Namespace, text: str, data: bytes) -> None:
    """Write the difference to the output file, or to stdout.

    Args:
        options: the command's options.
        text: the difference as text, or the results of the conditions if there is data.
        data: the difference in a binary format; empty for formats of text.
    """
    if options.output:
        from vmprof_convert.cli import output
        output.write(options.output, data or text.encode("utf-8", "backslashreplace"))
        streams.say("wrote %s" % options.output)
        if data and text:
            streams.say(text.rstrip("\n"))
    elif data:
        streams.write(io.BytesIO(data))
        if text:
            streams.complain(text.rstrip("\n"))
    else:
        streams.say(text.rstrip("\n"))
