"""The native half: native/attach/tracer.h."""
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
    """A thread of another process, which is stopped between enter() and leave()."""

    def __init__(self) -> None:
        #: Where the thread was stopped last at an unsafe place; 0 if that is unknown.
        self.pc = 0
        #: Whether enter() stopped the thread in PyPy's code, and not at a system call.
        self.is_in_code = False
        try:
            self._library = ctypes.CDLL(os.path.join(_FOLDER, "_tracer.so"))
        except OSError as e:
            raise AllocationSamplingError(
                "the native part of attach, ctl and top can't be loaded: %s; install "
                "the package with pip where there is a C compiler" % e) from None

    def enter(self, target: Target, tid: int, program: str, milliseconds: int,
              is_code_allowed: bool) -> int:
        """Make a thread that runs `program`, in Python.

        Args:
            target: The process.
            tid: The thread that makes the new thread, and is stopped until leave().
            program: The program's text.
            milliseconds: The time after which the thread is left alone.
            is_code_allowed: Whether the thread may be stopped in PyPy's code.

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
        """Have the GIL given to the new thread at the next bytecode.

        Args:
            ticker: The address of PyPy's ticker there.

        Returns:
            0, or an errno.
        """
        return int(self._library.tracer_ask_for_gil(ctypes.c_uint64(ticker)))

    def has_gil(self) -> bool:
        """The thread that was made; True, too, if that is not known any more."""
        return bool(self._library.tracer_has_gil())

    def leave(self) -> int:
        """Returns an errno."""
        return int(self._library.tracer_leave())
