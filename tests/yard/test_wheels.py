"""Build the wheels for upload, and check their platform, contents and metadata."""
from __future__ import annotations

import email.message
import email.parser
import email.policy
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import arm64
import pytest

from conftest import PYPY, ROOT
from made_profiles import Log
from native_build import X86_64, machines

FOLDERS = {"vmprof-integration": "vmprof-allocation", "converter": "vmprof-convert"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheels of both packages, and return their paths by package.

    The sources are copied, because a build adds files. The converter's wheel is built
    without a compiler.
    """
    built = {}
    for folder, name in FOLDERS.items():
        work = tmp_path_factory.mktemp("wheel")
        shutil.copytree(ROOT / folder, work / "source")
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps",
                        "-w", str(work), str(work / "source")], check=True,
                       env={**os.environ, **(
                           {"CC": "/bin/false"} if folder == "converter" else {})})
        built[name], = work.glob("*.whl")
    return built


def metadata(wheel: Path) -> email.message.EmailMessage:
    with zipfile.ZipFile(wheel) as archive:
        name, = (name for name in archive.namelist()
                 if name.endswith(".dist-info/METADATA"))
        message = email.parser.BytesParser(policy=email.policy.default).parsebytes(
            archive.read(name))
    assert isinstance(message, email.message.EmailMessage)
    return message


def check_platform(wheel: Path, machine: str) -> None:
    """Check that the wheel's tag has the version of glibc that its libraries need."""
    tag = re.fullmatch(r".*-py3-none-manylinux_2_(\d+)_%s\.whl" % machine, wheel.name)
    assert tag, wheel.name
    said = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel],
                          check=True, capture_output=True, text=True).stdout
    # auditwheel rounds the needed version of glibc up to a version that it knows
    assert re.search(r'platform tag: "manylinux_2_\d+_%s"' % machine,
                     " ".join(said.split())), said
    needed = {int(version) for version in re.findall(r"GLIBC_2\.(\d+)", said)}
    assert max(needed) == int(tag.group(1))


@pytest.mark.xdist_group("wheels")
def test_an_index_accepts_the_platform_of_the_wheel(wheels: dict[str, Path]) -> None:
    check_platform(wheels["vmprof-allocation"], X86_64)


@pytest.mark.hard
@pytest.mark.parametrize("machine", machines()[1:])
def test_wheel_for_another_machine(tmp_path: Path, machine: str) -> None:
    """A cross compiler can build the sampler's wheel for another machine."""
    check_platform(arm64.make_wheel(tmp_path), machine)


@pytest.mark.xdist_group("wheels")
def test_one_wheel_serves_every_interpreter(
        tmp_path: Path, wheels: dict[str, Path]) -> None:
    built = zipfile.ZipFile(wheels["vmprof-allocation"])
    names = built.namelist()
    assert "vmprof_allocation.pth" in names
    assert "vmprof_allocation/engines/hook/_hook.so" in names
    assert "vmprof_allocation/native/hook/hook.h" in names
    library = tmp_path / "_hook.so"
    library.write_bytes(built.read("vmprof_allocation/engines/hook/_hook.so"))
    needed = subprocess.run(["readelf", "-d", str(library)], check=True,
                            capture_output=True, text=True).stdout
    assert "python" not in needed and "pypy" not in needed


@pytest.mark.xdist_group("wheels")
def test_wheel_of_the_converter(wheels: dict[str, Path]) -> None:
    assert wheels["vmprof-convert"].name.endswith("-py3-none-any.whl")
    built = zipfile.ZipFile(wheels["vmprof-convert"]).namelist()
    # find folders that pyproject.toml does not list
    for module in (ROOT / "converter" / "vmprof_convert").rglob("*.py"):
        assert str(module.relative_to(ROOT / "converter")) in built


@pytest.mark.xdist_group("wheels")
@pytest.mark.parametrize("python", [sys.executable, PYPY],
                         ids=["cpython", "pypy"])
def test_converter_needs_no_compiler_and_no_sampler(
        tmp_path: Path, wheels: dict[str, Path], python: str) -> None:
    """Install only the converter, import all its modules, and convert a profile."""
    scripts = tmp_path / "venv" / "bin"
    # without pip, because installing pip would take most of the test's time
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "venv")],
                   check=True)
    subprocess.run(
        [python, "-m", "pip", "--python", str(scripts / "python"), "install", "-q",
         "--disable-pip-version-check", str(wheels["vmprof-convert"])],
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
    done = subprocess.run([str(scripts / "vmprof-convert"), "export", "app.vmprof",
                           "--format", "firefox"],
                          cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "wrote app.vmprof.json.gz\n"


@pytest.mark.xdist_group("wheels")
@pytest.mark.parametrize("name", FOLDERS.values())
def test_metadata(wheels: dict[str, Path], name: str) -> None:
    found = metadata(wheels[name])
    assert found["Name"] == name
    assert found["License-Expression"] == "MIT"
    assert len(found.get_all("Classifier", [])) > 5
    assert found.get_all("Project-URL") is None and found["Home-page"] is None
    assert found["Description-Content-Type"] == "text/x-rst"
    readme = found.get_content()
    assert readme.startswith(name) and "\nChanges\n" in readme
    with zipfile.ZipFile(wheels[name]) as archive:
        licence, = (entry for entry in archive.namelist()
                    if entry.endswith("/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_licence_is_the_same_everywhere() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "the allocation sampling for PyPy authors" in text
    for folder in FOLDERS:
        assert (ROOT / folder / "LICENSE").read_text() == text
