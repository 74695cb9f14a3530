"""What is on the program's heap is put away, this module with it: see resting.py."""
from __future__ import annotations

import gc
import marshal
import os
import sys
from array import array

from vmprof_allocation import forks, resting, session
from vmprof_allocation.interrupts import Uninterrupted

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
#: of the modules that were there: what _Shelf makes them of
_packed: dict[str, tuple[bytes, str, bool]] = {}


def pack() -> None:
    """Before the sampling begins, as most of what this allocates would be in it.  What
    can't be packed, put_away() finds again."""
    try:
        _pack()
    except Exception:
        _packed.clear()


def _pack() -> None:
    for name in _names():
        if name not in _packed:
            _packed[name] = _code_of(sys.modules[name])


def _names() -> list[str]:
    return [name for name in sys.modules
            if name not in (resting.__name__, forks.__name__)
            and (name == _PACKAGE or name.startswith(_PACKAGE + "."))]


def put_away(run: Any = None) -> None:
    """The one session of this process, and begin.Run, if there is one.  If it can't
    be, all goes on as it is."""
    with Uninterrupted():
        try:
            ignore = _put_away(run)
        except Exception:
            return
    if ignore is None:
        return
    # PyPy remembers what methods were called last, and with them all that they
    # refer to, until it collects because it is asked to.  So call none after it.
    ignore(True)
    gc.collect()
    ignore(False)


def _put_away(run: Any) -> Callable[[bool], object] | None:
    known: Any = session.rest()
    if known is None:
        return None
    ignore, ends = session.bare()
    _pack()
    resting.rests(_beside_the_heap(marshal.dumps(
        (_packed, known, None if run is None else run.rest()))), ends,
        None if run is None or not run.ends_simply() else session.file())
    for name in _names():
        file: Any = sys.modules.pop(name).__file__
        sys.path_importer_cache.pop(os.path.dirname(file), None)
    return ignore


def _beside_the_heap(values: bytes) -> array[int]:
    """The collector does not look into bytes, but counts them: it takes as much
    longer over each round as they are a part of all that lives."""
    return array("B", values)


def _code_of(module: ModuleType) -> tuple[bytes, str, bool]:
    spec: Any = module.__spec__
    code = spec.loader.get_code(module.__name__)
    return marshal.dumps(code), spec.origin, spec.submodule_search_locations is not None
