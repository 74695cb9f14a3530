"""The command memory: show the uses of the resident memory of a process or a profile.

The converter shows the memory in a profile. This module asks running processes.
"""
from __future__ import annotations

import argparse
import json
import os
import sys

from vmprof_allocation.commands import control, reading
from vmprof_allocation.commands.options import Parser, add_children, add_target
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.asking import gc_state
from vmprof_allocation.remote.control import meeting
from vmprof_allocation.remote.control.client import Process


def _parser() -> Parser:
    parser = Parser(
        "memory", "Show the uses of the resident memory: Python objects, C code, free "
                  "lists. A running process need not be sampled. A profile has this "
                  "table for its end, if the program was recorded with --memory.",
        "pypy-alloc memory 1234",
        usage="pypy-alloc memory PID [OPTIONS]\n"
              "       pypy-alloc memory FILE [OPTIONS]")
    add_target(parser)
    add_children(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    if not is_for_process(arguments):
        return reading.run("memory", arguments)
    args = _parser().parse_args(arguments)
    args.command = "memory"
    return control.apply_to_processes(args, show_memory)


def is_for_process(arguments: list[str]) -> bool:
    """Return whether the arguments name a process, and no file."""
    if {"-h", "--help"}.intersection(arguments):
        return True
    return (not any(map(os.path.exists, arguments))
            and any(word.isdigit() for word in arguments))


def show_memory(process: Process, args: argparse.Namespace) -> None:
    """Print the uses of a process's resident memory.

    Raises:
        AllocationSamplingError: the process cannot answer, or the converter is missing.
    """
    try:
        from vmprof_convert.cli.report import terminal
        from vmprof_convert.report import terminal_table, where_memory
    except ImportError as e:
        raise AllocationSamplingError(
            "the table needs the package vmprof-convert (%s). Install it into this "
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
