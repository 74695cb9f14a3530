"""Call the native part of the injection (native/attach/tracer.h) through ctypes."""
from __future__ import annotations

import ctypes
import os

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry.target import FUNCTIONS, Target

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class _Request(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "pid", "tid", "milliseconds", "is_code_allowed")),
        *((name, ctypes.c_uint64) for name in (
            *FUNCTIONS, "our_create", "our_allocate", "syscall")),
        ("program", ctypes.c_char_p), ("pc", ctypes.c_uint64),
        ("is_in_code", ctypes.c_int32), ("unused", ctypes.c_int32)]


class Tracer:
    """A thread of another process, stopped by enter() and continued by leave()."""

    def __init__(self) -> None:
        """Load the library.

        Raises:
            AllocationSamplingError: the library of native/attach cannot be loaded.
        """
        #: address of the instruction at which the thread was last stopped without being
        #: at a safe place; 0 if it is unknown
        self.pc = 0
        #: whether enter() stopped the thread in PyPy's code, and not at a system call
        self.is_in_code = False
        try:
            self._library = ctypes.CDLL(os.path.join(_FOLDER, "_tracer.so"))
        except OSError as e:
            raise AllocationSamplingError(
                "cannot load the native part of attach, control and live: %s. Install "
                "a C compiler, and then the package with pip" % e) from None

    def enter(self, target: Target, tid: int, program: str, milliseconds: int,
              is_code_allowed: bool) -> int:
        """Stop a thread, and have it make a new thread that runs Python code.

        Args:
            target: the process.
            tid: the thread that makes the new thread, and is stopped until leave().
            program: the Python code.
            milliseconds: maximum time to wait for a safe place.
            is_code_allowed: whether the thread may be stopped in PyPy's code.

        Returns:
            0, or an errno of tracer.h.
        """
        request = _Request(
            target.pid, tid, milliseconds, is_code_allowed,
            *(target.functions[name][0] for name in FUNCTIONS),
            target.functions["create"][1], target.functions["allocate"][1],
            target.syscall, program.encode("utf-8", "surrogateescape"))
        error = int(self._library.tracer_enter(ctypes.byref(request)))
        self.pc = request.pc
        self.is_in_code = bool(request.is_in_code)
        return error

    def ask_for_gil(self, ticker: int) -> int:
        """Make the holder of the GIL release it at the next bytecode.

        Args:
            ticker: The address of PyPy's ticker in the other process.

        Returns:
            0, or an errno.
        """
        return int(self._library.tracer_ask_for_gil(ctypes.c_uint64(ticker)))

    def has_gil(self) -> bool:
        """Return whether the new thread has or had the GIL, or the process is gone."""
        return bool(self._library.tracer_has_gil())

    def leave(self) -> int:
        """Let the stopped thread continue.

        Returns:
            0, or an errno.
        """
        return int(self._library.tracer_leave())
