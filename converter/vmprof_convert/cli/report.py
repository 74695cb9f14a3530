"""Make a report from the files of a run.

`make()` reads the files, sums the samples, and returns the text. Modules that only one
report needs are imported when this report is made, after the options were checked.
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

from vmprof_convert.cli.options import (
    DEFAULT_LIMIT,
    DEFAULT_PART,
    JSON,
    MARKDOWN,
    PEAK,
    RESIDENT,
    TABLE,
    TIME,
    are_given,
    check,
    limit_of,
    selection,
)
from vmprof_convert.errors import ProfileError

if TYPE_CHECKING:
    from vmprof_convert.analysis.callers import Focus
    from vmprof_convert.analysis.leaks.search import Leaks, OldObjects, Process
    from vmprof_convert.analysis.selection import Selection
    from vmprof_convert.analysis.summary import ByThread, Figures, Tally
    from vmprof_convert.cli.run_files import File
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.profile.merging import Read
    from vmprof_convert.profile.model import Profile
    from vmprof_convert.report.tables import AmountsView, Sheet, View
    from vmprof_convert.text.terminal import Terminal

#: width in characters of an output that is not a terminal
DEFAULT_WIDTH = 100


def terminal() -> Terminal:
    """Return the width, colours and characters of stdout for a report."""
    from vmprof_convert.text.terminal import Terminal
    out = sys.stdout
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    is_terminal = out.isatty()
    try:
        "\u00b1\u2026".encode(getattr(out, "encoding", None) or "ascii")
        is_unicode = True
    except (UnicodeError, LookupError):
        is_unicode = False
    return Terminal(
        width, is_terminal and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb", is_unicode)


def file_() -> Terminal:
    """Return the width, colours and characters of an output file for a report."""
    from vmprof_convert.text.terminal import Terminal
    return Terminal(shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
                    if os.environ.get("COLUMNS") else DEFAULT_WIDTH)


class _Form(NamedTuple):
    """The functions that make and write the reports in one form."""

    of_rows: Callable[[View], Any]
    of_focus: Callable[[View, Focus], Any]
    of_tree: Callable[..., Any]
    of_amounts: Callable[[AmountsView], Any]
    write: Callable[[Any, TextIO], None]


def _form(options: argparse.Namespace, on: Terminal | None) -> _Form:
    if options.form == JSON:
        from vmprof_convert.report import json_table
        return _Form(json_table.of_rows, json_table.of_focus, json_table.of_tree,
                     json_table.of_amounts, json_table.write)
    from vmprof_convert.report import tables
    shapes = tables.of_rows, tables.of_focus, tables.of_tree, tables.of_amounts
    if options.form == MARKDOWN:
        from vmprof_convert.report import markdown
        return _Form(*shapes, markdown.write)
    from vmprof_convert.report import terminal_table
    return _Form(*shapes, partial(terminal_table.write, terminal=on or terminal()))


def make(files: Sequence[File], options: argparse.Namespace,
         on: Terminal | None = None) -> str:
    """Return the text of the report.

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
    if options.form != TABLE or any((
            options.raw, options.held, options.memory, options.focus, options.tree,
            options.of)) or not _has_raw_memory(files):
        return _make(files, options, on)
    raw = argparse.Namespace(**{**vars(options), "raw": True})
    try:
        text = _make(files, options, on)
    except ProfileError as error:
        # the report of native memory may be possible although the first one is not
        text = "%s\n" % error
    try:
        return text + "\n" + _make(files, raw, on)
    except ProfileError as error:
        if not options.leaks:
            raise
        return text + "\n%s\n" % error


def _has_raw_memory(files: Sequence[File]) -> bool:
    """Return whether native memory was sampled, and the files can be read again."""
    from vmprof_convert import readers
    from vmprof_convert.cli.run_files import STANDARD
    return all(file.path != STANDARD for file in files) and any(
        readers.read_head(file.path).settings.get("raw") for file in files)


def _make(files: Sequence[File], options: argparse.Namespace,
          on: Terminal | None) -> str:
    if options.leaks:
        return _make_leaks(files, options, on)
    if options.held:
        return _make_held(files, options, on)
    if options.memory:
        return _make_memory(files, options, on)
    if options.at == PEAK:
        options = argparse.Namespace(**{
            **vars(options), "at": _time_of_peak(files, options)})
    form = _form(options, on)
    limit = options.limit or (None if options.form == JSON else
                              DEFAULT_PART if options.focus else DEFAULT_LIMIT)
    text = io.StringIO()
    if options.of == RESIDENT:
        form.write(form.of_amounts(_resident(files, options, limit)), text)
        return text.getvalue()
    view, tally = _view(files, options, limit)
    is_timed = not (view.profile.settings or view.profile.moments)
    if options.of == TIME or (is_timed and tally.ticks and not any(
            (options.of, options.focus, options.tree))):
        page = form.of_amounts(_time(view, tally))
    elif options.focus:
        from vmprof_convert.analysis.callers import focus
        page = form.of_focus(view, focus(view.profile, tally, options.focus,
                                         view.choice, view.origins))
    elif options.tree:
        from vmprof_convert.analysis.call_tree import branches
        page = form.of_tree(view, *branches(
            view.profile, tally, view.choice, view.origins, limit))
    else:
        page = form.of_rows(view)
    # free the sums before drawing the report, because both take much memory
    del view, tally
    form.write(page, text)
    return text.getvalue()


