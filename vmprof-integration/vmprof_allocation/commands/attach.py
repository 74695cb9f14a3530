"""The command attach: sample a running program for a while, and report."""
from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from vmprof_allocation.commands.options import (
    Parser,
    add_native_memory,
    add_sampling,
    add_target,
    check_target,
    target,
)
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote import work_folder
from vmprof_allocation.remote.asking import check_started, wanted
from vmprof_allocation.remote.control import meeting
from vmprof_allocation.remote.control.client import Connection, Process
from vmprof_allocation.remote.entry.enter import StillTraced
from vmprof_allocation.remote.process_info import (
    DEFAULT,
    check_file,
    check_seconds,
    children,
    family,
    note,
)
from vmprof_allocation.remote.work_folder import Folder
from vmprof_allocation.settings.parsing import check_output, make_settings, seconds
from vmprof_allocation.settings.settings import Settings

#: default interval with --leaks, which needs more samples; a service can spare this
#: share of its run time for a short duration
_FOR_LEAKS = "auto:5%"
#: If a stopped command sends no request, the program ends the sampling this number of
#: seconds after the duration.
_PATIENCE = 30.0
#: seconds between two checks for Ctrl-C
_LOOK = 0.1
#: The shares of the duration before the first heap snapshot, and at least between two
#: snapshots. The last number is the share of the time that the snapshots may take.
_WARM_UP, _STEP, _SHARE = 0.3, 0.1, 0.1


def _parser() -> Parser:
    parser = Parser(
        "attach",
        "Sample a running PyPy program, and report its allocations. Run this command "
        "with the program's own pypy3. Child processes that start meanwhile are not "
        "sampled.", "pypy-alloc attach 1234 --leaks -d 60")
    add_target(parser)
    parser.add_argument(
        "-d", "--duration", type=seconds, default=10.0, metavar="SECONDS",
        help="sample for SECONDS, or until Ctrl-C (default: 10)")
    add_sampling(parser, default=None)
    add_native_memory(parser)
    parser.add_argument(
        "--leaks", action="store_true",
        help="take heap snapshots, and report the allocation sites that grow; the "
             "default of --allocation-sampling is then %s" % (
                 _FOR_LEAKS.replace("%", "%%")))
    parser.add_argument(
        "--retainers", action="store_true",
        help="take a heap snapshot at the end, and also report the retainers")
    parser.add_argument(
        "--children", action="store_true",
        help="also sample all descendants, such as workers, into profiles with their "
             "PIDs")
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="keep the profile in FILE; the program writes it as its own user")
    return parser


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    args = _parser().parse_args(arguments)
    try:
        check_seconds("duration", args.duration)
        check_target(args)
        if args.leaks and args.no_lifetimes:
            raise AllocationSamplingError(
                "--leaks needs the outcomes of objects. Omit --no-lifetimes")
        if args.allocation_sampling is None:
            args.allocation_sampling = _FOR_LEAKS if args.leaks else DEFAULT
        settings = make_settings(args.allocation_sampling,
                                 lifetimes=not args.no_lifetimes, follow=False,
                                 held=args.retainers, lines=args.lines,
                                 raw_memory=args.native_memory, snapshots=args.leaks)
        if args.output is not None:
            args.output = os.path.abspath(check_output(args.output))
            check_file(args.output)
        return _attach(args, settings)
    except AllocationSamplingError as e:
        note(str(e))
        return 2
    except KeyboardInterrupt:
        # the program continues, and ends the sampling because the connection is closed
        return 128 + signal.SIGINT


