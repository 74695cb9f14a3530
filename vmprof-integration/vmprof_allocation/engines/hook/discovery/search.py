"""Find the nursery in a stripped PyPy by its machine code.

RPython inlines every small allocation::

    mov  rdx, [nursery_free]        ; RIP-relative
    lea  rsi, [rdx + 32]
    mov  [nursery_free], rsi
    cmp  rsi, [nursery_top]
    ja   slow
    ...
    slow:
    lea  rdi, [the GC]
    mov  esi, 32
    call collect_and_reserve

A build has about 20,000 such allocations, so counting suffices to distinguish the
addresses.  The functions of the GC are then decoded, instruction by instruction, and
compared with the operations of their source.  Every step either finds exactly one
answer or refuses the build: see :class:`Search`.  If the build has symbols, they must
agree with the answers, and they decide between several candidates.

The search does not touch the process that is to be sampled, and is not imported into
it: the libraries that read ELF files and decode instructions would double the heap of a
small program.  lookup.py runs this module as a program, and compares its results with
the memory::

    python -m vmprof_allocation.engines.hook.discovery.search LIBRARY [CACHE]

It prints a JSON object, ``{"layout": "..." or null, "problem": "...", "findings":
[[what, value, good], ...]}``, and writes a layout that it found to the file CACHE
(cache.py).  LIBRARY does not show the layout of objects.  The probe (probe/) finds this
layout in a running PyPy if possible; sampling also works without it.
"""
from __future__ import annotations

import collections
import json
import os
import signal
import struct
import subprocess
import sys
import zlib
from typing import Any, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from vmprof_allocation.engines.hook.discovery import cache, machines, symbols
from vmprof_allocation.engines.hook.discovery.layout import (
    ENTRIES,
    IMPORTS,
    Layout,
    pack,
)
from vmprof_allocation.engines.hook.discovery.machines.machine import Machine, Text
from vmprof_allocation.errors import NOT_KNOWN, PASSING, Evidence, UnknownBuild

#: The number of arguments of each function in ENTRIES.
ENTRY_ARGUMENTS = (2, 1, 4)
#: A candidate is the answer only if its frequency is at least this multiple of the next
#: candidate's.
#: Measured on three builds: 17 to 60 for nursery_top, 19 to 25 for collect_and_reserve.
DOMINANCE = 4
#: The minimum frequency of an answer.
SEEN = 1000
#: The maximum offset of the GC's fields in bytes (found: 0x198, 0x1b8).
GC_SIZE = 0x400
#: The number of bytes of code that a refusal shows for each function, and around an
#: allocation.
FUNCTION, ALLOCATION = 512, 96
#: The time in seconds after which a probe counts as hung.  It is long because the probe
#: may wait for a processor of a busy machine; probe/__main__.py limits its CPU time.
PROBE_SECONDS = 1800
#: The number of attempts of the probe.  An attempt rarely fails, for example if a
#: collection disturbs an observation.  But the cache keeps the result for ever.
PROBES = 3
#: The dynamic linker makes whole pages read-only.
PAGE = os.sysconf("SC_PAGE_SIZE")
#: The maximum size of packed names of types: the layout must fit into an environment
#: variable together with other text.
MAX_PACKED = 100000


class Search(Evidence):
    """The state of a search: the symbols of the build, and the answers until now.

    A question of the search is, for example, the address of nursery_top.  Each answer
    becomes a finding.  If the build has a symbol for the question, the symbol's address
    must agree with the answer.
    """

    def __init__(self) -> None:
        """Start without symbols and answers."""
        super().__init__()
        self.symbols = symbols.Symbols()
        #: The addresses of code that a refusal shows, by a name for the report.  The
        #: code helps to extend the search.
        self.seen: dict[str, int] = {}

    def dominant(self, what: str, counts: collections.Counter[int]) -> int:
        """Return the candidate that is far more frequent than all others.

        Args:
            what: the question.
            counts: how often each candidate occurs in the code.

        Raises:
            UnknownBuild: no candidate is frequent enough.
        """
        ranking = counts.most_common(2)
        if not ranking:
            raise self.refuse(what, "no candidate")
        address, count = ranking[0]
        second = ranking[1][1] if len(ranking) > 1 else 0
        if count < SEEN or count < DOMINANCE * second:
            raise self.refuse(what, "no clear answer: %d times, then %d times"
                              % (count, second))
        self.answer(what, address, "0x%x (%d times; the next one %d times)"
                    % (address, count, second))
        return address

    def only(self, what: str, candidates: set[int]) -> int:
        """Return the only candidate, or the candidate that has the question's symbol.

        Args:
            what: the question.
            candidates: the possible answers.

        Raises:
            UnknownBuild: several candidates or none remain.
        """
        if self.symbols.address.get(what) in candidates:
            candidates = {self.symbols.address[what]}
        if len(candidates) != 1:
            raise self.refuse(what, "%d candidates%s" % (
                len(candidates),
                "".join(" 0x%x" % c for c in sorted(candidates)[:4])))
        (address,) = candidates
        self.answer(what, address, "0x%x" % address)
        return address

    def answer(self, what: str, address: int, value: str) -> None:
        """Record the answer to a question as a finding.

        Args:
            what: the question.
            address: the answer.
            value: the address as text, and how it was found.

        Raises:
            UnknownBuild: the question's symbol has another address.
        """
        symbol = self.symbols.address.get(what.partition(" (")[0], address)
        if symbol != address:
            raise self.refuse(what, "%s, but its symbol is at 0x%x" % (value, symbol))
        self.found(what, value)


