"""What a build that has symbols calls the parts that search.py looks for.

Of a library that is stripped, they may be in a file beside it, as pypy.org's archives
have it, or where distributions keep such files.  That file has to be of the same build:
its build-id says so.
"""
from __future__ import annotations

import os
import re
import struct
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

#: names that RPython gives in C, by what search.py calls them
NAMES = {
    "the GC": "pypy_g_rpython_memory_gc_incminimark_IncrementalMiniMar",
    "collect_and_reserve": "pypy_g_IncrementalMiniMarkGC_collect_and_reserve",
    "_minor_collection": "pypy_g_IncrementalMiniMarkGC__minor_collection",
    "external_malloc": "pypy_g_IncrementalMiniMarkGC_external_malloc",
    "type table": "pypy_g_typeinfo",
}
#: where distributions keep them, by build-id
DEBUG_FOLDER = "/usr/lib/debug/.build-id"


def build_id(elf: Any) -> str:
    """Raises ELFError if there is none."""
    section = elf.get_section_by_name(".note.gnu.build-id")
    if section is None:
        raise ELFError("it has no section .note.gnu.build-id")
    data = section.data()
    name_size, size = struct.unpack_from("<II", data)
    start = 12 + (name_size + 3) // 4 * 4
    return str(data[start:start + size].hex())


class Symbols:
    """Of NAMES; empty where there are none."""

    def __init__(self) -> None:
        self.address: dict[str, int] = {}
        #: functions of which the compiler made others, with fewer arguments
        self.copies: dict[str, int] = {}
        #: the file that says so
        self.path = ""


def read(path: str, elf: Any) -> Symbols:
    """Of the build in the file at `path`."""
    found = Symbols()
    if _read(elf, found):
        found.path = path
        return found
    identity = build_id(elf)
    for name in (path + ".debug", os.path.join(
            DEBUG_FOLDER, identity[:2], identity[2:] + ".debug")):
        try:
            with open(name, "rb") as file:
                beside = ELFFile(file)
                if build_id(beside) == identity and _read(beside, found):
                    found.path = name
                    break
        except (OSError, ELFError, struct.error):
            pass
    return found


def _read(elf: Any, found: Symbols) -> bool:
    section = elf.get_section_by_name(".symtab")
    if section is None:
        return False
    strings = elf.get_section(section["sh_link"]).data()
    # not with pyelftools: there are a hundred thousand
    wanted = {}
    for what, name in NAMES.items():
        for match in re.finditer(rb"\0%s((?:\.(?:constprop|isra)\.\d+)*)(?=\0)"
                                 % name.encode(), strings):
            if match.group(1):
                found.copies[what] = found.copies.get(what, 0) + 1
            else:
                wanted[match.start() + 1] = what
    for place, _, _, _, address, _ in struct.iter_unpack("<IBBHQQ", section.data()):
        if place in wanted:
            found.address[wanted[place]] = address
    return bool(found.address)
