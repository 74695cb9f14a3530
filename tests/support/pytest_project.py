"""A project with tests, to test our pytest plugin in a sampled PyPy."""
from __future__ import annotations

import pytest

from conftest import ROOT, PyPy, Run

PACKAGES = ROOT / ".build" / "pytest-pypy"


def make_project(pypy: PyPy) -> PyPy:
    """Make a project with the module `shop`, which the project's tests import."""
    if not PACKAGES.exists():
        pytest.fail("%s is missing: run `make test`, which installs it"
                    % PACKAGES.relative_to(ROOT))
    pypy.script("""
        import pytest

        kept = []

        def grow(size):
            kept.append([None] * (size // 8))

        def churn(times):
            for i in range(times):
                [None] * 1000
        """, "shop.py")
    return pypy


def run(project: PyPy, tests: str, *options: str) -> Run:
    """Run pytest on the text of a test module, with these options."""
    project.script("import pytest, shop\n" + tests, "test_shop.py")
    # a temporary folder without files of other runs
    temporary = project.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return project.command(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", *options,
        PYTHONPATH=str(PACKAGES), COLUMNS="120", TMPDIR=str(temporary))