class _Run:
    """A process that is sampled while the connection to this command exists."""

    def __init__(self, process: Process, connection: Connection, duration: float,
                 request: list[str], folder: Folder | None) -> None:
        """Start to sample a process.

        Args:
            process: the process.
            connection: the connection to the process.
            duration: seconds to sample.
            request: the request to the process; see wanted().
            folder: the folder of the profile; None if -o names a file.
        """
        self.pid = process.pid
        #: whether the profile contains a heap snapshot with retainers
        self.is_held_known = False
        #: the last reason why no snapshot was possible, or ""
        self._refusal = ""
        self._user = process.uid
        self._connection = connection
        self.folder = folder
        self.output, self.run = check_started(process, request, connection.ask(
            meeting.HOLD, str(duration + _PATIENCE), *request))
        self._begin = time.monotonic()
        self._until = self._begin + duration
        self._has_ended = False
        #: time of the next heap snapshot, and the number of snapshots so far
        self._due, self._count = self._begin + _WARM_UP * duration, 0

    @property
    def name(self) -> str:
        """Name of the profile in messages: its path, or the process without -o."""
        return "process %d" % self.pid if self.folder else self.output

    def open_profile(self) -> int | None:
        """Open the profile.

        Returns:
            A descriptor, or None if the file is missing or empty.

        Raises:
            AllocationSamplingError: the file cannot be read, or has another owner.
        """
        if self.folder is None:
            return work_folder.open_profile(self.output, self._user)
        return self.folder.open_profile(os.path.basename(self.output), self._user)

    @property
    def is_over(self) -> bool:
        """Whether the duration is over, or the process has ended."""
        return self._has_ended or time.monotonic() >= self._until

    def wait(self, most: float, leaks: bool) -> None:
        """Wait for a part of the duration.

        Args:
            most: the seconds to wait.
            leaks: take heap snapshots during the last 70 % of the duration.
        """
        left = self._until - time.monotonic()
        if leaks and time.monotonic() >= self._due:
            cost = self._take_snapshot()
            self._due = next_snapshot(self._begin, self._until, time.monotonic(), cost,
                                      is_first=not self._count)
            self._count += 1
        else:
            self._has_ended = self._connection.is_closed(max(0.0, min(left, most)))

    def end(self, is_held_wanted: bool) -> str:
        """End the profile.

        Args:
            is_held_wanted: take a heap snapshot first.

        Returns:
            The reason why the profile may be shorter than the duration, or "".
        """
        if self._has_ended:
            return "process %d has ended, and its profile ends there" % self.pid
        if is_held_wanted:
            self._take_snapshot()
        try:
            self._connection.ask(meeting.STOP)
        except AllocationSamplingError as e:
            return str(e)
        return ""


    def _take_snapshot(self) -> float:
        """Take a heap snapshot.

        Returns:
            The elapsed time in seconds, or infinity if no snapshot was possible.
        """
        begin = time.monotonic()
        try:
            self._connection.ask(meeting.HELD)
        except AllocationSamplingError as e:
            if str(e) != self._refusal:
                note(str(e))
            self._refusal = str(e)
            return math.inf
        self.is_held_known = True
        return time.monotonic() - begin


def next_snapshot(begin: float, until: float, now: float, cost: float, *,
                  is_first: bool) -> float:
    """Return the time when `attach --leaks` takes the next heap snapshot.

    Times are in seconds.

    Snapshots take at most a tenth of the time. But the profile has at least a first
    snapshot, a last snapshot, and a snapshot in between.

    Args:
        begin: the time when the sampling began.
        until: the time when the sampling ends.
        now: the time when the last snapshot ended.
        cost: the duration of the last snapshot.
        is_first: whether the last snapshot was the first one.
    """
    due = now + max((until - begin) * _STEP, cost / _SHARE)
    return min(due, (now + until) / 2) if is_first and cost < math.inf else due


def _attach(args: argparse.Namespace, settings: Settings) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        runs: list[_Run] = []
        begun = time.monotonic()
        are_all = True
        for pid in family(args.pid) if args.children else [args.pid]:
            try:
                runs.append(_begin_next(runs, pid, args, settings, stack))
            except AllocationSamplingError as e:
                if not args.children or isinstance(e, StillTraced):
                    raise
                note(str(e))
                are_all = False
        if not runs:
            raise AllocationSamplingError(
                "cannot sample process %d, nor any of its children" % args.pid)
        with _ending_early_at_ctrl_c() as is_early:
            _say_what_is_sampled(runs, args, time.monotonic() - begun)
            while not is_early and (
                    sampled := [run for run in runs if not run.is_over]):
                for run in sampled:
                    run.wait(_LOOK / len(sampled), args.leaks)
            problems = [why for run in runs
                        if (why := run.end(args.leaks or args.retainers))]
        for why in problems:
            note(why)
        profiles = _profiles(runs, stack)
        salvage = ["--salvage"] * bool(problems)
        code = _report("leaks" if args.leaks else "report", profiles, salvage)
        if args.retainers:
            are_all = are_all and all(run.is_held_known for run in runs)
        if args.retainers and any(run.is_held_known for run in runs):
            print()
            code = _report("retainers", profiles, salvage) or code
        return code or int(not are_all)


