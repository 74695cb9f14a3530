"""Check that the tests named in PROMISES.rst exist."""
from __future__ import annotations

import collections
import re

from conftest import ROOT

FOLDERS = ("tests", "rpython/added", "pypy-branch/added")
PAGE = ROOT / "tests/PROMISES.rst"
TEST = re.compile(r"``(\w+)::(\w+)``")


def by_file() -> dict[str, set[str]]:
    """Return the names of all tests by file, both without `test_`."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("test_*.py"):
            # search with a pattern, because `ast` cannot parse the files in Python 2
            found[path.stem[len("test_"):]] |= set(re.findall(
                r"^ *def test_(\w+)\(", path.read_text(encoding="utf-8"),
                re.MULTILINE))
    return found


def test_each_promise_names_tests_that_exist() -> None:
    exist = by_file()
    named = TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 100
    assert [name for name in named if name[1] not in exist[name[0]]] == []


def test_each_promise_has_a_test_or_says_that_it_has_none() -> None:
    promises = re.split(r"\n- ", PAGE.read_text(encoding="utf-8"))[1:]
    assert len(promises) > 50
    assert [promise for promise in promises
            if not TEST.search(promise) and "no test" not in promise] == []
