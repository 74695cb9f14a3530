"""Write the notes of a report: missing data, and the limits of the figures.

Each note is one line of text. All formats take their notes from this module, so that
they agree.
"""
from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple, Optional

from vmprof_convert.analysis.heap_check import contradiction
from vmprof_convert.analysis.process_memory import in_brief as memory_in_brief
from vmprof_convert.analysis.process_memory import (
    missed_frees,
    missed_requests,
    of_process,
)
from vmprof_convert.analysis.summary import LINE, TYPE, Choice, Figures, Summary
from vmprof_convert.meaning.lifetimes import (
    CARRIED,
    NOT_TOLD,
    STILL_ALIVE,
    WAS_LOST,
    alive_word,
    is_alive_exact,
)
from vmprof_convert.meaning.visible_stacks import LOST, UNKNOWN_LINE
from vmprof_convert.profile.model import Profile
from vmprof_convert.readers.pypy_stacks import NOT_KNOWN
from vmprof_convert.text.escape import printable, shortened
from vmprof_convert.text.units import (
    format_bytes,
    format_ends,
    format_moment,
    format_number,
)

#: maximum number of processes that a line names
_LISTED = 3
#: a note is essential if it concerns at least this share of the bytes or samples
_LEAST = 0.01
#: there is no note on less than this share of the bytes
_NOTHING = 0.001
#: the note on the lines of compiled code is essential if compiled code allocated more
#: than this share of the bytes
_MUCH = 0.1


def title(profile: Profile, summary: Summary, choice: Choice) -> str:
    """Return the first line of a report on allocations."""
    if not (profile.settings or profile.moments):
        return ("no allocation samples: the profile was taken without "
                "--allocation-sampling")
    return "%s in %s%s (%s samples, %s):" % (
        "native memory (malloc)" if profile.is_raw else "allocated",
        _seconds(profile, choice), " by %d processes" % len(profile.processes)
        if profile.processes else "", summary.samples, _intervals(profile, summary))


def sums(profile: Profile, summary: Summary, choice: Choice, *,
         is_all: bool = True) -> str:
    """Return a line with the estimate of all allocated bytes.

    Args:
        profile: the profile.
        summary: its sums.
        choice: contains the time at which the profile is considered to end.
        is_all: whether the sums include all samples. If they do, the line also has the
            GC's own count, unless it cannot be compared with the estimate.
    """
    value, low, high = summary.bytes
    if profile.gaps == "fixed":
        estimate = "estimated total: %s" % format_bytes(value)
    else:
        estimate = "estimated total: %s (95 %%: %s .. %s)" % format_ends(
            low, value, high)
    if profile.is_raw or not profile.moments or choice.at is not None or not is_all:
        return estimate
    last = profile.moments[-1]
    counted = "the %s counted: %s" % (
        "processes' GCs" if profile.processes else "GC itself",
        format_bytes(last.allocated))
    if last.pressures:
        counted += (" (plus the bytes allocated shortly before %d memory "
                    "pressures)" % last.pressures)
    if last.surprises:
        counted += (" (plus the bytes allocated before %d collections that the sampler "
                    "missed)" % last.surprises)
    return "%s; %s" % (estimate, counted)


def _intervals(profile: Profile, summary: Summary) -> str:
    """Return the mean number of bytes between samples as text.

    The mean is calculated from the samples if the interval varied, if a limit
    controlled it, or if the profile was downsampled. Otherwise it is the requested
    interval.
    """
    limit = profile.settings.get("limit", "")
    interval: float = profile.interval
    if summary.samples and (limit or summary.varied or profile.thinned):
        interval = summary.bytes.value / summary.samples
    text = "one per %s on average" % format_bytes(interval)
    return "auto: " + text if limit else text


def _seconds(profile: Profile, choice: Choice) -> str:
    if choice.at is not None:
        return format_moment(choice.at)
    if profile.moments:
        return "%.2f s" % (profile.end / 1e9)
    return "?"


#: names of the signals that PROFILE.rst mentions, by their number on Linux on x86-64
_SIGNALS = {"9": "SIGKILL", "15": "SIGTERM"}
#: Processes that another process ended by a signal. The key is the run ID and the pid
#: of the ended process; the value is the pid of the other process, and the signal.
_Told = dict[tuple[str, Optional[str]], tuple[str, str]]


def of_run(profile: Profile) -> list[str]:
    """Return notes on the parts of the run that the profile does not contain."""
    return thinned(profile) + lost(profile)


