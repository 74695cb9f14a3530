"""The tables that all threads share.  Each has one row per distinct value,
and hands out the row's index."""
from __future__ import annotations

from collections.abc import Mapping

from vmprof_convert.writers.firefox.format.categories import Category
from vmprof_convert.writers.firefox.format.json_types import Json

#: of the index of a frame
_BITS = 32


class StringTable:
    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def index(self, text: str) -> int:
        return self._rows.setdefault(text, len(self._rows))

    def build(self) -> list[str]:
        return list(self._rows)


class SourceTable:
    """Source files.  Their text is embedded only where it is given: who passes
    a profile on would pass the program on, unasked."""

    def __init__(self, strings: StringTable):
        self._strings = strings
        #: file: its row; and of each row the name that is shown
        self._rows: dict[str, int] = {}
        self._shown: list[int] = []
        self.texts: Mapping[str, str] = {}

    def index(self, file: str, shown: str) -> int:
        row = self._rows.setdefault(file, len(self._rows))
        if row == len(self._shown):
            self._shown.append(self._strings.index(shown))
        return row

    def build(self) -> Json:
        length = len(self._rows)
        return {
            "length": length,
            "id": [None] * length,
            "filename": self._shown,
            "startLine": [1] * length,
            "startColumn": [1] * length,
            "sourceMapURL": [None] * length,
            "content": list(map(self.texts.get, self._rows)),
        }


class FuncTable:
    def __init__(self, strings: StringTable, sources: SourceTable):
        self._strings = strings
        self._sources = sources
        #: name, source, line, is Python
        self._rows: dict[tuple[int, int | None, int | None, bool], int] = {}

    def index(self, name: str, file: str, line: int, python: bool,
              shown: str = "") -> int:
        """The function of this name that is defined at `line` (counted from
        1; 0: not known) of `file` ("": not known), which is `shown` so, if that
        says anything."""
        row = (self._strings.index(name),
               self._sources.index(file, shown or file) if file else None,
               line if line > 0 else None, python)
        return self._rows.setdefault(row, len(self._rows))

    def build(self) -> Json:
        length = len(self._rows)
        return {
            "length": length,
            "name": [row[0] for row in self._rows],
            # the front end knows "JS" and native code: Python is its JS
            "isJS": [row[3] for row in self._rows],
            # functions that are neither stay visible among the Python ones
            "relevantForJS": [not row[3] and row[1] is None
                              for row in self._rows],
            "resource": [-1] * length,
            "source": [row[1] for row in self._rows],
            "lineNumber": [row[2] for row in self._rows],
            "columnNumber": [None] * length,
            "originalLocation": [None] * length,
        }


class FrameTable:
    def __init__(self) -> None:
        #: function, category, executed line
        self._rows: dict[tuple[int, Category, int | None], int] = {}

    def index(self, function: int, category: Category, line: int) -> int:
        """`function` at its executed `line` (from 1; 0: not known)."""
        return self._rows.setdefault(
            (function, category, line if line > 0 else None), len(self._rows))

    def build(self) -> Json:
        length = len(self._rows)
        return {
            "length": length,
            "address": [-1] * length,
            "inlineDepth": [0] * length,
            "category": [row[1].category for row in self._rows],
            "subcategory": [row[1].subcategory for row in self._rows],
            "func": [row[0] for row in self._rows],
            "nativeSymbol": [None] * length,
            "innerWindowID": [0] * length,
            "line": [row[2] for row in self._rows],
            "column": [None] * length,
            "originalLocation": [None] * length,
        }


class StackTable:
    """A tree: each row is a frame, and the row of what called it."""

    def __init__(self) -> None:
        #: by caller and frame, in one number (a pair takes three times as much): there
        #: is each once
        self._rows: dict[int, int] = {}

    def index(self, caller: int, frame: int) -> int:
        """The row of `frame`, called by row `caller`; -1: it is the outermost."""
        return self._rows.setdefault(caller << _BITS | frame, len(self._rows))

    def build(self) -> Json:
        return {"length": len(self._rows),
                "frame": [row & (1 << _BITS) - 1 for row in self._rows],
                "prefix": [None if row < 0 else row >> _BITS for row in self._rows]}
