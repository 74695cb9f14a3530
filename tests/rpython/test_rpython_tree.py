"""Test the programs tree.py and python2.py, and the series of patches, in rpython/."""
from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest

import python2
import tree as layout
from conftest import ROOT
from patch_files import Patch, parse
from rpython_tree import BUILD, PYTHON2, assert_python2

CACHE = BUILD / "rpython"

GC = "rpython/memory/gc/incminimark.py"
LINES = ["line %d" % number for number in range(1, 21)]


class Project:
    """A small project with a wheel and patches, on which tree.py runs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.tree = folder / "trees" / "tree"
        self.wheel = folder / layout.WHEEL
        self.gc = "\n".join(LINES) + "\n"
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr(GC, self.gc)
            wheel.writestr("rpython/rlib/rvmprof/src/shared/vmprof.h", "")
        self.ours = layout.Ours(folder / "patches", folder / "added",
                                folder / "native")
        self.write("native/log.c", "int log;\n")
        self.write("added/rpython/memory/gc/sampler.py", "pass\n")
        self.patch("01-first.patch", {5: ["five"]})
        self.series("01-first.patch")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def patch(self, name: str, changed: dict[int, list[str]],
              before: list[str] = LINES, context: int = 0) -> None:
        """Write a patch that replaces lines, given by their numbers."""
        after = []
        for number, line in enumerate(before, 1):
            after += changed.get(number, [line])
        self.write("patches/" + name, "\n".join(
            ["Why: a test.", "", *difflib.unified_diff(
                before, after, "a/" + GC, "b/" + GC, n=context,
                lineterm="")]) + "\n")

    def series(self, *names: str) -> None:
        self.write("patches/series",
                   "# the order counts\n\n" + "".join(n + "\n" for n in names))

    def build(self) -> bool:
        return layout.build(self.tree, self.wheel, self.ours)

    def fails(self, match: str) -> None:
        """Check that no tree can be made, and that the attempt leaves nothing."""
        with pytest.raises(layout.Problem, match=match):
            self.build()
        trees = self.folder / "trees"
        assert not trees.exists() or list(trees.iterdir()) == []

    def text(self, name: str = GC) -> str:
        return (self.tree / name).read_text()

    def state(self) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns
                for path in [self.tree, *self.tree.rglob("*")]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# layout of a tree -----------------------------------------------------------

def test_tree_has_patches_added_files_and_shared_c(project: Project) -> None:
    assert project.build()
    assert project.text() == project.gc.replace("line 5\n", "five\n")
    assert project.text("rpython/memory/gc/sampler.py") == "pass\n"
    assert project.text("rpython/rlib/rvmprof/src/allocation/log.c") == "int log;\n"


def test_tree_of_the_first_submission_alone(project: Project) -> None:
    """The tree has all files of the GC, but its own files of rvmprof."""
    rvmprof = "rpython/rlib/rvmprof/src/allocation/"
    project.patch(layout.SAMPLES, {9: ["nine"]})
    project.patch("06-later.patch", {12: ["twelve"]})
    project.series("01-first.patch", layout.SAMPLES, "06-later.patch")
    project.write("added/" + rvmprof + "first.c", "later\n")
    project.write("added/" + rvmprof + "second.c", "")
    project.write("samples/" + rvmprof + "first.c", "first\n")
    project.ours = layout.Ours(project.folder / "patches", project.folder / "added",
                               project.folder / "native",
                               samples=project.folder / "samples")
    assert project.build()
    assert project.text() == project.gc.replace("line 5\n", "five\n").replace(
        "line 9\n", "nine\n")
    assert project.text("rpython/memory/gc/sampler.py") == "pass\n"
    assert [path.name for path in (project.tree / rvmprof).iterdir()] == ["first.c"]
    assert project.text(rvmprof + "first.c") == "first\n"


@pytest.mark.python2
def test_pristine_tree_has_the_files_of_the_wheel(tmp_path: Path) -> None:
    wheel = layout.fetch(CACHE)
    tree = tmp_path / "pristine"
    assert layout.build(tree, wheel, None)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) > 1000
        for entry in archive.infolist():
            path = tree / entry.filename
            assert path.read_bytes() == archive.read(entry)
            assert os.access(path, os.X_OK) \
                == bool(entry.external_attr >> 16 & 0o111)
    assert {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()} \
        == {*names, layout.STAMP, "pytest.ini"}


def test_second_run_changes_nothing(project: Project) -> None:
    assert project.build()
    project.write("trees/tree/rpython/_cache/left", "by a translation")
    before = project.state()
    assert not project.build()
    assert project.state() == before


@pytest.mark.parametrize("change", ["patch", "series", "added", "new", "native"])
def test_a_change_rebuilds_the_tree(project: Project, change: str) -> None:
    project.patch("02-second.patch", {9: ["nine"]})
    assert project.build()
    project.write("trees/tree/rpython/_cache/left", "by a translation")
    if change == "patch":
        project.patch("01-first.patch", {5: ["FIVE"]})
    elif change == "series":
        project.series("01-first.patch", "02-second.patch")
    elif change == "added":
        project.write("added/rpython/memory/gc/sampler.py", "1\n")
    elif change == "new":
        project.write("added/rpython/memory/gc/other.py", "1\n")
    else:
        project.write("native/log.c", "int log = 1;\n")
    assert project.build()
    assert not (project.tree / "rpython/_cache").exists()
    assert ("FIVE" in project.text()) == (change == "patch")
    assert ("nine" in project.text()) == (change == "series")
    assert list((project.folder / "trees").iterdir()) == [project.tree]


def test_removed_file_is_gone_from_the_tree(project: Project) -> None:
    assert project.build()
    (project.folder / "added/rpython/memory/gc/sampler.py").unlink()
    assert project.build()
    assert not (project.tree / "rpython/memory/gc/sampler.py").exists()


def test_pristine_and_patched_tree_at_the_same_place(project: Project) -> None:
    assert project.build()
    assert layout.build(project.tree, project.wheel, None)
    assert project.text() == project.gc
    assert project.build()


def test_a_failure_leaves_the_tree_that_was_there(project: Project) -> None:
    assert project.build()
    before = project.state()
    project.patch("01-first.patch", {5: ["five"]}, [line + "?" for line in LINES])
    with pytest.raises(layout.Problem, match="does not apply exactly"):
        project.build()
    assert project.state() == before
    assert list((project.folder / "trees").iterdir()) == [project.tree]


def test_a_foreign_folder_is_not_changed(project: Project) -> None:
    project.write("trees/tree/mine", "")
    with pytest.raises(layout.Problem, match=r"was not made by tree\.py"):
        project.build()
    assert project.text("mine") == ""


def test_patch_with_other_lines_is_an_error(project: Project) -> None:
    project.patch("01-first.patch", {5: ["five"]}, [line + "?" for line in LINES])
    project.fails("does not apply exactly")


def test_patch_with_an_offset_is_an_error(project: Project) -> None:
    project.patch("01-first.patch", {7: ["five"]}, ["", "", *LINES])
    project.fails(r"does not apply exactly(.|\n)*offset -2 lines")


def test_patch_with_fuzz_is_an_error(project: Project) -> None:
    other = [*LINES[:3], "other", *LINES[4:]]
    project.patch("01-first.patch", {6: ["six"]}, other, context=3)
    project.fails("does not apply exactly")


def test_applied_patch_is_an_error(project: Project) -> None:
    project.patch("02-second.patch", {5: ["five"]})
    project.series("01-first.patch", "02-second.patch")
    project.fails("does not apply exactly")


def test_patch_without_hunks_is_an_error(project: Project) -> None:
    project.write("patches/01-first.patch", "Only prose.\n")
    project.fails("does not apply exactly")


def test_inserted_lines_at_the_wrong_place_are_an_error(project: Project) -> None:
    """Only the file's hash shows that patch(1) has inserted lines at a wrong place."""
    def git(folder: Path, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, check=True, capture_output=True,
            text=True, env={"PATH": os.environ["PATH"], "HOME": str(folder)}).stdout

    assert project.build()
    git(project.tree, "init", "-q")
    git(project.tree, "add", "-A", ".")
    (project.tree / GC).write_text(
        project.text().replace("line 7\n", "line 7\nnew\n"))
    project.write("patches/02-second.patch",
                  "Why: a test.\n\n" + git(project.tree, "diff", "-U0"))
    project.series("01-first.patch", "02-second.patch")
    assert project.build()
    assert project.text() == project.gc.replace("line 5\n", "five\n").replace(
        "line 7\n", "line 7\nnew\n")

    project.patch("01-first.patch", {5: ["five", "five and a half"]})
    with pytest.raises(layout.Problem, match=r"before it, .* is not the file"):
        project.build()


