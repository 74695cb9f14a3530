"""Parse the target of attach, ctl and top, and build the requests for this process."""
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
            "invalid PID %r: write the PID of a process before the other arguments; ps "
            "lists the processes" % text) from None


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the process, and the way to reach it."""
    parser.add_argument("pid", type=_pid, metavar="PID")
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS",
        help="wait up to SECONDS for an answer of the process (default: 30)")
    parser.add_argument(
        "--signal", default="", metavar="NAME",
        help="set the signal for which the program is control-enabled, if it is not "
             "SIGURG and is not in the program's environment")
    parser.add_argument(
        "--despite-seccomp", action="store_true",
        help="also attach to a program that is not control-enabled and has another "
             "seccomp filter than this command; a filter that kills would end the "
             "program")


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


def wanted(process: Process, settings: Settings, output: str, folder: str = "",
           run: str = "", parent: int = 0) -> list[str]:
    """Return the fields that follow the name of a START or HOLD request.

    Args:
        process: the process that is to be sampled.
        settings: the settings.
        output: path of the profile, or of the first process's profile.
        folder: folder from work_folder.own() for data that the process needs.
        run: ID of an existing run that the process becomes a child of, or "".
        parent: pid of the process's parent in this run, or 0.
    """
    knowledge = (searching.knowledge(say, settings, folder)
                 if process.runs_this() else "")
    return [output, knowledge, settings.text(), run, str(parent)]


def check_started(process: Process, request: list[str], answer: list[str]
                  ) -> tuple[str, str]:
    """Return the path and the run of the profile that `process` writes.

    Args:
        process: the sampled process.
        request: the request that the process received; see wanted().
        answer: its answer to START, or to HOLD.

    Raises:
        AllocationSamplingError: the answer names another file than the request, or
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
        "process %d received the request to write the profile to %r, but answered that "
        "it writes to %r. It runs another version of vmprof-allocation, or another "
        "program" % (process.pid, possible[0], path))


def gc_state(process: Process) -> str:
    """Return the field of a MEMORY request: where to read whether the GC sweeps.

    The result is Engine.gc_state() for the interpreter of `process`. It is "" if this
    build of PyPy cannot be sampled.
    """
    if not process.runs_this():
        return ""
    try:
        return searching.choose_aloud(say, make_settings(DEFAULT)).gc_state()
    except AllocationSamplingError:
            return ""           # the build cannot be sampled, but has memory counts