def lost(profile: Profile) -> list[str]:
    """Return notes on data that was never written to the profile."""
    return of_runs([
        (str(process.profile.pid or process.source), process.profile)
        for process in profile.processes] or [("", profile)])


def thinned(*profiles: Profile) -> list[str]:
    """Return a note if the profiles were downsampled, or no note."""
    left_out = [profile.thinned for profile in profiles if profile.thinned]
    return [
        "downsampled: %d of %d allocation samples were kept, and each represents "
        "correspondingly more bytes (--samples 0 keeps all)" % (
            sum(samples.stayed for samples in left_out),
            sum(samples.came for samples in left_out))] if left_out else []


def of_runs(named: Sequence[tuple[str, Profile]]) -> list[str]:
    """Return notes on data that the profiles of some processes do not contain.

    Args:
        named: name and profile of each process. A note that several processes share is
            returned once, with the names of these processes.
    """
    about: dict[str, list[str]] = {}
    told = _told([profile for _, profile in named])
    for name, profile in named:
        for line in _of_process(profile, told):
            about.setdefault(line, []).append(name)
    lines = []
    for line, names in about.items():
        of_which = ""
        if len(named) > 1:
            of_which = "process%s %s%s: " % (
                "" if len(names) == 1 else "es", ", ".join(names[:_LISTED]),
                " and %d more" % (len(names) - _LISTED) if names[_LISTED:] else "")
        lines.append(of_which + line)
    return lines


def of_labels(*profiles: Profile) -> list[str]:
    """Return a note that lists the label keys of some profiles, or no note."""
    keys = sorted({key for profile in profiles for key in profile.label_keys})
    return ["labels: %s (--by label:KEY, --label KEY=VALUE)" % ", ".join(
        map(shortened, keys))] if keys else []


def _told(profiles: Sequence[Profile]) -> _Told:
    """Return the processes that another of these processes ended by a signal."""
    found: _Told = {}
    for profile in profiles:
        for word in profile.settings.get("told", "").split(","):
            pid, _, number = word.partition(" ")
            if pid and number:
                found[profile.settings.get("run", ""), pid] = (
                    profile.settings.get("pid", "?"), _SIGNALS.get(number, number))
    return found


def _of_process(profile: Profile, told: _Told) -> list[str]:
    lines = []
    if wrong := contradiction(profile):
        lines.append(wrong)
    if profile.end_time is None:
        by = told.get((profile.settings.get("run", ""), profile.settings.get("pid")))
        if profile.is_written:
            lines.append("the process still runs; the report contains the records that "
                         "it has written so far")
        elif by is not None:
            lines.append("process %s ended this process (%s), as multiprocessing's "
                         "pools end their workers; the report contains the earlier "
                         "records"
                         % tuple(map(printable, by)))
        else:
            lines.append(
                "the run did not end normally, continues elsewhere, or the program "
                "closed the profile's file (`pypy-alloc control PID status` names the "
                "reason if the process runs); the report contains the earlier records")
    if profile.ended:
        lines.append("the profile ends before the program did: %s"
                     % profile.ended)
    if profile.unknown:
        lines.append(
            "records of unknown kinds were skipped: %s; a newer vmprof-convert may "
            "show them"
            % profile.passed_over)
    if profile.children:
        lines.append(
            "%d child process%s not sampled: %s allocations are missing"
            % (profile.children, *(
                ("es were", "their") if profile.children > 1 else
                (" was", "its"))))
    if programs := profile.settings.get("programs"):
        lines.append("the process ran other programs, which are not included: %s"
                     % printable(programs.replace(",", ", ")))
    return lines


class Remark(NamedTuple):
    """A note of a report."""

    text: str
    #: whether the reader may misinterpret the figures without this note
    is_essential: bool = False


#: maximum number of lines below a table, unless --notes is given
MOST_LINES = 5


def brief(profile: Profile, summary: Summary, choice: Choice, *,
          is_all: bool = True) -> list[str]:
    """Return the most important notes on the figures, at most MOST_LINES lines.

    Args:
        profile: the profile.
        summary: its sums.
        choice: the kind of rows, and the time at which the profile is considered to
            end.
        is_all: see sums().
    """
    lines = [sums(profile, summary, choice, is_all=is_all)]
    everything = _of_figures(profile, summary, choice)
    essential = [remark.text for remark in everything if remark.is_essential]
    if summary.figures.sum(STILL_ALIVE).samples:
        essential.insert(0, _alive(profile, choice, is_brief=True))
    if memory := memory_in_brief(profile):
        essential.insert(0, memory)
    if is_all and choice.at is None:
        essential[:0] = missed(profile, summary.figures)
    lines += essential[:MOST_LINES - 2]
    left = len(everything) - max(len(lines) - 1, 0)
    if left > 0:
        lines.append("(more about these figures: --notes)")
    return lines


