"""Test support/installed.py, which compares installed packages with the source."""
from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

import installed


def test_packages_are_installed_outside_the_source() -> None:
    found = installed.folders(sys.executable)
    assert set(found) == set(installed.SOURCES)
    for name, folder in found.items():
        assert folder != installed.SOURCES[name] / name
        assert installed.contents(folder)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the source of a package, its installed copy, and the hashes of C files."""
    for folder in "source/vmprof_allocation", "installed":
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "api.py").write_text("x = 1\n")
    code = tmp_path / "source" / "hook.c"
    code.write_text("int x;\n")
    (tmp_path / "stamp.c").write_text("%s  source/hook.c\n" % hashlib.sha256(
        code.read_bytes()).hexdigest())
    monkeypatch.setattr(installed, "ROOT", tmp_path)
    monkeypatch.setattr(installed, "SOURCES",
                        {"vmprof_allocation": tmp_path / "source"})
    monkeypatch.setattr(installed, "folders", lambda python: {
        "vmprof_allocation": tmp_path / "installed"})
    return tmp_path


def problem() -> str | None:
    return installed.problem(sys.executable, "stamp")


def test_finds_no_problem_in_equal_packages(packages: Path) -> None:
    (packages / "installed" / "_hook_abi.py").write_text("# made by setup.py\n")
    assert problem() is None


@pytest.mark.parametrize("name, text, said", [
    ("source/vmprof_allocation/api.py", "x = 2\n", "vmprof_allocation/api.py of"),
    ("source/vmprof_allocation/new.py", "", "vmprof_allocation/new.py of"),
    ("installed/old.py", "", "vmprof_allocation/old.py of"),
    ("source/hook.c", "int y;\n", "a library of another source/hook.c"),
    ("source/new.h", "", "a library of another source/new.h"),
])
def test_problem_names_the_differing_file_and_target(
        packages: Path, name: str, text: str, said: str) -> None:
    (packages / name).write_text(text)
    found = problem()
    assert found and said in found
    assert found.endswith("run `rm -f stamp && make stamp`")


def test_problem_names_the_missing_file_or_package(
        packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (packages / "stamp.c").unlink()
    assert "source/hook.c" in str(problem())
    monkeypatch.setattr(installed, "folders", lambda python: {})
    assert "has no vmprof_allocation" in str(problem())
    assert "there is no none" in str(installed.problem("none", "stamp"))
