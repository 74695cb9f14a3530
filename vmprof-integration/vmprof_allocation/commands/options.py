"""The argument parser of pypy-alloc, and the options that several commands share."""
from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.control.client import Process
from vmprof_allocation.remote.process_info import (
    DEFAULT,
    EXIT_BAD_INPUT,
    PROGRAM,
    check_seconds,
)
from vmprof_allocation.settings.parsing import seconds

_INVALID_CHOICE = re.compile(
    r"invalid choice: '([^']*)' \(choose from (.*)\)", re.DOTALL)


class _Formatter(argparse.HelpFormatter):
    """A formatter of the help that uses the full width of the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=27)


class Parser(argparse.ArgumentParser):
    """An argument parser that prints an error in one line, with a suggestion."""

    def __init__(self, command: str, description: str, example: str,
                 **more: Any) -> None:
        """Create the parser of a command.

        Args:
            command: name of the command, or "" for the parser of a subcommand.
            description: sentences about the command.
            example: a command line, which is shown at the end of the help.
            more: further arguments of ArgumentParser. The default usage is the usage
                of a command for a process.
        """
        if command:
            more["prog"] = "%s %s" % (PROGRAM, command)
            more.setdefault("usage", "%s %s [OPTIONS] PID" % (PROGRAM, command))
        super().__init__(
            description=description, epilog="example: " + example,
            formatter_class=_Formatter, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        """Print the error with the most similar valid word, and exit with code 2."""
        name, _, words = message.partition("unrecognized arguments: ")
        if not name and words:
            word = next((word for word in words.split() if word.startswith("-")), "")
            message += suggestion(word.partition("=")[0], _option_names(self))
        elif found := _INVALID_CHOICE.search(message):
            message += suggestion(found[1], re.findall(r"[\w-]+", found[2]))
        self.exit(EXIT_BAD_INPUT, "%s: %s\n" % (PROGRAM, message))


def suggestion(word: str, valid: Iterable[str]) -> str:
    """Return a question with the valid word that is most similar, or an empty text."""
    found = difflib.get_close_matches(word, list(valid), n=1)
    return ". Did you mean %s?" % found[0] if found else ""


def _option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return the names of all options of a parser and of its subcommands."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _option_names(inner)


def _pid(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            "invalid PID %r: write the PID of a process before the other arguments; ps "
            "lists the processes" % text) from None


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the process, and the way to reach it."""
    parser.add_argument("pid", type=_pid, metavar="PID", help="the process")
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS",
        help="wait up to SECONDS for an answer (default: 30)")
    parser.add_argument(
        "--signal", default="", metavar="NAME",
        help="set the signal of a control-enabled program (default: the signal in its "
             "environment, or SIGURG)")
    parser.add_argument(
        "--despite-seccomp", action="store_true",
        help="also inject a thread into a program with another seccomp filter than "
             "this command; a filter that kills would end the program")


def add_children(parser: argparse.ArgumentParser) -> None:
    """Add the option --children for commands that apply to several processes."""
    parser.add_argument(
        "--children", action="store_true",
        help="also apply the command to all descendants of the process, such as "
             "workers")


def check_target(args: argparse.Namespace) -> None:
    """Check the values of the options of add_target().

    Raises:
        AllocationSamplingError: a value is out of range.
    """
    check_seconds("timeout", args.timeout)
    if not 0 < args.pid < 2**31:
        raise AllocationSamplingError(
            "invalid PID %d: write the PID of a process; ps lists the "
            "processes" % args.pid)


def target(args: argparse.Namespace, pid: int | None = None) -> Process:
    """Return the process that receives the requests of a command.

    Args:
        args: the options of add_target().
        pid: the process; None for the process that the options name.

    Raises:
        AllocationSamplingError: the process does not exist or cannot be reached.
    """
    check_target(args)
    return Process(args.pid if pid is None else pid, args.timeout, args.signal,
                   despite_seccomp=args.despite_seccomp)


def add_sampling(parser: argparse.ArgumentParser, default: str | None = DEFAULT
                 ) -> None:
    """Add the options for the sampling to a parser.

    Args:
        parser: the parser.
        default: default of --allocation-sampling.
    """
    parser.add_argument(
        "--allocation-sampling", default=default, metavar="BYTES",
        help="set the bytes per sample, or a limit (default: %s)" % DEFAULT)
    parser.add_argument("--no-lifetimes", action="store_true",
                        help="do not record the outcomes of the sampled objects")
    parser.add_argument(
        "--lines", action="store_true",
        help="record executed lines, except in code that PyPy compiled before the "
             "sampling; PyPy then compiles more slowly")


def add_native_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option --native-memory to a parser."""
    parser.add_argument(
        "--native-memory", metavar="BYTES",
        help="also sample the memory that C code gets from malloc, one sample per "
             "BYTES on average, for example 512k")
