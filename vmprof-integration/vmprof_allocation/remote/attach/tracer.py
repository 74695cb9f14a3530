"""The native half: native/attach/tracer.h."""
from __future__ import annotations

import ctypes
import os

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.attach.target import Target

_FOLDER = os.path.dirname(os.path.abspath(__file__))
#: what is loaded into the other process, and what is called there
AGENT = os.path.join(_FOLDER, "_agent.so")
_AGENT_RUN = b"agent_run"


class _Request(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "pid", "tid", "milliseconds", "unused")),
        *((name, ctypes.c_uint64) for name in (
            "create", "open", "find", "errno_location", "allocate", "our_create",
            "our_allocate")),
        *((name, ctypes.c_char_p) for name in ("library", "function", "socket"))]


class Tracer:
    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(os.path.join(_FOLDER, "_tracer.so"))
        except OSError as e:
            raise AllocationSamplingError(
                "the native part of attach can't be loaded: %s; install the package "
                "with pip where there is a C compiler" % e) from None

    def enter(self, target: Target, tid: int, socket: str, milliseconds: int) -> int:
        """Make the thread.  Returns 0, and the thread `tid` stands still until
        leave(); or an errno: tracer.h."""
        create, our_create = target.functions["pthread_create"]
        request = _Request(
            target.pid, tid, milliseconds, 0, create,
            *(target.functions[name][0] for name in (
                "dlopen", "dlsym", "__errno_location")),
            target.allocate[0], our_create, target.allocate[1],
            os.fsencode(AGENT), _AGENT_RUN, os.fsencode(socket))
        return int(self._library.tracer_enter(ctypes.byref(request)))

    def has_failed(self) -> bool:
        """The thread that was made could not load the library."""
        return bool(self._library.tracer_has_failed())

    def leave(self) -> int:
        """Returns an errno."""
        return int(self._library.tracer_leave())
