"""The patches for PyPy, without PyPy's source.

pypy-branch/SEEN.rst describes the results with PyPy's source.
"""
from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import apply
import tree
from conftest import ROOT
from patch_files import Patch, parse
from rpython_tree import PYTHON2, assert_python2

RVMPROF, VMPROF = "rpython/rlib/rvmprof/", "pypy/module/_vmprof/"

#: Patches and their files that PyPy's main has in another form than rpython 0.2.1.
#: README.rst has the reasons.
DIFFERENT = {
    ("03-rvmprof-memory.patch", RVMPROF + "rvmprof.py"),
    # PyPy's main knows the size of its heap during a sweep, too
    ("06-gc-outcomes.patch", "rpython/memory/gc/incminimark.py"),
    ("04-rvmprof-signals.patch", RVMPROF + "src/shared/vmprof_unix.c"),
    ("05-rvmprof-samples.patch", RVMPROF + "cintf.py"),
    ("05-rvmprof-samples.patch", RVMPROF + "dummy.py"),
    ("07-rvmprof-recorder.patch", RVMPROF + "cintf.py"),
    ("07-rvmprof-recorder.patch", RVMPROF + "dummy.py"),
    # only in PyPy
    ("05-rvmprof-samples.patch", VMPROF + "interp_vmprof.py"),
    ("07-rvmprof-recorder.patch", VMPROF + "interp_vmprof.py"),
    ("07-rvmprof-recorder.patch", VMPROF + "moduledef.py"),
}


@pytest.fixture
def series() -> list[Patch]:
    return [parse(patch) for patch in apply.OURS[1].series()]


def test_each_patch_has_a_reason(series: list[Patch]) -> None:
    for patch in series:
        subject, empty, *body = patch.header.splitlines()
        assert ": " in subject and len(subject) < 73, patch.name
        assert empty == "" and len(" ".join(body).split()) >= 20, patch.name


def test_few_of_pypys_lines_are_replaced(series: list[Patch]) -> None:
    removed: list[str] = []
    ours: set[str] = set()
    for patch in series:
        lines = [line for file in patch.files.values() for line in file]
        removed += [line for line in lines if line[0] == "-" and line[1:] not in ours]
        ours |= {line[1:] for line in lines if line[0] == "+"}
    assert 0 < len(removed) < 60


def test_one_file_has_a_version_for_each_branch() -> None:
    """The versions are main's and py3.11's."""
    versions = {name: len(pairs) for patch in apply.OURS[1].series()
                for name, pairs in tree.git_hashes(patch)}
    assert {name for name, count in versions.items() if count != 1} \
        == {"pypy/module/_vmprof/interp_vmprof.py"}


def test_common_files_are_the_same_as_rpythons(series: list[Patch]) -> None:
    theirs = {patch.name: parse(patch).files for patch in apply.OURS[0].series()}
    ours = {patch.name: patch.files for patch in series}
    assert set(theirs) < set(ours)
    assert {(patch, name) for patch in theirs
            for name in {*theirs[patch], *ours[patch]}
            if theirs[patch].get(name) != ours[patch].get(name)} == DIFFERENT


def test_new_files_are_not_rpythons() -> None:
    ours, theirs = apply.OURS[1], apply.OURS[0]
    assert not ({place for _, place in ours.files()}
                & {place for _, place in theirs.files()})


def test_each_new_file_comes_with_one_patch() -> None:
    found: list[str] = []
    for patch in apply.OURS[1].series():
        found += apply.new_files_of(patch) if patch.name != tree.SAMPLES else []
    assert sorted(found) == sorted(apply.new_files())
    # the next patch replaces files that only the first submission has
    assert {str(place) for _, place in tree.below(tree.FIRST)} < set(found)
    assert set(apply.NEW.values()) <= {patch.name for patch in apply.OURS[1].series()}


# added Python ----------------------------------------------------------------

#: Number of hunks in each file that do not compile, because they are parts of
#: statements, such as items of a dict.
PARTS = {"pypy/module/_vmprof/interp_vmprof.py": 1,
         "pypy/module/_vmprof/moduledef.py": 1,
         RVMPROF + "dummy.py": 2,
         "rpython/jit/backend/aarch64/test/test_recursive.py": 1}

COMPILE = """
import json, sys
def is_good(text):
    try:
        compile(text, "hunk", "exec")
    except SyntaxError:
        return False
    return True
json.dump([is_good(text + "\\n") for text in json.load(sys.stdin)], sys.stdout)
"""


def without_body(text: str) -> str:
    """Return dedented lines of Python, and add a body if the last line is a head."""
    return textwrap.dedent(text) + ("\n    pass" if text.endswith(":") else "")


