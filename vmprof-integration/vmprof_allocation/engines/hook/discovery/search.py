"""Find the nursery in a PyPy that has no symbols, by what its code does.

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

some 20,000 times, so that counting is enough to tell the addresses apart.
The functions of the GC are then decoded, instruction by instruction, and
have to do what their source does.  Every step either finds exactly one
answer or refuses: see :class:`Search`.  Symbols, where there are any, have to
agree, and tell one of several candidates.

Nothing here touches the process that is to be sampled, and nothing here is
imported into it: the libraries that read ELF files and decode instructions
would double a small program's heap.  lookup.py runs this module as a
program and compares what it found with what is in memory::

    python -m vmprof_allocation.engines.hook.discovery.search LIBRARY [CACHE]

prints a JSON object, ``{"layout": "..." or null, "problem": "...",
"findings": [[what, value, good], ...]}``, and leaves a layout that was found
in the file CACHE (cache.py).  What can't be seen in the file, how objects look, probe/
adds if it can: sampling works without it.
"""
from __future__ import annotations

import bisect
import collections
import json
import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from typing import Any, BinaryIO

import capstone
from capstone import x86
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from vmprof_allocation.engines.hook.discovery import cache, registers, symbols
from vmprof_allocation.engines.hook.discovery.layout import (
    ENTRIES,
    IMPORTS,
    Layout,
    pack,
)
from vmprof_allocation.errors import NOT_KNOWN, PASSING, Evidence, UnknownBuild

#: how many arguments those of ENTRIES have
ENTRY_ARGUMENTS = (2, 1, 4)
#: an answer counts as the only one if it is this many times as frequent as
#: the next one.  Measured on three builds: 17 to 60 for nursery_top, 19 to 25
#: for collect_and_reserve.
DOMINANCE = 4
#: and if it was seen at least this often
SEEN = 1000
#: the GC's fields are this close to its start, in bytes (found: 0x198, 0x1b8)
GC_SIZE = 0x400
#: bytes of code that a refusal shows: of each function, and around an allocation
FUNCTION, ALLOCATION = 512, 96
#: more than enough: it takes one
PROBE_SECONDS = 60
#: what disturbs an observation, such as a collection in between, is rare; and
#: the answer is kept for good
PROBES = 3
#: what fits into an environment variable, with all else that goes there
MAX_PACKED = 100000
#: the jump that is written over a function's entry, and the room for it
JUMP_SIZE, MAX_MOVED = 5, 8


