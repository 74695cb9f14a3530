"""The code that the injected thread runs in another process.

enter.py passes the text of this module to the process, because the process cannot
import the package yet.
"""
from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PACKAGE = "vmprof_allocation"


def begin(folder: str, path: str) -> None:
    """Answer the command that listens at a socket.

    Args:
        folder: folder of the package that the command runs, from which the modules are
            imported. The program's sys.path remains unchanged.
        path: path of the socket.
    """
    start: object = _thread.start_new_thread
    if isinstance(start, type(len)):
        # once a program has made a thread, PyPy releases the GIL at regular intervals
        _thread.start_new_thread(_answer, (folder, path))
    else:
        _answer(folder, path)       # gevent's start_new_thread makes no thread


def _answer(folder: str, path: str) -> None:
    try:
        with _no_forks(folder):
            _load(folder)
            from vmprof_allocation.remote.control.serve import answer
    except Exception as e:
        _refuse(path, "cannot load vmprof-allocation: %s" % e)
    else:
        answer(path)


def _no_forks(folder: str) -> Any:
    # do not import the module, because the program may fork during the import
    name = _PACKAGE + ".critical.forks"
    module: Any = sys.modules.get(name)
    if module is None:
        module = type(sys)(name)
        module.__file__ = path = os.path.join(folder, "critical", "forks.py")
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)
        sys.modules[name] = module
    return module.Undivided()


def _load(folder: str) -> None:
    module: ModuleType | None = sys.modules.get(_PACKAGE)
    if module is None:
        from importlib import _bootstrap
        from importlib._bootstrap_external import PathFinder
        parent = os.path.dirname(folder)
        is_known = parent in sys.path_importer_cache
        spec = PathFinder.find_spec(_PACKAGE, [parent])
        if not is_known:
            sys.path_importer_cache.pop(parent, None)
        if spec is None:
            raise ImportError("it cannot read " + folder)
        load: Any = _bootstrap._load    # type: ignore[attr-defined]
        module = load(spec)
    there = os.path.dirname(str(module.__file__))
    if os.path.realpath(there) != os.path.realpath(folder):
        raise ImportError("it has loaded another version from %s" % module.__file__)


def _refuse(path: str, why: str) -> None:
    import _socket
    peer: Any = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        peer.settimeout(10.0)
        peer.connect(path)
        peer.recv(65536)
        # the format of control/meeting.py
        peer.send(("refused\0" + why).encode("utf-8", "replace"))
    except OSError:
        pass                # the command has ended
    finally:
        peer.close()
