"""The command view: open the profile in the Firefox Profiler."""
from __future__ import annotations

import argparse
import re

from vmprof_convert.cli import convert, formats
from vmprof_convert.cli.formats import AXES, FIREFOX, FORMATS
from vmprof_convert.cli.options import (
    STANDARD,
    add_filters,
    add_profiles,
    add_samples,
)
from vmprof_convert.errors import ProfileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Serve the profile to the Firefox Profiler, on this machine only and until "
        "Ctrl-C, and open the Profiler in the browser.")
    parser.add_argument("--port", type=_port, default=0, metavar="PORT",
                        help="serve the profile on this port (default: a free one)")
    add_firefox(parser)
    parser.add_argument("-o", "--output", metavar="OUT",
                        help="also write the file OUT, which ends with %s"
                             % " or ".join(FORMATS[FIREFOX].suffixes))
    add_samples(parser)
    add_profiles(parser, "app.vmprof")
    add_filters(parser)
    parser.set_defaults(retainers=False)


def add_firefox(parser: argparse.ArgumentParser) -> None:
    """Add the options for the Firefox Profiler."""
    parser.add_argument(
        "--sources", action="store_true",
        help="include the text of the program's own *.py files, which all recipients "
             "of the output can read")
    parser.add_argument("--axis", choices=AXES, default=AXES[0], metavar="AXIS",
                        help="use time (default) or allocated bytes as the x axis")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    format_ = FORMATS[FIREFOX]
    if options.output not in (None, STANDARD) and (
            formats.of_name(options.output) is not format_):
        raise ProfileError("%s: the output's name must end with %s" % (
            options.output, " or ".join(format_.suffixes)))
    return convert.serve_profile(options, format_)


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(
        "invalid port %r: write a number from 1 to 65535" % text)