class Search(Evidence):
    """The chain of questions; the findings are the answers so far.  What has a symbol
    has to be what its code says that it is."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = symbols.Symbols()
        #: code that somebody who mends this search wants to see: where it is
        self.seen: dict[str, int] = {}

    def dominant(self, what: str, counts: collections.Counter[int]) -> int:
        """The one answer that is far more frequent than all others."""
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
        """`value`: the address, and how it was found."""
        symbol = self.symbols.address.get(what.partition(" (")[0], address)
        if symbol != address:
            raise self.refuse(what, "%s, but its symbol is at 0x%x" % (value, symbol))
        self.found(what, value)


class Image:
    """The parts of the ELF file that the search reads."""

    def __init__(self, file: BinaryIO):
        self.elf = ELFFile(file)
        if (self.elf["e_machine"] != "EM_X86_64" or not self.elf.little_endian):
            raise ELFError("not an x86-64 program")
        self.text, self.text_address = self.section(".text")
        self.starts = self.function_starts()
        self._functions: dict[int, list[Any]] = {}
        self._slots: dict[str, dict[int, set[int]]] | None = None
        self.decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self.decoder.detail = True

    def section(self, name: str) -> tuple[bytes, int]:
        section = self.elf.get_section_by_name(name)
        if section is None:
            raise ELFError("it has no section %s" % name)
        return section.data(), section["sh_addr"]

    def function_starts(self) -> list[int]:
        """Start addresses of all functions, sorted: .eh_frame_hdr's table."""
        data, address = self.section(".eh_frame_hdr")
        version, pointer, count, table = struct.unpack_from("<BBBB", data)
        # the encodings that every linker for x86-64 writes: 32-bit, relative
        if (version, pointer, count, table) != (1, 0x1b, 0x03, 0x3b):
            raise ELFError("its table of functions is of an unknown kind")
        (entries,) = struct.unpack_from("<I", data, 8)
        words = struct.unpack_from("<%di" % (2 * entries), data, 12)
        return sorted(address + start for start in words[::2])

    def code(self, address: int) -> bytes:
        """The machine code of the function that starts at `address`."""
        i = bisect.bisect_left(self.starts, address)
        if i == len(self.starts) or self.starts[i] != address:
            return b""
        end = (self.starts[i + 1] if i + 1 < len(self.starts)
               else self.text_address + len(self.text))
        return self.text[address - self.text_address:end - self.text_address]

    def function(self, address: int) -> list[Any]:
        """Its instructions."""
        if address not in self._functions:
            self._functions[address] = list(
                self.decoder.disasm(self.code(address), address))
        return self._functions[address]

    def may_call(self, address: int, callee: int) -> bool:
        """Whether there is any reason to decode a function, which takes long:
        the bytes of a call are somewhere in it."""
        return any(
            address + match.end() + 4 + struct.unpack("<i", match.group(1))[0]
            == callee for match in _CALL.finditer(self.code(address)))

    def may_access(self, address: int, offset: int) -> bool:
        """Whether there is any reason to decode a function, to find an access to
        [register + offset]: these bytes are somewhere in it."""
        return (-128 <= offset < 128
                or struct.pack("<i", offset) in self.code(address))

    def import_slot(self, search: Search, name: str) -> int:
        """The pointer through which an imported function is called; 0 if it
        is not imported."""
        if self._slots is None:
            self._slots = self._import_slots()
        # R_X86_64_JUMP_SLOT before R_X86_64_GLOB_DAT: the first, where there
        # are both, is the one that is called
        for kind in 7, 6:
            slots = self._slots.get(name, {}).get(kind)
            if slots:
                return search.only("pointer to %s()" % name, slots)
        return 0

    def _import_slots(self) -> dict[str, dict[int, set[int]]]:
        """For each name and kind of relocation, the addresses.  There are
        hundreds of thousands, nearly all of them of no symbol: pyelftools
        would take seconds."""
        symbols, _ = self.section(".dynsym")
        strings, _ = self.section(".dynstr")
        found: dict[str, dict[int, set[int]]] = {}
        for section in ".rela.plt", ".rela.dyn":
            if self.elf.get_section_by_name(section) is None:
                continue
            for offset, info, _ in struct.iter_unpack(
                    "<QQq", self.section(section)[0]):
                symbol, kind = info >> 32, info & 0xffffffff
                if symbol and kind in (6, 7):
                    (start,) = struct.unpack_from("<I", symbols, 24 * symbol)
                    name = strings[start:strings.index(b"\0", start)].decode(
                        "ascii", "replace")
                    found.setdefault(name, {}).setdefault(
                        kind, set()).add(offset)
        return found

    def is_read_only(self, address: int) -> bool:
        return any(s["p_type"] == "PT_GNU_RELRO"
                   and s["p_vaddr"] <= address
                   and address + 8 <= (s["p_vaddr"] + s["p_memsz"]) & -4096
                   for s in self.elf.iter_segments())


# ____________________________________________________________
# counting: a few byte patterns over the whole text.  A pattern may match in
# the middle of an instruction; among 20,000 such noise doesn't count.

def _targets(image: Image, pattern: bytes) -> collections.Counter[int]:
    """Count the operands of the RIP-relative instructions that match; their
    displacement is the last thing in `pattern`."""
    counts: collections.Counter[int] = collections.Counter()
    for match in re.finditer(pattern, image.text, re.DOTALL):
        end = match.end()
        (displacement,) = struct.unpack_from("<i", image.text, end - 4)
        counts[image.text_address + end + displacement] += 1
    return counts


def _first(image: Image, pattern: bytes, target: int) -> int:
    """Where the first one of these is."""
    for match in re.finditer(pattern, image.text, re.DOTALL):
        (displacement,) = struct.unpack_from("<i", image.text, match.end() - 4)
        if image.text_address + match.end() + displacement == target:
            return image.text_address + match.start()
    raise KeyError(target)


_RIP = rb"[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]....(?<=....)"
_COMPARE = rb"[\x48\x4c][\x39\x3b]" + _RIP      # cmp reg, [rip+x] or reverse
_STORE = rb"[\x48\x4c]\x89" + _RIP              # mov [rip+x], reg
_CALL = re.compile(rb"\xe8(?=(....))", re.DOTALL)
_GC_CALL = re.compile(rb"\x48\x8d\x3d(....).{0,16}?\xe8(....)", re.DOTALL)


