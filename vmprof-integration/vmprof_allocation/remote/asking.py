"""Whom attach, ctl and top ask, and what they ask to be sampled."""
from __future__ import annotations

import argparse

from vmprof_allocation.engines import searching
from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.remote.control.client import Process
from vmprof_allocation.remote.process_info import DEFAULT, check_seconds, printable
from vmprof_allocation.settings.parsing import make_settings, seconds
from vmprof_allocation.settings.processes import Processes
from vmprof_allocation.settings.settings import Settings


def _pid(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            "%r is no process's number, which comes first; ps lists those that there "
            "are" % text) from None


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=_pid, metavar="PID")
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS",
        help="give up if it has not answered by then (default: 30)")
    parser.add_argument(
        "--signal", default="", metavar="NAME",
        help="that it is prepared for, if it is another one than SIGURG and its "
             "environment does not say so")
    parser.add_argument(
        "--despite-seccomp", action="store_true",
        help="also if it is not prepared, and system calls of it are filtered that "
             "ours are not: a filter that kills would end it")


def check_target(args: argparse.Namespace) -> None:
    """Raise AllocationSamplingError."""
    check_seconds("timeout", args.timeout)
    if not 0 < args.pid < 2**31:
        raise AllocationSamplingError(
            "%d is no process's number; ps lists those that there are" % args.pid)


def target(args: argparse.Namespace, pid: int | None = None) -> Process:
    """`pid`, or the one that was named.  Raises AllocationSamplingError."""
    check_target(args)
    return Process(args.pid if pid is None else pid, args.timeout, args.signal,
                   despite_seccomp=args.despite_seccomp)


def wanted(process: Process, settings: Settings, output: str, folder: str = "",
           run: str = "", parent: int = 0) -> list[str]:
    """What follows START, and HOLD.  `folder`, of work_folder.own(), is for what
    that process has to know.  `run`: there is one already, whose first process writes
    to `output`; this is a child of process `parent`."""
    knowledge = (searching.knowledge(say, settings, folder)
                 if process.runs_this() else "")
    return [output, knowledge, settings.text(), run, str(parent)]


def check_started(process: Process, request: list[str], answer: list[str]
                  ) -> tuple[str, str]:
    """Return the path and the run of the profile that `process` writes.

    Args:
        request: The request that the process received; see wanted().
        answer: Its answer to START, or to HOLD.

    Raises:
        AllocationSamplingError: The answer names another file than the request, or
            another run.  A command opens only the files that it requested.
    """
    output, _, _, run, parent = request
    path, new_run = answer
    possible = (Processes(output, run, int(parent)).paths_of_child(process.own_pid)
                if run else [output])
    for asked in possible:
        if printable(asked) == path and run in ("", new_run):
            return asked, new_run
    raise AllocationSamplingError(
        "process %d received the request to write the profile to %r, and answered that "
        "it writes to %r; it runs another version of vmprof-allocation, or another "
        "program" % (process.pid, possible[0], path))


def gc_state(process: Process) -> str:
    """What follows MEMORY; empty: it is not known here."""
    if not process.runs_this():
        return ""
    try:
        return searching.choose_aloud(say, make_settings(DEFAULT)).gc_state()
    except AllocationSamplingError:
        return ""           # it can't be sampled; that can be asked nevertheless
