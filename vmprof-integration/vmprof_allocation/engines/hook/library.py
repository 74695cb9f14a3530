"""The native half of the hook engine."""
from __future__ import annotations

import os

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.errors import AllocationSamplingError

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = os.path.join(os.path.dirname(__file__), "_hook.so")


def load(handle: int = 0) -> tuple[Any, Any]:
    """Load the native half of the engine.

    Args:
        handle: the result of hook_handle() if the library is already loaded, or 0.

    Returns:
        cffi's FFI, and the library.

    Raises:
        AllocationSamplingError: the library is missing or cannot be loaded.
    """
    try:
        # a signal handler that also starts sampling would find a half-imported module
        with Uninterrupted():
            # setup.py makes this module
            from ._hook_abi import (  # type: ignore[import-not-found,unused-ignore]
                ffi,
            )
            library = ffi.dlopen(ffi.cast("void *", handle) if handle else LIBRARY)
    except ImportError:
        raise AllocationSamplingError(
            "the native part of vmprof-allocation is missing in %s. Install a C "
            "compiler, and then the package with pip"
            % os.path.dirname(__file__)) from None
    except Exception as e:      # includes cffi's own error
        raise AllocationSamplingError(
            "cannot load the native part of vmprof-allocation: %s. Install a C "
            "compiler, and then the package with pip"
            % e) from None
    for name in dir(library):
        if name.startswith("hook_"):
            # cffi makes a function at its first use: make all of them now
            getattr(library, name)
    return ffi, library


def is_there(ffi: Any, handle: int) -> bool:
    """Return whether load() accepts this handle.

    Old versions of cffi accept only file names.
    """
    try:
        ffi.dlopen(ffi.cast("void *", handle))
    except Exception:           # includes cffi's own error
        return False
    return bool(handle)
