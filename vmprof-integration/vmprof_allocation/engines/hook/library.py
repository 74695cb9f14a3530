"""The native half of the engine."""
from __future__ import annotations

import os

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.errors import AllocationSamplingError

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = os.path.join(os.path.dirname(__file__), "_hook.so")


def load(handle: int = 0) -> tuple[Any, Any]:
    """Returns cffi's FFI, and the library, which is there already if it has this
    `handle`: see hook_handle().  Raises AllocationSamplingError."""
    try:
        # a handler that starts, too, would find half a module
        with Uninterrupted():
            # made by setup.py
            from ._hook_abi import (  # type: ignore[import-not-found,unused-ignore]
                ffi,
            )
            library = ffi.dlopen(ffi.cast("void *", handle) if handle else LIBRARY)
    except ImportError:
        raise AllocationSamplingError(
            "the native part of vmprof-allocation is missing in %s: "
            "install the package with pip where there is a C compiler"
            % os.path.dirname(__file__)) from None
    except Exception as e:      # also cffi's own error
        raise AllocationSamplingError(
            "the native part of vmprof-allocation can't be loaded: %s; "
            "install the package with pip where there is a C compiler"
            % e) from None
    for name in dir(library):
        if name.startswith("hook_"):
            getattr(library, name)      # made on first use: not later
    return ffi, library


def is_there(ffi: Any, handle: int) -> bool:
    """load() can be given this: old versions of cffi want a file's name."""
    try:
        ffi.dlopen(ffi.cast("void *", handle))
    except Exception:           # also cffi's own error
        return False
    return bool(handle)
