"""The command control: start, change and stop the sampling of running programs."""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from vmprof_allocation.commands.options import (
    Parser,
    add_children,
    add_native_memory,
    add_sampling,
    add_target,
    target,
)
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote import work_folder
from vmprof_allocation.remote.asking import check_started, wanted
from vmprof_allocation.remote.control import meeting
from vmprof_allocation.remote.control.client import Process
from vmprof_allocation.remote.process_info import check_file, family, note, printable
from vmprof_allocation.settings.parsing import (
    check_output,
    make_interval,
    make_settings,
)


def _parser() -> Parser:
    parser = Parser(
        "control",
        "Control the sampling of a running process, for scripts and services. The "
        "command sends a signal to a control-enabled program: one with "
        "VMPROF_CONTROL=1 in its environment, with pypy-alloc run --control, or with "
        "a call of vmprof_allocation.prepare(). In other programs, the command stops "
        "a thread for a short time, which needs the permission to use ptrace.",
        "pypy-alloc control 1234 start -o worker.vmprof",
        usage="pypy-alloc control [OPTIONS] PID COMMAND [OPTIONS]")
    add_target(parser)
    add_children(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND",
                                     prog="pypy-alloc control PID")

    def add(name: str, help_: str, example: str) -> Parser:
        return commands.add_parser(
            name, command="", help=help_,
            description=help_[0].upper() + help_[1:] + ".",
            example="pypy-alloc control 1234 " + example)

    start = add("start", "start to sample", "start --allocation-sampling 8k")
    add_sampling(start)
    add_native_memory(start)
    start.add_argument(
        "-o", "--output", metavar="FILE",
        help="write the profile to FILE; the program writes it as its own user "
             "(default: vmprof-PID.vmprof in this folder)")
    start.add_argument("--no-follow", action="store_true",
                       help="do not sample the child processes")
    add("stop", "end the sampling; the profile is then complete", "stop")
    status = add("status", "show whether the process is sampled, and the numbers of "
                           "samples and bytes", "status --json")
    status.add_argument("--json", action="store_true", help="print JSON")
    interval = add("interval", "set another interval", "interval 64k")
    interval.add_argument("interval", metavar="BYTES",
                          help="mean number of bytes between two samples, for example "
                               "128k")
    add("snapshot", "take a heap snapshot, and write the retainers of the live objects "
                    "into the profile, for pypy-alloc retainers", "snapshot")
    rotate = add("rotate", "complete the profile, and continue in another file",
                 "rotate -o next.vmprof")
    rotate.add_argument("-o", "--output", metavar="FILE", required=True,
                        help="path of the next profile")
    return parser


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    args = _parser().parse_args(arguments)
    return apply_to_processes(args, _DO[args.command])


def apply_to_processes(args: argparse.Namespace,
                       do: Callable[[Process, argparse.Namespace], None]) -> int:
    """Run a command for a process, and with --children for its descendants.

    Args:
        args: the options, with the name of the command.
        do: runs the command for one process.

    Returns:
        The exit code: 1 if only some processes obeyed, and 2 if the first one did not.
    """
    try:
        if args.children and args.command not in _OF_CHILDREN:
            raise AllocationSamplingError(
                "%s works on one process. Omit --children, and run the command for "
                "each PID"
                % args.command)
        do(target(args), args)
        is_done = not args.children or False not in [
            _is_done_of(pid, args, do) for pid in family(args.pid)[1:]]
        sys.stdout.flush()
    except AllocationSamplingError as e:
        note(str(e))
        return 2
    return 0 if is_done else 1


def _is_done_of(pid: int, args: argparse.Namespace,
                do: Callable[[Process, argparse.Namespace], None]) -> bool:
    """Run a command for a child process.

    Returns:
        Whether the child obeyed. If not, a message is on stderr.
    """
    try:
        child = target(args, pid)
        status = child.ask(meeting.STATUS)
        # the child may be new, and may be sampled already because it is followed
        if args.command == "start" and status:
            print("process %d is already being sampled into %s" % (pid, status[0]))
        elif args.command in ("start", "status", "memory") or status:
            do(child, args)
    except AllocationSamplingError as e:
        sys.stdout.flush()
        note(str(e))
        return False
    return True


def _status(process: Process, args: argparse.Namespace) -> None:
    answer = process.ask(meeting.STATUS)
    status: dict[str, Any] = {"pid": process.pid, "is_on": bool(answer)}
    if answer:
        path, interval, limit, *counted, problem = answer
        status.update(path=path, interval=int(interval), limit=limit or None)
        status.update(zip(("samples", "allocated", "collections"), map(int, counted)))
        status["problem"] = problem or None
    if args.json:
        print(json.dumps(status))
    elif not answer:
        print("process %d is not sampled" % process.pid)
    else:
        print("process %d is sampled, %s, into %s\n"
              "%d samples of %d allocated bytes, in %d minor collections" % (
                  process.pid, "within the limit %s" % limit if limit
                  else "one per %d bytes on average" % status["interval"], path,
                  status["samples"], status["allocated"], status["collections"]))
        if problem:
            print("%s\n"
                  "new samples are not recorded. To sample into another file, run "
                  "`pypy-alloc detach %d`, which fails because the profile is not "
                  "complete, and then `pypy-alloc control %d start -o FILE`" % (
                      problem, process.pid, process.pid))


def _start(process: Process, args: argparse.Namespace) -> None:
    settings = make_settings(args.allocation_sampling,
                             lifetimes=not args.no_lifetimes,
                             follow=not args.no_follow, lines=args.lines,
                             raw_memory=args.native_memory)
    output = os.path.abspath(check_output(
        "vmprof-%d.vmprof" % args.pid if args.output is None else args.output))
    is_first = process.pid == args.pid
    if is_first:
        check_file(output)
    with work_folder.own(process.uid, process.gid) as folder:
        request = wanted(process, settings, output, folder.path,
                         *(() if is_first else (args.run, args.pid)))
        path, args.run = check_started(
            process, request, process.ask(meeting.START, *request))
    print("process %d is sampled into %s" % (process.pid, printable(path)))


def stop(process: Process, args: argparse.Namespace) -> None:
    """End the sampling of a process, and print the path of its profile."""
    path, = process.ask(meeting.STOP)
    print("the profile of process %d is %s" % (process.pid, path) if path
          else "process %d has no samples, and therefore no profile" % process.pid)


def _interval(process: Process, args: argparse.Namespace) -> None:
    interval = make_interval(args.interval)
    process.ask(meeting.RATE, str(interval))
    print("process %d is sampled, one per %d bytes on average" % (
        process.pid, interval))


def _rotate(process: Process, args: argparse.Namespace) -> None:
    output = os.path.abspath(check_output(args.output))
    check_file(output)
    path, = process.ask(meeting.SNAPSHOT, output)
    print("%s is complete; process %d continues in %s" % (
        path, process.pid, printable(output)))


def _snapshot(process: Process, args: argparse.Namespace) -> None:
    path, = process.ask(meeting.HELD)
    print("the retainers in process %d are in %s: pypy-alloc retainers shows them" % (
        process.pid, path))


#: commands that can be given to a process and its children at once
_OF_CHILDREN = "status", "start", "stop", "interval", "memory"
_DO = {"start": _start, "stop": stop, "status": _status, "interval": _interval,
       "snapshot": _snapshot, "rotate": _rotate}
