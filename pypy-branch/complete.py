"""Make the patches for PyPy from the patches for RPython 0.2.1 and the differences.

The patches for RPython are in ../rpython/patches, and the differences in patches/.  If
both have a patch of the same name, the one in patches/ may omit these parts:

- The message is omitted if the first line is an "index" line.
- A hunk without lines, for example the third hunk of a file, has the lines of the
  file's third hunk in ../rpython/patches.
- The head of a hunk contains only the number of PyPy's line, as in "@@ -227 @@".  The
  other numbers are computed.

A file without an "index" line is not changed.  So the common parts are only in
../rpython/patches.  A change there also changes git's hashes of PyPy's files, which
later patches contain; apply.py prints the new hashes.  The hash of a file after a patch
is not checked, and is written as zeros.
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
    """A hunk of a patch."""

    #: the number of the first replaced line, or of the line before inserted lines
    line: int
    #: git's text after the second @@
    heading: str
    lines: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class File:
    """The part of a patch for one file."""

    name: str
    #: all lines before the first hunk
    head: list[str] = dataclasses.field(default_factory=list)
    hunks: list[Hunk] = dataclasses.field(default_factory=list)


def parse(text: str) -> tuple[str, list[File]]:
    """Return the message and the files of a patch."""
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
    """Return the text of a range of `count` lines in the head of a hunk."""
    return "%d" % line if count == 1 else "%d,%d" % (line, count)


def hunks(file: File, theirs: list[Hunk]) -> list[str]:
    """Return the lines of all hunks of a file, with complete heads.

    Args:
        file: the file in a patch of patches/.
        theirs: the hunks of the file in the same patch of ../rpython/patches.

    Raises:
        Problem: a hunk has no lines in either patch.
    """
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
        # for a range without lines, git writes the number of the line before
        new = hunk.line + moved + (removed == 0) - (added == 0)
        result.append("@@ -%s +%s @@%s" % (
            numbers(hunk.line, removed), numbers(new, added), hunk.heading))
        result += lines
        moved += added - removed
    return result


def complete(short: str, theirs: str) -> str:
    """Return the text of a complete patch.

    Args:
        short: the text in patches/.
        theirs: the text in ../rpython/patches.

    Raises:
        Problem: a hunk has no lines in either patch.
    """
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

    #: the series that contains the common parts
    base: tree.Ours = dataclasses.field(default_factory=tree.Ours)

    def text(self, path: Path) -> str:
        """Return the text of a complete patch.  Raises Problem."""
        text = super().text(path)
        theirs = self.base.patches / path.name
        if not theirs.exists():
            return text
        try:
            return complete(text, self.base.text(theirs))
        except Problem as problem:
            raise Problem("%s: %s" % (path, problem)) from None
