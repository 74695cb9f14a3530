"""The command live: repeatedly show the allocations of the last seconds."""
from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time

from vmprof_allocation.commands.keys import Keys
from vmprof_allocation.commands.options import (
    Parser,
    add_sampling,
    add_target,
    target,
)
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote import work_folder
from vmprof_allocation.remote.asking import check_started, wanted
from vmprof_allocation.remote.control import meeting
from vmprof_allocation.remote.control.client import Connection, Process
from vmprof_allocation.remote.process_info import note
from vmprof_allocation.remote.work_folder import Folder
from vmprof_allocation.settings.parsing import make_settings, seconds

_DEFAULT_SECONDS = 2.0
_MAX_SECONDS = 3600
#: If a stopped command sends no request, the program ends the sampling this number of
#: seconds after three delays.
_PATIENCE = 30
#: seconds between two requests during a pause
_ALIVE_SECONDS = 5.0
#: the option of the table that a key changes, and the values, by the key
_CHOICES = {"s": ("sort", ("alive", "objects", "total", "self")),
            "b": ("by", ("type", "line", "file", "module", "function")),
            "t": ("by", ("thread", "function"))}
#: codes for a terminal to begin a full screen, to end it, and to clear the screen
_ENTER, _LEAVE, _CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[2J"


def _parser() -> Parser:
    from vmprof_convert.cli import options
    parser = Parser(
        "live",
        "Show the allocations of the last seconds, and the surviving objects, until "
        "Ctrl-C. In a terminal, keys select the order and the rows, and pause. The "
        "command also takes the filters and the options of pypy-alloc report. The help "
        "of control describes the conditions for access to a program.",
        "pypy-alloc live 1234 --by type")
    add_target(parser)
    parser.add_argument(
        "-d", "--delay", type=seconds, default=_DEFAULT_SECONDS, metavar="SECONDS",
        help="set the time between two updates (default: %g)" % _DEFAULT_SECONDS)
    parser.add_argument("--updates", type=int, default=0, metavar="NUMBER",
                        help="end after NUMBER updates (default: at Ctrl-C)")
    add_sampling(parser)
    own = {*parser._actions}
    options.add_filters(parser)
    options.add_options(parser)
    for action in parser._actions:
        if action not in own:
            action.help = argparse.SUPPRESS     # the help of report describes it
    return parser


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    try:
        import vmprof_convert  # noqa: F401
    except ImportError as e:
        note("live needs the package vmprof-convert (%s). Install it into this "
             "environment" % e)
        return 2
    parser = _parser()
    args = parser.parse_args(arguments)
    args.salvage = False
    from vmprof_convert.errors import FileError, ProfileError
    try:
        if not 0.1 <= args.delay <= _MAX_SECONDS:
            raise AllocationSamplingError(
                "invalid delay %r: it must be 0.1 to %d seconds" % (
                    args.delay, _MAX_SECONDS))
        if args.updates < 0:
            raise AllocationSamplingError(
                "invalid number of updates %d: it must be 0 or more" % args.updates)
        return _show(target(args), args)
    except (AllocationSamplingError, FileError, ProfileError) as e:
        note(str(e))
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _show(process: Process, args: argparse.Namespace) -> int:
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    settings = make_settings(args.allocation_sampling,
                             lifetimes=not args.no_lifetimes, follow=False,
                             lines=args.lines)
    with work_folder.own(process.uid, process.gid) as folder:
        is_screen = sys.stdout.isatty()
        request = wanted(process, settings, _window(folder, 1), folder.path)
        # the sampling ends with the connection, even if this process is killed
        with process.connected() as connection:
            check_started(process, request, connection.ask(
                meeting.HOLD, str(3 * args.delay + _PATIENCE), *request))
            try:
                if is_screen:
                    print(_ENTER, end="")
                with Keys(is_screen) as keys:
                    _Screen(connection, folder, args, is_screen, keys).run()
            finally:
                if is_screen:
                    print(_LEAVE, end="", flush=True)
                with contextlib.suppress(AllocationSamplingError):
                    # afterwards, the process does not use the folder any more
                    connection.ask(meeting.STOP)
    return 0


def _name(number: int) -> str:
    return "%d.vmprof" % number


def _window(folder: Folder, number: int) -> str:
    return os.path.join(folder.path, _name(number))


class _Screen:
    """The table of the last seconds, which is printed or drawn again and again."""

    def __init__(self, connection: Connection, folder: Folder,
                 args: argparse.Namespace, is_screen: bool, keys: Keys) -> None:
        """Store the arguments.

        Args:
            connection: the connection to the process, which is sampled.
            folder: the folder of the profile's segments.
            args: the options, of which keys change `sort` and `by`.
            is_screen: whether stdout is a terminal.
            keys: the keys of the terminal, which change the table.
        """
        self._connection = connection
        self._folder = folder
        self._args = args
        self._is_screen = is_screen
        self._keys = keys
        self._is_paused = False
        #: number of the segment that has ended last, and of the segment that is shown
        self._window = self._shown = 0
        #: the values of --by and --sort that the keys have selected
        self._choices: dict[str, str] = {}

    def run(self) -> None:
        """Show the table until the user ends the command, or until --updates."""
        updates = 0
        while not self._args.updates or updates < self._args.updates:
            if updates:
                # Leave out the allocations during the last report. Otherwise, the next
                # report might have more samples and take longer, and so on.
                self._end_segment()
                self._folder.remove(_name(self._window))
            if not self._wait():
                return
            self._end_segment()
            if self._shown:
                self._folder.remove(_name(self._shown))
            self._shown = self._window
            self._draw()
            updates += 1

    def _end_segment(self) -> None:
        self._window = _end_window(self._connection, self._folder, self._window)

    def _wait(self) -> bool:
        """Wait for the delay, and until the end of a pause; obey the keys.

        Returns:
            False if the user ends the command.
        """
        until = time.monotonic() + self._args.delay
        while self._is_paused or time.monotonic() < until:
            key = self._keys.wait(min(_ALIVE_SECONDS, until - time.monotonic())
                                  if not self._is_paused else _ALIVE_SECONDS)
            if key == "q":
                return False
            if key == "p":
                self._is_paused = not self._is_paused
                until = time.monotonic() + self._args.delay
            elif key in _CHOICES:
                self._choose(*_CHOICES[key])
            if self._is_paused:
                # without a request, the process would end the sampling
                self._connection.ask(meeting.STATUS)
            if key and self._shown:
                self._draw()
        return True

    def _choose(self, option: str, values: tuple[str, ...]) -> None:
        """Select the next value of an option of the table."""
        last = self._choices.get(option)
        number = values.index(last) + 1 if last in values else 0
        value = self._choices[option] = values[number % len(values)]
        setattr(self._args, option, (value,) if option == "by" else value)

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        from vmprof_convert.errors import ProfileError
        try:
            report = _report(self._folder, _name(self._shown), self._args)
        except ProfileError as error:
            if not self._choices:
                raise
            report = str(error)     # another key may select a possible table
        lines = [self._title()[:size.columns], *report.splitlines()]
        if self._is_screen:
            del lines[size.lines - 1:]
            print(_CLEAR, end="")
        print("\n".join(lines), flush=True)

    def _title(self) -> str:
        title = "process %d, the last %g seconds" % (self._args.pid, self._args.delay)
        if not self._keys.are_possible:
            return title + "; press Ctrl-C to end"
        chosen = "".join(", %s %s" % choice for choice in self._choices.items())
        return "%s%s%s   q quit  p pause  s sort  b rows  t threads" % (
            title, chosen, ", paused" * self._is_paused)


def _end_window(connection: Connection, folder: Folder, last: int) -> int:
    """End the present segment of the profile, and return its number.

    Args:
        connection: the connection to the process.
        folder: the folder of the segments.
        last: number of the segment before.
    """
    connection.ask(meeting.SNAPSHOT, _window(folder, last + 2))
    # do not use the path in the answer, which may come from any program
    return last + 1


def _report(folder: Folder, name: str, args: argparse.Namespace) -> str:
    from vmprof_convert.cli import report, run_files
    from vmprof_convert.errors import FileError
    fd = folder.open_profile(name)
    if fd is None:
        raise AllocationSamplingError(
            "process %d has no profile: it has written none yet, or has removed "
            "it" % args.pid)
    path = "/proc/self/fd/%d" % fd
    try:
        return report.make(run_files.find([path]).files, args, report.terminal())
    except FileError as e:
        raise AllocationSamplingError(
            str(e).replace(path, "process %d" % args.pid)) from None
    finally:
        os.close(fd)
