"""Test that the costs in documents equal the study's results in benchmarks/results."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import ROOT

RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "benchmarks" / "FIGURES.rst"
#: Paragraphs with costs in documents other than FIGURES.rst: the file, the beginning of
#: the paragraph, and the results that contain its numbers.
ELSEWHERE = [("README.rst", "A sample takes ",
              ("depth", "costs", "fresh", "lifetimes")),
             ("vmprof-integration/docs/running.rst", "the program allocates. This is",
              ("costs",))]

_NUMBER = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?(?![\w])")
_LITERAL = re.compile(r"``.*?``|`.*?`__?", re.DOTALL)
#: Integers below this value are not checked.  They describe the method, or count things
#: in the text.
_SMALL = 20


def numbers(text: str) -> list[str]:
    return [found.replace(",", "").lstrip("-") for found in _NUMBER.findall(text)]


def is_in(number: str, found: set[str]) -> bool:
    """Return whether `number` is equal to a number in `found`, or is one rounded."""
    if number in found:
        return True
    places = len(number.partition(".")[2])
    return any("." in one and len(one.partition(".")[2]) > places
               and "%.*f" % (places, float(one)) == number for one in found)


def result(name: str) -> str:
    # Skip the first line, which contains the date and the machine.
    return (RESULTS / (name + ".txt")).read_text().partition("\n")[2]


def unfounded(text: str, names: list[str]) -> list[str]:
    found = {number for name in names for number in numbers(result(name))}
    return [number for number in numbers(_LITERAL.sub("", text))
            if not ("." not in number and int(number) < _SMALL)
            and not is_in(number, found)]


def sections() -> list[tuple[str, str]]:
    """Return the title and the text of each section of FIGURES.rst."""
    parts = re.split(r"^(.+)\n-{4,}\n", FIGURES.read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize("title, text", [
    pytest.param(*section, id=section[0]) for section in sections()])
def test_each_figure_is_one_of_the_results(title: str, text: str) -> None:
    names = re.findall(r"``results/(\w+)\.txt``", text)
    assert names, "no results are named"
    assert unfounded(text, names) == []


@pytest.mark.parametrize("document, start, names", ELSEWHERE)
def test_other_documents_say_the_same(document: str, start: str,
                                      names: tuple[str, ...]) -> None:
    text = (ROOT / document).read_text()
    paragraph = text[text.index(start):].partition("\n\n")[0]
    assert numbers(paragraph) and unfounded(paragraph, list(names)) == []


def test_a_wrong_figure_is_found() -> None:
    row = next(line for line in result("costs").splitlines()
               if line.startswith("geometric mean"))
    right = numbers(row)[1]
    assert unfounded("It costs %s." % right, ["costs"]) == []
    assert unfounded("It costs 9.876.", ["costs"]) == ["9.876"]


def test_each_row_of_the_table_of_programs_equals_the_results() -> None:
    """The headings select the columns of the results, so the test also finds a number
    in the wrong column.
    """
    header, *rows = (line.split() for line in result("costs").strip().split(
        "\n\n")[0].splitlines())
    columns = header[header.index("GB/s"):]
    lines = FIGURES.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("\\ ")
                 and "GB/s" in line)
    shown = lines[start].split()[1:]
    found = {row[0]: dict(zip(columns, row[1:])) for row in rows
             if len(row) == len(columns) + 1}
    count = 0
    for line in lines[start + 2:]:
        name, *cells = line.split()
        if name not in found:
            break
        assert cells == [found[name][column] for column in shown], name
        count += 1
    assert count == 18          # the programs and their mean


def test_results_are_of_one_commit() -> None:
    commits = {(path.stem, re.search(r"commit (\S+);", path.read_text().partition(
        "\n")[0])) for path in RESULTS.glob("*.txt")
        # These experiments were added later; see benchmarks/README.rst.
        if path.stem not in ("lines", "liveness", "memory", "raw_memory")}
    assert len(commits) > 10
    assert len({match and match.group(1) for _, match in commits}) == 1


def test_all_pictures_exist_and_no_result_is_obsolete() -> None:
    names = {path.stem for path in RESULTS.glob("*.json")}
    assert {Path(path).stem.partition("-")[0] for path in RESULTS.iterdir()} == names
    for image in re.findall(r"image:: (\S+)", FIGURES.read_text()):
        assert (FIGURES.parent / image).exists(), image
