"""Add the sampler's flags to `python -m vmprof` without changing vmprof's files.

vmprof has no interface for extensions. If the command line names vmprof, Python imports
this module when it starts (vmprof_allocation.pth). The module then replaces the loader
of one other module, `vmprof.__main__`.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from vmprof_allocation.launch.program import read_command_line

MAIN = "vmprof.__main__"


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, stock: Any):
        self._stock = stock

    def get_code(self, fullname: str) -> CodeType | None:
        from vmprof_allocation.launch import cli
        arguments = cli.parse(sys.argv[1:])
        if arguments is not None:
            cli.main(arguments, read_command_line())
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
    """Install the finder that replaces the loader of `vmprof.__main__`."""
    # only once: in a venv, site runs the .pth file twice
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
