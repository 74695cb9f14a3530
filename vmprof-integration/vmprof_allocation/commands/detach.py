"""The command detach: end the sampling of a running process."""
from __future__ import annotations

from vmprof_allocation.commands import control
from vmprof_allocation.commands.options import Parser, add_children, add_target


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    parser = Parser(
        "detach", "End the sampling of a running process, and complete its profile. "
                  "The command attach ends its own sampling, also after Ctrl-C.",
        "pypy-alloc detach 1234")
    add_target(parser)
    add_children(parser)
    args = parser.parse_args(arguments)
    args.command = "stop"
    return control.apply_to_processes(args, control.stop)
