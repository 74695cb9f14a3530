"""Divide the resident memory of a process into rows that explain it completely.

The input is the numbers that Linux, malloc and the garbage collector count
(vmprof_allocation.memory.facts). They contain no samples and no estimates.
`pypy-alloc memory` shows the result for a process and for a profile.

The GC gets all its memory from malloc: its arenas, its nursery, and a block for each
large object. So the GC's memory is subtracted once from malloc's count, and no byte
counts twice. The GC and malloc count memory when it is *requested*. It becomes resident
when it is first written to. Rows with a negative number represent requested memory that
was never written to or is swapped out.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vmprof_convert.text.units import format_bytes, format_number

#: the share of resident memory below which a number is not mentioned
_LITTLE = 0.01
#: the share of resident memory from which a row is mentioned in addition to PyPy itself
_MUCH = 0.1
#: the ratio of the peak to the current resident memory from which the peak is mentioned
_FAR_MORE = 1.1
#: the bytes that may be freed between the reading of malloc's count and the reading of
#: the mappings
_MEANWHILE = 2**20

_FILES = (("pypy", "PyPy itself: its code and data"),
          ("libraries", "other libraries: their code and data"),
          ("files", "other files that are mapped"),
          ("shared", "memory that processes can share (mmap, /dev/shm)"),
          ("stacks", "stacks of threads"),
          ("code", "machine code (the JIT's)"))
#: the keys of the rows that a program cannot avoid
_NOBODYS = "pypy", "libraries"
_ANONYMOUS = "arenas", "blocks", "anonymous"
OBJECTS, ROOM, HEAP, NURSERY, C, FREE, MAPPED, C_OR_FREE = (
    "objects", "gc_room", "gc_arenas", "nursery", "c", "malloc_free", "mapped",
    "c_or_free")
UNTOUCHED, SWAPPED, REST = "untouched", "swapped", "not_explained"


_OTHER = "C code's (malloc), and what malloc keeps free"


class Row(NamedTuple):
    """A part of the resident memory."""

    key: str
    what: str
    #: the resident bytes; negative for bytes that other rows contain and that are not
    #: resident
    bytes: int
    #: the bytes that other processes share; None if they are unknown for this row
    shared: int | None = None


class Where(NamedTuple):
    """The parts of the resident memory, in bytes."""

    #: the rows, whose sum is `resident`; the last one is the unexplained rest
    rows: list[Row]
    resident: int
    #: the resident bytes that no other process shares
    private: int
    #: the swapped bytes, which are not resident
    swapped: int
    #: the bytes of malloc, including the GC's heap, that other processes share
    malloc_shared: int
    #: a sentence about the largest part, with a proposal to reduce this part
    sentence: str
    notes: list[str]


def of(facts: Mapping[str, int]) -> Where:
    """Return the parts of the resident memory.

    Args:
        facts: the numbers of vmprof_allocation.memory.facts.

    Raises:
        KeyError: A number is missing.
    """
    kinds = [*(key for key, _ in _FILES), *_ANONYMOUS]
    resident, private, swapped = (sum(facts["%s.%s" % (kind, name)] for kind in kinds)
                                  for name in ("resident", "private", "swapped"))
    heap = _Malloc(facts)
    rows = heap.rows + [
        Row(key, what, facts[key + ".resident"],
            facts[key + ".resident"] - facts[key + ".private"])
        for key, what in _FILES if facts[key + ".resident"]]
    rows = [row for row in rows if row.bytes > 0]
    rows.sort(key=lambda row: -row.bytes)
    rows += [row for row in heap.negative if row.bytes]
    rest = resident - sum(row.bytes for row in rows)
    rows.append(Row(REST, "not explained" if heap.is_known
                    else "not explained: not known", rest))
    shared = sum(facts[kind + ".resident"] - facts[kind + ".private"]
                 for kind in _ANONYMOUS)
    return Where(rows, resident, private, swapped, shared,
                 _sentence(rows, resident, heap, facts),
                 heap.notes + _notes(facts, shared, resident))


class _Malloc:
    """The rows of anonymous memory, which belongs to malloc or was mapped directly."""

    def __init__(self, facts: Mapping[str, int]) -> None:
        """Calculate the rows from the numbers of vmprof_allocation.memory.facts."""
        gc_arenas, large, nursery = (facts["gc." + name] for name in (
            "arenas", "large", "nursery"))
        # The GC takes seconds to fill a large nursery for the first time.
        written = facts.get("gc.nursery.written")
        of_gc = gc_arenas + large + nursery
        #: the bytes of the nursery that were never written to; 0 if they are unknown
        self.unused = 0 if written is None else nursery - written
        self.is_nursery_known = written is not None
        blocks = facts.get("gc.blocks")
        #: the swapped bytes of all anonymous memory
        self.swapped = sum(facts[kind + ".swapped"] for kind in _ANONYMOUS)
        #: the smallest number of bytes in use that were never written to, and the
        #: number of additional bytes that are either such bytes or free
        self.untouched = self.perhaps = 0
        #: the bytes of large objects, which the GC may not have written to
        self.large = large
        self.rows = [Row(NURSERY, "nursery (young objects)" + (
            "" if written is not None else ": its size, resident or not"),
                         nursery - self.unused)]
        #: whether the unexplained rest is known
        self.is_known = True
        self.notes: list[str] = []
        if blocks is None:
            self.rows.append(Row(HEAP, "the GC's objects, and free room in its arenas",
                                 gc_arenas + large))
            self.notes.append(
                "how much of the GC's arenas is free is not known: " + (
                    "it was sweeping, and counts anew meanwhile; at another moment it "
                    "is known"
                    if facts.get("gc.sweeps") else
                    "it may have been sweeping, and counts anew meanwhile"))
        else:
            self.rows += [
                Row(OBJECTS, "Python objects, with those that the GC has not freed yet",
                    blocks + large),
                Row(ROOM, "free room in the GC's arenas", gc_arenas - blocks)]
        # the bytes that were written to
        self._count(facts, of_gc, *(facts[kind + ".resident"] + facts[kind + ".swapped"]
                                    for kind in _ANONYMOUS))
        self.negative = [
            Row(UNTOUCHED, "thereof requested, never written to", -self.untouched),
            Row(SWAPPED, "thereof swapped out", -self.swapped)]

    def _count(self, facts: Mapping[str, int], of_gc: int, in_arenas: int,
               in_blocks: int, in_others: int) -> None:
        """Add the rows of C code and of free memory, if malloc's count shows them.

        Args:
            facts: the numbers of vmprof_allocation.memory.facts.
            of_gc: the bytes that the GC has got from malloc.
            in_arenas: the bytes in malloc's arenas that were written to.
            in_blocks: the bytes in malloc's mapped blocks that were written to.
            in_others: the bytes in other anonymous mappings that were written to.
        """
        used, free, arenas, mapped = (facts.get("malloc." + name, -1) for name in (
            "used", "free", "arenas", "mapped"))
        if used < 0 or used + mapped < of_gc:
            present = in_arenas + in_blocks + in_others
            of_gc -= self.unused
            # It is unknown how much of the GC's memory was never written to.
            self.rows.append(Row(C_OR_FREE, _OTHER + ": at least",
                                 max(present - of_gc, 0)))
            self.is_known = False
            self.notes.append(
                "memory of C code, free memory of malloc, and memory mapped without "
                "malloc are not known separately: this malloc does not report its "
                "memory (glibc's does since 2.33)")
            self.untouched = max(of_gc - present, 0)
            return
        if (facts["arenas.size"] + _MEANWHILE < arenas
                or facts["blocks.size"] + _MEANWHILE < mapped):
            # This happens, for example, if the main arena cannot grow: malloc continues
            # elsewhere, in unmarked mappings.
            present = in_arenas + in_blocks + in_others
            of_malloc = min(present, used + mapped + free)
            of_gc -= self.unused
            self.rows.append(Row(C_OR_FREE, _OTHER, max(of_malloc - of_gc, 0)))
            self.notes.append(
                "memory of C code and free memory of malloc are not known separately: "
                "not all of malloc's memory was found among the mappings")
            self.untouched = max(of_gc - of_malloc, 0)
            return
        kept = min(max(in_arenas - used, 0), free)
        self.untouched = max(mapped - in_blocks - self.unused, 0) + max(
            used - in_arenas, 0)
        self.perhaps = min(free, in_arenas) - kept
        self.rows += [
            Row(C, "asked for by C code (malloc), PyPy's own included",
                used + mapped - of_gc),
            Row(FREE, "free in malloc's lists", kept),
            Row(MAPPED, "mapped by C code itself (mmap), without malloc", in_others)]


def _sentence(rows: list[Row], resident: int, heap: _Malloc,
              facts: Mapping[str, int]) -> str:
    """Return a sentence about the largest part; with PyPy, also about the next one."""
    absent = heap.untouched + heap.swapped
    #: the bytes of each row that may not be resident
    may_miss = {OBJECTS: min(absent, heap.large + heap.swapped), HEAP: absent,
                NURSERY: heap.swapped if heap.is_nursery_known else absent,
                C: absent + heap.perhaps, C_OR_FREE: absent,
                ROOM: absent, MAPPED: heap.swapped}
    least = {row.key: row.bytes - may_miss.get(row.key, 0) for row in rows
             if row.bytes > 0}
    if not least or resident <= 0:
        return ""
    by_size = sorted(least, key=lambda one: -least[one])
    texts = [_about(key, least[key], may_miss.get(key, 0) > _LITTLE * resident,
                    resident, facts, is_largest=key == by_size[0])
             for key in by_size[:2]]
    if (by_size[0] in _NOBODYS and len(texts) > 1
            and least[by_size[1]] > _MUCH * resident):
        return "%s; besides, %s" % (texts[0], texts[1])
    return texts[0]


def _about(key: str, bytes_: int, is_least: bool, resident: int,
           facts: Mapping[str, int], *, is_largest: bool) -> str:
    """Return a sentence about a row, with a proposal to reduce its memory.

    Another size of the nursery needs a restart and changes the speed of the program. So
    it is proposed only if the resident part of the nursery is the largest row.
    """
    at_least = "at least " if is_least else ""
    size = at_least + format_bytes(bytes_)
    share = "%s%.0f %%" % (at_least, 100 * bytes_ / resident)
    return {
        OBJECTS: "Python objects hold %s of it: the command leaks shows which of them "
                 "grow, and the command retainers what retains them" % share,
        ROOM: "the GC keeps %s (%s) free between live objects: it uses this memory for "
              "new objects of the same sizes, and returns an arena to the system when "
              "all of it is free" % (size, share),
        HEAP: "the GC's heap holds %s of it: the command leaks shows which objects "
              "grow" % share,
        NURSERY: "the nursery is %s of it%s" % (
            share, ": PYPY_GC_NURSERY sets its size" * is_largest),
        C: "C code holds %s of it (malloc), which reports about objects do not "
           "include: --native-memory 512k shows which functions requested it" % share,
        FREE: "malloc keeps %s (%s) of free memory, in %s: %smalloc_trim(0) returns "
              "it" % (size, share, format_number(facts["arenas"], "arena"),
                        "MALLOC_ARENA_MAX=2 in the environment makes them fewer, and "
                        if facts["arenas"] > 2 else ""),
        C_OR_FREE: "C code, with what malloc keeps free, has %s of it: the GC does not "
                   "know this memory" % share,
        "shared": "%s of it is memory that processes can share: a mapping (mmap, "
                  "/dev/shm), and no object" % share,
        "stacks": "stacks of %s hold %s of it" % (
            format_number(facts["threads"], "thread"), share),
        "code": "machine code is %s of it" % share,
        "pypy": "PyPy itself is %s of it" % share,
        "libraries": "libraries are %s of it" % share,
        "files": "files that are mapped are %s of it" % share,
        MAPPED: "%s of it is memory that C code has mapped itself, without malloc: no "
                "object, and not in malloc's count" % share,
        REST: "%s of it is not explained" % share}[key]


def _notes(facts: Mapping[str, int], shared: int, resident: int) -> list[str]:
    notes = []
    if shared > _LITTLE * resident:
        notes.append("%s of malloc's memory, objects included, are shared with other "
                     "processes (after a fork, until a process writes to them)"
                     % format_bytes(shared))
    # An older sampler does not send this number.
    if facts.get("transparent", 0) > _LITTLE * resident:
        notes.append("%s of the resident memory are in transparent huge pages: all "
                     "2 MiB of such a page are resident when one byte was written to"
                     % format_bytes(facts["transparent"]))
    if facts.get("peak", 0) > _FAR_MORE * resident:
        notes.append("%s were resident at the peak since the process began: the parts "
                     "of the peak were not recorded (pypy-alloc memory PID shows them "
                     "at that time)"
                     % format_bytes(facts["peak"]))
    if facts["huge"]:
        notes.append("besides, %s of huge pages that were reserved (hugetlbfs)"
                     % format_bytes(facts["huge"]))
    if "cgroup.limit" in facts:
        notes.append("its cgroup may take %s, and has %s, of which it can return %s of "
                     "files" % tuple(format_bytes(facts["cgroup." + name])
                                          for name in ("limit", "used", "files")))
    return notes
