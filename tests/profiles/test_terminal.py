"""Tests of the width and the colours of reports, and of hostile names in reports."""
from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.cells import cell_len

import calls
import hostile_names
from hostile_names import HOSTILE
from made_heap import Heap
from made_profiles import Log
from report_runs import PROGRAMS, report
from vmprof_convert import readers
from vmprof_convert.analysis.summary import Choice
from vmprof_convert.report import tables, terminal_table
from vmprof_convert.report.markdown import escaped
from vmprof_convert.report.tables import FIGURE, NAME, PLACE, Column, Sheet, Table
from vmprof_convert.text.terminal import Terminal


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a profile with types, lifetimes and long names."""
    heap = Heap(interval=50)
    heap.log.function("x", 1, "x.py")
    for number in range(200):
        heap.allocate("main make", ("app.Leaf", 64, 100))
        heap.allocate("main " + "long_name_" * 9, ("list", 3200 + number, 1e9))
    heap.collect()
    path = tmp_path_factory.mktemp("looks") / "looks.vmprof"
    path.write_bytes(heap.data())
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a profile with hostile names of functions, files, types and settings."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.vmprof"
    path.write_bytes(hostile_names.log().data())
    return path


#: the options of each form of a report
VIEWS: list[tuple[str, ...]] = [
    (), ("--by", "function"), ("--by", "line,type"), ("--by", "file"),
    ("--by", "module"), ("--by", "type"), ("tree",), ("callers", "*"), ("--user-code",),
    ("callers", "g*", "--user-code"), ("--function", "*", "--file", "*")]


def cells(text: str) -> int:
    return max(map(cell_len, text.splitlines()))


# ________________________________________
# width


@pytest.mark.parametrize("width", [20, 30, 40, 57, 80, 100, 143, 300])
@pytest.mark.parametrize("options", VIEWS[:-2])
def test_no_line_is_longer_than_the_terminal(
        path: Path, width: int, options: tuple[str, ...]) -> None:
    done = report(path, *options, width=width)
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done.stdout) <= width


@pytest.mark.parametrize("options", VIEWS)
def test_wide_and_combining_characters_fit(hostile: Path,
                                           options: tuple[str, ...]) -> None:
    done = report(hostile, *options, width=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done.stdout) <= 60


def test_number_of_columns_depends_on_the_width(path: Path) -> None:
    found = {}
    for width in 30, 60, 80, 100, 120, 300:
        text = report(path, "--by", "function", width=width).stdout
        (head,) = [line for line in text.splitlines() if "function" in line
                   and ":" not in line]
        found[width] = head.split()
    assert found[30] == ["self", "function"]
    assert found[60] == ["self", "%", "function", "where"]
    assert found[80] == ["self", "%", "total", "function", "where"] or (
        found[80] == ["self", "%", "total", "alive", "function", "where"])
    assert found[300] == ["self", "%", "total", "alive", "objects", "died", "young",
                          "function", "where"]
    for narrow, wide in zip(list(found.values()), list(found.values())[1:]):
        assert set(narrow) <= set(wide)


def test_column_of_option_sort_has_priority(path: Path) -> None:
    for sort in "objects", "alive":
        head = next(line for line in report(
            path, "--sort", sort, width=64).stdout.splitlines() if sort in line)
        assert head.split()[:3] == ["allocated", "%", sort]


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_a_terminal_it_is_100_columns_wide(path: Path, program: str) -> None:
    done = report(path, width=None, program=program)
    assert cells(done.stdout) <= 100
    # there are no colours
    assert "\x1b" not in done.stdout
    assert done.stdout == report(path, width=100).stdout


def test_one_row_and_no_samples(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    empty = log.data()
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    path = tmp_path / "one.vmprof"
    path.write_bytes(log.data())
    found = report(path).stdout.splitlines()
    assert [line for line in found if line.endswith("app.py:1")] == [
        "1012 B <4.57K  100.0  1012 B  42.2 <231  f         app.py:1"]
    path.write_bytes(empty)
    text = report(path).stdout
    assert "(0 samples" in text and "function" not in text


def test_rows_that_are_left_out_are_counted(path: Path) -> None:
    text = report(path, "-n", "1").stdout
    assert re.search(r"^ *\.\.\. and 2 functions more$", text, re.MULTILINE)
    assert " more" not in report(path, "-n", "3").stdout


def test_paths_are_cut_at_the_start_and_names_at_the_end() -> None:
    def drawn(kind: str, text: str, width: int) -> str:
        import io
        out = io.StringIO()
        terminal_table.write(Sheet(["x"], [Table("", [
            Column("self", FIGURE), Column("n", kind)], [("1 B", text)])], []),
            out, Terminal(width))
        return out.getvalue().splitlines()[3]

    assert drawn(NAME, "abcdefghijklmnop", 14) == " 1 B  abcdefg\u2026"
    assert drawn(PLACE, "abcdefghijklmnop", 14) == " 1 B  \u2026jklmnop"
    assert drawn(PLACE, "abcdefgh", 14) == " 1 B  abcdefgh"
    # a number replaces an indentation that is too deep
    assert drawn(NAME, " " * 60 + "- f", 40).startswith(" 1 B  +30 - f")


def test_a_stream_with_an_ascii_encoding(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-m", "vmprof_convert", "report", str(path)],
        capture_output=True, timeout=300, env={
            **os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "70"})
    text = done.stdout.decode("ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "+-" in text and "\\x" not in text and cells(text) <= 70


# ________________________________________
# colours


def on_a_terminal(path: Path, **variables: str) -> str:
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
            [sys.executable, "-m", "vmprof_convert", "report", str(path)],
            stdout=theirs, env={**environment, "TERM": "xterm", "COLUMNS": "90",
                                **variables}) as p:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        assert p.wait(300) == 0
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_colours_on_a_terminal_only(path: Path) -> None:
    text = on_a_terminal(path)
    assert "\x1b[1m" in text
    without = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert [line.rstrip() for line in without.splitlines()] == report(
        path, width=90).stdout.splitlines()


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_if_the_environment_disables_them(path: Path,
                                                     variables: dict[str, str]) -> None:
    assert "\x1b" not in on_a_terminal(path, **variables)
    # an empty variable has no effect
    assert "\x1b" in on_a_terminal(path, NO_COLOR="")


# ________________________________________
# hostile names


@pytest.mark.parametrize("options", [*VIEWS, ("leaks",)])
def test_names_have_no_control_characters(hostile: Path,
                                          options: tuple[str, ...]) -> None:
    done = report(hostile, *options, "-n", "1000")
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    for character in text:
        assert character == "\n" or unicodedata.category(character) not in (
            "Cc", "Cf", "Cs", "Zl", "Zp"), repr(character)


def test_names_have_no_markup(hostile: Path) -> None:
    text = report(hostile, "--by", "type").stdout
    for name in "[bold red]x[/]", ":smile:", "[link=http://e.example]x":
        assert name in text


@pytest.mark.parametrize("options", VIEWS)
def test_json_is_valid(hostile: Path, options: tuple[str, ...]) -> None:
    done = report(hostile, *options, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    # the text is ASCII without control characters
    assert done.stdout.isascii() and "\x1b" not in done.stdout
    found = json.loads(done.stdout)
    assert "remarks" in found


def test_json_has_unchanged_names(hostile: Path) -> None:
    found = json.loads(report(hostile, "--json", "--by", "function").stdout)
    names = {row["function"]["name"] for row in found["rows"]}
    assert "\x1b[2J\x1b]0;title\x07" in names and "</code>" in names


@pytest.mark.parametrize("options", VIEWS)
def test_markdown_has_as_many_cells_as_columns(hostile: Path,
                                               options: tuple[str, ...]) -> None:
    done = report(hostile, *options, "--markdown", "-n", "1000")
    assert (done.returncode, done.stderr) == (0, "")
    rows = 0
    columns = 0
    for line in done.stdout.splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        # as on GitHub, a bar after a backslash does not separate cells
        found = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1
        columns = columns or found
        assert found == columns, line
        assert len(line.split(" | ")) == columns, line
        rows += 1
    assert rows > 10


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert not attrs
        self.found.add(tag)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def outside_code(line: str) -> str:
    """Return the line without spans of code, in which Markdown has no markup.

    A span begins and ends with the same number of backticks.
    """
    return re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", line)


@pytest.mark.parametrize("options", VIEWS)
def test_markdown_has_no_html_and_no_links(hostile: Path,
                                           options: tuple[str, ...]) -> None:
    text = report(hostile, *options, "--markdown", "-n", "1000").stdout
    for line in text.splitlines():
        seen = outside_code(line)
        tags = Tags()
        tags.feed(seen)
        tags.close()
        assert tags.found <= {"code"}, line
        assert "http://" not in seen and "www." not in seen and "](" not in seen
        assert not re.search(r"[\[\]`@\\]|\*\*|~~", seen.replace("\\|", "")), line


@pytest.mark.parametrize("text", HOSTILE)
def test_prose_in_markdown(text: str) -> None:
    import html
    shown = escaped(text)
    assert html.unescape(shown) == text
    assert not re.search(r"[<>`*_\[\]|~#@$\\]|://|www\.", shown.replace("&#", "&"))


def test_markdown_has_all_columns_of_the_table(path: Path) -> None:
    for width in 40, 200:
        text = report(path, "--markdown", "--by", "function", width=width).stdout
        assert ("| self | % | total | alive | objects | died young | function "
                "| where |") in text


def test_sheet_has_the_rows_of_the_profile() -> None:
    profile = readers.read_bytes(calls.log().data())
    (found,) = tables.of(profile, Choice(("line",)), 3).tables
    assert len(found.rows) == 3 and found.rest == "... and 9 lines more"
