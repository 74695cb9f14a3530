"""Test support/plain_english.py, the check of English that `make lint` runs."""
from __future__ import annotations

from pathlib import Path

import pytest

import plain_english
from plain_english import Count, Text

EXAMPLES = [(rule.name, *pair)
            for rule in plain_english.RULES for pair in rule.examples]


@pytest.mark.parametrize("name, broken, plain", EXAMPLES)
def test_rule_flags_broken_text_only(name: str, broken: str, plain: str) -> None:
    found = [rule.name for rule, _ in plain_english.find_flags(broken)]
    assert name in found
    assert list(plain_english.find_flags(plain)) == []


def test_each_rule_has_an_example() -> None:
    assert all(rule.examples for rule in plain_english.RULES)


def test_a_question_is_no_fragment() -> None:
    assert list(plain_english.find_flags("What allocates?")) == []


@pytest.mark.parametrize("name, source, expected", [
    ("module.py",
     '"""Summary."""\n'
     "#: A comment\n# of two lines\n"
     "code = 'a message of five words'  # the rest of a line\n"
     "SHORT = 'three words only'\n",
     [Text(1, "Summary."), Text(4, "a message of five words"),
      Text(2, "A comment of two lines")]),
    ("python2.py", 'def f():\n    """Summary."""\n    print "x"\n',
     [Text(2, "Summary.")]),
    ("file.c", "/* One\n * two */\nint x;   /* three */\n// four\n",
     [Text(1, "One two"), Text(3, "three"), Text(4, "four")]),
    ("page.rst", "Title\n=====\n\nText.\n\n::\n\n    code\n\n.. comment\n",
     [Text(1, "Title\n====="), Text(4, "Text."), Text(6, "::")]),
    ("data.txt", "Of nothing.", []),
])
def test_text_of_each_kind_of_file(tmp_path: Path, name: str, source: str,
                                   expected: list[Text]) -> None:
    path = tmp_path / name
    path.write_text(source, "utf-8")
    assert list(plain_english.texts_of(path)) == expected


def counted(words: int, flags: int) -> Count:
    found = Count()
    found.words = words
    found.flags = ["flag"] * flags
    return found


def test_faults_are_folders_above_the_limit() -> None:
    faults = list(plain_english.find_faults({
        "good": counted(1000, 3), "bad": counted(1000, 4),
        "bad/part": counted(1000, 4), "empty": counted(0, 0)}))
    assert [fault for fault in faults if fault != "  flag"] == [
        "bad has 4.0 flags per 1000 words, and may have 3.0:",
        "bad/part has 4.0 flags per 1000 words, and may have 3.0:"]
    assert faults.count("  flag") == 8


def test_command_lists_the_flags_of_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert plain_english.main(["--list", str(Path(plain_english.__file__).parent)]) == 0
    assert "tests/support: " in capsys.readouterr().out
