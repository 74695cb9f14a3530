"""Make a report on allocations from the files of a run, and print or write a report.

`make()` reads the files, sums the samples, and returns the text of a table.
`make_page()` does the same for other pages. Modules that only one report needs are
imported when this report is made, after the options were checked.
"""
from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from vmprof_convert.cli import streams
from vmprof_convert.cli.messages import complain
from vmprof_convert.cli.options import (
    CSV,
    DEFAULT_LIMIT,
    JSON,
    MARKDOWN,
    PEAK,
    RESIDENT,
    STANDARD,
    TABLE,
    TIME,
    check,
    choose_form,
    limit_of,
    selection,
)
from vmprof_convert.errors import ProfileError, about

if TYPE_CHECKING:
    from vmprof_convert.analysis.selection import Selection
    from vmprof_convert.analysis.summary import ByThread, Figures, Tally
    from vmprof_convert.cli.run_files import File, Found
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.profile.merging import Read
    from vmprof_convert.profile.model import Profile
    from vmprof_convert.report.tables import AmountsView, Sheet, View
    from vmprof_convert.text.terminal import Terminal

#: width in characters of an output that is not a terminal
DEFAULT_WIDTH = 100


def terminal(color: str = "auto") -> Terminal:
    """Return the width, colours and characters of stdout for a report.

    Args:
        color: the value of the option --color.
    """
    from vmprof_convert.text.terminal import Terminal
    out = sys.stdout
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    try:
        "\u00b1\u2026".encode(getattr(out, "encoding", None) or "ascii")
        is_unicode = True
    except (UnicodeError, LookupError):
        is_unicode = False
    return Terminal(
        width, color == "always" or (
            color == "auto" and out.isatty() and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"), is_unicode)


def file_(color: str = "auto") -> Terminal:
    """Return the width, colours and characters of an output file for a report."""
    from vmprof_convert.text.terminal import Terminal
    return Terminal(shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
                    if os.environ.get("COLUMNS") else DEFAULT_WIDTH, color == "always")


def find_run(options: argparse.Namespace, *, prints: bool = True,
             writes_profile: bool = False) -> Found:
    """Return the profiles of the run that the user named, after checks of the output.

    Args:
        options: the options, including add_profiles() and `output`.
        prints: whether the command needs stdout if it writes no file.
        writes_profile: whether the output is a profile.

    Raises:
        ProfileError: the profiles do not belong to one run, or stdout is closed.
        FileError: a file cannot be read, or the output would replace a profile.
        OutputError: the output cannot be written.
    """
    from vmprof_convert.cli import run_files
    if STANDARD in options.profiles and len(options.profiles) > 1:
        raise ProfileError("standard input contains one profile: to read several, name "
                           "only files")
    found = run_files.find(options.profiles)
    if options.output is None:
        if prints and sys.stdout is None:
            raise streams.OutputError("cannot write to standard output: it is closed")
        return found
    run_files.check_output(options.output, found.files, is_profile=writes_profile)
    return found


#: function that makes the text of a report; see make()
Make = Callable[["Sequence[File]", argparse.Namespace, "Terminal"], str]


def run(options: argparse.Namespace, make: Make) -> int:
    """Make a report, print it or write it to a file, and return the exit code 0.

    Args:
        options: the options, including add_profiles() and add_forms().
        make: makes the text of the report.
    """
    choose_form(options)
    found = find_run(options)
    with about(found.files[0].name):
        text = make(found.files, options, (terminal if options.output is None
                                           else file_)(options.color))
    if options.output is not None:
        from vmprof_convert.cli import output
        output.write(options.output, text.encode("utf-8", "backslashreplace"))
        streams.say("wrote %s" % options.output)
    complain(options.program, found.left_out)
    if options.output is None:
        # stdout escapes characters that the terminal does not have (see main())
        streams.say(text.rstrip("\n"))
    return 0


def write_sheets(sheets: Sequence[Sheet], options: argparse.Namespace,
                 on: Terminal) -> str:
    """Return the text of several reports, one after the other."""
    text = io.StringIO()
    for number, sheet in enumerate(sheets):
        if number:
            print(file=text)
        if options.form == MARKDOWN:
            from vmprof_convert.report import markdown
            markdown.write(sheet, text)
        else:
            from vmprof_convert.report import terminal_table
            terminal_table.write(sheet, text, on)
    return text.getvalue()


class Form(NamedTuple):
    """The functions that make and write the reports in one form."""

    #: module with of_rows(), of_focus(), of_tree() and of_amounts()
    shapes: Any
    write: Callable[[Any, TextIO], None]


def _form(options: argparse.Namespace, on: Terminal) -> Form:
    if options.form in (JSON, CSV):
        from vmprof_convert.report import json_table
        return Form(json_table, json_table.write if options.form == JSON
                    else json_table.write_rows)
    from vmprof_convert.report import tables
    if options.form == MARKDOWN:
        from vmprof_convert.report import markdown
        return Form(tables, markdown.write)
    from vmprof_convert.report import terminal_table
    return Form(tables, partial(terminal_table.write, terminal=on))


def make(files: Sequence[File], options: argparse.Namespace,
         on: Terminal | None = None) -> str:
    """Return the text of a table of allocations, of CPU time or of resident memory.

    If native memory was sampled, the table of allocations is followed by a table of
    native memory.

    Args:
        files: the profiles of a run.
        options: the options.
        on: the terminal for the text; None for stdout.

    Raises:
        ProfileError: the profiles lack data that the options need.
        FileError: a file cannot be read.
    """
    check(options)
    on = on or terminal()
    if options.of:
        return make_page(files, options, on)
    return with_native_memory(make_page, files, options, on)


def with_native_memory(make: Make, files: Sequence[File], options: argparse.Namespace,
                       on: Terminal, *, is_optional: bool = False) -> str:
    """Return the text of a report on the GC's heap, and on native memory if sampled.

    Args:
        make: makes each of both reports.
        files: the profiles of a run.
        options: the options.
        on: the terminal for the text.
        is_optional: whether the text can contain the reason why the report on native
            memory is impossible.
    """
    if options.form != TABLE or options.native_memory or not _has_raw_memory(files):
        return make(files, options, on)
    raw = argparse.Namespace(**{**vars(options), "native_memory": True})
    try:
        text = make(files, options, on)
    except ProfileError as error:
        # the report of native memory may be possible although the first one is not
        text = "%s\n" % error
    try:
        return text + "\n" + make(files, raw, on)
    except ProfileError as error:
        if not is_optional:
            raise
        return text + "\n%s\n" % error


def _has_raw_memory(files: Sequence[File]) -> bool:
    """Return whether native memory was sampled, and the files can be read again."""
    from vmprof_convert import readers
    return all(file.path != STANDARD for file in files) and any(
        readers.read_head(file.path).settings.get("raw") for file in files)


#: function that makes the content of a report from the view and the sums, in a form
Page = Callable[[Form, "View", "Tally"], Any]


def make_page(files: Sequence[File], options: argparse.Namespace, on: Terminal,
              page: Page | None = None, default_limit: int = DEFAULT_LIMIT) -> str:
    """Return the text of a report.

    Args:
        files: the profiles of a run.
        options: the options.
        on: the terminal for the text.
        page: makes the content; None for a table.
        default_limit: the default number of rows in a form for humans.
    """
    if options.at == PEAK:
        options = argparse.Namespace(**{
            **vars(options), "at": _time_of_peak(files, options)})
    form = _form(options, on)
    limit = options.limit or (None if options.form in (JSON, CSV) else default_limit)
    text = io.StringIO()
    if options.of == RESIDENT:
        form.write(form.shapes.of_amounts(_resident(files, options, limit)), text)
        return text.getvalue()
    view, tally = _view(files, options, limit)
    is_timed = not (view.profile.settings or view.profile.moments)
    if page is not None:
        content = page(form, view, tally)
    elif options.of == TIME or (is_timed and tally.ticks and not options.of):
        content = form.shapes.of_amounts(_time(view, tally))
    else:
        content = form.shapes.of_rows(view)
    # free the sums before drawing the report, because both take much memory
    del view, tally
    form.write(content, text)
    return text.getvalue()


def _time_of_peak(files: Sequence[File], options: argparse.Namespace) -> int:
    """Return the moment with the most live bytes, in ns since the start.

    _view() reads the same files again, so that no sample has to be kept in memory.
    """
    from vmprof_convert import readers
    from vmprof_convert.analysis.peak import Changes, time_of_peak
    from vmprof_convert.profile import merging

    if any(file.path == STANDARD for file in files):
        raise ProfileError("--at peak reads a profile twice, and standard input can be "
                           "read only once: name a file")
    changes = [Changes() for _ in files]
    read = []
    for file, of_file in zip(files, changes):
        with about(file.name):
            read.append(merging.Read(
                readers.read_into(file.sources, of_file,
                                  salvage=options.salvage or file.is_found,
                                  raw=options.native_memory),
                file.path, file.begin))
    chosen = merging.chosen(read, selection(options).processes)
    if not any(part.profile.has_lifetimes for part in chosen):
        raise ProfileError("this profile has no outcomes of objects, which "
                           "--at peak needs: it was taken without lifetimes")
    at = time_of_peak((of_file.of_times, part.begin) for part, of_file in zip(
        read, changes) if part in chosen)
    if at is None:
        raise ProfileError("there is no --at peak: no sampled object survived a minor "
                           "collection")
    return at


def _view(files: Sequence[File], options: argparse.Namespace,
          limit: int | None) -> tuple[View, Tally]:
    from vmprof_convert.analysis.by_part import Group, summarize_parts
    from vmprof_convert.analysis.selection import Selected, chosen_threads
    from vmprof_convert.analysis.summary import PARTS, THREAD, Choice, Tally, summarize
    from vmprof_convert.meaning.compiled_code import compiled_code
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.meaning.user_code import only_own
    from vmprof_convert.profile import merging
    from vmprof_convert.report.tables import View

    asked = selection(options)
    # sum the samples while reading, because a table of all samples takes more memory
    read = [_read(file, options, asked) for file in files]
    chosen = merging.chosen([part.read for part in read], asked.processes)
    read = [part for part in read if part.read in chosen]
    whole = merging.merge([part.read for part in read])
    profile = whole.profile
    origins = Origins(profile)
    selected = None if asked.is_everything else Selected(profile, asked, origins)
    threads = merging.numbered(profile, [part.read for part in read])
    keep = chosen_threads(profile, asked, set().union(*threads))
    of_processes: list[Figures] = []
    is_by_thread = THREAD in (options.by or ())
    parts: list[Group] = []
    tally = Tally(options.at) if profile.processes else read[0].tally
    for number, part in enumerate(read):

        def in_whole(tally: Tally, number: int = number) -> Tally:
            """Return the sums of the selected samples for the merged profile.

            Args:
                tally: the sums of all samples of one process.
                number: index of the process.

            Returns:
                The sums with the indices of stacks and types in the merged profile.
            """
            result = tally
            if profile.processes:
                result = Tally(options.at)
                result.begin(profile.settings)
                result.add_tally(tally, whole.stacks[number], whole.types[number])
            if selected is not None:
                result.keep(selected)
            return result

        if asked.threads or is_by_thread:
            tids = {tid for number, tid in threads[number].items() if number in keep}
            part.by_thread.keep(tids if asked.threads else {0, *tids})
        of_process = in_whole(part.tally)
        if is_by_thread:
            parts += [Group(_thread_name(part.read, tid, bool(profile.processes)),
                           in_whole(of_thread))
                      for tid, of_thread in part.by_thread.parts().items()]
        else:
            parts.append(Group(part.read.name, of_process))
        if profile.processes:
            of_processes.append(of_process.figures())
            tally.add_tally(of_process)
    del read
    code = compiled_code(profile)
    chosen_by_us = _is_ours_to_choose(profile, options, origins, asked)
    asked, by = _by(profile, options, origins, asked)
    choice = Choice(by=by, sort=options.sort or "self", at=options.at,
                    group_storage=options.group_storage,
                    hide_internal=options.hide_internal)

    def view_of(asked: Selection) -> View:
        shown = only_own(profile, origins) if asked.mine else profile
        summary = summarize_parts(shown, parts, choice, code) if by[0] in PARTS else (
            summarize(shown, tally, choice, origins=origins, code=code))
        return View(shown, summary, choice, origins, asked, limit, of_processes,
                    options.notes)

    view = view_of(asked)
    if chosen_by_us:
        view = _that_says_most(view, view_of(asked._replace(mine=False)), tally,
                               options.of == TIME)
    return view, tally


def _thread_name(process: Read, tid: int, are_several: bool) -> str:
    """Return the name of a thread in a report.

    Args:
        process: the process of the thread.
        tid: the kernel's number of the thread, 0 if unknown.
        are_several: whether the report has several processes, so that the name includes
            the process.
    """
    from vmprof_convert.analysis.by_part import NO_THREAD
    from vmprof_convert.profile.names import names
    name = " ".join(filter(None, (names(process.profile).get(tid, ""), str(tid)))) if (
        tid) else NO_THREAD
    return "%s in %s" % (name, process.name) if are_several else name


def _is_ours_to_choose(profile: Profile, options: argparse.Namespace, origins: Origins,
                       asked: Selection) -> bool:
    """Return whether the report may choose between user code and all code.

    It may choose if the user did not, if the profile contains both kinds of code, and
    if the report is not JSON. Programs that read JSON get the same rows in each run.
    """
    from vmprof_convert.meaning.user_code import has_own_code
    return not (options.by or asked.mine or options.form in (JSON, CSV)) and (
        has_own_code(profile, origins))


#: a row may be uninformative if its own bytes exceed this share of all bytes
_MOST = 2 / 3
#: a row that exceeds _MOST is uninformative if it is a label, or if its bytes with
#: callees exceed this share of all bytes
_NEARLY_ALL = 0.95


class _Largest(NamedTuple):
    """The row whose function allocates the most bytes itself."""

    #: whether the row is informative (see _MOST and _NEARLY_ALL)
    says_something: bool
    #: share of the row in all bytes, and name of its function
    text: str


def _that_says_most(own: View, all_: View, tally: Tally, is_time: bool) -> View:
    """Return the more informative one of two views.

    The result is the view of user code, unless one row contains most of the bytes and
    is a label or a function that calls all others (`main`). The result mentions the
    largest row of the other view.

    Args:
        own: the view of user code.
        all_: the view of all code.
        tally: the sums of the samples.
        is_time: whether the views show CPU samples.
    """
    largest, largest_of_all = (_largest(view, tally, is_time) for view in (own, all_))
    if largest is None or largest_of_all is None or (
            largest.text == largest_of_all.text):
        return own
    if largest.says_something:
        return own._replace(other="--by function shows all code: %s"
                                  % largest_of_all.text)
    return all_._replace(other="--user-code shows user code: %s" % largest.text)


def _largest(view: View, tally: Tally, is_time: bool) -> _Largest | None:
    """Return the row of a view with the largest own number, or None without rows.

    The number is the processor time if `is_time` is set or if there are no allocation
    samples. Otherwise it is the allocated bytes.
    """
    from vmprof_convert.analysis import cpu_and_rss
    from vmprof_convert.profile.model import LABEL
    from vmprof_convert.text.escape import shortened
    whole: float = view.summary.figures.sum().value_bytes
    if is_time or (not whole and tally.ticks):
        amounts = cpu_and_rss.time(view.profile, tally.ticks, view.choice, view.origins)
        whole = amounts.sum
        rows = [(row.own, row.total, row.subject.function) for row in amounts.rows]
    else:
        rows = [(row.own.sum().value_bytes, row.total.sum().value_bytes, row.function)
                for row in view.summary.rows]
    if not rows or not whole:
        return None
    own, total, function = max(rows, key=lambda row: row[0])
    assert function is not None     # the rows are of functions, or of lines
    says_something = own <= _MOST * whole or (
        function.kind != LABEL and total <= _NEARLY_ALL * whole)
    return _Largest(says_something, "%.0f %% in %s" % (
        100 * own / whole, shortened(function.name)))


def _by(profile: Profile, options: argparse.Namespace, origins: Origins,
        asked: Selection) -> tuple[Selection, tuple[str, ...]]:
    """Return the selection and the kind of rows, with defaults for absent options.

    By default, a report shows user code, by line if executed lines are known.
    """
    from vmprof_convert.meaning.user_code import has_own_code
    from vmprof_convert.meaning.visible_stacks import has_lines

    if not options.by and has_own_code(profile, origins):
        asked = asked._replace(mine=True)
    return asked, options.by or (
        ("line",) if has_lines(profile) and asked.mine and options.of != TIME
        else ("function",))


def _time(view: View, tally: Tally) -> AmountsView:
    from vmprof_convert.analysis import cpu_and_rss
    from vmprof_convert.report.tables import AmountsView

    if not tally.ticks:
        raise ProfileError("the profile has no CPU samples, which --of time needs: "
                           "record with --period")
    amounts_ = cpu_and_rss.time(view.profile, tally.ticks, view.choice, view.origins)
    if view.other:
        amounts_.notes.insert(0, view.other)
    return AmountsView(view.profile, amounts_, view.choice, view.origins,
                       view.selection, view.limit)


def _resident(files: Sequence[File], options: argparse.Namespace,
              limit: int | None) -> AmountsView:
    from vmprof_convert import readers
    from vmprof_convert.analysis import cpu_and_rss, process_memory
    from vmprof_convert.analysis.summary import Choice
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.meaning.user_code import only_own
    from vmprof_convert.profile import merging
    from vmprof_convert.report.tables import AmountsView

    asked = selection(options)
    if not asked.is_everything:
        raise ProfileError("--of rss shows the resident memory of whole processes: of "
                           "the filters, it supports only --process and "
                           "--user-code")
    parts = []
    samples = limit_of(options)
    for file in files:
        with about(file.name):
            parts.append(merging.Read(readers.read(
                file.sources, salvage=options.salvage or file.is_found,
                samples=samples.table()), file.path, file.begin))
    parts = merging.chosen(parts, asked.processes)
    whole = merging.merge(parts)
    profile = whole.profile
    profile.thinned = samples.thinned()
    origins = Origins(profile)
    growths = []
    shares: dict[tuple[int, int], float] = {}
    for part, stacks, types in zip(parts, whole.stacks, whole.types):
        growth = process_memory.growth(part.profile)
        growths.append(growth)
        for (stack, type_), bytes_ in growth.parts.items():
            shares[stack + stacks if stack >= 0 else stack,
                   type_ + types if type_ >= 0 else type_] = bytes_
    asked, by = _by(profile, options, origins, asked)
    choice = Choice(by=by, sort=options.sort or "self",
                    group_storage=options.group_storage)
    shown = only_own(profile, origins) if asked.mine else profile
    return AmountsView(
        shown, cpu_and_rss.resident(shown, growths, shares, choice, origins),
        choice, origins, asked, limit)


class _Part(NamedTuple):
    """The profile of one process without its samples, and the sums of the samples."""

    read: Read
    tally: Tally
    by_thread: ByThread


def _read(file: File, options: argparse.Namespace, asked: Selection) -> _Part:
    from vmprof_convert import readers
    from vmprof_convert.analysis.selection import SelectedRows
    from vmprof_convert.analysis.summary import THREAD, ByThread, Tally
    from vmprof_convert.profile.merging import Read

    tally = Tally(None if options.at is None else options.at - file.begin)
    by_thread = ByThread(tally)
    adding = by_thread if asked.threads or THREAD in (options.by or ()) else tally
    rows = SelectedRows(adding, asked.after(file.begin))
    with about(file.name):
        profile = readers.read_into(
            file.sources, tally if asked.is_everything and adding is tally else rows,
            salvage=options.salvage or file.is_found, raw=options.native_memory)
    return _Part(Read(profile, file.path, file.begin, frozenset(rows.threads)),
                 tally, by_thread)
