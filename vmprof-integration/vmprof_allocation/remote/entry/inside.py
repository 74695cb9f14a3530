"""What a thread of ours runs that was made in another process: the text of this module,
as nothing of ours can be imported there as yet (enter.py)."""
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
    """Answer who listens at the socket `path`.  `folder`: that of our package, where
    that command has it; what is on the program's sys.path is as it was."""
    start: object = _thread.start_new_thread
    if isinstance(start, type(len)):
        # from a program's first thread on, PyPy gives the GIL away now and then
        _thread.start_new_thread(_answer, (folder, path))
    else:
        _answer(folder, path)       # gevent's makes no thread


def _answer(folder: str, path: str) -> None:
    try:
        with _no_forks(folder):
            _load(folder)
            from vmprof_allocation.remote.control.serve import answer
    except Exception as e:
        _refuse(path, "vmprof-allocation can't be loaded: %s" % e)
    else:
        answer(path)


def _no_forks(folder: str) -> Any:
    # not imported: the program may fork before it is there
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
            raise ImportError("it can't read " + folder)
        load: Any = _bootstrap._load    # type: ignore[attr-defined]
        module = load(spec)
    there = os.path.dirname(str(module.__file__))
    if os.path.realpath(there) != os.path.realpath(folder):
        raise ImportError("it has loaded another one, from %s" % module.__file__)


def _refuse(path: str, why: str) -> None:
    import _socket
    peer: Any = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        peer.settimeout(10.0)
        peer.connect(path)
        peer.recv(65536)
        # control/meeting.py
        peer.send(("refused\0" + why).encode("utf-8", "replace"))
    except OSError:
        pass                # nobody listens any more
    finally:
        peer.close()
