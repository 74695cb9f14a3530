"""The command callers: show the callers and the callees of a function."""
from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from vmprof_convert.cli import report
from vmprof_convert.cli.commands.tree import add_arguments_of_page
from vmprof_convert.cli.options import DEFAULT_PART, add_filters, add_profiles

if TYPE_CHECKING:
    from vmprof_convert.analysis.summary import Tally
    from vmprof_convert.report.tables import View


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_arguments_of_page(parser, DEFAULT_PART)
    parser.set_defaults(by=("function",))
    add_profiles(parser, "app.vmprof app.py:index", " NAME")
    parser.add_argument("name", metavar="NAME", help=argparse.SUPPRESS)
    add_filters(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""

    def page(form: report.Form, view: View, tally: Tally) -> Any:
        from vmprof_convert.analysis.callers import focus
        return form.shapes.of_focus(view, focus(
            view.profile, tally, options.name, view.choice, view.origins))

    return report.run(options, partial(
        report.make_page, page=page, default_limit=DEFAULT_PART))
