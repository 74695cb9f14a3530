"""Find a benchmark program and return its main function.

worker.py, once.py and the other workers call load(). A program comes from this folder,
from pyperformance, or from PyPy's own library.
"""
from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import Main

HERE = Path(__file__).resolve().parent


def load(name: str) -> Main:
    """Return the main function of a program.

    Args:
        name: A module of this folder, "pyperformance:NAME", or "pystone".

    Returns:
        A function that takes the number of rounds.

    Raises:
        ImportError: pyperformance is not installed, or defines no benchmark there.
    """
    if name == "pystone":
        pystone: Any = importlib.import_module("test.pystone")
        return lambda rounds: pystone.pystones(20000 * rounds)
    kind, _, rest = name.partition(":")
    if kind == "pyperformance":
        return main_of(script_of(rest))
    main: Main = importlib.import_module("programs." + name).main
    return main


class _Runner:
    """A replacement for pyperf.Runner, which would start other processes.

    It keeps the first function that a program passes to be measured.
    """

    main: Main | None = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.metadata: dict[str, Any] = {}
        self.argparser = argparse.ArgumentParser()
        self.args: Any = None

    def parse_args(self, arguments: list[str] | None = None) -> Any:
        """Parse the given arguments, by default none, instead of sys.argv."""
        self.args = self.argparser.parse_args(arguments or [])
        return self.args

    def bench_func(self, name: str, function: Callable[..., object],
                   *arguments: Any, **_: Any) -> None:
        """Keep a function that performs one round."""

        def main(rounds: int) -> None:
            for _ in range(rounds):
                function(*arguments)
        self._take(main)

    def bench_time_func(self, name: str, function: Callable[..., object],
                        *arguments: Any, **_: Any) -> None:
        """Keep a function that takes the number of rounds."""
        self._take(lambda rounds: function(rounds, *arguments))

    def bench_async_func(self, name: str, function: Callable[..., Any],
                         *arguments: Any, **_: Any) -> None:
        """Keep a coroutine function that performs one round."""

        async def several(rounds: int) -> None:
            for _ in range(rounds):
                await function(*arguments)
        self._take(lambda rounds: asyncio.run(several(rounds)))

    @staticmethod
    def _take(main: Main) -> None:
        _Runner.main = _Runner.main or main


def script_of(name: str) -> Path:
    """Return the path of a pyperformance program's script.

    Raises:
        ImportError: pyperformance is not installed.
    """
    found = importlib.util.find_spec("pyperformance")
    if found is None or found.origin is None:
        raise ImportError("pyperformance is not installed for %s"
                          % sys.executable)
    return (Path(found.origin).parent / "data-files" / "benchmarks"
            / ("bm_" + name) / "run_benchmark.py")


def main_of(script: Path) -> Main:
    """Return the main function of a script that uses pyperf.

    Args:
        script: A script of pyperformance, or a copy of one. It runs as `__main__`.

    Raises:
        ImportError: The script passes no function to pyperf.Runner.
    """
    stand_in: Any = types.ModuleType("pyperf")
    stand_in.Runner = _Runner
    stand_in.perf_counter = time.perf_counter
    stand_in.python_implementation = lambda: sys.implementation.name
    sys.modules["pyperf"] = stand_in
    sys.path.insert(0, str(script.parent))
    sys.argv[1:] = []
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = str(script)
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"),
         module.__dict__)
    if _Runner.main is None:
        raise ImportError("%s has nothing to measure" % script)
    return _Runner.main