def _gc_calls(image: Image, inside: range) -> tuple[
        collections.Counter[int], dict[int, collections.Counter[int]]]:
    """Count `lea rdi, [rip+gc]; ...; call f`: by gc, and for each gc by f."""
    by_gc: collections.Counter[int] = collections.Counter()
    callees: dict[int, collections.Counter[int]] = {}
    starts = set(image.starts)
    for match in _GC_CALL.finditer(image.text):
        at = image.text_address + match.start()
        gc = at + 7 + struct.unpack("<i", match.group(1))[0]
        callee = (image.text_address + match.end()
                  + struct.unpack("<i", match.group(2))[0])
        if gc in inside and callee in starts:
            by_gc[gc] += 1
            callees.setdefault(gc, collections.Counter())[callee] += 1
    return by_gc, callees


# ____________________________________________________________
# decoding

def _stores_to(code: list[Any], offset: int) -> list[Any]:
    """The `mov [reg + offset], ...` of a function."""
    # what an instruction's operands are takes capstone longest
    wanted = b"" if -128 <= offset < 128 else struct.pack("<i", offset)
    return [i for i in code if i.id == x86.X86_INS_MOV and wanted in i.bytes
            for n, m in registers.memory(i)
            if n == 0 and m.disp == offset and m.base != x86.X86_REG_RIP]


def _calls(code: list[Any]) -> list[int]:
    return [i.operands[0].imm for i in code if i.id == x86.X86_INS_CALL
            and i.operands[0].type == x86.X86_OP_IMM]


def _type_table(code: list[Any]) -> dict[tuple[int, int], set[int]]:
    """Where a function works out an object's size: `imul n, [type + item]`, or with
    what was loaded from there.

    Returns for (address of the type table, offset of the item size) the offsets of the
    words that are read from the type before.
    """
    result: dict[tuple[int, int], set[int]] = {}
    for at, instruction in enumerate(code):
        if instruction.id != x86.X86_INS_IMUL:
            continue
        for operand in instruction.operands:
            found = registers.loaded_from(code, at, operand)
            if found is not None:
                reads = _reads(code[:at], found[0]) - {found[1]}
                result[found] = result.get(found, reads) & reads
    return result


def _reads(code: list[Any], table: int) -> set[int]:
    """The offsets of the words that are read from the table's entries."""
    return {m.disp for at, i in enumerate(code) if i.id == x86.X86_INS_MOV
            and i.operands[0].size == 8
            for n, m in registers.memory(i)
            if n == 1 and registers.table(code, at, m) == table}


def _movable(code: list[Any]) -> int:
    """How many bytes at a function's entry can run elsewhere: whole
    instructions that don't depend on where they are and that nothing jumps
    into.  0 if that is not enough for a jump, or too much to swap at once."""
    size = 0
    for instruction in code:
        if size >= JUMP_SIZE:
            break
        if (any(m.base == x86.X86_REG_RIP for _, m in registers.memory(instruction))
                or instruction.group(capstone.CS_GRP_JUMP)
                or instruction.group(capstone.CS_GRP_CALL)
                or instruction.group(capstone.CS_GRP_RET)):
            return 0
        size += instruction.size
    if not JUMP_SIZE <= size <= MAX_MOVED:
        return 0
    inner = range(code[0].address + 1, code[0].address + size)
    if any(i.mnemonic.startswith(("j", "loop", "xbegin"))
           and i.operands[0].type == x86.X86_OP_IMM
           and i.operands[0].imm in inner for i in code):
        return 0
    return size


# ____________________________________________________________
# the questions

