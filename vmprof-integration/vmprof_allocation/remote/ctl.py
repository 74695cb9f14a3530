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
        description="Begin to sample a program that runs, and end it. One that is "
                    "prepared for it, by VMPROF_CONTROL=1 in its environment, by "
                    "python -m vmprof --control, or by vmprof_allocation.prepare(), "
                    "is asked by a signal; one of its threads is stopped for a moment "
                    "if it is not, which ptrace has to allow.")
    add_target(parser)
    parser.add_argument(
        "--children", action="store_true",
        help="the same of all processes that came of it, as workers do: their profiles "
             "stand beside that of PID, and are a run with it")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="whether it is sampled, and how much")
    status.add_argument("--json", action="store_true", help="for programs")
    start = commands.add_parser("start", help="begin")
    add_sampling(start)
    add_raw_memory(start)
    start.add_argument(
        "-o", "--output", metavar="FILE",
        help="the profile, which the program writes, as its own user (default: "
             "vmprof-PID.vmprof, here)")
    start.add_argument("--no-follow", action="store_true",
                       help="do not sample the processes that it makes")
    commands.add_parser("stop", help="end; the profile is whole then")
    rate = commands.add_parser("rate", help="another interval, from now on")
    rate.add_argument("interval", metavar="BYTES", help="for example 128k")
    commands.add_parser(
        "held", help="look at who holds what is alive; report --held shows it")
    memory = commands.add_parser(
        "memory", help="where its memory is: Python objects, C code, free lists; "
                       "sampled or not")
    memory.add_argument("--json", action="store_true", help="for programs")
    snapshot = commands.add_parser(
        "snapshot", help="the profile ends whole, and goes on in another file")
    snapshot.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="that one")
    return parser


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    args = _parser().parse_args(arguments)
    try:
        if args.children and args.command not in _OF_CHILDREN:
            raise AllocationSamplingError(
                "%s is of one process; leave --children out, and name each"
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
    """Run the command for a child process.

    Returns:
        False if the child refused, after a message on stderr.
    """
    try:
        child = target(args, pid)
        status = child.ask(meeting.STATUS)
        # the child may be new, and may be sampled already because it is followed
        if args.command == "start" and status:
            print("process %d is sampled already, into %s" % (pid, status[0]))
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
              "%d samples of %d bytes allocated, in %d minor collections" % (
                  process.pid, "within the limit %s" % limit if limit
                  else "one per %d bytes on average" % status["interval"], path,
                  status["samples"], status["allocated"], status["collections"]))
        if problem:
            print("%s\n"
                  "what is sampled now is not recorded. To sample into another file: "
                  "`ctl %d stop`, which fails as the profile is not complete, then "
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
    print("process %d is sampled, into %s" % (process.pid, printable(path)))


def _stop(process: Process, args: argparse.Namespace) -> None:
    path, = process.ask(meeting.STOP)
    print("the profile of process %d is %s" % (process.pid, path) if path
          else "process %d made no sample, and has no profile" % process.pid)


def _rate(process: Process, args: argparse.Namespace) -> None:
    interval = make_interval(args.interval)
    process.ask(meeting.RATE, str(interval))
    print("process %d is sampled one per %d bytes on average" % (
        process.pid, interval))


def _snapshot(process: Process, args: argparse.Namespace) -> None:
    output = os.path.abspath(check_output(args.output))
    check_file(output)
    path, = process.ask(meeting.SNAPSHOT, output)
    print("%s is complete; process %d continues in %s" % (
        path, process.pid, printable(output)))


def _held(process: Process, args: argparse.Namespace) -> None:
    path, = process.ask(meeting.HELD)
    print("who holds what in process %d is in %s: report --held shows it" % (
        process.pid, path))


def _memory(process: Process, args: argparse.Namespace) -> None:
    try:
        from vmprof_convert.cli.report import terminal
        from vmprof_convert.report import terminal_table, where_memory
    except ImportError as e:
        raise AllocationSamplingError(
            "the table is made by vmprof-convert (%s); install it into this "
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
            "process %d gave an invalid answer to 'memory': %s is missing; it runs "
            "another version of vmprof-allocation, or another program" % (
                process.pid, e)) from None


#: commands that can be given to many processes
_OF_CHILDREN = "status", "start", "stop", "rate", "memory"
_DO = {"status": _status, "start": _start, "stop": _stop, "rate": _rate,
       "snapshot": _snapshot, "held": _held, "memory": _memory}