@pytest.mark.python2
def test_added_python_is_python_2(series: list[Patch]) -> None:
    """test_rpython_tree.py compiles the hunks of RPython's patches."""
    theirs = {(name, tuple(hunk)) for patch in apply.OURS[0].series()
              for name, hunks in parse(patch).hunks.items() for hunk in hunks}
    hunks = [(name, without_body("\n".join(
                line[1:] for line in hunk if line.startswith("+"))))
             for patch in series for name, hunks in patch.hunks.items()
             if name.endswith(".py")
             for hunk in hunks if (name, tuple(hunk)) not in theirs]
    assert len(hunks) >= 10
    done = subprocess.run(
        [PYTHON2, "-c", COMPILE], input=json.dumps([text for _, text in hunks]),
        check=True, capture_output=True, text=True)
    parts: dict[str, int] = {}
    for (name, text), good in zip(hunks, json.loads(done.stdout)):
        if not good:
            print(name, text, sep="\n")
            parts[name] = parts.get(name, 0) + 1
    assert parts == PARTS


@pytest.mark.python2
def test_new_files_are_python_2() -> None:
    paths = [str(path) for place, path in apply.new_files().items()
             if place.endswith(".py")]
    assert len(paths) >= 5
    assert_python2(paths)


# apply.py --------------------------------------------------------------------