def _time_of_peak(files: Sequence[File], options: argparse.Namespace) -> int:
    """Return the moment with the most live bytes, in ns since the start.

    _view() reads the same files again, so that no sample has to be kept in memory.
    """
    from vmprof_convert import readers
    from vmprof_convert.analysis.peak import Changes, time_of_peak
    from vmprof_convert.cli.run_files import STANDARD
    from vmprof_convert.errors import about
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
                                  raw=options.raw),
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
                    options.remarks)

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
    return not (options.by or options.tree or options.focus or asked.mine
                or options.form == JSON) and has_own_code(profile, origins)


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
    return all_._replace(other="--mine shows user code: %s" % largest.text)


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

    if not (options.by or options.tree or options.focus) and has_own_code(
            profile, origins):
        asked = asked._replace(mine=True)
    return asked, options.by or (
        ("line",) if has_lines(profile) and asked.mine
        and not options.tree and options.of != TIME else ("function",))


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
    from vmprof_convert.errors import about
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.meaning.user_code import only_own
    from vmprof_convert.profile import merging
    from vmprof_convert.report.tables import AmountsView

    asked = selection(options)
    if not asked.is_everything:
        raise ProfileError("--of rss shows the resident memory of whole processes: of "
                           "the filters, it supports only --process and --mine")
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
    from vmprof_convert.errors import about
    from vmprof_convert.profile.merging import Read

    tally = Tally(None if options.at is None else options.at - file.begin)
    by_thread = ByThread(tally)
    adding = by_thread if asked.threads or THREAD in (options.by or ()) else tally
    rows = SelectedRows(adding, asked.after(file.begin))
    with about(file.name):
        profile = readers.read_into(
            file.sources, tally if asked.is_everything and adding is tally else rows,
            salvage=options.salvage or file.is_found, raw=options.raw)
    return _Part(Read(profile, file.path, file.begin, frozenset(rows.threads)),
                 tally, by_thread)


def _refuse_others(options: argparse.Namespace, report: str,
                   its_own: Sequence[str]) -> None:
    """Check that all given options belong to a report.

    Args:
        options: the options.
        report: the option that selects the report.
        its_own: the options of the report.

    Raises:
        ProfileError: another option is given.
    """
    for given in are_given(options):
        if given not in its_own:
            raise ProfileError(
                "%s is another report, which does not support %s: leave one of them out"
                % (report, given))


#: options that --leaks allows, in addition to the filters
_OF_LEAKS = ("--limit", "--group-storage", "--leaks", "--json", "--focus")


def _make_leaks(files: Sequence[File], options: argparse.Namespace,
                on: Terminal | None) -> str:
    from vmprof_convert.analysis.leaks.search import find_leaks
    from vmprof_convert.analysis.leaks.windows import TooFewCollections
    from vmprof_convert.errors import NotThere
    from vmprof_convert.profile import merging
    from vmprof_convert.report.leaks.as_json import (
        content_of_process,
        content_of_processes,
        write_json,
    )
    from vmprof_convert.report.leaks.text import ProcessLeaks, write_leaks

    _refuse_others(options, "--leaks", _OF_LEAKS)
    asked = selection(options)
    if asked.fates:
        raise ProfileError("--leaks compares the objects that were allocated and "
                           "freed: leave out --fate, which selects one kind")
    if options.focus:
        asked = asked._replace(functions=(*asked.functions, options.focus))
    if options.raw:
        _check_raw(files, options)
    read = [_read_old(file, options) for file in files]
    chosen = merging.chosen([part for part, _ in read], asked.processes)
    read = [(part, objects) for part, objects in read if part in chosen]
    able, found, parts, absent = [], [], [], []
    why, blamed = "", 0
    for part, objects in read:
        alone: Leaks | str
        try:
            process = _process(part, objects, asked)
            alone = find_leaks([process], group_storage=options.group_storage)
            able.append(process)
            found.append(alone)
        except NotThere as error:
            absent.append(error)
            if len(absent) == len(read):
                raise
            alone = error.short
        except ProfileError as error:
            if len(read) == 1:
                raise
            why, blamed = str(error), part.profile.pid
            # the full message has advice that does not help if other processes have a
            # result
            alone = error.short if isinstance(error, TooFewCollections) else why
        parts.append(ProcessLeaks(part.name, part.profile, alone))
    if not able:
        raise ProfileError("none of the %d processes can be examined; process %d: %s"
                           % (len(parts), blamed, why))
    together = find_leaks(able, group_storage=options.group_storage) if (
        len(able) > 1) else found[0]
    text = io.StringIO()
    if options.form == JSON:
        write_json(
            content_of_processes([part[1:] for part in parts], together,
                                 options.limit) if len(parts) > 1
            else content_of_process(able[0].profile, together, options.limit), text)
        return text.getvalue()
    write_leaks(able[0].profile, together, text, options.limit or DEFAULT_LIMIT,
                parts=parts if len(parts) > 1 else (), terminal=on or terminal(),
                only=str(asked))
    return text.getvalue()


