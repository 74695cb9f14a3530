"""Begin to record native frames in stacks: see native/hook/stacks/native_stack.h.

Only a start with --native needs this module.
"""
from __future__ import annotations

import errno
import os

from vmprof_allocation.errors import AllocationSamplingError

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_ADVICE = "Omit --native, or native=True"
_PROBLEMS = {
    errno.ENOTSUP: "they need glibc 2.35 or later, libgcc 12 or later (which unwind "
                   "stacks without locks), and a PyPy that runs all Python functions "
                   "with the same C functions",
    errno.ENOENT: "libgcc_s.so.1 cannot be loaded",
}


def library_of(path: str) -> str:
    """Return the setting `native` of PROFILE.rst: the interpreter's library, or "1".

    Native functions without names in this library belong to the interpreter.
    """
    library = os.path.basename(path)
    return library if library.isascii() and not set(library) & set(":;=,") else "1"


class _Nest:
    """Methods that call each other in different ways.

    The only functions of PyPy that take part in all of these calls are the functions
    that run Python functions.  From the stack of the innermost call, the native half
    learns their addresses.
    """

    def __init__(self, lib: Any):
        self._lib = lib
        self.error = 0

    def __len__(self) -> int:
        self.error = self._lib.hook_native()
        return 0

    def _generated(self) -> Iterator[int]:
        yield len(self)

    def __add__(self, other: int) -> int:
        for _ in self._generated():
            pass
        return other

    @property
    def inside(self) -> int:
        return self + 1

    def __enter__(self) -> None:
        _ = self.inside

    def __exit__(self, *exception: object) -> None:
        pass

    def __getitem__(self, item: int) -> int:
        with self:
            return item

    def __contains__(self, item: int) -> bool:
        return self[item] == item

    def __call__(self, item: int) -> bool:
        return item in self

    def __repr__(self) -> str:
        return "".join("1" for _ in filter(self, (1,)))

    def enter(self) -> int:
        [1].sort(key=lambda _: repr(self))
        return self.error


def start(lib: Any) -> None:
    """Begin to record native frames in the stacks of this run.

    Raises:
        AllocationSamplingError: native frames are not possible.
    """
    error = _Nest(lib).enter()
    if error:
        raise AllocationSamplingError("cannot record native frames: %s. %s" % (
            _PROBLEMS.get(error) or os.strerror(error), _ADVICE))
