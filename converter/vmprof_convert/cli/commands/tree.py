"""The command tree: show the largest branches of the call tree."""
from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from vmprof_convert.cli import report
from vmprof_convert.cli.options import (
    DEFAULT_LIMIT,
    JSON,
    MARKDOWN,
    add_at,
    add_filters,
    add_forms,
    add_group_storage,
    add_limit,
    add_notes,
    add_profiles,
    add_sort,
    by_place,
)

if TYPE_CHECKING:
    from vmprof_convert.analysis.summary import Tally
    from vmprof_convert.report.tables import View


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--by", type=by_place, metavar="WHAT", default=("function",),
                        help="make branches of function (default), line, file, module "
                             "or label:KEY")
    add_arguments_of_page(parser)
    add_profiles(parser, "app.vmprof --user-code")
    add_filters(parser)


def add_arguments_of_page(parser: argparse.ArgumentParser,
                          limit: int = DEFAULT_LIMIT) -> None:
    """Add the options of a report on calls.

    Args:
        parser: the parser of the command.
        limit: the default number of rows.
    """
    add_sort(parser)
    add_limit(parser, limit)
    add_at(parser)
    add_group_storage(parser)
    add_notes(parser)
    add_forms(parser, MARKDOWN, JSON)
    parser.set_defaults(hide_internal=False, of=None)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    return report.run(options, partial(report.make_page, page=_page))


def _page(form: report.Form, view: View, tally: Tally) -> Any:
    from vmprof_convert.analysis.call_tree import branches
    return form.shapes.of_tree(view, *branches(
        view.profile, tally, view.choice, view.origins, view.limit))
