"""The tables that all threads share: strings, sources, functions, frames and stacks.

Each table has a row per distinct value and returns the index of the row. Its method
build() returns the columns for JSON.
"""
from __future__ import annotations

from collections.abc import Mapping

from vmprof_convert.writers.firefox.format.categories import Category
from vmprof_convert.writers.firefox.format.json_types import Json

#: number of bits for the index of a frame in a row of StackTable
_BITS = 32


class StringTable:
    """The table of distinct texts."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._rows: dict[str, int] = {}

    def index(self, text: str) -> int:
        """Return the index of a text."""
        return self._rows.setdefault(text, len(self._rows))

    def build(self) -> list[str]:
        """Return the texts in the order of their indices."""
        return list(self._rows)


class SourceTable:
    """The table of source files.

    The file contains their text only if the user requests it. Otherwise a user who
    shares a profile would share the program, too.
    """

    def __init__(self, strings: StringTable):
        """Create an empty table; `strings` gets the names of the files."""
        self._strings = strings
        #: row of each file, and index of the displayed name for each row
        self._rows: dict[str, int] = {}
        self._shown: list[int] = []
        #: text of each file that the profile contains
        self.texts: Mapping[str, str] = {}

    def index(self, file: str, shown: str) -> int:
        """Return the index of a file.

        Args:
            file: The path of the file.
            shown: The path as the Profiler shows it.
        """
        row = self._rows.setdefault(file, len(self._rows))
        if row == len(self._shown):
            self._shown.append(self._strings.index(shown))
        return row

    def build(self) -> Json:
        """Return the columns for JSON."""
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
    """The table of functions."""

    def __init__(self, strings: StringTable, sources: SourceTable):
        """Create an empty table; the other tables get the names and the files."""
        self._strings = strings
        self._sources = sources
        #: index of each function, by its name, source, line and whether it is Python
        self._rows: dict[tuple[int, int | None, int | None, bool], int] = {}

    def index(self, name: str, file: str, line: int, python: bool,
              shown: str = "") -> int:
        """Return the index of a function.

        Args:
            name: The name of the function.
            file: The path of its source file, "" if unknown.
            line: The line of its definition, counted from 1; 0 if unknown.
            python: Whether it is a Python function.
            shown: The path as the Profiler shows it, by default `file`.
        """
        row = (self._strings.index(name),
               self._sources.index(file, shown or file) if file else None,
               line if line > 0 else None, python)
        return self._rows.setdefault(row, len(self._rows))

    def build(self) -> Json:
        """Return the columns for JSON."""
        length = len(self._rows)
        return {
            "length": length,
            "name": [row[0] for row in self._rows],
            # The front end distinguishes JavaScript and native code. Python functions
            # are marked as JavaScript.
            "isJS": [row[3] for row in self._rows],
            # functions without a source file, such as types, stay visible in the view
            # of Python functions
            "relevantForJS": [not row[3] and row[1] is None
                              for row in self._rows],
            "resource": [-1] * length,
            "source": [row[1] for row in self._rows],
            "lineNumber": [row[2] for row in self._rows],
            "columnNumber": [None] * length,
            "originalLocation": [None] * length,
        }


class FrameTable:
    """The table of frames."""

    def __init__(self) -> None:
        """Create an empty table."""
        #: index of each frame, by its function, category and executed line
        self._rows: dict[tuple[int, Category, int | None], int] = {}

    def index(self, function: int, category: Category, line: int) -> int:
        """Return the index of a frame.

        Args:
            function: The index of the function.
            category: The category of the frame.
            line: The executed line, counted from 1; 0 if unknown.
        """
        return self._rows.setdefault(
            (function, category, line if line > 0 else None), len(self._rows))

    def build(self) -> Json:
        """Return the columns for JSON."""
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
    """The table of stacks: a tree whose rows have a frame and the caller's row."""

    def __init__(self) -> None:
        """Create an empty table."""
        #: Index of each stack, by caller and frame in one number. A pair would take
        #: three times as much memory.
        self._rows: dict[int, int] = {}

    def index(self, caller: int, frame: int) -> int:
        """Return the index of the stack in which row `caller` calls `frame`.

        Args:
            caller: The index of the caller's stack, -1 if `frame` is the outermost.
            frame: The index of the frame.
        """
        return self._rows.setdefault(caller << _BITS | frame, len(self._rows))

    def build(self) -> Json:
        """Return the columns for JSON."""
        return {"length": len(self._rows),
                "frame": [row & (1 << _BITS) - 1 for row in self._rows],
                "prefix": [None if row < 0 else row >> _BITS for row in self._rows]}