class Image:
    """The parts of PyPy's ELF file that the search reads."""

    def __init__(self, file: BinaryIO):
        """Read the code of an open file.

        Raises:
            ELFError: the file is invalid.
            ValueError: the file is for an unknown machine.
        """
        self.elf = ELFFile(file)
        if not self.elf.little_endian:
            raise ELFError("it is for a big-endian processor")
        self.text = Text(*self.section(".text"), self.function_starts())
        self.machine = machines.machine(self.elf["e_machine"], self.text)
        self._slots: dict[str, dict[int, set[int]]] | None = None

    def section(self, name: str) -> tuple[bytes, int]:
        """Return the content and the address of a section.

        Raises:
            ELFError: the file does not have this section.
        """
        section = self.elf.get_section_by_name(name)
        if section is None:
            raise ELFError("it has no section %s" % name)
        return section.data(), section["sh_addr"]

    def function_starts(self) -> list[int]:
        """Return the sorted addresses of all functions (.eh_frame_hdr)."""
        data, address = self.section(".eh_frame_hdr")
        version, pointer, count, table = struct.unpack_from("<BBBB", data)
        # every linker encodes the pointers of a 64-bit .eh_frame_hdr as relative
        # numbers of 32 bits
        if (version, pointer, count, table) != (1, 0x1b, 0x03, 0x3b):
            raise ELFError("its table of functions (.eh_frame_hdr) has an unknown "
                           "format")
        (entries,) = struct.unpack_from("<I", data, 8)
        words = struct.unpack_from("<%di" % (2 * entries), data, 12)
        return sorted(address + start for start in words[::2])

    def import_slot(self, search: Search, name: str) -> int:
        """Return the address of the pointer to an imported function.

        Returns:
            0 if the function is not imported.
        """
        if self._slots is None:
            self._slots = self._import_slots()
        # if the function has pointers of both kinds, calls use the first kind
        for kind in self.machine.import_kinds:
            slots = self._slots.get(name, {}).get(kind)
            if slots:
                return search.only("pointer to %s()" % name, slots)
        return 0

    def _import_slots(self) -> dict[str, dict[int, set[int]]]:
        """Return the addresses of pointers, for each name and kind of relocation.

        Nearly all of the hundreds of thousands of relocations have no symbol;
        pyelftools would take seconds for them.
        """
        symbols, _ = self.section(".dynsym")
        strings, _ = self.section(".dynstr")
        found: dict[str, dict[int, set[int]]] = {}
        for section in ".rela.plt", ".rela.dyn":
            if self.elf.get_section_by_name(section) is None:
                continue
            for offset, info, _ in struct.iter_unpack(
                    "<QQq", self.section(section)[0]):
                symbol, kind = info >> 32, info & 0xffffffff
                if symbol and kind in self.machine.import_kinds:
                    (start,) = struct.unpack_from("<I", symbols, 24 * symbol)
                    name = strings[start:strings.index(b"\0", start)].decode(
                        "ascii", "replace")
                    found.setdefault(name, {}).setdefault(
                        kind, set()).add(offset)
        return found

    def is_addressed(self, function: int) -> bool:
        """Return whether a call by an address may fail after an entry patch.

        This is the case if the machine restricts the instructions to which such a call
        may lead (Machine.addressed()), and the address of the function is taken.
        """
        made = self.machine.addressed()
        pointer = struct.pack("<Q", function)
        return made is not None and (function in made or any(
            pointer in section.data() for section in self.elf.iter_sections()
            if section.name == ".rela.dyn" or (
                section["sh_flags"] & SH_FLAGS.SHF_WRITE
                and section["sh_type"] != "SHT_NOBITS")))

    def is_read_only(self, address: int) -> bool:
        """Return whether the dynamic linker makes a pointer read-only."""
        return any(s["p_type"] == "PT_GNU_RELRO"
                   and s["p_vaddr"] <= address
                   and address + 8 <= (s["p_vaddr"] + s["p_memsz"]) & -PAGE
                   for s in self.elf.iter_segments())


