"""Find PyPy's ticker, a word in libpypy that the interpreter reads at bytecodes.

If the ticker is negative, the interpreter releases the GIL at the next bytecode, also
in machine code of the JIT compiler. PyPy's signal handler sets the ticker to -1. Newer
builds export the ticker as `pypysig_counter`. In older builds, the code of the signal
handler contains the ticker's address. On AArch64, find() returns None.
"""
from __future__ import annotations

import ctypes
import os
import re
import signal

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry import maps
from vmprof_allocation.remote.entry.maps import Mapping

_NAME = "pypysig_counter"
#: number of bytes of the handler to search
_HANDLER_SIZE = 160
#: pattern of movq $-1, ticker(%rip) on x86-64
_STORE = re.compile(rb"\x48\xc7\x05(.{4})\xff{4}", re.DOTALL)
#: a signal that is ignored by default, so that find() can set a handler for a while
_SIGNAL = signal.SIGURG
#: size of a buffer for glibc's struct sigaction, in bytes
_ACTION_SIZE = 256


def find(ours: list[Mapping], libpypy: Mapping) -> int | None:
    """Return the address of the ticker in this process, or None if it is unknown.

    Args:
        ours: The mappings of this process.
        libpypy: A mapping of the file that contains PyPy.
    """
    if os.uname().machine != "x86_64":
        return None
    try:
        return ctypes.addressof(ctypes.c_long.in_dll(ctypes.CDLL(None), _NAME))
    except ValueError:
        pass
    handler = _handler()
    for code in ours:
        if (code.file == libpypy.file and "x" in code.permissions
                and code.start <= handler < code.end):
            size = min(_HANDLER_SIZE, code.end - handler)
            return stored(ctypes.string_at(handler, size), handler, ours)
    return None


def stored(code: bytes, address: int, ours: list[Mapping]) -> int | None:
    """Return the address of the word that a signal handler sets to -1.

    Args:
        code: The first bytes of the handler.
        address: The address of the handler.
        ours: The mappings of this process.

    Returns:
        None if there is no such word in writable memory, or more than one.
    """
    found = {address + match.end() + int.from_bytes(match[1], "little", signed=True)
             for match in _STORE.finditer(code)}
    if len(found) != 1:
        return None
    (word,) = found
    try:
        is_writable = "w" in maps.holding(ours, word).permissions
    except AllocationSamplingError:
        return None
    return word if is_writable and word % 8 == 0 else None


def _handler() -> int:
    """Return the address of PyPy's signal handler, or 0 if no handler can be set."""
    action = ctypes.create_string_buffer(_ACTION_SIZE)
    try:
        before = signal.signal(_SIGNAL, lambda number, frame: None)
    except ValueError:
        return 0            # this is not the main thread
    try:
        ctypes.CDLL(None).sigaction(int(_SIGNAL), None, action)
    finally:
        signal.signal(_SIGNAL, before)
    return int.from_bytes(action.raw[:ctypes.sizeof(ctypes.c_void_p)], "little")
