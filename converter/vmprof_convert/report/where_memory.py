"""Report the use of a process's resident memory, as a table or as JSON.

The input is the memory counts of Linux, malloc and the GC (`facts`). The sampler
records them at the end of a profile, or `pypy-alloc memory PID` requests them from a
process. analysis/where_memory.py describes the rows.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmprof_convert.analysis import process_memory, where_memory
from vmprof_convert.profile.model import Profile
from vmprof_convert.report.tables import FIGURE, NAME, Column, Sheet, Table
from vmprof_convert.text.escape import shortened
from vmprof_convert.text.units import format_bytes, format_moment

#: name of the JSON layout for one process, which the sampler's docs/where-memory.rst
#: describes
SCHEMA = "vmprof-allocation-memory-1"
#: name of the JSON layout for a list of processes, whose profiles were read
LIST_SCHEMA = "vmprof-allocation-memory-list-1"
_COLUMNS = [Column("resident", FIGURE), Column("%", FIGURE),
            Column("shared", FIGURE, 1), Column("what", NAME)]
#: share of resident memory below which rows are merged, except for the last row
_LEAST = 0.001
#: a reading counts as "at its end" if it is less than this many ns from the end of the
#: profile
_NEAR = 10**9
_NOT_KNOWN = ("the use of its memory is unknown: the process did not record it at its "
              "end (a signal, exec or os._exit() ended it, as in multiprocessing, or "
              "it still runs)")


def sheet(facts: Mapping[str, int], pid: int, when: str = "") -> Sheet:
    """Return a report on the resident memory of one process.

    Args:
        facts: the counts (see vmprof_allocation/memory/facts.py in the sampler).
        pid: pid of the process.
        when: text after the pid, such as the command and the time.

    Raises:
        KeyError: a count is missing.
    """
    found = where_memory.of(facts)
    head = "process %d%s: %s resident, %s of it in no other process; %s swapped out" % (
        pid, when, format_bytes(found.resident), format_bytes(found.private),
        format_bytes(found.swapped))
    rows, small = [], 0
    for row in found.rows:
        if abs(row.bytes) < _LEAST * found.resident and row.key != where_memory.REST:
            small += row.bytes
            continue
        if small and (row.bytes < 0 or row.key == where_memory.REST):
            rows.append(_cells(small, None, "parts of less than 0.1 % each",
                               found.resident))
            small = 0
        rows.append(_cells(row.bytes, row.shared, row.what, found.resident))
    return Sheet([head], [Table("", _COLUMNS, rows)],
                 [line for line in (found.sentence, *found.notes) if line])


def of_profile(profile: Profile, facts: Mapping[str, int] | None) -> Sheet:
    """Return a report on the resident memory of the process of a profile.

    Args:
        profile: the profile.
        facts: the memory counts in the profile; None if it does not contain any.

    Raises:
        KeyError: a count is missing.
    """
    command = profile.command and " (%s)" % shortened(profile.command)
    notes = process_memory.of_process(profile)
    if facts is None:
        return Sheet(["process %d%s: %s" % (profile.pid, command, _NOT_KNOWN)], [],
                     notes)
    found = sheet(facts, profile.pid, command + _when(profile, facts))
    return found._replace(notes=[*found.notes, *notes])


def _time(profile: Profile, facts: Mapping[str, int]) -> int | None:
    """Return when the counts were read, in ns since the start; None if unknown."""
    clock = profile.settings.get("clock", "")
    if "clock" not in facts or not (clock.isascii() and clock.isdigit()):
        return None
    return facts["clock"] - int(clock)


def _when(profile: Profile, facts: Mapping[str, int]) -> str:
    time = _time(profile, facts)
    if time is None:
        return ""
    if abs(profile.end - time) < _NEAR:
        return ", at its end (%s)" % format_moment(time)
    return ", at %s, which was not its end" % format_moment(time)


def of_processes(asked: Iterable[tuple[Profile, Mapping[str, int] | None]]
                 ) -> dict[str, object]:
    """Return the JSON content of a report on the resident memory of several processes.

    Args:
        asked: the profile of each process, with its counts.

    Raises:
        KeyError: a count is missing.
    """
    processes: list[dict[str, object]] = []
    for profile, facts in asked:
        said: dict[str, object] = {"pid": profile.pid, "command": profile.command,
                                   "memory": process_memory.in_numbers(profile)}
        if facts is None:
            processes.append({**said, "error": _NOT_KNOWN})
        else:
            time = _time(profile, facts)
            processes.append({**json(facts, profile.pid), **said,
                              "time": None if time is None else time / 1e9})
    return {"schema": LIST_SCHEMA, "processes": processes}


def _cells(bytes_: int, shared: int | None, what: str, resident: int
           ) -> tuple[str, ...]:
    size = "-" + format_bytes(-bytes_) if bytes_ < 0 else format_bytes(bytes_)
    return (size, "%.1f" % (100 * bytes_ / resident) if resident else "",
            "" if shared is None else format_bytes(shared), what)


def json(facts: Mapping[str, int], pid: int) -> dict[str, object]:
    """Return the JSON content of a report on the resident memory of one process.

    Args:
        facts: the counts.
        pid: pid of the process.

    Raises:
        KeyError: a count is missing.
    """
    found = where_memory.of(facts)
    return {"schema": SCHEMA, "pid": pid, "resident": found.resident,
            "private": found.private, "swapped": found.swapped,
            "rows": [{"row": row.key, "bytes": row.bytes, "shared": row.shared}
                     for row in found.rows],
            "sentence": found.sentence, "facts": dict(facts)}
