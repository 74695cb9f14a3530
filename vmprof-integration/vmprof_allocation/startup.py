"""Give `python -m vmprof` our flags, without touching vmprof's files.

vmprof has no way to extend it.  Python imports this module when it starts
(vmprof_allocation.pth), if and only if its command line names vmprof; it then
stands in for one single import: that of the code of `vmprof.__main__`.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

MAIN = "vmprof.__main__"

#: what runs as `vmprof.__main__` when allocations are to be sampled
_OURS = """\
from vmprof_allocation import cli, startup
cli.main(startup.arguments)
"""

#: the parsed arguments, from get_code() to _OURS
arguments: Any = None


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, stock: Any):
        self._stock = stock

    def get_code(self, fullname: str) -> CodeType | None:
        global arguments
        from vmprof_allocation import cli
        arguments = cli.parse(sys.argv[1:])
        if arguments is not None:
            return compile(_OURS, "<vmprof-allocation>", "exec")
        code: CodeType | None = self._stock.get_code(fullname)
        return code

    def get_source(self, fullname: str) -> str | None:
        source: str | None = self._stock.get_source(fullname)
        return source

    def is_package(self, fullname: str) -> bool:
        return False


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None,
                  ) -> importlib.machinery.ModuleSpec | None:
        if fullname != MAIN:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install() -> None:
    # once: in a venv, site may come by the .pth file twice
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
