"""The command run: record a program from its start.

The command replaces its process by ``python -m vmprof --allocation-sampling``, which
parses the options again and then becomes the program (launch/cli.py). So the recorded
process contains no module of this package that records nothing.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from vmprof_allocation.commands.options import Parser
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.launch.program import (
    interpreter,
    read_command_line,
    read_log_request,
)
from vmprof_allocation.remote.process_info import (
    DEFAULT,
    EXIT_BAD_INPUT,
    PROGRAM,
    note,
)

_USAGE = """%s run [OPTIONS] SCRIPT [ARGUMENTS]
       %s run [OPTIONS] -m MODULE [ARGUMENTS]
       %s run [OPTIONS] -c CODE [ARGUMENTS]""" % (PROGRAM, PROGRAM, PROGRAM)
#: The options of a value: names, name of the value, and help. The new process checks
#: the values.
_OF_VALUE = (
    ("-o", "--output", "FILE", "keep the profile (default: only report)"),
    ("--allocation-sampling", "BYTES", "bytes per sample, or a limit such as auto:1%%"),
    ("--allocation-seed", "N", "make a run repeatable"),
    ("--allocation-distribution", "NAME", "exponential (default) or fixed"),
    ("--native-memory", "BYTES", "sample malloc, one sample per BYTES"),
    ("-p", "--period", "SECONDS", "also take CPU samples, one per SECONDS"),
    ("--rotate", "TIME", "begin another profile at this interval, as 1h"),
    ("--push", "URL", "send the profiles to a server"),
    ("--push-every", "SECONDS", "the time between two pushes (default: 15)"),
    ("--config", "FILE", "read vmprof's options from an INI file"),
)
#: the options without a value: names, and help
_FLAGS = (
    ("-m", "run a module, as python -m does"),
    ("-c", "run code, as python -c does"),
    ("--leaks", "take heap snapshots for %s leaks" % PROGRAM),
    ("--retainers", "record retainers, for %s retainers" % PROGRAM),
    ("--memory", "record resident memory, for %s memory" % PROGRAM),
    ("--lines", "record executed lines"),
    ("--native", "record the frames of C functions"),
    ("--no-lifetimes", "do not record the outcomes of objects"),
    ("--no-follow", "do not sample child processes"),
    ("--control", "let %s control start the sampling" % PROGRAM),
    ("--view", "open the profile in the Firefox Profiler"),
    ("--quiet", "print only errors and the report"),
    ("--mem", "record resident memory with CPU samples (vmprof)"),
    ("-n", "--no-native", "record no C frames in CPU samples (vmprof)"),
    ("--jitlog", "write the JIT log next to the profile (vmprof)"),
)


class _NoProgram(Exception):
    """The arguments name no program."""


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        if "arguments are required" in message:
            raise _NoProgram
        super().error(message)


def _parser() -> _Parser:
    parser = _Parser(
        "run", "Record a program. One sample is taken per BYTES on average, or as many "
               "as need 0.5 %% of the time (--allocation-sampling %s, the "
               "default)." % DEFAULT,
        "%s run --allocation-sampling 128k -o app.vmprof app.py" % PROGRAM,
        usage=_USAGE)
    for *names, metavar, text in _OF_VALUE:
        parser.add_argument(*names, metavar=metavar, help=text)
    for *names, text in _FLAGS:
        parser.add_argument(*names, action="store_true", help=text)
    parser.add_argument("program", metavar="SCRIPT", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code if the program could not start."""
    try:
        args = _parser().parse_args(arguments)
        has_default = args.allocation_sampling is None and not args.control
    except _NoProgram:
        if not arguments or arguments[-1].startswith("-"):
            note("no program to record: write a script, -m MODULE or -c CODE")
            return EXIT_BAD_INPUT
        # an option has taken the program for its value, which the new process reports
        has_default = False
    if sys.implementation.name != "pypy":
        note("cannot record a program with this Python, because it is not PyPy. "
             "Install both packages into an environment of pypy3, and use its "
             "%s" % PROGRAM)
        return EXIT_BAD_INPUT
    default = ["--allocation-sampling", DEFAULT] if has_default else []
    try:
        command = [*_interpreter(len(arguments)), "-m", "vmprof", *default, *arguments]
        environment = dict(os.environ)
        log = read_log_request()
        if log is not None:
            environment["PYPYLOG"] = log
        os.execve(sys.executable, command, environment)
    except OSError as error:
        note("cannot start %s: %s" % (sys.executable, error.strerror))
    except AllocationSamplingError as error:
        note(str(error))
    return EXIT_BAD_INPUT


def _interpreter(count: int) -> list[str]:
    """Return the interpreter with its flags.

    Args:
        count: number of arguments of the command run.

    Raises:
        AllocationSamplingError: the command line of this process has an unknown form.
    """
    original = read_command_line()
    # the arguments of the program, after a script or after -m vmprof_allocation
    count += 1
    if original[-count - 1:-count] == sys.argv[:1]:
        return original[:-count - 1]        # a console script
    return interpreter(original, count)