def _check_raw(files: Sequence[File], options: argparse.Namespace) -> None:
    """Check that the sampler missed no calls of free(), which would look like leaks.

    Raises:
        ProfileError: some calls were missed.
    """
    from vmprof_convert.analysis import thresholds
    from vmprof_convert.cli import run_files
    if all(file.path != run_files.STANDARD for file in files):
        run_files.read(files, options,
                       partial(thresholds.check_frees, "leaks of native memory"))


#: options that --memory allows
_OF_MEMORY = ("--memory", "--json", "--markdown")


def _make_memory(files: Sequence[File], options: argparse.Namespace,
                 on: Terminal | None) -> str:
    from vmprof_convert.cli import memory as asking
    from vmprof_convert.report import where_memory

    _refuse_others(options, "--memory", _OF_MEMORY)
    asked = asking.read(files, options)
    if options.form == JSON:
        import json
        return json.dumps(where_memory.of_processes(asked), indent=1) + "\n"
    return _written([where_memory.of_profile(*one) for one in asked], options, on)


def _written(sheets: Sequence[Sheet], options: argparse.Namespace,
             on: Terminal | None) -> str:
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
            terminal_table.write(sheet, text, on or terminal())
    return text.getvalue()


#: options that --held allows
_OF_HELD = ("--limit", "--group-storage", "--held", "--json", "--markdown")


def _make_held(files: Sequence[File], options: argparse.Namespace,
               on: Terminal | None) -> str:
    from vmprof_convert.analysis import holders
    from vmprof_convert.cli import held as asking
    from vmprof_convert.report import held as tables

    _refuse_others(options, "--held", _OF_HELD)
    find = partial(holders.find, group_storage=options.group_storage)
    asked = asking.read(files, options)
    if options.form == JSON:
        text = io.StringIO()
        tables.write_json([
            (profile, [find(profile, held) for held in profile.held])
            for profile, _ in asked], text, options.limit)
        return text.getvalue()
    return _written([
        tables.of(profile, find(profile, last), options.limit or DEFAULT_LIMIT,
                  is_one_of_several=len(asked) > 1) for profile, last in asked],
        options, on)


def _read_old(file: File, options: argparse.Namespace) -> tuple[Read, OldObjects]:
    from vmprof_convert import readers
    from vmprof_convert.analysis.leaks.search import OldObjects
    from vmprof_convert.errors import about
    from vmprof_convert.profile.merging import Read

    objects = OldObjects()
    with about(file.name):
        profile = readers.read_into(file.sources, objects,
                                    salvage=options.salvage or file.is_found,
                                    raw=options.raw)
    return Read(profile, file.path, file.begin, frozenset(objects.thread)), objects


def _process(part: Read, objects: OldObjects, asked: Selection) -> Process:
    from vmprof_convert.analysis.leaks.search import Process
    from vmprof_convert.analysis.selection import Selected, chosen_threads
    from vmprof_convert.meaning.lifetimes import NOT_RECORDED
    from vmprof_convert.meaning.origins import Origins
    from vmprof_convert.meaning.user_code import has_own_code, only_own

    profile = part.profile
    origins = Origins(profile)
    own = only_own(profile, origins) if has_own_code(profile, origins) else None
    asked = asked.after(part.begin)
    includes = None
    if not asked._replace(time=None).is_everything:
        selected = Selected(profile, asked, origins)
        threads = chosen_threads(profile, asked, part.threads)

        def includes(stack: int, type_: int, thread: int) -> bool:
            return thread in threads and selected.includes(stack, type_, NOT_RECORDED)

    return Process(profile, objects, own, asked.time, includes)
