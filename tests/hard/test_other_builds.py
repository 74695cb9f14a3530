"""Test types and lifetimes with the PyPys of other Debian releases.

The tests are the same as for this machine's PyPy. They run for each build that
`make hard BUILD=...` has made. Each PyPy runs in its own release, through a script that
the tests use as the interpreter.
"""
from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builds import FOLDER, ROOT, Build, install_for_tests, is_unpacked

#: releases with a supported PyPy (README.rst); `make test` tests this machine's PyPy
RELEASES = ("bookworm", "trixie", "sid")

#: tests of types and lifetimes (see PROMISES.rst), except the tests that need a
#: debugger or a second interpreter
TESTS = ("tests/end_to_end/test_what_became.py", "tests/sampler/test_probe.py",
         "tests/end_to_end/test_bookkeeping.py", "tests/end_to_end/test_marks.py")

pytestmark = [pytest.mark.hard, pytest.mark.xdist_group("builds")]


@pytest.fixture(params=RELEASES)
def build(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a script that runs the release's PyPy with our packages."""
    release = request.param
    folder = FOLDER / release
    found = Build(folder, folder / "venv" / "bin" / "pypy3", folder / "root")
    if not is_unpacked(found):
        pytest.skip("there is no PyPy of %s: `make hard BUILD=%s`, as root, makes one"
                    % (release, release))
    install_for_tests(found)
    script = folder / "pypy3"
    script.write_text('#!/bin/sh\nexec %s "$@"\n' % shlex.join(found.command()),
                      encoding="utf-8")
    script.chmod(0o755)
    yield script


@pytest.mark.parametrize("tests", TESTS)
def test_types_and_lifetimes(build: Path, tests: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests],
        cwd=ROOT, text=True, capture_output=True,
        env={**os.environ, "PYPY": str(build)})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 3
    # if many tests were skipped, the result would mean little
    skipped = re.search(r"(\d+) skipped", done.stdout)
    assert skipped is None or int(skipped[1]) < int(passed[1]) / 4, done.stdout
