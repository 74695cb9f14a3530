"""The command diff: compare runs, or two moments of one run."""
from __future__ import annotations

import argparse
import io
import sys
from typing import TYPE_CHECKING

from vmprof_convert.analysis import thresholds
from vmprof_convert.cli import formats, run_files, streams
from vmprof_convert.cli.conditions import (
    EXIT_FAILED,
    add_conditions,
    check_conditions,
    choose_conditions,
    find_files,
    read_run,
)
from vmprof_convert.cli.formats import DIFF_FORMATS
from vmprof_convert.cli.messages import complain
from vmprof_convert.cli.options import (
    DEFAULT_LIMIT,
    FORMS,
    JSON,
    MARKDOWN,
    STANDARD,
    TABLE,
    add_by,
    add_color,
    add_filters,
    add_group_storage,
    add_json_and_markdown,
    add_limit,
    add_profiles,
    add_samples,
    add_sort,
)
from vmprof_convert.cli.run_files import File
from vmprof_convert.errors import ProfileError, about
from vmprof_convert.report import caveats

if TYPE_CHECKING:
    from vmprof_convert.analysis import diff
    from vmprof_convert.report import diff_tables

#: options of the table, options of the HTML page, and values of --by for the page
_OF_TABLES = ("limit", "by", "sort", "group_storage")
_OF_PAGES = ("by", "sort", "group_storage")
_BY_OF_PAGES = (("function",), ("type",))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Compare two profiles, runs of two versions (--against, several per side show "
        "the differences between equal runs), or moments of one run (--between).")
    parser.add_argument("--against", metavar=("FILE", "..."), nargs="+",
                        help="compare with these profiles from after")
    parser.add_argument("--between", metavar="A..B",
                        help="compare two marks, or seconds, of one run: warm..done")
    add_conditions(parser, "'alive growth > 1M', 'allocated growth > 5%%', 'raw growth "
                           "> 1M'", is_required=False)
    add_by(parser, "make rows of WHAT, as in report; in a page, function or type "
                   "(default: functions of user code)")
    add_sort(parser)
    add_limit(parser)
    add_group_storage(parser)
    form = add_json_and_markdown(parser, MARKDOWN, JSON)
    names = [name for name in DIFF_FORMATS if name not in FORMS]
    form.add_argument("--format", metavar="FORMAT", choices=names,
                      help="write %s" % ", ".join(names))
    parser.add_argument("-o", "--output", metavar="OUT",
                        help="write to OUT, whose ending selects the format")
    add_color(parser)
    add_samples(parser)
    add_profiles(parser, "before.vmprof --against after.vmprof")
    add_filters(parser)


def _choose_format(options: argparse.Namespace) -> None:
    """Choose the output format, and check that it supports the options."""
    choose_conditions(options)
    if options.between and options.against:
        raise ProfileError("--between is about one run, and --against about several: "
                           "write one of them")
    if not options.against and len(options.profiles) != (1 if options.between else 2):
        raise ProfileError(
            "%d profiles were named: name two, or one with --between, or several runs "
            "per side (%s)" % (len(options.profiles), thresholds.SEVERAL))
    if options.output == STANDARD:
        options.output = None
    if options.format is None:
        options.format = options.form
        if options.output is not None and options.form == TABLE:
            found = formats.of_name(options.output, DIFF_FORMATS)
            if found is None:
                raise ProfileError(
                    "%s: the output's name must end with %s; or select the format with "
                    "--format" % (options.output, formats.suffixes(DIFF_FORMATS)))
            options.format = found.name
    format_ = DIFF_FORMATS[options.format]
    if format_.write is None:
        return
    is_page = format_.name == "html"
    if options.against and not is_page:
        raise ProfileError("--against: only a table or a page compares several runs "
                           "per side, and not the format %s" % format_.name)
    given = ["--" + name.replace("_", "-") for name in _OF_TABLES
             if getattr(options, name) not in (None, False)
             and not (is_page and name in _OF_PAGES)]
    if given:
        raise ProfileError("%s: only tables support this, and not the format %s" % (
            ", ".join(given), format_.name))
    if options.by not in (None, *_BY_OF_PAGES):
        raise ProfileError("--by %s: a page has rows for functions, or for types "
                           "(--by type)" % ",".join(options.by))


def _find_sides(options: argparse.Namespace) -> list[list[list[File]]]:
    """Return the files of each run on each of the two sides that `diff` compares.

    Raises:
        ProfileError: a run is on both sides.
    """
    if not options.against:
        paths = options.profiles
        return [[find_files(options, [path], other)] for path, other in zip(
            paths, [*paths[1:], None])]
    sides = [run_files.by_run(paths) for paths in (options.profiles, options.against)]
    for run in sides[0].keys() & sides[1].keys():
        raise ProfileError("%s and %s are profiles of one run, which cannot be on both "
                           "sides: name other runs"
                           % (sides[0][run][0], sides[1][run][0]))
    return [[find_files(options, paths) for paths in side.values()] for side in sides]


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    from vmprof_convert.analysis import diff
    from vmprof_convert.analysis.summary import Choice
    from vmprof_convert.report import diff_tables
    _choose_format(options)
    if not options.output and sys.stdout is None:
        raise ProfileError("cannot write to standard output: it is closed")
    sides_files = _find_sides(options)
    if options.output:
        run_files.check_output(options.output, [
            file for side in sides_files for files in side for file in files])
    warnings: list[str] = []
    sides = _sides(options, sides_files, options.native_memory, warnings)
    raw_sides = None
    if not options.native_memory and any(
            condition.is_raw for condition in options.fail_if):
        raw_sides = _sides(options, sides_files, True)
    is_own = options.user_code
    if not (is_own or options.by or DIFF_FORMATS[options.format].write):
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
    if DIFF_FORMATS[options.format].write is not None:
        left_out = _write_stacks(options.format, difference, names, data)
        text.write("".join("%s\n" % (verdict,) for verdict in found))
    elif options.format == JSON:
        from vmprof_convert.report import diff_json
        diff_json.write(difference, found, text, options.limit, is_own)
    else:
        sheet = diff_tables.of(difference, options.limit or DEFAULT_LIMIT, names,
                              is_own)
        sheet = sheet._replace(notes=[*sheet.notes, *warnings, *map(str, found)])
        warnings = []
        if options.format == MARKDOWN:
            from vmprof_convert.report import markdown
            markdown.write(sheet, text)
        else:
            from vmprof_convert.cli import report
            from vmprof_convert.report import terminal_table
            terminal_table.write(sheet, text, (
                report.file_ if options.output else report.terminal)(options.color))
    _write(options, text.getvalue(), data.getvalue())
    if data.getvalue():
        left_out = [*caveats.thinned(*sides.runs), *left_out]
    complain(options.program, [*warnings, *left_out])
    return EXIT_FAILED if any(verdict.failed for verdict in found) else 0


def _sides(options: argparse.Namespace, files: list[list[list[File]]],
           is_raw: bool, warnings: list[str] | None = None) -> diff.Sides:
    """Read the two sides of a comparison.

    Args:
        options: the command's options.
        files: the files of each run, for both sides.
        is_raw: whether to read native memory instead of the GC's heap.
        warnings: see read_run().

    Raises:
        ProfileError: the profiles lack data that the options need.
    """
    from vmprof_convert.analysis import diff
    profiles = [[read_run(of_run, options, is_raw, warnings) for of_run in side]
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
    check_conditions(options, is_raw, paths, sides.runs)
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
