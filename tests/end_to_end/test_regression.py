"""Test that `diff` finds the additional memory of a program's second version."""
from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

import pytest

from conftest import PyPy, has_builtin
from vmprof_convert import cli

PROGRAM = """
    import gc

    kept = []
    cache = [[None] * 50 for _ in range(2000)]

    def parse(i):
        return [None] * (20 + i %% 50)

    def serve(i):
        rows = [parse(i) for _ in range(10)]
        %s

    for i in range(20000):
        serve(i)
    %s
"""
COLLECT = "gc.collect(); gc.collect()"
#: The end of a program that makes some MiB of garbage after COLLECT. The garbage
#: survives minor collections.
AND_GO_ON = COLLECT + "; held = [[None] * 5 for _ in range(40000)]; del held"


def versions(pypy: PyPy, *bodies: str, ends: Sequence[str] = (COLLECT,) * 3
             ) -> list[str]:
    """Run PROGRAM with each body and end, and return the paths of the profiles."""
    paths = []
    for number, (body, end) in enumerate(zip(bodies, ends)):
        pypy.sample(PROGRAM % (body, end), "16k", seed=number + 1)
        path = pypy.folder / ("%d.vmprof" % number)
        shutil.copy(pypy.folder / "out.vmprof", path)
        paths.append(str(path))
    return paths


def test_a_leak_is_found(pypy: PyPy, capsys: pytest.CaptureFixture[str]) -> None:
    """The second version keeps 2 % of its allocated bytes."""
    before, same, after = versions(
        pypy, "return len(rows)", "return len(rows)",
        "kept.append(rows[0] if i % 5 == 0 else None)")
    condition = ["--fail-if", "alive growth > 500k"]
    assert cli.main(["diff", before, same, *condition]) == 0
    capsys.readouterr()
    assert cli.main(["diff", before, after, *condition, "--json", "--sort",
                     "alive"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdicts"][0]["failed"]
    assert found["everything"]["is"] == "grew"
    # The JIT may attribute the list that `parse` makes to its caller `serve`.
    assert found["changes"][0]["function"]["name"] in ("parse", "serve")
    # With one run per side, another function may be the cause, so this one only
    # differs.
    assert found["changes"][0]["is"] == "differs"


def test_garbage_at_the_end_is_no_leak(pypy: PyPy,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    """The first three runs keep the same objects, but differ in garbage: one ends after
    a major collection, one makes garbage after it, and one has no collection at its
    end. Only the fourth run, which keeps all that it parses, counts as growth.
    """
    same = "return len(rows)"
    before, later, *never, leaks = versions(
        pypy, same, same, same, "kept.append(rows)",
        ends=(COLLECT, AND_GO_ON, "", ""))
    condition = ["--fail-if", "alive growth > 500k", "--sort", "alive", "--json"]
    found = {}
    for after in (later, *never, leaks):
        code = cli.main(["diff", before, after, *condition])
        data = json.loads(capsys.readouterr().out)
        found[after] = code, data["everything"]["is"]
    # The builtin engine takes no heap snapshot, so it cannot exclude garbage.
    assert found[later] == (0, "unclear" if has_builtin() else "noise")
    assert found[never[0]][0] == 0 and found[never[0]][1] != "grew"
    assert found[leaks] == (1, "grew")


def test_more_allocated_bytes_are_found(pypy: PyPy) -> None:
    before, after = versions(pypy, "return len(rows)", "return len(rows + rows * 10)")
    assert cli.main(["diff", before, after, "--fail-if", "allocated growth > 5%"]) == 1
    assert cli.main(["diff", after, before, "--fail-if", "allocated growth > 5%"]) == 0


def test_three_runs_per_side_name_the_function(
        pypy: PyPy, capsys: pytest.CaptureFixture[str]) -> None:
    """With three runs per side, the report says which function grew. With one run per
    side, it does not.
    """
    paths = versions(pypy, *["return len(rows)"] * 3,
                     *["return len(rows + rows * 10)"] * 3, ends=(COLLECT,) * 6)
    said = []
    for before, after in ((paths[:1], paths[3:4]), (paths[:3], paths[3:])):
        assert cli.main(["diff", *before, "--against", *after, "--fail-if",
                         "allocated growth > 5%", "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        said.append((found["everything"]["is"], {
            row["function"]["name"]: row["is"] for row in found["changes"]}["serve"]))
    assert said == [("differs", "differs"), ("grew", "grew")]