def test_added_file_that_is_in_the_wheel_is_an_error(project: Project) -> None:
    project.write("added/" + GC, "")
    project.fails("would replace %s, which is RPython's" % GC)


def test_file_that_is_both_added_and_shared_is_an_error(project: Project) -> None:
    project.write("added/%s/log.c" % layout.ALLOCATION_FOLDER, "")
    project.fails("is put at .* twice")


def test_missing_files_are_errors(project: Project) -> None:
    project.series("01-first.patch", "01-first.patch")
    project.fails("names 01-first.patch twice")
    project.series("other.patch")
    project.fails("names other.patch, which isn't there")
    (project.folder / "patches/series").unlink()
    project.fails("there is no .*series")
    project.series()
    (project.folder / "native/log.c").unlink()
    project.fails("there is no C in .*native")


def test_wheel_with_another_hash_is_an_error(project: Project) -> None:
    with pytest.raises(layout.Problem, match="instead of %s" % layout.SHA256):
        layout.fetch(project.folder)


@pytest.mark.python2
def test_downloaded_wheel_with_another_hash_is_an_error(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(layout.fetch(CACHE).parent))
    assert layout.fetch(tmp_path / "right").exists()
    with pytest.raises(layout.Problem, match=r"Expected sha256 0{64}"):
        layout.fetch(tmp_path / "wrong", "0" * 64)
    assert list((tmp_path / "wrong").iterdir()) == []


