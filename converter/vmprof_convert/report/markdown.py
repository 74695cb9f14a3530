"""Write a report as Markdown, for issues and notes.

All columns are written, regardless of the width. Names from the profile are escaped, so
that they cannot become Markdown, a link, a mention or HTML.
"""
from __future__ import annotations

import re
from typing import TextIO

from vmprof_convert.report.tables import FIGURE, Sheet, Table

#: characters with a meaning anywhere in a line of Markdown
_SPECIAL = re.compile(r"[\\`*_\[\]<>&|#~$@]")
#: parts of a URL that GitHub and others turn into a link without any markup
_LINKS = re.compile(r"(?<=:)//|(?<=www)\.", re.IGNORECASE)
#: characters that end inline code or a table cell, and blanks at either end of a cell
_ENDS_CODE = re.compile(r"[`|\\]|^ | $")


def write(sheet: Sheet, out: TextIO) -> None:
    """Write a report to a file as Markdown."""
    for line in sheet.head:
        print(escaped(line) + "  ", file=out)
    for table in sheet.tables:
        print(file=out)
        if table.title:
            print(escaped(table.title) + "\n", file=out)
        _write_table(table, out)
    if sheet.notes:
        print(file=out)
    for line in sheet.notes:
        print("- " + escaped(line), file=out)


def _write_table(table: Table, out: TextIO) -> None:
    columns = table.columns
    print(_row([escaped(column.title) for column in columns]), file=out)
    print(_row(["---:" if column.kind == FIGURE else ":---" for column in columns]),
          file=out)
    for row in table.rows:
        print(_row([escaped(cell) if column.kind == FIGURE else _name(cell)
                    for column, cell in zip(columns, row)]), file=out)
    if table.rest:
        print("\n%s" % escaped(table.rest), file=out)


def _row(cells: list[str]) -> str:
    return "| %s |" % " | ".join(cells)


def _name(cell: str) -> str:
    """Return a cell as inline code, in which Markdown has no special characters."""
    name = cell.lstrip(" ")
    # Markdown removes blanks at the beginning
    indent = "&nbsp;" * (len(cell) - len(name))
    if not name:
        return ""
    if _ENDS_CODE.search(name):
        return "%s<code>%s</code>" % (indent, "".join(map(_reference, name)))
    return "%s`%s`" % (indent, name)


def _reference(character: str) -> str:
    return character if character.isalnum() else "&#%d;" % ord(character)


def escaped(text: str) -> str:
    """Return one line of text, escaped so that Markdown shows it literally."""
    text = _SPECIAL.sub(lambda match: _reference(match[0]), text)
    return _LINKS.sub(lambda match: "".join(map(_reference, match[0])), text)