def _type_tables(machine: Machine, function: int) -> dict[tuple[int, int], set[int]]:
    """Find the type table by the code that computes an object's size.

    This code multiplies the object's length by the item size, which it reads from the
    type's entry in the table.

    Returns:
        The candidates: for each (address of the type table, offset of the item size),
        the offsets of the words that the function reads from the entry before.
    """
    result: dict[tuple[int, int], set[int]] = {}
    for at, found in machine.factors(function):
        table, item = found
        reads = machine.displacements(function, at, table) - {item}
        result[found] = result.get(found, reads) & reads
    return result


# ____________________________________________________________
# the questions of the search

def _find(path: str, image: Image, search: Search) -> Layout:
    machine = image.machine
    build_id = symbols.build_id(image.elf)
    search.found("build-id", build_id)
    search.symbols = symbols.read(path, image.elf)
    search.found("symbols", "%d of %d, in %s" % (
        len(search.symbols.address), len(symbols.NAMES), search.symbols.path)
        if search.symbols.path else "none")
    search.found("functions", "%d" % len(image.text.starts))

    top = search.dominant("nursery_top (compared with)", machine.compared())
    search.seen["an allocation"] = machine.first_compared(top) - ALLOCATION // 2
    below = collections.Counter({
        a: n for a, n in machine.stored().items() if top - 0x100 <= a < top})
    free = search.dominant("nursery_free (stored to, below nursery_top)", below)

    # link-time optimization makes copies with fewer arguments, each of which would need
    # a hook
    for what in ENTRIES:
        if what in search.symbols.copies and what not in search.symbols.address:
            raise search.refuse(what, "the compiler made %d copies of it for constant "
                                      "arguments" % search.symbols.copies[what])

    callees = machine.passed(range(top - GC_SIZE, free + 1))
    gc = search.dominant("the GC (first argument)", collections.Counter({
        a: sum(count.values()) for a, count in callees.items()}))
    free_offset, top_offset = free - gc, top - gc

    reserve = search.dominant(ENTRIES[0], callees[gc])
    search.seen[ENTRIES[0]] = reserve
    if not (machine.clears(reserve, free_offset)
            and machine.stores(reserve, {top_offset})):
        raise search.refuse(ENTRIES[0], "the function at 0x%x does not store to "
                                        "nursery_free and nursery_top" % reserve)

    minor = search.only(ENTRIES[1], {
        f for f in machine.callees(reserve)
        if machine.stores(f, {free_offset, top_offset})})

    search.seen[ENTRIES[1]] = minor
    tables = _type_tables(machine, reserve)
    if len(tables) != 1:
        raise search.refuse("type table", "%d candidates in %s"
                            % (len(tables), ENTRIES[0]))
    (((table, item), reads),) = tables.items()
    # the compiler may have inlined a function between external_malloc() and
    # _minor_collection()
    collectors = {minor} | {f for f in machine.callees(reserve)
                            if machine.calls(f, {minor})}
    external_tables = {}
    for f, _ in callees[gc].most_common(40):
        if (f != reserve and machine.calls(f, collectors)
                and (table, item) in (found := _type_tables(machine, f))):
            external_tables[f] = found[table, item]
    external = search.only(ENTRIES[2], set(external_tables))
    search.seen[ENTRIES[2]] = external
    search.answer("type table", table, "0x%x, size of an item at 0x%x" % (table, item))
    fixed = search.only("offset of the fixed size in a type",
                        reads & external_tables[external])

    entry = [reserve, minor, external]
    moved, code = [], []
    for name, address, arguments in zip(ENTRIES, entry, ENTRY_ARGUMENTS):
        size = machine.movable(address)
        if size == 0:
            raise search.refuse("entry of %s" % name,
                                "its first instructions cannot be moved")
        if image.is_addressed(address):
            raise search.refuse("entry of %s" % name, "its address is taken, and an "
                                                      "indirect call cannot enter the "
                                                      "jump")
        if not machine.takes(address, arguments):
            raise search.refuse("arguments of %s" % name, "it does not read %d "
                                                          "arguments from "
                                                          "registers" % arguments)
        offset = address - image.text.address
        moved.append(size)
        code.append(image.text.data[offset:offset + 16].hex())
        search.found("entry of %s" % name, "%d bytes can be moved" % size)

    slot = [image.import_slot(search, name) for name in IMPORTS]
    there = {name for name, pointer in zip(IMPORTS, slot) if pointer}
    if not ({"write", "munmap", "sigaction"} <= there
            and there & {"mmap", "mmap64"}):
        raise search.refuse(
            "pointers to write(), mmap(), munmap() and sigaction()",
            "not imported")
    read_only = sum(1 << i for i, pointer in enumerate(slot)
                    if pointer and image.is_read_only(pointer))
    return Layout(
        build_id=build_id, machine=machine.name, gc=gc, nursery_free=free,
        nursery_top=top, entry=entry, moved=moved, code=code, slot=slot,
        slots_read_only=read_only,
        type_info=table, type_fixed_size=fixed, type_item_size=item)


