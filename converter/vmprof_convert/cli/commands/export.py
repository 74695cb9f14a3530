"""The command export: write the profile for another tool."""
from __future__ import annotations

import argparse

from vmprof_convert.cli import convert, formats
from vmprof_convert.cli.commands.view import add_firefox
from vmprof_convert.cli.formats import FORMATS, Format
from vmprof_convert.cli.options import (
    STANDARD,
    add_filters,
    add_group_storage,
    add_profiles,
    add_samples,
)
from vmprof_convert.errors import ProfileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("-o", "--output", metavar="OUT",
                        help="write to OUT, whose ending selects the format")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), metavar="FORMAT",
        help="select the format: %s" % ", ".join("%s (%s)" % (
            name, format_.suffixes[0]) for name, format_ in FORMATS.items()))
    parser.add_argument("--weight", choices=("bytes", "objects", "time"), metavar="KEY",
                        help="collapsed: count bytes (default), objects or time")
    parser.add_argument("--retainers", action="store_true",
                        help="%s: write what retains the live objects" % ", ".join(
                            _names("write_held")))
    add_group_storage(parser)
    parser.add_argument("--open", action="store_true", help="%s: open the file" % (
        ", ".join(name for name, format_ in FORMATS.items()
                  if format_.view is not None)))
    add_firefox(parser)
    add_samples(parser)
    add_profiles(parser, "app.vmprof -o app.pb.gz")
    add_filters(parser)


def _names(attribute: str) -> list[str]:
    """Return the names of the formats with an attribute."""
    return [name for name, format_ in FORMATS.items() if getattr(format_, attribute)]


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    format_ = _format(options)
    for other in FORMATS.values():
        for name, is_given in (
                ("weight", options.weight), ("sources", options.sources),
                ("axis", options.axis != formats.AXES[0])):
            if is_given and name in other.options and other is not format_:
                raise ProfileError(
                    "--%s is for %s: write --format %s, or an output that ends with %s"
                    % (name, other.what, other.name, " or ".join(other.suffixes)))
    if options.open and format_.view is None:
        raise ProfileError("--open is for %s, and not for the format %s" % (
            " and ".join(name for name, other in FORMATS.items()
                         if other.view is not None), format_.name))
    if options.retainers:
        _check_retainers(options, format_)
    elif options.group_storage:
        raise ProfileError("--group-storage is for --retainers: leave it out")
    return convert.write_file(options, format_)


def _format(options: argparse.Namespace) -> Format:
    """Return the format that --format or the name of the output selects."""
    if options.format:
        return FORMATS[options.format]
    if options.output in (None, STANDARD):
        raise ProfileError("the format is missing: write --format, or the output's "
                           "name after -o")
    format_ = formats.of_name(options.output)
    if format_ is None:
        raise ProfileError(
            "%s: the output's name must end with %s; or select the format with "
            "--format" % (options.output, formats.suffixes()))
    return format_


def _check_retainers(options: argparse.Namespace, format_: Format) -> None:
    """Check that the format can contain the retainers instead of the samples."""
    if format_.has_held:
        raise ProfileError(
            "--retainers is not needed here: the format %s includes the retainers, if "
            "the profile has them; leave it out" % format_.name)
    if format_.write_held is None:
        raise ProfileError("--retainers is for the formats %s, and not for %s" % (
            ", ".join(_names("write_held")), format_.name))
    if options.weight not in (None, "bytes"):
        raise ProfileError("--retainers is about bytes: leave out --weight %s"
                           % options.weight)
    if options.samples is not None:
        raise ProfileError("--samples limits the allocation samples, and --retainers "
                           "shows none: leave it out")
