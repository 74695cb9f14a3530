"""The symbols of a build for the functions and data that search.py looks for.

If the library is stripped, the symbols may be in a file next to it, as in the archives
of pypy.org, or in the folder of a distribution for such files.  The build-id shows
whether the file belongs to the build.
"""
from __future__ import annotations

import os
import re
import struct
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

#: The names in RPython's C code, by the names in search.py.
NAMES = {
    "the GC": "pypy_g_rpython_memory_gc_incminimark_IncrementalMiniMar",
    "collect_and_reserve": "pypy_g_IncrementalMiniMarkGC_collect_and_reserve",
    "_minor_collection": "pypy_g_IncrementalMiniMarkGC__minor_collection",
    "external_malloc": "pypy_g_IncrementalMiniMarkGC_external_malloc",
    "type table": "pypy_g_typeinfo",
}
#: The folder in which distributions store symbols by build-id.
DEBUG_FOLDER = "/usr/lib/debug/.build-id"


def build_id(elf: Any) -> str:
    """Return the build-id of a file.

    Raises:
        ELFError: the file has no build-id.
    """
    section = elf.get_section_by_name(".note.gnu.build-id")
    if section is None:
        raise ELFError("it has no section .note.gnu.build-id")
    data = section.data()
    name_size, size = struct.unpack_from("<II", data)
    start = 12 + (name_size + 3) // 4 * 4
    return str(data[start:start + size].hex())


class Symbols:
    """The symbols of NAMES in a build; empty if the build has no symbols."""

    def __init__(self) -> None:
        """Start without symbols."""
        self.address: dict[str, int] = {}
        #: The number of copies with fewer arguments that the compiler made of a
        #: function, by the name of the function in NAMES.
        self.copies: dict[str, int] = {}
        #: The file with the symbols, or "".
        self.path = ""


def read(path: str, elf: Any) -> Symbols:
    """Return the symbols of a build.

    Args:
        path: the file of PyPy's library.
        elf: the content of this file (ELFFile).
    """
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
    # pyelftools would be too slow for a table of a hundred thousand symbols
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
