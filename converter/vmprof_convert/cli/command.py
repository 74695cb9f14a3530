"""The program vmprof-convert, whose first argument is the name of a command.

`main()` imports the module of the command, parses its options, and runs it. Each module
of `commands` has two functions: `add_arguments(parser)` adds the options and an
example, and `run(options)` returns the exit code.
"""
from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.cli import streams
from vmprof_convert.cli.messages import complain
from vmprof_convert.cli.options import Parser, misspelt
from vmprof_convert.errors import FileError, ProfileError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class Command(NamedTuple):
    """A command of the program."""

    name: str
    #: a sentence for the help
    help: str
    #: name of the module with `add_arguments(parser)` and `run(options) -> int`
    module: str


#: the commands of this package
COMMANDS = tuple(
    Command(name, help_, "vmprof_convert.cli.commands." + name) for name, help_ in (
        ("report", "Show the functions, lines or types that allocate most."),
        ("tree", "Show the largest branches of the call tree."),
        ("callers", "Show the callers and the callees of a function."),
        ("leaks", "Show the places whose live memory grows, and what retains it."),
        ("retainers", "Show what retains the live objects."),
        ("memory", "Show the resident memory of each process by use."),
        ("diff", "Compare runs, or two moments of one run."),
        ("check", "Report whether a run exceeds limits."),
        ("flamegraph", "Write a flame graph as one HTML page."),
        ("view", "Open the profile in the Firefox Profiler."),
        ("export", "Write the profile for another tool.")))


def _help(command: str, commands: Sequence[Command]) -> str:
    return "\n".join([
        "usage: %s COMMAND [OPTIONS] FILE..." % command, "",
        "Report the contents of vmprof profiles, with or without allocation samples.",
        "", "commands:",
        *("  %-11s %s" % (one.name, one.help) for one in commands),
        "", "options:",
        "  %-11s %s" % ("-h, --help", "Show this help."),
        "  %-11s %s" % ("--version", "Show the version."),
        "", "example: %s report app.vmprof" % command,
        "'%s COMMAND --help' describes the options of a command." % command])


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("vmprof-convert")
    except PackageNotFoundError:
        return "of unknown version: it is not installed"


def _find_command(name: str, command: str, commands: Sequence[Command]) -> Command:
    """Return the command with a name.

    Args:
        name: the first argument of the program.
        command: the name of the program in the help.
        commands: all commands.

    Raises:
        ProfileError: no command has this name.
    """
    for one in commands:
        if one.name == name:
            return one
    if name == "-" or os.path.exists(name):
        raise ProfileError("the command is missing: write %s report %s"
                           % (command, name))
    known = [one.name for one in commands]
    if name.startswith("-"):
        raise ProfileError("unrecognized arguments: %s%s" % (
            name, misspelt(name, [*known, "--help", "--version"])
            or "; write a command before the options"))
    raise ProfileError("invalid command %r%s" % (
        name, misspelt(name, known) or ": write one of %s" % ", ".join(known)))


def _parse(command: Command, program: str, arguments: Sequence[str],
           commands: Sequence[Command]) -> argparse.Namespace:
    """Parse the options of a command.

    Args:
        command: the command.
        program: the name of the program in the help.
        arguments: the arguments after the name of the command.
        commands: all commands, for suggestions.
    """
    parser = Parser(prog="%s %s" % (program, command.name), description=command.help)
    module = importlib.import_module(command.module)
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser.parse(arguments, [one.name for one in commands])


def _with_names(text: str, options: argparse.Namespace | None) -> str:
    """Return a message with the names of --called in place of the profiles' paths."""
    names = dict(zip(getattr(options, "profiles", ()), getattr(options, "called", ())))
    if not names:
        return text
    return re.sub("(%s)(?![0-9])" % "|".join(map(re.escape, names)),
                  lambda found: names[found[0]], text)


def main(arguments: Sequence[str] | None = None, *,
         command: str = "vmprof-convert", name: str = "vmprof-convert",
         more: Sequence[Command] = ()) -> int:
    """Run vmprof-convert.

    Args:
        arguments: the arguments; None for the arguments of the process.
        command: name of the program in the help.
        name: name of the program in messages.
        more: commands to offer before the commands of this package.

    Returns:
        The exit code.
    """
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            # names may contain characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    # Hardly any object of this command is part of a cycle of references, and the search
    # for cycles takes a seventh of the run time. In PyPy, gc.disable() would keep all
    # dead objects.
    has_gc = sys.implementation.name == "cpython" and gc.isenabled()
    if has_gc:
        gc.disable()
    if arguments is None:
        arguments = sys.argv[1:]
    commands = [*more, *COMMANDS]
    options = None
    try:
        if arguments and arguments[0] in ("-h", "--help"):
            streams.say(_help(command, commands))
            return 0
        if arguments and arguments[0] == "--version":
            streams.say("%s %s" % (name, _version()))
            return 0
        if not arguments:
            raise ProfileError("the command is missing: write one of %s" % ", ".join(
                one.name for one in commands))
        chosen = _find_command(arguments[0], command, commands)
        options = _parse(chosen, command, arguments[1:], commands)
        options.program = name
        code: int = options.run(options)
        return code
    except (streams.OutputError, FileError, ProfileError) as error:
        complain(name, [_with_names(str(error), options)])
        return EXIT_BAD_INPUT
    except OSError as error:
        complain(name, ["cannot write to standard output: %s" % error.strerror])
        # otherwise, Python would try to write the rest of the output when it exits
        streams.nobody_listens()
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        if has_gc:
            gc.enable()