def test_command_line_says_what_was_wrong(tmp_path: Path) -> None:
    (tmp_path / layout.WHEEL).write_bytes(b"")
    done = subprocess.run(
        [sys.executable, str(ROOT / "rpython" / "tree.py"), str(tmp_path / "x"),
         "--pristine"], capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"tree.py: error: .* has the SHA-256 e3b0.*\n", done.stderr)
    assert not (tmp_path / "x").exists()


# this project's patches -----------------------------------------------------

@pytest.fixture
def series() -> list[Patch]:
    result = [parse(patch) for patch in layout.Ours().series()]
    assert result, "rpython/patches/series names no patch"
    return result


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a tree, because translations may have changed the tree of `make`."""
    path = tmp_path_factory.mktemp("rpython") / "tree"
    assert layout.build(path, layout.fetch(CACHE), layout.Ours())
    return path


@pytest.mark.python2
def test_patches_are_for_files_that_exist(series: list[Patch]) -> None:
    with zipfile.ZipFile(layout.fetch(CACHE)) as wheel:
        names = wheel.namelist()
    for patch in series:
        assert patch.files, patch.name
        for name, lines in patch.files.items():
            assert name in names, (patch.name, name)
            assert lines, (patch.name, name)


def test_patch_of_the_gc_is_small(series: list[Patch]) -> None:
    lines = [line for patch in series for line in patch.files.get(GC, [])]
    assert 0 < len(lines) < 100


@pytest.mark.python2
def test_patched_and_added_python_compiles(series: list[Patch],
                                           tree: Path) -> None:
    names = {name for patch in series for name in patch.files}
    names |= {str(place) for _, place in layout.Ours().files()}
    paths = [str(tree / name) for name in sorted(names) if name.endswith(".py")]
    assert paths
    assert_python2(paths)


# Python 2.7 -----------------------------------------------------------------

def python(program: str, **environment: str) -> str:
    return subprocess.run(
        [PYTHON2, "-c", textwrap.dedent(program)], check=True, text=True,
        capture_output=True, env={**os.environ, **environment}).stdout


@pytest.mark.python2
def test_wrapper_runs_python_2_with_pytest() -> None:
    assert python("""
        import sys, pytest, py, ctypes, select, hashlib
        print(sys.version_info[:2], pytest.__version__, py.__version__)
        """) == "((2, 7), '2.9.2', '1.11.0')\n"


@pytest.mark.python2
def test_libraries_are_found_without_pythonpath() -> None:
    assert python("""
        import os, subprocess, sys
        os.environ["PYTHONPATH"] = ""
        subprocess.check_call([sys.executable, "-c", "import py, pytest"])
        """) == ""


@pytest.mark.python2
def test_wrapper_sets_the_environment() -> None:
    program = """
        import os, sys
        print(os.environ["PYPY_GC_NURSERY"], sys.dont_write_bytecode, sys.path[2])
        """
    assert python(program, PYPY_GC_NURSERY="", PYTHONPATH="/x/y") \
        == "('4M', True, '/x/y')\n"
    assert python(program, PYPY_GC_NURSERY="1M", PYTHONPATH="/x/y") \
        == "('1M', True, '/x/y')\n"


@pytest.mark.python2
def test_wrapper_can_be_linked_and_moved(tmp_path: Path) -> None:
    link = tmp_path / "py"
    link.symlink_to(PYTHON2)
    assert subprocess.run([link, "-c", "import pytest"]).returncode == 0


def choose(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "rpython" / "python2.py"), str(tmp_path)],
        env={**os.environ, **environment}, capture_output=True, text=True)


@pytest.mark.parametrize("value, message", [
    (sys.executable, "it is Python 3"),
    ("no-such-program", "there is no program no-such-program"),
])
def test_an_unusable_python_2_is_an_error(tmp_path: Path, value: str,
                                          message: str) -> None:
    done = choose(tmp_path, PYTHON2=value)
    assert done.returncode == 2
    assert message in done.stderr
    assert "PYTHON2 is %s: unset it, or set it to a Python 2.7" % value \
        in done.stderr


@pytest.mark.python2
def test_the_chosen_python_2_is_used(tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON2", str(PYTHON2))
    found = python2.choose(tmp_path)
    wrapper = python2.write_wrapper(tmp_path, found)
    assert subprocess.run([wrapper, "-c", "import ctypes"]).returncode == 0
    monkeypatch.setenv("PYTHON2", str(wrapper))
    with pytest.raises(python2.Problem, match="the file to be written"):
        python2.choose(tmp_path)


@pytest.mark.python2
def test_programs_that_only_look_like_python(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails is skipped, such as pyenv's without a chosen version."""
    for name in "pypy", "pypy2", "python2.7":
        (tmp_path / name).write_text("#!/bin/sh\necho not found >&2\nexit 127\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python2").symlink_to(PYTHON2)

    def no_debian(folder: Path) -> python2.Python2:
        raise python2.Problem("no network")

    monkeypatch.delenv("PYTHON2", raising=False)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    monkeypatch.setattr(python2, "bullseye", no_debian)
    folder = tmp_path / "py2"
    folder.mkdir()
    wrapper = python2.write_wrapper(folder, python2.choose(folder))
    assert subprocess.run([wrapper, "-c", "import ctypes"]).returncode == 0

    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    (tmp_path / "python2").unlink()
    monkeypatch.setattr(python2.shutil, "which", lambda name: None)
    with pytest.raises(python2.Problem, match=r"no network\nno Python 2.7"):
        python2.choose(folder)


