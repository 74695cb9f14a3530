"""The probe finds the layout of objects in this build, from this process's objects.

search.py runs the probe in a separate process, because the probe forces collections and
follows pointers that may be invalid::

    python -m vmprof_allocation.engines.hook.probe < LAYOUT

It prints a JSON object, ``{"layout": "...", "findings": [[what, value, good], ...],
"types": "...", "certain": whether all answers are certain}``.  A question has an answer
only if all objects agree.  Otherwise, the layout keeps its default for an unknown
value.
"""
from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

from vmprof_allocation.engines.hook.discovery.layout import Layout
from vmprof_allocation.engines.hook.probe import (
    codemap,
    collector,
    fields,
    frames,
    functions,
    heap,
    jit,
    names,
    references,
)
from vmprof_allocation.engines.hook.probe.classes import Classes
from vmprof_allocation.engines.hook.probe.memory import Memory, NotCertain, Types
from vmprof_allocation.errors import NOT_KNOWN, PASSING, Evidence

#: The processor time in seconds after which the probe is killed, because a wrong
#: pointer may lead to an endless loop.  The probe takes one second, or minutes in an
#: emulator.
PROCESSOR_SECONDS = 600


def _not_known(evidence: Evidence, what: str, e: Exception) -> None:
    """Add the finding that the answer to a question is unknown.

    Args:
        evidence: gets the finding.
        what: the question.
        e: the reason.
    """
    # A lack of disk space or memory does not depend on the build.  gc.dump_rpy_heap()
    # raises a SystemError if it cannot write the file.
    is_passing = isinstance(e, (MemoryError, SystemError)) or (
        isinstance(e, OSError) and not str(e.filename).startswith("/proc/"))
    evidence.found(what, "%s: %s" % (
        PASSING if is_passing else NOT_KNOWN,
        e if isinstance(e, NotCertain) else repr(e)))


def probe(layout: Layout, evidence: Evidence) -> str:
    """Find the layout of objects and of the GC's data.

    Args:
        layout: the result of search.py, which gets the answers.
        evidence: gets the findings.

    Returns:
        The lines with the names of types, for native/hook/gc/types.c and native/held.
    """
    try:
        memory = Memory(layout)
        types = Types(memory)
        sizes = collector.check_sizes(memory, types)
    # after any error, sampling works without these answers
    except Exception as e:
        _not_known(evidence, "objects", e)
        return ""
    layout.type_info_bits = types.bits
    layout.type_is_varsize = types.is_varsize
    layout.type_length = types.length
    evidence.found("objects", "%d types; %s" % (len(types.rows), sizes))
    questions: list[tuple[str, str, Callable[[], int]]] = [
        ("forwarded", "survivors", lambda: collector.find_forwarded(
            memory, types)),
        ("gc_state", "state of the GC", lambda: collector.find_state(memory)),
        ("flag_visited", "flag of marked objects",
         lambda: collector.find_visited(memory)),
        ("flag_pinned", "flag of pinned objects",
         lambda: collector.find_pinned(memory))]
    for name, what, question in questions:
        try:
            answer = question()
        # after any error, sampling works without this answer
        except Exception as e:
            _not_known(evidence, what, e)
        else:
            setattr(layout, name, answer)
            evidence.found(what, "%s0x%x" % ("-" if answer < 0 else "",
                                             abs(answer)))
    _heap(memory, layout, evidence)
    text = _types(memory, types, layout, evidence)
    # these questions come last, because their answers need the JIT
    _codemap(memory, layout, evidence)
    _jit(memory, types, layout, evidence)
    return text


def _heap(memory: Memory, layout: Layout, evidence: Evidence) -> None:
    try:
        found = heap.find(memory)
    except Exception as e:      # after any error, sampling works without this answer
        _not_known(evidence, "memory of the heap", e)
        return
    (layout.heap_blocks, layout.heap_arenas, layout.heap_large,
     layout.heap_nursery, layout.heap_is_counted_on) = found
    evidence.found("memory of the heap",
                   "blocks of arenas at 0x%x, arenas at 0x%x, large objects at 0x%x, "
                   "the nursery at 0x%x; %sknown while the GC sweeps" % (
                       *found[:4], "" if found.is_counted_on else "not "))


