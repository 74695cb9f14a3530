"""The program pypy-alloc, which is also ``python -m vmprof_allocation``.

It imports only the module of the chosen command, because a command must not take more
memory or time than it needs.
"""
from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from vmprof_allocation.remote.process_info import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    PROGRAM,
)


@dataclass(frozen=True)
class Command:
    """A command in the help of the program."""

    name: str
    help: str
    #: the module whose function run() runs the command
    module: str = "vmprof_allocation.commands.reading"


def _make(name: str, help_: str) -> Command:
    return Command(name, help_, "vmprof_allocation.commands." + name)


#: commands that record programs, or talk to running programs
RECORDING = (
    _make("run", "record a program from its start"),
    _make("attach", "record a running process for some seconds, and report"),
    _make("detach", "end the sampling of a running process"),
    _make("live", "show the present allocations of a running process"),
    _make("control", "start, change and stop the sampling of a running process"),
    _make("doctor", "check whether and how this PyPy can be sampled"),
)
#: the command for profiles and for running processes
MEMORY = _make("memory", "show the uses of resident memory, of a profile or a process")
#: commands that read profiles, which the package vmprof-convert contains
READING = (
    Command("report", "show which functions allocate, as a table"),
    Command("tree", "show the call tree"),
    Command("callers", "show the callers and callees of a function"),
    Command("leaks", "show the allocation sites whose live memory grows"),
    Command("retainers", "show retained sizes, and reference paths to live objects"),
    MEMORY,
    Command("diff", "compare runs"),
    Command("check", "exit with code 1 if a profile exceeds a limit"),
    Command("flamegraph", "write a page with a flame graph"),
    Command("view", "open a profile in the Firefox Profiler"),
    Command("export", "write a profile in another format"),
)
COMMANDS = {command.name: command for command in (*RECORDING, *READING)}
#: command that Git users and users of other profilers try, and the command to suggest
_OTHER_NAMES = {"record": "run", "top": "live", "ctl": "control", "table": "report",
                "summary": "report", "stats": "report", "stop": "detach",
                "convert": "export", "transform": "export", "dump": "attach"}


def make_help() -> str:
    """Return the help of the program, with a line for each command."""
    lines = ["usage: %s COMMAND [OPTIONS]" % PROGRAM, "",
             "Show which functions of a PyPy program allocate memory, which objects "
             "stay", "alive, and what keeps these objects alive."]
    for title, commands in (("commands that record programs", RECORDING),
                            ("commands that read profiles", READING)):
        lines += ["", title + ":"]
        lines += ["  %-12s%s" % (command.name, command.help) for command in commands]
    lines += ["", "options:",
              "  -h, --help  show this help; after a command, show its options",
              "  --version   show the version",
              "", "example: %s run -o app.vmprof app.py && %s report app.vmprof" % (
                  PROGRAM, PROGRAM), ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the arguments; None for the arguments of the process.

    Returns:
        The exit code: 0, 1 if a condition is not met or a part failed, 2 for invalid
        arguments and unreadable input, 130 after Ctrl-C.
    """
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            # names in a profile may contain characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED     # Ctrl-C came before the command began
    except BrokenPipeError:
        end_by_sigpipe()
    except OSError as error:
        end_without_output(error)


def _run(words: list[str]) -> int:
    if not words:
        return _refuse("no command: %s --help lists the commands" % PROGRAM)
    name, *rest = words
    if name in ("-h", "--help"):
        print(make_help(), end="", flush=True)
        return 0
    if name == "--version":
        print("%s %s" % (PROGRAM, _version()), flush=True)
        return 0
    if name not in COMMANDS:
        return _refuse(_unknown(name))
    command = COMMANDS[name]
    module = importlib.import_module(command.module)
    code: int = (module.run(name, rest) if command.module == Command.module
                 else module.run(rest))
    return code


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("vmprof-allocation")
    except PackageNotFoundError:
        return "of unknown version: the package is not installed"


def _unknown(name: str) -> str:
    """Return the message about an unknown command, with a suggestion."""
    if name.startswith("-"):
        return "unknown option %s: write a command first; %s --help lists the " \
            "commands" % (name, PROGRAM)
    from vmprof_allocation.commands.options import suggestion
    if name in _OTHER_NAMES:
        hint = ". Did you mean %s?" % _OTHER_NAMES[name]
    elif os.path.exists(name):
        hint = ". Did you mean %s %s %s?" % (
            PROGRAM, "run" if name.endswith(".py") else "report", name)
    else:
        hint = suggestion(name, COMMANDS) or (
            ": %s --help lists the commands" % PROGRAM)
    return "unknown command %r%s" % (name, hint)


def _refuse(message: str) -> int:
    print("%s: %s" % (PROGRAM, message), file=sys.stderr)
    return EXIT_BAD_INPUT


def end_by_sigpipe() -> NoReturn:
    """End the process by SIGPIPE, because the reader of the output has gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(EXIT_BAD_INPUT)       # if SIGPIPE is blocked


def end_without_output(error: OSError) -> NoReturn:
    """Print an error about standard output, and end the process."""
    print("%s: cannot write to standard output: %s" % (PROGRAM, error.strerror),
          file=sys.stderr)
    # os._exit(), because Python would try to write the rest when it exits
    os._exit(EXIT_BAD_INPUT)
