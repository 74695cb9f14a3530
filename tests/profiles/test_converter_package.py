"""What pip installs of the converter, and who imports it when."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import PYPY, ROOT, PyPy
from made_profiles import Log


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy of the sources: building leaves its traces; where there is no
    compiler."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(ROOT / "converter", folder / "converter")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w",
                    str(folder), str(source)], check=True,
                   env={**os.environ, "CC": "/bin/false"})
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
@pytest.mark.xdist_group("converter's wheel")
def test_wheel_of_the_converter(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    built = zipfile.ZipFile(wheel).namelist()
    # each folder has to be named in pyproject.toml
    for module in (ROOT / "converter" / "vmprof_convert").rglob("*.py"):
        assert str(module.relative_to(ROOT / "converter")) in built


@pytest.mark.slow
@pytest.mark.xdist_group("converter's wheel")
@pytest.mark.parametrize("python", [sys.executable, PYPY],
                         ids=["cpython", "pypy"])
def test_converter_needs_no_compiler_and_no_sampler(
        tmp_path: Path, wheel: Path, python: str) -> None:
    """It is installed alone, all of it can be imported, and it works."""
    scripts = tmp_path / "venv" / "bin"
    # to give it a pip of its own would take most of the time
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "venv")],
                   check=True)
    subprocess.run(
        [python, "-m", "pip", "--python", str(scripts / "python"), "install", "-q",
         "--disable-pip-version-check", str(wheel)],
        check=True, env={**os.environ, "CC": "/bin/false"})
    said = subprocess.run(
        [str(scripts / "python"), "-c",
         "import pkgutil, sys, vmprof_convert\n"
         "for module in pkgutil.walk_packages(\n"
         "        vmprof_convert.__path__, 'vmprof_convert.'):\n"
         "    if not module.name.endswith('__main__'):\n"
         "        __import__(module.name)\n"
         "print([m for m in sys.modules if m.startswith('vmprof_alloc')])"],
        check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert said == "[]\n"
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    (tmp_path / "app.vmprof").write_bytes(log.data())
    done = subprocess.run([str(scripts / "vmprof-convert"), "app.vmprof", "--to",
                           "firefox"],
                          cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "wrote app.vmprof.json.gz\n"


LOADED = """
    import sys
    def loaded():
        return [m for m in sys.modules if m.startswith("vmprof_convert")]
"""


def test_command_line_imports_nothing_of_it(pypy: PyPy) -> None:
    run = pypy.sample(LOADED + """
    print(loaded(), [m for m in sys.modules if "vmprof_allocation" in m] != [])
    """, "1k")
    assert run.out == "[] True\n"


def test_session_imports_nothing_of_it(pypy: PyPy) -> None:
    run = pypy.run(LOADED + """
    import vmprof_allocation
    with vmprof_allocation.sample("out.vmprof", "auto"):
        print(loaded())
    print(loaded())
    """)
    assert (run.out, run.err) == ("[]\n[]\n", "")


def test_report_imports_what_it_needs(pypy: PyPy) -> None:
    """What it takes beside is more than the report itself."""
    run = pypy.sample("list(map(str, range(10000)))", "1k")
    run = pypy.run("""
        import sys
        sys.argv = ["vmprof_allocation", "report", "out.vmprof"]
        from vmprof_allocation import __main__
        __main__.main()
        print(sorted({"tqdm", "json", "pygments", "gzip", "http", "webbrowser",
                      "tempfile", "numpy", "vmprof", "vmprof_convert.view.output",
                      "vmprof_convert.writers.firefox"} & set(sys.modules)))
    """)
    assert run.out.startswith("allocated in") and run.err == ""
    assert run.out.splitlines()[-1] == "[]"
