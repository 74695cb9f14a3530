"""The command flamegraph: write a flame graph as one HTML page."""
from __future__ import annotations

import argparse

from vmprof_convert.cli import convert
from vmprof_convert.cli.formats import FORMATS
from vmprof_convert.cli.options import (
    STANDARD,
    add_filters,
    add_profiles,
    add_samples,
)
from vmprof_convert.errors import ProfileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("-o", "--output", metavar="OUT",
                        help="write to OUT, which ends with .html (default: FILE.html)")
    parser.add_argument("--open", action="store_true",
                        help="open the page in the browser")
    add_samples(parser)
    add_profiles(parser, "app.vmprof --open")
    add_filters(parser)
    parser.set_defaults(retainers=False)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    if options.output not in (None, STANDARD) and not options.output.endswith(".html"):
        raise ProfileError("%s: the output's name must end with .html; the command "
                           "export writes other formats" % options.output)
    return convert.write_file(options, FORMATS["html"])