#: quantile of the normal distribution: one value in 10,000 exceeds it
_SURE = NormalDist().inv_cdf(0.9999)


def missed(profile: Profile, figures: Figures) -> list[str]:
    """Return warnings if the sampled blocks contradict malloc's own count.

    Args:
        profile: The profile, to its end.
        figures: The sums of all its samples.
    """
    # with this quantile, none of thousands of correct runs has a warning by chance
    alive = figures.bytes(STILL_ALIVE, _SURE)
    if bytes_ := missed_frees(profile, alive):
        return ["wrong: the samples count %s more as alive than malloc itself has in "
                "use. The program called free() through a pointer that it looked up "
                "before the sampling began" % format_bytes(bytes_)]
    unseen = missed_requests(profile, alive)
    if unseen is None and profile.is_raw:
        return ["unchecked: malloc's own count is missing, so that calls of malloc and "
                "free may have been missed. A process reads the count when it ends "
                "normally"]
    if unseen:
        return ["incomplete: malloc's own count grew by %s more than the sampled "
                "blocks explain. The program calls malloc through pointers that it "
                "looked up before the sampling began, or small blocks need much "
                "bookkeeping" % format_bytes(unseen)]
    return []


def of_figures(profile: Profile, summary: Summary, choice: Choice) -> list[str]:
    """Return all notes on the figures, without notes on negligible amounts.

    The notes with the largest effect come first.
    """
    return [remark.text for remark in _of_figures(profile, summary, choice)]


def _of_figures(profile: Profile, summary: Summary, choice: Choice) -> list[Remark]:
    found = []
    if LINE in choice.by and summary.has_lines and not profile.is_raw:
        found += _lines_of_compiled_code(summary)
    if summary.figures.sum(STILL_ALIVE).samples:
        found.append(Remark(_alive(profile, choice, is_brief=False)))
    if summary.missing:
        names = ", ".join(sorted({f.name for f in summary.missing})[:3])
        if len(summary.missing) > 3:
            names += " and %d more" % (len(summary.missing) - 3)
        found.append(Remark(
            "missing: up to %s are missing from \"total\" of %s, because compiled code "
            "does not show the callers that wait in \"yield from\" or \"await\"" % (
                format_bytes(summary.missing_bytes), names),
            summary.missing_bytes > _LEAST * summary.bytes.value))
    found += _callers(profile, summary)
    found += _of_share(
        summary.log_bytes, summary,
        "log: %.3g %% of the bytes are PyPy's log of its compiled code, "
        + ("which contains the lines" if _tells_callers(profile)
           else "without which stacks lack functions on this machine")
        + ". Without the sampler, the program does not allocate them")
    if profile.stacks.has_compiled() and not profile.is_raw:
        found.append(Remark(
            "compiled code: an object is attributed to the function in which the JIT "
            "allocates it. Among functions that were compiled together, this may be an "
            "earlier or a later function than in the program; the type is correct"))
    if profile.cut_stacks:
        found.append(Remark(
            "cut: the stacks of %d samples were deeper than vmprof records; \"total\" "
            "lacks their outermost callers" % profile.cut_stacks,
            profile.cut_stacks > _LEAST * summary.samples))
    if profile.lost_stacks:
        samples = summary.time_samples + (
            profile.thinned.came if profile.thinned else summary.samples)
        found.append(Remark(
            "lost: the stacks of %d of %d samples are missing; their bytes are in %s"
            % (profile.lost_stacks, samples, LOST.name),
            profile.lost_stacks > _LEAST * samples))
    dropped = profile.moments[-1].dropped if profile.moments else 0
    if dropped and not profile.is_raw:
        found.append(Remark(
            "dropped: %s, because the sampler was recording another sample; shares of "
            "time do not include them" % format_number(dropped, "CPU sample"),
            dropped > _LEAST * (summary.time_samples + dropped)))
    if profile.missing:
        found.append(Remark(
            "missing samples: %s, because vmprof was stopped or had no buffer; the "
            "estimates are too small by their bytes"
            % format_number(profile.missing, "sample"), True))
    word = alive_word(is_alive_exact(profile, choice.at))
    for state, of, text in (
            (CARRIED, STILL_ALIVE,
             "inherited: %s of earlier segments of the profile count as "
             + word + ", but not as allocated"),
            (WAS_LOST, STILL_ALIVE,
             "unknown outcomes: %s, because there were more objects than the sampler "
             "can follow"),
            (NOT_TOLD, None, "batched allocations: the types and outcomes of %s are "
                             "unknown, because the JIT allocated them together with "
                             "other objects")):
        if _counts(summary.figures, state, of):
            found.append(Remark(text % _samples(summary, state),
                                _counts(summary.figures, state, of, _LEAST)))
    untyped = summary.untyped.sum()
    has_many = untyped.value_bytes > _LEAST * summary.bytes.value
    if profile.has_types and has_many and profile.end_time is None:
        found.append(Remark(
            "objects: %s (%s) were in the nursery when the last record was written; "
            "their types are unknown, and there may be several times as many objects, "
            "as a batch of several counts as one" % (
                format_number(untyped.samples, "sample"),
                format_bytes(untyped.value_bytes)), True))
    elif profile.has_types and TYPE in choice.by and (
            untyped.value_bytes > _NOTHING * summary.bytes.value):
        found.append(Remark(
            "type not known: %s (%s), including the objects allocated since the last "
            "minor collection%s" % (
                format_number(untyped.samples, "sampled object"),
                format_bytes(untyped.value_bytes),
                "" if any(not c.is_major for c in profile.collections)
                else " (none happened)"), has_many))
    if profile.misfits:
        found.append(Remark(
            "skipped: %s without a matching sample; the profile may be damaged"
            % format_number(profile.misfits, "object event"), True))
    if summary.hidden.sum().samples:
        found.append(Remark("hidden: %s of internal objects of the interpreter"
                            % format_bytes(summary.hidden.bytes().value)))
    if LINE in choice.by and summary.samples:
        found += _lines(profile, summary)
    if profile.nameless:
        found.append(Remark(
            "native: this PyPy has no names for %s of the interpreter; their "
            "allocations are attributed to their callers"
            % format_number(profile.nameless, "function"), True))
    found += map(Remark, [*of_process(profile), *_collections(profile),
                          *_bookkeeping(profile)])
    if summary.time_samples:
        found.append(Remark("CPU samples: %d; --of time sums them, and the command "
                            "view shows them" % summary.time_samples, True))
    return found


