"""The patches for PyPy, from RPython's and from what differs.

A patch of patches/ that has one of the same name in ../rpython/patches leaves
out what is the same there:

- the reason, if the first line is an "index" line;
- the lines of a hunk: the third hunk of a file then has the lines of the third
  one of that file there.  Where the hunk has lines, these are instead of them.
- of a hunk's head all numbers but that of PyPy's line, as in "@@ -227 @@": the
  others are counted.

A file that isn't named isn't changed.  So what both have is said, and changed,
in ../rpython/patches alone.  After such a change the hashes of PyPy's files behind it
are others, which a later patch names: apply.py says which they are.  The ones that a
file has behind a patch are not checked, and are zeros.
"""
from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import tree
from python2 import Problem

HEAD = re.compile(r"@@ -(\d+)(?:,\d+)?(?: \+\S+)? @@(.*)")


@dataclasses.dataclass
class Hunk:
    #: the line that it replaces, or that it comes behind
    line: int
    #: what git puts behind the second @@
    heading: str
    lines: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class File:
    """The part of a patch that is about one file."""

    name: str
    #: all lines before the first hunk
    head: list[str] = dataclasses.field(default_factory=list)
    hunks: list[Hunk] = dataclasses.field(default_factory=list)


def parse(text: str) -> tuple[str, list[File]]:
    """The reason, and the files."""
    reason, mark, rest = ("\n" + text).partition("\nindex ")
    files: list[File] = []
    for line in (mark + rest).splitlines()[1:]:
        if line.startswith("index ") and (not files or files[-1].hunks):
            files.append(File(""))
        file = files[-1]
        if match := HEAD.fullmatch(line):
            file.hunks.append(Hunk(int(match.group(1)), match.group(2)))
        elif file.hunks:
            file.hunks[-1].lines.append(line)
        else:
            file.head.append(line)
            if line.startswith("+++ b/"):
                file.name = line[len("+++ b/"):]
    return reason[1:] and reason[1:] + "\n", files


def numbers(line: int, count: int) -> str:
    return "%d" % line if count == 1 else "%d,%d" % (line, count)


def hunks(file: File, theirs: list[Hunk]) -> list[str]:
    """The lines of all hunks, with whole heads."""
    result: list[str] = []
    moved = 0
    for number, hunk in enumerate(file.hunks):
        lines = hunk.lines
        if not lines:
            if number >= len(theirs):
                raise Problem("%s, @@ -%d @@: there is no hunk %d in RPython's "
                              "patch: write the lines here"
                              % (file.name, hunk.line, number + 1))
            lines = theirs[number].lines
        removed = sum(line.startswith("-") for line in lines)
        added = sum(line.startswith("+") for line in lines)
        # of no lines, git names the line before them
        new = hunk.line + moved + (removed == 0) - (added == 0)
        result.append("@@ -%s +%s @@%s" % (
            numbers(hunk.line, removed), numbers(new, added), hunk.heading))
        result += lines
        moved += added - removed
    return result


def complete(short: str, theirs: str) -> str:
    """The text of a patch, from what is in patches/ and RPython's patch."""
    their_reason, their_files = parse(theirs)
    reason, files = parse(short)
    their_hunks = {file.name: file.hunks for file in their_files}
    lines: list[str] = []
    for file in files:
        lines += file.head + hunks(file, their_hunks.get(file.name, []))
    return (reason or their_reason) + "".join(line + "\n" for line in lines)


@dataclasses.dataclass(frozen=True)
class Ours(tree.Ours):
    """The series for PyPy."""

    #: the series that it leaves out what is the same in
    base: tree.Ours = dataclasses.field(default_factory=tree.Ours)

    def text(self, path: Path) -> str:
        text = super().text(path)
        theirs = self.base.patches / path.name
        if not theirs.exists():
            return text
        try:
            return complete(text, self.base.text(theirs))
        except Problem as problem:
            raise Problem("%s: %s" % (path, problem)) from None