def _find(path: str, image: Image, search: Search) -> Layout:
    build_id = symbols.build_id(image.elf)
    search.found("build-id", build_id)
    search.symbols = symbols.read(path, image.elf)
    search.found("symbols", "%d of %d, in %s" % (
        len(search.symbols.address), len(symbols.NAMES), search.symbols.path)
        if search.symbols.path else "none")
    search.found("functions", "%d" % len(image.starts))

    top = search.dominant("nursery_top (compared with)",
                          _targets(image, _COMPARE))
    stores = _targets(image, _STORE)
    search.seen["an allocation"] = _first(image, _COMPARE, top) - ALLOCATION // 2
    below = collections.Counter({
        a: n for a, n in stores.items() if top - 0x100 <= a < top})
    free = search.dominant("nursery_free (stored to, below nursery_top)", below)

    # link-time optimization does that: they have fewer arguments, and each would have
    # to be hooked
    for what in ENTRIES:
        if what in search.symbols.copies and what not in search.symbols.address:
            raise search.refuse(what, "the compiler made %d of it, for arguments that "
                                "are always the same" % search.symbols.copies[what])

    by_gc, callees = _gc_calls(image, range(top - GC_SIZE, free + 1))
    gc = search.dominant("the GC (first argument)", by_gc)
    free_offset, top_offset = free - gc, top - gc

    reserve = search.dominant(ENTRIES[0], callees[gc])
    search.seen[ENTRIES[0]] = reserve
    reserve_code = image.function(reserve)
    if not (any(i.operands[1].type == x86.X86_OP_IMM and i.operands[1].imm == 0
                for i in _stores_to(reserve_code, free_offset))
            and _stores_to(reserve_code, top_offset)):
        raise search.refuse(ENTRIES[0], "0x%x does not move nursery_free and "
                            "nursery_top" % reserve)

    minor = search.only(ENTRIES[1], {
        f for f in set(_calls(reserve_code))
        if image.may_access(f, top_offset) and image.may_access(f, free_offset)
        and _stores_to(image.function(f), top_offset)
        and _stores_to(image.function(f), free_offset)})

    search.seen[ENTRIES[1]] = minor
    tables = _type_table(reserve_code)
    if len(tables) != 1:
        raise search.refuse("type table", "%d candidates in %s"
                            % (len(tables), ENTRIES[0]))
    (((table, item), reads),) = tables.items()
    # which compilers inline, or not
    collectors = {minor} | {f for f in set(_calls(reserve_code))
                            if image.may_call(f, minor)
                            and minor in _calls(image.function(f))}
    external_tables = {}
    for f, _ in callees[gc].most_common(40):
        if f == reserve or not any(image.may_call(f, c) for c in collectors):
            continue
        code = image.function(f)
        if (collectors.intersection(_calls(code))
                and (table, item) in (found := _type_table(code))):
            external_tables[f] = found[table, item]
    external = search.only(ENTRIES[2], set(external_tables))
    search.seen[ENTRIES[2]] = external
    search.answer("type table", table, "0x%x, size of an item at 0x%x" % (table, item))
    fixed = search.only("offset of the fixed size in a type",
                        reads & external_tables[external])

    entry = [reserve, minor, external]
    moved, code = [], []
    for name, address, arguments in zip(ENTRIES, entry, ENTRY_ARGUMENTS):
        size = _movable(image.function(address))
        if size == 0 or address % 8:
            raise search.refuse("entry of %s" % name,
                                "its first instructions can't be moved")
        if not registers.takes(image.function(address), arguments):
            raise search.refuse("arguments of %s" % name, "it does not read %d from "
                                "registers" % arguments)
        offset = address - image.text_address
        moved.append(size)
        code.append(image.text[offset:offset + 16].hex())
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
        build_id=build_id, gc=gc, nursery_free=free, nursery_top=top,
        entry=entry, moved=moved, code=code, slot=slot,
        slots_read_only=read_only,
        type_info=table, type_fixed_size=fixed, type_item_size=item)


def _show(image: Image, search: Search) -> None:
    """The code that was seen; with it, a refusal can be understood elsewhere."""
    for what, address in search.seen.items():
        code = image.code(address)[:FUNCTION] or image.text[
            address - image.text_address:][:ALLOCATION]
        search.found("code of %s" % what, "0x%x: %s" % (address, code.hex()))


def find(path: str, search: Search) -> Layout:
    """Search the program or library at `path`.

    Raises UnknownBuild if any answer is missing or doubtful.
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
    """The layout with what probe/ finds out, and the names of types.  It
    follows pointers: if that goes wrong, a process of its own dies."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("PYPY_GC_")}
    # the JIT makes objects later than the program says, or not at all
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
        # it was killed, as for lack of memory, or the machine had no time for it; or a
        # pointer led nowhere
        is_passing = isinstance(e, (OSError, subprocess.TimeoutExpired)) or (
            done.returncode in (-signal.SIGKILL, -signal.SIGABRT))
        search.found("objects", "%s: the probe failed: %r" % (
            PASSING if is_passing else NOT_KNOWN, e))
        return layout, b""
    search.findings += findings
    return probed, types


def main(arguments: list[str]) -> None:
    search = Search()
    answer: dict[str, Any] = {"layout": None, "problem": "",
                              "findings": search.findings}
    try:
        layout, types = _probed(find(arguments[0], search), search)
        layout.types_size, layout.types_check = len(types), zlib.crc32(types)
        is_lasting = not any(value.startswith(PASSING)
                             for _, value, _ in search.findings)
        if not (is_lasting and len(arguments) > 1
                and cache.save(arguments[1], layout.text(), types)):
            layout.types = pack(types) if types else ""
            if len(layout.types) > MAX_PACKED:
                layout.types_size, layout.types = 0, ""
        answer["layout"] = layout.text()
    except UnknownBuild as e:
        answer["problem"] = str(e)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
