"""The command ctl: start, change and end the sampling of running programs."""
from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote import work_folder
from vmprof_allocation.remote.asking import (
    add_target,
    check_started,
    gc_state,
    target,
    wanted,
)
from vmprof_allocation.remote.control import meeting
from vmprof_allocation.remote.control.client import Process
from vmprof_allocation.remote.process_info import (
    Parser,
    add_raw_memory,
    add_sampling,
    check_file,
    family,
    note,
    printable,
)
from vmprof_allocation.settings.parsing import (
    check_output,
    make_interval,
    make_settings,
)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m vmprof_allocation ctl",
        description="Start and stop the sampling of a running program. The command "
                    "sends a signal to a control-enabled program: one with "
                    "VMPROF_CONTROL=1 in its environment, with python -m vmprof "
                    "--control, or with a call of vmprof_allocation.prepare(). In "
                    "other programs, the command stops a thread for a short time, "
                    "which needs the permission to use ptrace.")
    add_target(parser)
    parser.add_argument(
        "--children", action="store_true",
        help="also apply the command to all descendants of the process, such as "
             "workers; their profiles are next to the profile of PID, and belong to "
             "the same run")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="show whether the process is sampled, "
                                                "and the numbers of samples and bytes")
    status.add_argument("--json", action="store_true", help="print JSON")
    start = commands.add_parser("start", help="start to sample")
    add_sampling(start)
    add_raw_memory(start)
    start.add_argument(
        "-o", "--output", metavar="FILE",
        help="write the profile to FILE; the program writes it as its own user "
             "(default: vmprof-PID.vmprof in this folder)")
    start.add_argument("--no-follow", action="store_true",
                       help="do not sample the child processes")
    commands.add_parser("stop", help="end the sampling; the profile is then complete")
    rate = commands.add_parser("rate", help="set another interval")
    rate.add_argument("interval", metavar="BYTES", help="mean number of bytes between "
                                                        "two samples, for example 128k")
    commands.add_parser(
        "held", help="write the retainers of the live objects into the profile; report "
                     "--held shows them")
    memory = commands.add_parser(
        "memory", help="show the uses of the resident memory: Python objects, C code, "
                       "free lists; the process need not be sampled")
    memory.add_argument("--json", action="store_true", help="print JSON")
    snapshot = commands.add_parser(
        "snapshot", help="complete the profile, and continue in another file")
    snapshot.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="path of the next "
                                                              "profile")
    return parser


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    args = _parser().parse_args(arguments)
    try:
        if args.children and args.command not in _OF_CHILDREN:
            raise AllocationSamplingError(
                "%s works on one process. Omit --children, and run the command for "
                "each PID"
                % args.command)
        _DO[args.command](target(args), args)
        is_done = not args.children or False not in [
            _is_done_of(pid, args) for pid in family(args.pid)[1:]]
        sys.stdout.flush()
    except AllocationSamplingError as e:
        note(str(e))
        return 2
    return 0 if is_done else 1


def _is_done_of(pid: int, args: argparse.Namespace) -> bool:
    """Run a subcommand of ctl for a child process.

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
            _DO[args.command](child, args)
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
                  "new samples are not recorded. To sample into another file, run `ctl "
                  "%d stop`, which fails because the profile is not complete, and then "
                  "`ctl %d start -o FILE`" % (problem, process.pid, process.pid))


def _start(process: Process, args: argparse.Namespace) -> None:
    settings = make_settings(args.allocation_sampling,
                             lifetimes=not args.no_lifetimes,
                             follow=not args.no_follow, lines=args.lines,
                             raw_memory=args.raw_memory)
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


def _stop(process: Process, args: argparse.Namespace) -> None:
    path, = process.ask(meeting.STOP)
    print("the profile of process %d is %s" % (process.pid, path) if path
          else "process %d has no samples, and therefore no profile" % process.pid)


def _rate(process: Process, args: argparse.Namespace) -> None:
    interval = make_interval(args.interval)
    process.ask(meeting.RATE, str(interval))
    print("process %d is sampled, one per %d bytes on average" % (
        process.pid, interval))


def _snapshot(process: Process, args: argparse.Namespace) -> None:
    output = os.path.abspath(check_output(args.output))
    check_file(output)
    path, = process.ask(meeting.SNAPSHOT, output)
    print("%s is complete; process %d continues in %s" % (
        path, process.pid, printable(output)))


def _held(process: Process, args: argparse.Namespace) -> None:
    path, = process.ask(meeting.HELD)
    print("the retainers in process %d are in %s: the command retainers shows them" % (
        process.pid, path))


def _memory(process: Process, args: argparse.Namespace) -> None:
    try:
        from vmprof_convert.cli.report import terminal
        from vmprof_convert.report import terminal_table, where_memory
    except ImportError as e:
        raise AllocationSamplingError(
            "the table needs vmprof-convert (%s). Install it into this "
            "environment" % e) from None
    facts = {name: int(value) for name, _, value in (
        fact.partition("=") for fact in process.ask(meeting.MEMORY, gc_state(process)))}
    try:
        if args.json:
            print(json.dumps(where_memory.json(facts, process.pid)))
        else:
            sheet = where_memory.sheet(facts, process.pid)
            terminal_table.write(sheet, sys.stdout, terminal())
    except KeyError as e:
        raise AllocationSamplingError(
            "process %d gave an invalid answer to 'memory': %s is missing. It runs "
            "another version of vmprof-allocation, or another program" % (
                process.pid, e)) from None


#: subcommands that can be given to a process and its children at once
_OF_CHILDREN = "status", "start", "stop", "rate", "memory"
_DO = {"status": _status, "start": _start, "stop": _stop, "rate": _rate,
       "snapshot": _snapshot, "held": _held, "memory": _memory}
