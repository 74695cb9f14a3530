"""Test that RPython's own tests pass with the patches, and that none is missing.

The tests of the GC also run while the GC samples. The tests that translate run only in
`make hard`, because this folder's other files translate programs and check more.

`make hard` runs these tests in addition:

- The tests that translate take up to a minute each. The GC's tests run while the GC
  samples, with compact objects and with others. rvmprof's tests also run with a JIT,
  and this project's tests run with four GCs.
- The tests of the GC run with sampling off. Then the GC behaves as without the patches
  (test_rpython_unchanged.py).
- The tests of the GC with and without card marking, and of finalizers, take half of
  the run time. rvmprof's test of functions that it marks compiles C.
- The transformed and not yet translated GC has the same tests as the translated GC.

`make hard` also counts the tests of the pristine tree. The log of each run is in
.build/rpython/own-tests.
"""
from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from rpython_tree import BUILD, PATCHED, PRISTINE, ROOT, python2

pytestmark = pytest.mark.python2

PLUGINS = Path(__file__).parent / "python2"
LOGS = BUILD / "rpython" / "own-tests"

GC = "rpython/memory/gc/test"
PLAIN = "rpython/memory/test/test_incminimark_gc.py"
CARDS = "rpython/memory/test/test_incminimark_gc_cardmarking.py"
TRANSFORMED = ("rpython/memory/test/test_transformed_gc.py", "-k", "Incr")
TRANSLATED = ("rpython/translator/c/test/test_newgc.py",
              "-k", "IncrementalMiniMark")
#: The tests of TRANSLATED and two more, for objects without a pointer to their type.
#: By default, objects of 64-bit builds contain only the GC's number of the type.
COMPACT = (TRANSLATED[0], "-k", "IncrementalMiniMarkGCMostCompact")
RVMPROF = "rpython/rlib/rvmprof/test/"
TRACEBACK = (RVMPROF + "test_traceback.py",)
#: the files that the patches add
ADDED = ROOT / "rpython" / "added"
TRANSLATING = ("TestTransformed or TestC and (minimark or counting or boehm) "
               "or test_what_is_counted")
OURS = sorted(str(path.relative_to(ADDED)) for path in ADDED.rglob("test_*.py"))


class Group(NamedTuple):
    name: str
    tests: int
    arguments: tuple[str, ...]
    #: a plugin in tests/rpython/python2
    plugin: str = ""
    #: the number of tests in this group that the patches add
    new: int = 0


# Each test file of rvmprof runs in its own process, because a test cannot undo the
# registration of a class of code objects.  test_file.py is omitted, because it
# downloads a file.  Long groups come first.
GROUPS = [
    Group("gc-sampling", 190, (GC,), "sampling_on"),
    Group("rvmprof-interpreted", 1, (RVMPROF + "test_ztranslation.py", "-k",
                                     "interpreted"), "collect_between"),
    Group("rvmprof-traceback", 1, (*TRACEBACK, "-k", "direct"), "collect_between"),
    Group("llsupport", 113, tuple(
        "rpython/jit/backend/llsupport/test/" + name
        for name in ("test_gc.py", "test_gc_integration.py",
                     "test_rewrite.py"))),
    Group("jitdriver", 8, ("rpython/jit/metainterp/test/test_jitdriver.py",), new=1),
]
HARD = [
    Group("cards-sampling", 36, (CARDS, "-k", "not finalizer"), "sampling_on"),
    Group("rvmprof", 2, (RVMPROF + "test_rvmprof.py", "-k", "execute_code"),
          "collect_between"),
    Group("compact-sampling", 65, COMPACT, "sampling_on"),
    Group("simulated-sampling", 102, (PLAIN, CARDS), "sampling_on"),
    Group("rvmprof-compiled", 3, (RVMPROF + "test_rvmprof.py", "-k",
                                  "not execute_code"), "collect_between"),
    Group("rvmprof-translated", 1, (RVMPROF + "test_ztranslation.py", "-k",
                                    "not interpreted"), "collect_between"),
    Group("rvmprof-traceback-translated", 1, (
        *TRACEBACK, "-k", "not direct and not jitted"), "collect_between"),
    Group("gc", 190, (GC,)),
    Group("simulated", 102, (PLAIN, CARDS)),
    Group("transformed", 41, TRANSFORMED),
    Group("transformed-sampling", 41, TRANSFORMED, "sampling_on"),
    Group("translated", 128, TRANSLATED),
    Group("translated-sampling", 128, TRANSLATED, "sampling_on"),
    Group("rvmprof-traceback-jit", 1, (*TRACEBACK, "-k", "jitted"),
          "collect_between"),
    Group("rvmprof-jit", 1, ("rpython/jit/backend/x86/test/test_zrpy_vmprof.py",),
          "collect_between"),
]


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the patched tree, which the tests that translate change."""
    copy = tmp_path_factory.mktemp("rpython") / "tree"
    shutil.copytree(PATCHED, copy)
    LOGS.mkdir(parents=True, exist_ok=True)
    return copy


@pytest.mark.long(0.5)
@pytest.mark.parametrize("group", [
    *(pytest.param(group, id=group.name) for group in GROUPS),
    *(pytest.param(group, id=group.name, marks=pytest.mark.hard)
      for group in HARD)])
def test_rpythons_own_tests(group: Group, tree: Path) -> None:
    report = LOGS / (group.name + ".xml")
    done = python2(
        tree, "-m", "pytest", "-rs", "--junitxml=%s" % report,
        *(("-p", group.plugin) if group.plugin else ()),
        *("--ignore=" + name for name in OURS), *group.arguments, cwd=tree,
        path=PLUGINS)
    (LOGS / (group.name + ".log")).write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-3000:]
    suite = ElementTree.parse(report).getroot()
    assert suite.get("failures") == suite.get("errors") == "0"
    assert len(suite.findall("testcase")) == group.tests


@pytest.mark.hard
@pytest.mark.parametrize("group", [
    pytest.param(group, id=group.name) for group in GROUPS + HARD])
def test_as_many_as_without_the_patch(group: Group) -> None:
    done = python2(PRISTINE, "-m", "pytest", "--collect-only", *group.arguments,
                   cwd=PRISTINE)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert len(re.findall(r"<[A-Za-z]*Function ", done.stdout)) \
        == group.tests - group.new


@pytest.mark.long(0.5)
@pytest.mark.parametrize("chosen", [
    "not (%s)" % TRANSLATING, pytest.param(TRANSLATING, marks=pytest.mark.hard)])
def test_our_tests_in_rpythons_style(tree: Path, chosen: str) -> None:
    assert OURS
    done = python2(tree, "-m", "pytest", "-k", chosen, *OURS, cwd=tree)
    (LOGS / "ours.log").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout[-3000:]