def _codemap(memory: Memory, layout: Layout, evidence: Evidence) -> None:
    try:
        layout.codemap = codemap.find(memory)
    except Exception as e:      # after any error, sampling works without this answer
        _not_known(evidence, "table of the JIT's code", e)
    else:
        evidence.found("table of the JIT's code", "0x%x" % layout.codemap)


def _jit(memory: Memory, types: Types, layout: Layout, evidence: Evidence) -> None:
    try:
        layout.jit_phases, layout.roots = jit.find(memory, types)
    except Exception as e:      # after any error, sampling works without this answer
        _not_known(evidence, "phases of the JIT", e)
    else:
        evidence.found("phases of the JIT", "the phases at 0x%x, the roots at 0x%x" % (
            layout.jit_phases, layout.roots))
        _frames(memory, types, layout, evidence)


def _frames(memory: Memory, types: Types, layout: Layout, evidence: Evidence) -> None:
    try:
        layout.frames = frames.find(
            memory, types, memory.gc - layout.gc + layout.roots)
    except Exception as e:      # after any error, sampling works without this answer
        _not_known(evidence, "lines", e)
    else:
        evidence.found("lines", "the lines in frames agree with Python's attributes")


def _types(memory: Memory, types: Types, layout: Layout, evidence: Evidence) -> str:
    """Return the lines about types for native/hook/gc/types.c and native/held."""
    head = ""
    maps: dict[int, int] = {}
    bases: dict[int, type] = {}
    try:
        old = collector.find_old(memory, types)
        head = "old %d\n" % old
        classes = Classes(memory, types)
    except Exception as e:
        _not_known(evidence, "classes", e)
    else:
        head, maps, bases = head + classes.head(), classes.maps, classes.bases
        evidence.found("classes", "found from objects of %d types" % len(maps))
    try:
        head += functions.head(memory, types)
    except Exception as e:
        _not_known(evidence, "functions", e)
    else:
        evidence.found("functions", "found by vmprof's numbers of functions")
    try:
        named = names.names(types, bases)
    except Exception as e:
        _not_known(evidence, "names", e)
        named = {}
    else:
        evidence.found("names", "%d types have a name" % len(named))
    text = names.text(types, maps, head, named)
    return text + _references(memory, types, layout, evidence, _Known(
        text, head, maps, bases, named))


class _Known(NamedTuple):
    """The answers about the types of objects."""

    text: str
    head: str
    maps: dict[int, int]
    bases: dict[int, type]
    named: dict[int, tuple[int, str]]


def _references(memory: Memory, types: Types, layout: Layout, evidence: Evidence,
                known: _Known) -> str:
    """Return the lines about fields and references for native/held.

    Returns:
        "" if the references are not certain.
    """
    try:
        found = fields.lines(
            memory, types, known.head, known.maps,
            [row for row, (kind, _) in known.named.items()
             if kind == names.PYTHON],
            [types.rows[number] for number, base in known.bases.items()
             if issubclass(base, BaseException)])
        compared = references.check(memory, types, known.text + found)
        layout.references = references.row_of_threads(types)
    except references.RefusedError as e:
        evidence.found("references", "not possible on this system: %s" % e)
        return ""
    except Exception as e:      # after any error, sampling works without this answer
        _not_known(evidence, "references", e)
        return ""
    evidence.found("references", compared)
    return found


def main() -> None:
    """Read a layout from stdin, and write the results of the probe to stdout."""
    signal.setitimer(signal.ITIMER_VIRTUAL, PROCESSOR_SECONDS)
    evidence = Evidence()
    layout = Layout.parse(sys.stdin.read())
    text = probe(layout, evidence)
    json.dump({"layout": layout.text(), "findings": evidence.findings,
               "types": text, "certain": not any(
                   value.startswith(NOT_KNOWN)
                   for _, value, _ in evidence.findings)}, sys.stdout)


if __name__ == "__main__":
    main()
