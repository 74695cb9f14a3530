"""The command report: show the functions, lines or types that allocate most."""
from __future__ import annotations

import argparse

from vmprof_convert.cli import report
from vmprof_convert.cli.options import (
    CSV,
    JSON,
    MARKDOWN,
    add_filters,
    add_forms,
    add_options,
    add_profiles,
    add_samples,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_options(parser)
    add_forms(parser, MARKDOWN, JSON, CSV)
    add_profiles(parser, "app.vmprof --by type --sort alive")
    add_samples(parser, "rss: ")
    add_filters(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    return report.run(options, report.make)
