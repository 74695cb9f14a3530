"""What would be uploaded: wheels that an index takes, with all that they have to
say of themselves."""
from __future__ import annotations

import email.message
import email.parser
import email.policy
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import ROOT

FOLDERS = {"vmprof-integration": "vmprof-allocation", "converter": "vmprof-convert"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of copies of the sources, by the name of the distribution."""
    built = {}
    for folder, name in FOLDERS.items():
        work = tmp_path_factory.mktemp("wheel")
        shutil.copytree(ROOT / folder, work / "source")
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps",
                        "-w", str(work), str(work / "source")], check=True)
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


@pytest.mark.xdist_group("wheels")
def test_platform_is_one_that_an_index_takes(wheels: dict[str, Path]) -> None:
    """`linux_x86_64` says nothing of the libraries that it needs."""
    wheel = wheels["vmprof-allocation"]
    tag = re.fullmatch(r".*-py3-none-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert tag, wheel.name
    said = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel],
                          check=True, capture_output=True, text=True).stdout
    # it knows some versions of glibc: the first that has what is needed
    assert re.search(r'platform tag: "manylinux_2_\d+_x86_64"',
                     " ".join(said.split())), said
    needed = {int(version) for version in re.findall(r"GLIBC_2\.(\d+)", said)}
    assert max(needed) == int(tag.group(1))
    assert wheels["vmprof-convert"].name.endswith("-py3-none-any.whl")


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
