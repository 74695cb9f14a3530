"""What the other process runs: Python that leaves no name in its __main__."""
from __future__ import annotations

import os

_FOLDER = os.path.abspath(__file__).rsplit(os.sep, 3)[0]

#: Our package from where this command has it: what is on the program's sys.path is
#: as it was.
_LOAD = """\
import os, sys
def load(name, folder):
    module = sys.modules.get(name)
    if module is None:
        from importlib._bootstrap import _load
        from importlib._bootstrap_external import PathFinder
        parent = os.path.dirname(folder)
        known = parent in sys.path_importer_cache
        spec = PathFinder.find_spec(name, [parent])
        if not known:
            sys.path_importer_cache.pop(parent, None)
        if spec is None:
            raise ImportError("it can't read " + folder)
        module = _load(spec)
    if os.path.realpath(os.path.dirname(module.__file__)) != os.path.realpath(folder):
        raise ImportError("it has loaded another one, from " + module.__file__)
def no_forks(name, path):
    # not imported: the program may fork before it is there
    module = sys.modules.get(name)
    if module is None:
        module = type(sys)(name)
        module.__file__ = path
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)
        sys.modules[name] = module
    return module.Undivided()
def begin():
    with no_forks("vmprof_allocation.critical.forks",
                  %(folder)r + "/critical/forks.py"):
        load("vmprof_allocation", %(folder)r)
        from vmprof_allocation.remote.attach import inside
    return inside.begin
try:
    begin = begin()
except Exception as e:
    os.write(%(fd)d, ("evmprof-allocation can't be loaded: %%s" %% e).encode())
else:
    begin(%(fd)d, *%(arguments)r)
"""
#: whatever these names mean in the program
_BUILTINS = "__import__('builtins')"
#: While this is compiled, sampling is on: it is short.  Without the module, there is
#: nothing to be ended.
_END = """\
getattr(__import__("sys").modules.get(
    "vmprof_allocation.remote.attach.inside"), "end", int)(%d)
"""


def begin(fd: int, *arguments: object) -> str:
    """`arguments` of inside.begin(); `fd` is the agent's."""
    source = _LOAD % {"folder": _FOLDER, "fd": fd, "arguments": arguments}
    # what readers know as ours
    return "%s.exec(%s.compile(%r, '<vmprof-allocation>', 'exec'), {})" % (
        _BUILTINS, _BUILTINS, source)


def end(fd: int) -> str:
    return _END % fd