DEB822 = """\
# comment
Types: deb deb-src
URIs: http://one.example/debian
Suites: bookworm
# in between
  bookworm-updates
Components: main contrib
Signed-By: /keys/debian.gpg

Types: deb
URIs: http://one.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://two.example/debian
Suites: sid
Components: main
Enabled: no

Types: deb
URIs: http://three.example/debian
Suites: stable
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
"""
ONE_LINE = """\
# deb http://four.example/debian bookworm main
deb-src http://five.example/debian bookworm main
deb cdrom:[Debian]/ bookworm main
deb http://other.example/apt stable main
deb [arch=amd64 signed-by=/a.gpg,/b.gpg] http://six.example/debian/ bookworm main # x
deb\thttp://seven.example/debian\tbookworm\tcontrib main
deb http://eight.example/debian trixie main
"""


def test_mirrors_are_those_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822)
    (tmp_path / "sources.list").write_text(ONE_LINE)
    found = python2.mirrors(tmp_path, "bookworm")
    assert [(m.uri, m.signed_by) for m in found] == [
        ("http://one.example/debian", "/keys/debian.gpg"),
        ("http://three.example/debian",
         "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc"),
        ("http://six.example/debian/", "/a.gpg /b.gpg"),
        ("http://seven.example/debian", ""),
        ("http://other.example/apt", ""),
    ]


def test_archive_is_tried_after_the_mirrors(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def use(self: Any, mirror: python2.Mirror) -> None:
        tried.append(mirror.uri)
        raise python2.Problem("does not have a Release file")

    etc, folder = tmp_path / "etc", tmp_path / "py2"
    etc.mkdir()
    folder.mkdir()
    (etc / "sources.list").write_text(
        "deb https://one.example/x/ stable main\n"
        "deb https://two.debian.example/y/ stable main\n")
    monkeypatch.setattr(python2.Apt, "use", use)
    monkeypatch.setattr(python2.shutil, "which", lambda name: name)
    with pytest.raises(python2.Problem, match=r"Release file(.|\n)*Release file"):
        python2.bullseye(folder, etc)
    # There is no archive for a mirror outside of Debian's domain.
    assert sorted(tried) == ["https://archive.debian.example/debian",
                             "https://one.example/x/",
                             "https://two.debian.example/y/"]
    assert tried[-1].startswith("https://archive.")
    assert list(folder.iterdir()) == []


def test_facts_have_the_same_numbers_in_the_gc_and_in_c() -> None:
    added = ROOT / "rpython/added/rpython"
    python = re.findall(r"^FACTS?_(\w+) = (\d+)$", "".join(
        (added / "memory/gc" / name).read_text()
        for name in ("sampled_objects.py", "sampled_outcomes.py")), re.MULTILINE)
    enum = re.search(r"enum \{([^}]*)\}", (
        added / "rlib/rvmprof/src/allocation/rvmprof_allocation.h").read_text())
    assert enum
    names = re.findall(r"GC_(\w+)", enum.group(1))
    assert [(name, int(number)) for name, number in python] \
        == [(name, number) for number, name in enumerate(names)]
    assert len(names) > 5
