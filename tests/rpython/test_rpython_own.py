"""RPython's own tests pass with the patch, as many as without it; those of the
GC also while it samples.

They take about twelve minutes, and `make test` runs this file beside the
others.  The log of each run is left in .build/rpython/own-tests.
"""
from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from rpython_tree import BUILD, PATCHED, PRISTINE, ROOT, python2

PLUGINS = Path(__file__).parent / "python2"
LOGS = BUILD / "rpython" / "own-tests"

GC = "rpython/memory/gc/test"
SIMULATED = ("rpython/memory/test/test_incminimark_gc.py",
             "rpython/memory/test/test_incminimark_gc_cardmarking.py")
TRANSFORMED = ("rpython/memory/test/test_transformed_gc.py", "-k", "Incr")
TRANSLATED = ("rpython/translator/c/test/test_newgc.py",
              "-k", "IncrementalMiniMark")
RVMPROF = "rpython/rlib/rvmprof/test/"
#: new with the patch
OURS = ("--ignore=rpython/memory/gc/test/test_sampling.py",)


class Group(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    #: of tests/rpython/python2
    plugin: str = ""


# each file of rvmprof's in a process of its own: the classes of code objects
# that one registers stay.  test_file.py is left out: it compares a file with
# one that it downloads.
GROUPS = [
    Group("gc", (GC,)),
    Group("gc-sampling", (GC,), "sampling_on"),
    Group("simulated", SIMULATED),
    Group("simulated-sampling", SIMULATED, "sampling_on"),
    Group("transformed", TRANSFORMED),
    Group("transformed-sampling", TRANSFORMED, "sampling_on"),
    Group("translated", TRANSLATED),
    Group("translated-sampling", TRANSLATED, "sampling_on"),
    Group("llsupport", tuple(
        "rpython/jit/backend/llsupport/test/" + name
        for name in ("test_gc.py", "test_gc_integration.py",
                     "test_rewrite.py"))),
    Group("rvmprof", (RVMPROF + "test_rvmprof.py",), "collect_between"),
    Group("rvmprof-traceback", (RVMPROF + "test_traceback.py",), "collect_between"),
    Group("rvmprof-translated", (RVMPROF + "test_ztranslation.py",), "collect_between"),
    Group("rvmprof-jit", ("rpython/jit/backend/x86/test/test_zrpy_vmprof.py",),
          "collect_between"),
]


def collected(arguments: tuple[str, ...]) -> int:
    """How many tests there are without the patch."""
    done = python2(PRISTINE, "-m", "pytest", "--collect-only", *arguments,
                   cwd=PRISTINE)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return len(re.findall(r"<[A-Za-z]*Function ", done.stdout))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: the tests that translate write into the tree."""
    copy = tmp_path_factory.mktemp("rpython") / "tree"
    shutil.copytree(PATCHED, copy)
    LOGS.mkdir(parents=True, exist_ok=True)
    return copy


@pytest.mark.parametrize("group", GROUPS, ids=[group.name for group in GROUPS])
def test_rpythons_own_tests(group: Group, tree: Path) -> None:
    report = LOGS / (group.name + ".xml")
    done: subprocess.CompletedProcess[str] = python2(
        tree, "-m", "pytest", "-rs", "--junitxml=%s" % report,
        *(("-p", group.plugin) if group.plugin else ()),
        *OURS, *group.arguments, cwd=tree, path=PLUGINS)
    (LOGS / (group.name + ".log")).write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-3000:]
    suite = ElementTree.parse(report).getroot()
    assert suite.get("failures") == suite.get("errors") == "0"
    assert len(suite.findall("testcase")) == collected(group.arguments)


def test_our_tests_in_rpythons_style(tree: Path) -> None:
    added = ROOT / "rpython" / "added"
    files = [path.relative_to(added) for path in added.rglob("test_*.py")]
    assert files
    done = python2(tree, "-m", "pytest", *files, cwd=tree)
    (LOGS / "ours.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-3000:]