def _show(image: Image, search: Search) -> None:
    """Add the code at the seen addresses to the findings, to explain a refusal."""
    for what, address in search.seen.items():
        code = image.text.code(address)[:FUNCTION] or image.text.data[
            address - image.text.address:][:ALLOCATION]
        search.found("code of %s" % what, "0x%x: %s" % (address, code.hex()))


def find(path: str, search: Search) -> Layout:
    """Find the addresses and the layout of the GC in a program or library.

    Args:
        path: the file of the program or library.
        search: receives a note on each step.

    Raises:
        UnknownBuild: an address or offset was not found, or is ambiguous.
    """
    try:
        with open(path, "rb") as file:
            image = Image(file)
            try:
                return _find(path, image, search)
            except UnknownBuild:
                _show(image, search)
                raise
    except (OSError, ELFError, struct.error, ValueError) as e:
        raise search.refuse("reading %s" % path, str(e)) from e


def _probed(layout: Layout, search: Search) -> tuple[Layout, bytes]:
    """Return a layout that also has the results of probe/, and the names of types.

    The probe runs in a separate process, because it follows pointers that may be
    invalid.
    """
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("PYPY_GC_")}
    # the JIT allocates objects later than the program does, or not at all
    command = [sys.executable, *(["--jit", "off"] if "__pypy__" in
                                 sys.builtin_module_names else []),
               "-m", "vmprof_allocation.engines.hook.probe"]
    try:
        for _ in range(PROBES):
            done = subprocess.run(
                command, input=layout.text(), capture_output=True, text=True,
                env=environment, timeout=PROBE_SECONDS)
            answer = json.loads(done.stdout)
            if answer["certain"]:
                break
        probed = Layout.parse(answer["layout"])
        findings = [tuple(finding) for finding in answer["findings"]]
        types = answer["types"].encode("utf-8", "replace")
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
        # The process was killed, for example for lack of memory, or exceeded its time,
        # or a pointer was invalid.
        is_passing = isinstance(e, (OSError, subprocess.TimeoutExpired)) or (
            done.returncode in (-signal.SIGKILL, -signal.SIGABRT))
        search.found("objects", "%s: the probe failed: %r" % (
            PASSING if is_passing else NOT_KNOWN, e))
        return layout, b""
    search.findings += findings
    return probed, types


def main(arguments: list[str]) -> None:
    """Run the search, and print the result as JSON.

    Args:
        arguments: the library, and perhaps the file of the cache.
    """
    search = Search()
    answer: dict[str, Any] = {"layout": None, "problem": "",
                              "findings": search.findings}
    try:
        layout, types = _probed(find(arguments[0], search), search)
        layout.types_size, layout.types_check = len(types), zlib.crc32(types)
        passing = ["%s: %s" % (what, value) for what, value, _ in search.findings
                   if value.startswith(PASSING)]
        answer["not_kept"] = (
            "; ".join(passing) if passing
            else cache.save(arguments[1], layout.text(), types) if len(arguments) > 1
            else "the user has no home")
        if answer["not_kept"]:
            layout.types = pack(types) if types else ""
            if len(layout.types) > MAX_PACKED:
                layout.types_size, layout.types = 0, ""
        answer["layout"] = layout.text()
    except UnknownBuild as e:
        answer["problem"] = str(e)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
