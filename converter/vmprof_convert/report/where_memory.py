"""The report of where the memory is: a table for people, and JSON."""
from __future__ import annotations

from collections.abc import Mapping

from vmprof_convert.analysis import where_memory
from vmprof_convert.report.tables import FIGURE, NAME, Column, Sheet, Table
from vmprof_convert.text.units import format_bytes

#: the name of this layout; the sampler, which asks for it, has the page that tells what
#: it means (docs/where-memory.rst)
SCHEMA = "vmprof-allocation-memory-1"
_COLUMNS = [Column("resident", FIGURE), Column("%", FIGURE),
            Column("shared", FIGURE, 1), Column("what", NAME)]
#: of what is resident: rows with less are one, but for the last
_LEAST = 0.001


def sheet(facts: Mapping[str, int], pid: int, when: str = "") -> Sheet:
    """Raises KeyError if these are no such facts."""
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
            rows.append(_cells(small, None, "what is less than 0.1 % each",
                               found.resident))
            small = 0
        rows.append(_cells(row.bytes, row.shared, row.what, found.resident))
    return Sheet([head], [Table("", _COLUMNS, rows)],
                 [line for line in (found.sentence, *found.notes) if line])


def _cells(bytes_: int, shared: int | None, what: str, resident: int
           ) -> tuple[str, ...]:
    size = "-" + format_bytes(-bytes_) if bytes_ < 0 else format_bytes(bytes_)
    return (size, "%.1f" % (100 * bytes_ / resident) if resident else "",
            "" if shared is None else format_bytes(shared), what)


def json(facts: Mapping[str, int], pid: int) -> dict[str, object]:
    """Raises KeyError if these are no such facts."""
    found = where_memory.of(facts)
    return {"schema": SCHEMA, "pid": pid, "resident": found.resident,
            "private": found.private, "swapped": found.swapped,
            "rows": [{"row": row.key, "bytes": row.bytes, "shared": row.shared}
                     for row in found.rows],
            "sentence": found.sentence, "facts": dict(facts)}