def _begin_next(runs: list[_Run], pid: int, args: argparse.Namespace,
                settings: Settings, stack: contextlib.ExitStack) -> _Run:
    """Start to sample one more process.

    Args:
        runs: the processes that are sampled already. The first one is the parent of
            all others, and determines the run.
        pid: the process.
        args: the options.
        settings: the settings of the sampling.
        stack: ends the sampling, and removes the folder of the profile, when it closes.
    """
    process = target(args, pid)
    folder = stack.enter_context(work_folder.own(process.uid, process.gid))
    output = args.output or os.path.join(folder.path, "attached.vmprof")
    request = (wanted(process, settings, runs[0].output, folder.path, runs[0].run,
                      runs[0].pid) if runs
               else wanted(process, settings, output, folder.path))
    with contextlib.ExitStack() as own:
        run = _Run(process, own.enter_context(process.connected()), args.duration,
                   request, None if args.output else runs[0].folder if runs else folder)
        stack.push(own.pop_all())
        return run


def _say_what_is_sampled(runs: list[_Run], args: argparse.Namespace, took: float
                         ) -> None:
    note("sampling process%s %s for %g second%s; Ctrl-C ends it earlier" % (
        "es" * (len(runs) > 1), ", ".join(str(run.pid) for run in runs),
        args.duration, "s" * (args.duration != 1)))
    if not args.children and (workers := children(args.pid)):
        note("the children of the process (%s) may do the work, but are not sampled; "
             "--children also samples them" % ", ".join(map(str, workers)))
    if took > args.duration / 10 and len(runs) > 1:
        note("the processes started to sample one after the other, within %.1f "
             "seconds: each is sampled for the same duration, but not at the same "
             "time" % took)


@contextlib.contextmanager
def _ending_early_at_ctrl_c() -> Iterator[list[bool]]:
    """Append to a list at the first Ctrl-C, instead of ending the command.

    The context manager returns this list. So the report is not lost, even if Ctrl-C
    comes before the command waits. A second Ctrl-C ends the command.
    """
    is_early: list[bool] = []
    before = signal.getsignal(signal.SIGINT)

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        is_early.append(True)

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    try:
        yield is_early
    finally:
        signal.signal(signal.SIGINT, before)


def _profiles(runs: list[_Run], stack: contextlib.ExitStack) -> dict[int, str]:
    """Open the profiles of the sampled processes.

    Args:
        runs: the sampled processes.
        stack: closes the profiles.

    Returns:
        The name of each profile in messages, by descriptor.

    Raises:
        AllocationSamplingError: no process has a profile, or a profile cannot be read.
    """
    found = {}
    for run in runs:
        fd = run.open_profile()
        if fd is not None:
            stack.callback(os.close, fd)
            found[fd] = run.name
    if not found:
        raise AllocationSamplingError("the profile is missing: the program removed it, "
                                      "or ended before the profile began")
    return found


def _report(command: str, profiles: dict[int, str], options: list[str]) -> int:
    """Report the profiles in another process, and return its exit code.

    The other process gets descriptors instead of paths, because the sampled program may
    replace its profile by another file.

    Args:
        command: the command that reads the profiles.
        profiles: the name of each profile in messages, by descriptor.
        options: the options of the command.
    """
    sys.stdout.flush()
    return subprocess.call(
        [sys.executable, "-m", "vmprof_allocation", command, *options,
         *("--called=" + name for name in profiles.values()), "--",
         *("/proc/self/fd/%d" % fd for fd in profiles)], pass_fds=[*profiles])