def _lines(profile: Profile, summary: Summary) -> list[Remark]:
    """Return the notes on executed lines."""
    if profile.is_raw:
        return [Remark("lines: native memory has no executed lines; these are the "
                       "first lines of the functions", True)]
    if not summary.has_lines and "lines" not in profile.settings:
        return [Remark(
            "lines: this profile has no executed lines (record with --lines); these "
            "are the first lines of the functions", True)]
    unknown = sum(row.own.sum().value_bytes for row in summary.rows
                  if row.subject.line == UNKNOWN_LINE)
    return _of_share(
        unknown, summary,
        "lines: the line is unknown for %.3g %% of the bytes, and (def) is the first "
        "line of their function. Code that PyPy compiled before the sampling has no "
        "lines, and some other compiled code lacks them, too") + _of_share(
        summary.callers_without_line_bytes, summary,
        "lines of callers: in the stacks of %.3g %% of the bytes, a caller's line is "
        "unknown. The caller's row (def) contains these bytes in \"total\"; the rows "
        "of its lines may lack them")


def _lines_of_compiled_code(summary: Summary) -> list[Remark]:
    """Return the note that compiled code moves allocations to other lines."""
    share = summary.compiled_bytes / max(summary.bytes.value, 1.0)
    return [Remark(
        "compiled lines: compiled code allocated %.3g %% of the bytes. It allocates an "
        "object where its value is first needed, which may be a later line or the head "
        "of the loop"
        % (100 * share), share > _MUCH)] if share > _NOTHING else []


