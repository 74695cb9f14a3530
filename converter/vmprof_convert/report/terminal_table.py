"""Write a report to the terminal, with tables that fit its width."""
from __future__ import annotations

from typing import TextIO

from vmprof_convert.report.tables import FIGURE, NAME, PLACE, Column, Sheet, Table
from vmprof_convert.text.terminal import DOTS, NO_TERMINAL, Terminal, plain, print_prose

#: blanks between two columns
_GAP = 2
#: Minimum width of all columns of labels (functions and files) together: a number of
#: characters or a share of the terminal's width, whichever is larger. Optional columns
#: of figures get the rest.
_LABELS, _LABELS_SHARE = 36, 0.4
#: minimum width of a column of labels, unless all optional columns of figures are
#: already left out
_SHORTEST = 12


def write(sheet: Sheet, out: TextIO, terminal: Terminal = NO_TERMINAL) -> None:
    """Write a report. No line is longer than the width of the terminal."""
    first, *more = sheet.head
    print_prose(first, out, terminal)
    for line in more:
        print_prose("  " + line, out, terminal)
    for table in sheet.tables:
        print(file=out)
        if table.title:
            print_prose(table.title, out, terminal)
        _draw(table, out, terminal)
    if sheet.tables:
        print(file=out)
    for line in sheet.notes:
        print_prose(line, out, terminal)


def _draw(table: Table, out: TextIO, terminal: Terminal) -> None:
    # rich takes 15 MiB, so import it only to draw a table
    from rich.cells import cell_len
    from rich.console import Console
    from rich.style import Style
    from rich.table import Table as Drawn
    from rich.text import Text

    rows = [tuple(plain(cell, terminal) for cell in row) for row in table.rows]
    natural = [max(cell_len(text) for text in (column.title, *cells))
               for column, *cells in zip(table.columns, *rows)]
    widths = _widths(table.columns, natural, terminal.width)
    chosen = [number for number, width in enumerate(widths) if width]
    drawn = Drawn(box=None, padding=(0, _GAP, 0, 0), pad_edge=False,
                  header_style=Style(bold=True) if terminal.colours else "")
    for number in chosen:
        column = table.columns[number]
        drawn.add_column(
            Text(_fit(column.title, NAME, widths[number])), no_wrap=True,
            width=widths[number], overflow="crop",
            justify="right" if column.kind == FIGURE else "left",
            style=_style(column, number) if terminal.colours else "")
    for row in rows:
        # Text and not str, because brackets in names would be read as markup
        drawn.add_row(*(Text(_fit(row[number], table.columns[number].kind,
                                  widths[number]), no_wrap=True)
                        for number in chosen))
    console = Console(
        file=out, width=max(terminal.width, 8), force_terminal=terminal.colours,
        color_system="standard" if terminal.colours else None, highlight=False,
        markup=False, emoji=False, legacy_windows=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(drawn, no_wrap=True, overflow="crop", crop=True)
    for line in captured.get().splitlines():
        print(plain(line.rstrip(), terminal), file=out)
    if table.rest:
        print(plain(_fit(" " * max(widths[0] - 3, 0) + table.rest, NAME,
                          terminal.width), terminal), file=out)


def _style(column: Column, number: int) -> str:
    if number == 0:
        return "bold"
    return {FIGURE: "", NAME: "cyan", PLACE: "dim"}[column.kind]


def _widths(columns: list[Column], natural: list[int], width: int) -> list[int]:
    """Return the width of each column, or 0 for a column to omit."""
    labels = [number for number, column in enumerate(columns)
              if column.kind != FIGURE]
    figures = sorted((number for number, column in enumerate(columns)
                      if column.kind == FIGURE),
                     key=lambda number: columns[number].rank)
    # in a narrow terminal, drop the last columns of labels rather than make all of them
    # unreadable
    while len(labels) > 1 and _SHORTEST * len(labels) > width - natural[figures[0]]:
        del labels[-1]
    wanted = sum(natural[number] for number in labels) + _GAP * len(labels)
    least = min(wanted, max(_LABELS, int(_LABELS_SHARE * width)))
    shortest = min(wanted, (_SHORTEST + _GAP) * len(labels))
    result = [0] * len(columns)
    left = width
    for number in figures:
        need = natural[number] + _GAP
        room = left - (shortest if columns[number].rank < 3 else least)
        if need > room and columns[number].rank:
            break
        result[number] = min(natural[number], max(width - _GAP - 1, 1))
        left -= need
    _share(result, labels, natural, left)
    return result


def _share(result: list[int], labels: list[int], natural: list[int],
           left: int) -> None:
    """Distribute the remaining width to the columns of labels.

    Short labels get their full width. The other labels share the rest equally.

    Args:
        result: the widths, which this function fills in.
        labels: numbers of the columns with labels.
        natural: width of the longest cell in each column.
        left: remaining width of the terminal.
    """
    waiting = sorted(labels, key=lambda number: natural[number])
    left -= _GAP * (len(labels) - 1)
    while waiting:
        number = waiting.pop(0)
        result[number] = max(min(natural[number], left // (len(waiting) + 1)), 1)
        left -= result[number]


def _fit(text: str, kind: str, width: int) -> str:
    """Return the text cut to a number of terminal columns.

    A name loses its end, and a place loses its beginning. If the indentation of a name
    takes more than half of the width, a number replaces the indentation.
    """
    from rich.cells import cell_len, set_cell_size
    if cell_len(text) <= width:
        return text
    if kind == NAME:
        name = text.lstrip(" ")
        depth = (len(text) - len(name)) // 2
        if 2 * depth > width // 2:
            text = "+%d %s" % (depth, name)
            if cell_len(text) <= width:
                return text
        return set_cell_size(text, width - 1).rstrip() + DOTS if width > 1 else (
            set_cell_size(text, width))
    while text and cell_len(text) > width - 1:
        text = text[1:]
    return DOTS + text
