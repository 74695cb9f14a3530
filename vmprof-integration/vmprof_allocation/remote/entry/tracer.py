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
            "pid", "tid", "milliseconds", "unused")),
        *((name, ctypes.c_uint64) for name in (
            *FUNCTIONS, "our_create", "our_allocate")),
        ("program", ctypes.c_char_p)]


class Tracer:
    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(os.path.join(_FOLDER, "_tracer.so"))
        except OSError as e:
            raise AllocationSamplingError(
                "the native part of attach, ctl and top can't be loaded: %s; install "
                "the package with pip where there is a C compiler" % e) from None

    def enter(self, target: Target, tid: int, program: str, milliseconds: int) -> int:
        """Make a thread that runs `program`, in Python.  Returns 0, and the thread
        `tid` stands still until leave(); or an errno: tracer.h."""
        return int(self._library.tracer_enter(ctypes.byref(_Request(
            target.pid, tid, milliseconds, 0,
            *(target.functions[name][0] for name in FUNCTIONS),
            target.functions["create"][1], target.functions["allocate"][1],
            program.encode("utf-8", "surrogateescape")))))

    def has_gil(self) -> bool:
        """The thread that was made; True, too, if that is not known any more."""
        return bool(self._library.tracer_has_gil())

    def leave(self) -> int:
        """Returns an errno."""
        return int(self._library.tracer_leave())
