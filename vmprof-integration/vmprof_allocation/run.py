"""Run the user's program as `pypy3 program` would, between start and stop.

What the program prints, its exit code, its traceback are its own.
"""
from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import runpy
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from vmprof_allocation.errors import AllocationSamplingError


def check(program: str, is_module: bool) -> None:
    """Raise AllocationSamplingError if there is no such program."""
    if is_module:
        try:
            spec = importlib.util.find_spec(program.partition(".")[0])
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise AllocationSamplingError("no module named %r" % program)
        return
    try:
        if not os.path.isdir(program):
            with open(program, "rb"):
                pass
    except OSError as e:
        raise AllocationSamplingError(
            "can't open the program %r: %s" % (program, e.strerror)) from None


def run(program: str, is_module: bool, arguments: list[str],
        stop: Callable[[], None]) -> NoReturn:
    """Run it, wait for its threads, call stop(), and exit as it would."""
    sys.argv[:] = [program, *arguments]
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        elif os.path.isdir(program) or program.endswith((".zip", ".pyz")):
            runpy.run_path(program, run_name="__main__")
        else:
            _run_script(program)
    except SystemExit:
        _wait_for_threads()
        stop()
        raise
    except BaseException as e:
        _print_traceback(e)
        _wait_for_threads()
        stop()
        if isinstance(e, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _flush()
            os.kill(os.getpid(), signal.SIGINT)
        sys.exit(1)
    _wait_for_threads()
    stop()
    sys.exit(0)


def _run_script(path: str) -> None:
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path, __builtins__=builtins, __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    sys.modules["__main__"] = main
    with io.open_code(os.path.abspath(path)) as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _print_traceback(error: BaseException) -> None:
    """As the interpreter does, without the frames that are ours."""
    traceback: Any = error.__traceback__
    ours = (__file__, runpy.__file__)
    while traceback is not None and _file(traceback).startswith(
            ("<frozen runpy", *ours)):
        traceback = traceback.tb_next
    sys.last_type, sys.last_value = type(error), error
    sys.last_traceback = traceback
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)


def _file(traceback: Any) -> str:
    return str(traceback.tb_frame.f_code.co_filename)


def _wait_for_threads() -> None:
    """As the interpreter would, next: what they allocate belongs to the run.
    Joining them one by one is not enough, pools have to be told to end."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def _flush() -> None:
    for stream in sys.stdout, sys.stderr:
        if stream is not None:
            stream.flush()