def _callers(profile: Profile, summary: Summary) -> list[Remark]:
    """Return the notes on wrong or missing callers in compiled code."""
    if not profile.stacks.has_compiled():
        return []
    # the log that --lines records also names the callers in compiled code
    if profile.settings.get("lines") != "1":
        return [Remark(
            "callers: in compiled code, some callers are wrong, in most programs for "
            "up to 3 % of the samples, but in some for a fifth and more. A profile "
            "recorded with --lines has correct callers"
        ) if _tells_callers(profile) else Remark(
            "callers: where compiled code calls compiled code, the stacks are "
            "vmprof's, which omit or repeat some functions", True)]
    return _of_share(
        summary.not_known_bytes, summary,
        "callers: the stacks of %.3g %% of the bytes contain " + NOT_KNOWN.name
        + " in place of one or more callers. On this machine, PyPy does not name the "
        "functions of code that it compiled before the sampling")


def _tells_callers(profile: Profile) -> bool:
    known = profile.settings.get("capabilities")
    return known is None or "callers" in known.split(",")


def _of_share(bytes_: float, summary: Summary, text: str) -> list[Remark]:
    """Return the note on some bytes, or no note if their share is negligible.

    Args:
        bytes_: the bytes.
        summary: the sums of all bytes.
        text: the note, with a format for the percentage of the bytes.
    """
    share = bytes_ / max(summary.bytes.value, 1.0)
    return [Remark(text % (100 * share), share > _LEAST)] if share > _NOTHING else []


def _collections(profile: Profile) -> list[str]:
    if not profile.moments or not profile.collections:
        return []
    return ["collections: %d minor, %d major" % (
        profile.moments[-1].collections,
        sum(collection.is_major for collection in profile.collections))]


def _counts(figures: Figures, state: str, of: str | None,
            share: float = _NOTHING) -> bool:
    """Return whether the bytes of one outcome exceed a share of other bytes.

    Args:
        figures: the sums of all outcomes.
        state: the outcome (see lifetimes.py).
        of: the outcome of the other bytes; None for all objects.
        share: the share of these bytes.
    """
    return figures.sum(state).value_bytes > share * figures.sum(of).value_bytes


def garbage_in_use(*profiles: Profile) -> str:
    """Return a comment on whether the live bytes are exact, for formats with comments.

    Args:
        profiles: the profile, or the two sides of a difference.
    """
    exact = list(map(is_alive_exact, profiles))
    each = exact[:1] if len(set(exact)) == 1 else exact
    return "alive_is_exact=%s%s" % (
        ",".join("true" if one else "false" for one in each),
        "" if all(exact) else ": objects in use may include garbage, which no "
        "collection has freed")


def bookkeeping_of(profile: Profile) -> int | None:
    """Return the bytes of the sampler's bookkeeping in all processes, or None.

    None means that no process recorded these bytes.
    """
    return sum(part.bookkeeping for part in (
        [process.profile for process in profile.processes] or [profile])) or None


def _bookkeeping(profile: Profile) -> list[str]:
    bytes_ = bookkeeping_of(profile)
    return [] if bytes_ is None else [
        "bookkeeping: the sampler's data on objects took at most %s of the process%s "
        "memory" % (
            format_bytes(bytes_), "es'" if profile.processes else "'s")]


def _samples(summary: Summary, state: str) -> str:
    return "%s (%s)" % (
        format_number(summary.figures.sum(state).samples, "sampled object"),
        format_bytes(summary.figures.bytes(state).value))


_RAW_ALIVE = "alive: blocks that free() had not yet freed"


def _alive(profile: Profile, choice: Choice, *, is_brief: bool) -> str:
    """Return the note on which objects the report counts as alive.

    Args:
        profile: the profile.
        choice: contains the moment at which the objects are alive.
        is_brief: whether the note omits the advice how to exclude garbage.
    """
    if profile.is_raw:
        return _RAW_ALIVE
    times = [time for time in profile.looks
             if choice.at is None or time <= choice.at]
    if is_alive_exact(profile, choice.at):
        if profile.processes:
            return ("alive: objects that each process could reach at its last heap "
                    "snapshot or major collection")
        last = times[-1]
        is_collection = any(one.is_major and one.time == last
                            for one in profile.collections)
        return ("alive: objects that the program could reach at %.2f s (%s)" % (
            last / 1e9, "major collection" if is_collection else "heap snapshot"))
    remedy = "" if is_brief else (
        "; record with --retainers or --leaks to find out")
    if profile.processes:
        return ("survived: objects that no collection of their process has freed; some "
                "may be garbage" + remedy)
    if not times:
        return ("survived: objects that no minor collection has freed; without a major "
                "collection, they may be garbage" + remedy)
    return ("survived: objects that no collection has freed; the last major collection "
            "or heap snapshot was at %.2f s, and some objects may be garbage%s" % (
                times[-1] / 1e9, remedy))
