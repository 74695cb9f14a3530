"""Match functions, files and modules of the two sides of a comparison.

A file may be in another folder in the second side, and a function may have moved to
another line.
"""
from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from vmprof_convert.analysis.summary import Figures, Row, Subject, Summary
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.profile.model import LABEL, Function, Profile


class Matching:
    """The names that the last run of a comparison has for the functions of all runs."""

    def __init__(self, before: Sequence[Profile], after: Sequence[Profile]) -> None:
        """Match the functions of two groups of runs.

        Functions with the same name, file and line match. The other functions with
        this name and file match in the order of their lines, if both groups have the
        same number of such functions. Otherwise the match is unclear.
        """
        #: the origins of each profile, by the profile's id()
        self._origins: dict[int, Origins] = {}
        #: the lines of the definitions of each name in each file, for each side
        lines: dict[tuple[str, str, str], tuple[set[int], set[int]]] = (
            collections.defaultdict(lambda: (set(), set())))
        #: the path that each function's file has in the last run
        self._files: dict[tuple[str, str, str], str] = {}
        for is_after, side in enumerate((before, after)):
            for profile in side:
                origins = self._origins_of(profile)
                for function in profile.functions.values():
                    key = self._key(function, origins)
                    lines[key][is_after].add(function.line)
                    if is_after:
                        self._files[key] = function.file
        #: the line in the second side for each function of the first side that moved
        self._moved: dict[tuple[tuple[str, str, str], int], int] = {}
        self._unclear: set[tuple[tuple[str, str, str], int]] = set()
        for key, (old, new) in lines.items():
            gone, come = sorted(old - new), sorted(new - old)
            if len(gone) == len(come):
                # Functions keep their order.
                self._moved.update(((key, line), other)
                                   for line, other in zip(gone, come))
            elif gone and come:
                self._unclear.update((key, line) for line in gone + come)

    def _origins_of(self, profile: Profile) -> Origins:
        found = self._origins.get(id(profile))
        if found is None:
            found = self._origins[id(profile)] = Origins(profile)
        return found

    def _key(self, function: Function, origins: Origins) -> tuple[str, str, str]:
        path = origins.path(function.file) if function.file else ""
        return function.name, path, function.kind

    def rows(self, profile: Profile, summary: Summary, is_after: bool,
             is_total: bool) -> dict[Subject, Figures]:
        """Return the compared sums of each subject in a run.

        Args:
            profile: the profile of the run.
            summary: the rows of the run.
            is_after: whether the run belongs to the second side.
            is_total: whether totals are compared, and not own allocations.
        """
        origins = self._origins_of(profile)
        result: dict[Subject, Figures] = {}
        for row in summary.rows:
            figures = row.total if is_total else row.own
            if not figures.sum().samples:
                continue
            subject = self._subject(row, origins, is_after)
            found = result.get(subject)
            if found is None:
                result[subject] = found = Figures(figures.interval)
            found.add_figures(figures)
        return result

    def aligned(self, profile: Profile, is_after: bool) -> Profile:
        """Return the profile with the names that the functions have in the last run."""
        files, origins = self._files, self._origins_of(profile)
        functions = {}
        for address, function in profile.functions.items():
            if function.kind != LABEL:
                key = self._key(function, origins)
                function = function._replace(
                    line=self._line(key, function.line, is_after),
                    file=files.get(key, function.file))
            functions[address] = function
        return dataclasses.replace(profile, functions=functions)

    def _line(self, key: tuple[str, str, str], line: int, is_after: bool) -> int:
        """Return a definition's line in the second side; 0 if the match is unclear."""
        if (key, line) in self._unclear:
            return 0
        return line if is_after else self._moved.get((key, line), line)

    def _subject(self, row: Row, origins: Origins, is_after: bool) -> Subject:
        subject = row.subject
        function = subject.function
        if function is None:
            path = origins.path(subject.file) if subject.file else ""
            return subject._replace(file=path)
        if function.kind == LABEL:
            return subject
        key = self._key(function, origins)
        line = self._line(key, function.line, is_after)
        executed = subject.line
        if executed > 0 and function.line and line:
            executed += line - function.line
        return subject._replace(
            function=Function(function.name, line, key[1], function.kind),
            line=executed if line or not function.line else 0)
