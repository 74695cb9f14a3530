"""Count the constructions in this repository's text that are hard to follow.

    python tests/support/plain_english.py [--list] [PATH ...]

`make lint` runs this program on all files that git tracks.  It reads the comments and
docstrings of Python, C and JavaScript, the messages of Python, and the documents.  It
counts flags per thousand words by the rules in plain_english.toml.  memray,
async-profiler and PyPy's garbage collector have 0.6 to 1.3 flags per thousand words.

A flag marks a sentence to rewrite, with a subject, a verb, and the noun that is meant.
"""
from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import tomllib

ROOT = Path(__file__).resolve().parents[2]

#: The largest number of flags per thousand words in a folder.
LIMIT = 3.0


class Rule(NamedTuple):
    """A construction, and what to write instead of it."""

    name: str
    pattern: re.Pattern[str]
    instead: str
    #: Pairs of a text that breaks the rule, and of the same fact in plain English.
    examples: tuple[tuple[str, ...], ...]


def _read_rules() -> tuple[Rule, ...]:
    found = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return tuple(Rule(rule["name"], re.compile(rule["pattern"]), rule["instead"],
                      tuple(map(tuple, rule["examples"]))) for rule in found["rules"])


RULES = _read_rules()


class Text(NamedTuple):
    """A comment, docstring, message or paragraph, and the line at which it begins."""

    line: int
    words: str


def _comment_blocks(source: str, prefix: str) -> Iterator[Text]:
    """Yield each block of whole comment lines that begin with a prefix."""
    block: list[str] = []
    first = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        match = re.match(r"\s*" + prefix + r"\s(.*)", line)
        if match:
            first = first if block else number
            block.append(match[1])
        elif block:
            yield Text(first, " ".join(block))
            block = []


def _python_strings(source: str) -> Iterator[Text]:
    """Yield the docstrings, and the other strings of four words or more."""
    try:
        tree = ast.parse(source)
    except SyntaxError:         # The file is in Python 2.
        for match in re.finditer(r'"""(.*?)"""', source, re.S):
            yield Text(source.count("\n", 0, match.start()) + 1, match[1])
        return
    docstrings = {
        id(node.body[0].value) for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef,
                             ast.AsyncFunctionDef))
        and node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        is_message = "\n" not in node.value and len(
            re.findall(r"[A-Za-z']{2,}", node.value)) >= 4
        if id(node) in docstrings or is_message:
            yield Text(node.lineno, node.value)


def _c_comments(source: str) -> Iterator[Text]:
    for match in re.finditer(r"/\*(.*?)\*/", source, re.S):
        yield Text(source.count("\n", 0, match.start()) + 1,
                   " ".join(re.sub(r"\n\s*\*?", " ", match[1]).split()))


def _paragraphs(source: str) -> Iterator[Text]:
    """Yield the paragraphs that are neither indented nor markup."""
    number = 1
    for paragraph in re.split(r"(\n\s*\n)", source):
        if paragraph.strip() and paragraph[0] not in " \t=+|" and (
                not paragraph.startswith("..")):
            yield Text(number, paragraph)
        number += paragraph.count("\n")


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the texts in a file; none if the file's kind has no text to check."""
    source = path.read_text("utf-8", errors="replace")
    if path.suffix == ".py":
        yield from _python_strings(source)
        yield from _comment_blocks(source, "#:?")
    elif path.suffix in (".c", ".h", ".js", ".mjs"):
        yield from _c_comments(source)
        yield from _comment_blocks(source, "//")
    elif path.suffix == ".rst":
        yield from _paragraphs(source)


def find_flags(words: str) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that a text breaks, with the words that break it."""
    words = " ".join(words.split())
    for rule in RULES:
        for match in rule.pattern.finditer(words):
            yield rule, match[0].strip()


class Count:
    """The words and flags of a folder."""

    def __init__(self) -> None:
        self.words = 0
        #: "FILE:LINE: ..." of each flag
        self.flags: list[str] = []

    @property
    def density(self) -> float:
        """The number of flags per thousand words."""
        return 1000 * len(self.flags) / max(self.words, 1)


def count(paths: Iterable[Path]) -> dict[str, Count]:
    """Return the counts of the files' folders, by the folders' paths in the tree."""
    counts: dict[str, Count] = {}
    for path in paths:
        name = path.relative_to(ROOT)
        found = counts.setdefault(name.parent.as_posix(), Count())
        for text in texts_of(path):
            found.words += len(text.words.split())
            found.flags += [
                "%s:%d: %s (%s): %r" % (name, text.line, rule.name, rule.instead, words)
                for rule, words in find_flags(text.words)]
    return counts


def tracked_files() -> list[Path]:
    """Return the files that git tracks and that exist."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [path for path in (ROOT / name for name in listed.split("\0") if name)
            if path.is_file()]


def find_faults(counts: dict[str, Count]) -> Iterator[str]:
    """Yield a line for each folder above LIMIT, and a line for each of its flags."""
    for folder, found in sorted(counts.items()):
        if found.density > LIMIT:
            yield "%s has %.1f flags per 1000 words, and may have %.1f:" % (
                folder, found.density, LIMIT)
            yield from ("  " + flag for flag in found.flags)


def main(arguments: list[str] | None = None) -> int:
    """Print the faults, or all flags below the given paths.  Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true",
                        help="show each flag and the density of each folder")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    options = parser.parse_args(arguments)
    wanted = [path.resolve() for path in options.paths]
    counts = count(
        path for path in tracked_files()
        if not wanted or any(path == one or one in path.parents for one in wanted))
    if options.list:
        for folder, found in sorted(counts.items()):
            print("\n".join([*found.flags, "%s: %d words, %.1f flags per 1000 words" % (
                folder, found.words, found.density)]))
        return 0
    faults = list(find_faults(counts)) if not wanted else [
        flag for found in counts.values() for flag in found.flags]
    print("\n".join(faults) or "The text follows the rules.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