class Checkout:
    """A small checkout of PyPy with a series of patches."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.path = folder / "pypy"
        self.path.mkdir()
        for kind in "AUTHOR", "COMMITTER":
            monkeypatch.setenv("GIT_%s_NAME" % kind, "somebody")
            monkeypatch.setenv("GIT_%s_EMAIL" % kind, "somebody@localhost")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        self.git("init", "--quiet")
        self.write("gc.py", "a\nb\n")
        self.write("module.py", "x = 1\n")
        self.commit("main")
        patches, added = folder / "patches", folder / "added"
        for path in patches, added / "pypy/doc":
            path.mkdir(parents=True)
        (patches / "series").write_text("01-gc.patch\n11-documentation.patch\n")
        self.write("gc.py", "a\nnew\nb\n")
        (patches / "01-gc.patch").write_text("gc: one\n\nWhy.\n\n" + self.diff())
        self.commit("first")
        self.write("gc.py", "a\nnew\nb\nlast\n")
        (patches / "11-documentation.patch").write_text(
            "doc: two\n\nWhy.\n\n" + self.diff())
        (added / "pypy/doc/page.rst").write_text("A page.\n")
        self.git("reset", "--quiet", "--hard", "HEAD~")
        monkeypatch.setattr(apply, "OURS", (
            tree.Ours(folder / "none", folder / "none", shared=None),
            tree.Ours(patches, added, shared=None)))
        self.before = self.state()

    def git(self, *arguments: str) -> str:
        return apply.git(self.path, *arguments)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def commit(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", subject)

    def diff(self) -> str:
        return self.git("diff", "-U0").partition("\n")[2]

    def state(self) -> tuple[str, str]:
        return self.git("log", "--format=%H"), self.git("status", "--porcelain")

    def refuses(self, match: str) -> None:
        before = self.state()
        with pytest.raises(apply.Problem, match=match):
            apply.apply(self.path)
        assert self.state() == before


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


def test_each_patch_becomes_a_commit(checkout: Checkout) -> None:
    assert apply.apply(checkout.path) == 2
    assert checkout.git("log", "--format=%s|%b").split("\n") \
        == ["doc: two|Why.", "", "gc: one|Why.", "", "main|", ""]
    assert (checkout.path / "gc.py").read_text() == "a\nnew\nb\nlast\n"
    assert checkout.git("show", "--format=", "--name-only").split() \
        == ["gc.py", "pypy/doc/page.rst"]
    assert checkout.state()[1] == ""


@pytest.mark.parametrize("version, count", [("2.7", 1), ("3", 2)])
def test_patches_for_python_3_are_left_out_for_python_2(
        checkout: Checkout, monkeypatch: pytest.MonkeyPatch, version: str,
        count: int) -> None:
    library = checkout.path / "lib-python" / version
    library.mkdir(parents=True)
    (library / "os.py").touch()
    checkout.commit("library")
    monkeypatch.setattr(apply, "PYTHON_3", ("11-documentation.patch",))
    assert apply.apply(checkout.path) == count


def test_patches_for_python_3_are_the_last_ones(series: list[Patch]) -> None:
    """The other patches have to apply without the patches for Python 3."""
    names = [patch.name for patch in series]
    assert tuple(names[-len(apply.PYTHON_3):]) == apply.PYTHON_3


def test_other_version_of_a_file_is_refused(checkout: Checkout) -> None:
    checkout.write("gc.py", "a\nb\nc\n")
    checkout.commit("later")
    checkout.refuses("is not the file .*\n.*and rebase")


def test_later_version_of_other_files_is_fine(checkout: Checkout) -> None:
    checkout.write("module.py", "x = 2\n")
    checkout.commit("later")
    assert apply.apply(checkout.path) == 2


def test_second_patch_that_fails_leaves_nothing(checkout: Checkout) -> None:
    patch = apply.OURS[1].series()[0].path
    patch.write_text(patch.read_text().replace("+new", "+now"))
    checkout.refuses("before it, gc.py is not the file")


def test_changed_checkout_is_refused(checkout: Checkout) -> None:
    checkout.write("module.py", "x = 2\n")
    checkout.refuses("not committed")


def test_second_application_is_refused(checkout: Checkout) -> None:
    apply.apply(checkout.path)
    checkout.refuses("is the series applied")


def test_other_folders_are_refused(checkout: Checkout, tmp_path: Path) -> None:
    with pytest.raises(apply.Problem, match="not a git checkout"):
        apply.apply(tmp_path)
    checkout.git("rm", "--quiet", "gc.py")
    checkout.commit("something else")
    checkout.refuses("is it a checkout of PyPy")


def test_failing_commit_is_undone(checkout: Checkout) -> None:
    hook = checkout.path / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n[ ! -e pypy/doc/page.rst ]\n")
    hook.chmod(0o755)
    checkout.refuses("git commit")
    assert not (checkout.path / "pypy").exists()


def test_failing_copy_is_undone(checkout: Checkout,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Path, data: bytes) -> int:
        size = original(target, data)
        if target.name == "page.rst":
            raise OSError("no space left")
        return size

    original = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="no space left"):
        apply.apply(checkout.path)
    assert checkout.state() == checkout.before


def test_vmprof_gets_the_files_that_it_shares_with_pypy(
        checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    added = apply.OURS[1].added
    for name, text in (("shared/new.h", "int new;\n"), ("allocation/own.c", "")):
        (added / RVMPROF / "src" / name).parent.mkdir(parents=True)
        (added / RVMPROF / "src" / name).write_text(text)
    (checkout.path / "vmprof").mkdir()
    (checkout.path / "src").mkdir()
    checkout.write("vmprof/__main__.py", "")
    # like gc.py, so that the three files have the same hash
    checkout.write("src/unix.c", "a\nb\n")
    checkout.write("vmprof/reader.py", "a\nb\n")
    checkout.commit("vmprof-python")
    first = apply.OURS[1].series()[0]
    monkeypatch.setattr(apply, "READER", tree.Patch(
        first.path, first.text.replace("gc.py", "vmprof/reader.py")))
    for patch in apply.OURS[1].series():
        text = patch.text.replace("gc.py", apply.SHARED + "unix.c")
        module = "index 1111111..2222222 100644\n--- a/x.py\n+++ b/x.py\n" \
            "@@ -1 +1 @@\n-x\n+y\n"
        patch.path.write_text(text + module)
    monkeypatch.setattr(tree, "SAMPLES", first.name)
    monkeypatch.setattr(tree, "FIRST", tmp_path)
    early = tmp_path / apply.SHARED / "new.h"
    early.parent.mkdir(parents=True)
    early.write_text("int early;\n")
    last = apply.OURS[1].series()[1]
    monkeypatch.setattr(apply, "NEW", {"rpython/*": last.name})
    assert apply.apply(checkout.path) == 2
    assert [checkout.git("show", "--format=%s", "--name-only", commit)
            for commit in ("HEAD~", "HEAD")] == [
        "gc: one\n\nsrc/new.h\nsrc/unix.c\nvmprof/reader.py\n",
        "doc: two\n\nsrc/new.h\nsrc/unix.c\n"]
    assert checkout.git("show", "HEAD~:src/new.h") == "int early;\n"
    assert (checkout.path / "src/new.h").read_text() == "int new;\n"
    assert (checkout.path / "src/unix.c").read_text() == "a\nnew\nb\nlast\n"
    checkout.refuses("is the series applied")


def test_shared_files_are_vmprofs_own_and_one_header(
        series: list[Patch]) -> None:
    """PyPy compares these files with vmprof-python's (rvmprof/test/test_file.py)."""
    assert {name[len(apply.SHARED):] for patch in series for name in patch.files
            if name.startswith(apply.SHARED)} \
        == {"compat.c", "vmprof_get_custom_offset.h", "vmprof_mt.c",
            "vmprof_unix.c"}
    assert list(apply.shared_of(apply.new_files())) == ["src/vmprof_allocation.h"]


def test_command_line_ends_with_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "pypy-branch/apply.py", tmp_path],
        capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "apply.py: error: %s is not a git checkout\n" % tmp_path
