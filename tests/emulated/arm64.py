"""Debian for arm64, with its PyPy and our packages, and the command that runs it here.

    arm64.py RELEASE

makes .build/arm64/RELEASE: `root`; `site`, our packages; and `pypy3`, which is a PYPY=
for tests.  Needs
Debian's debootstrap, qemu-user-static and gcc-aarch64-linux-gnu.  Nothing runs emulated
meanwhile.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
#: what is added to the smallest system
PACKAGES = "pypy3,pypy3-dev,pypy3-lib-testsuite,ca-certificates,procps"
COMMAND = """\
#!/bin/sh
exec "%s" "%s" "%s" /usr/bin/pypy3 "$@"
"""


def make_root(release: str, root: Path, packages: str = PACKAGES) -> None:
    """Unpacked alone: of a package's scripts, none has to run."""
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        made = Path(folder, "root")
        subprocess.run(["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase",
                        "--include=" + packages, release, made],
                       check=True, stdout=subprocess.DEVNULL)
        for package in sorted(made.glob("var/cache/apt/archives/*.deb")):
            unpack(package, made)
            package.unlink()
        # debootstrap makes a link of it where it may make no devices
        if (made / "proc").is_symlink():
            (made / "proc").unlink()
        (made / "etc/hosts").write_text("127.0.0.1 localhost\n")
        made.rename(root)


def unpack(package: Path, root: Path) -> None:
    contents = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package],
                                stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root],
                   stdin=contents.stdout, check=True)
    if contents.wait() != 0:
        sys.exit("arm64.py: %s can't be unpacked" % package)


def add_site(root: Path, site: Path) -> None:
    """A folder that is there in both: so tests of this machine find what they try."""
    (library,) = (root / "usr/lib").glob("pypy3.*")
    target = root / "usr/local/lib" / library.name / "dist-packages"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "tried.pth").write_text("import site; site.addsitedir(%r)\n" % str(site))


def make_wheel(folder: Path) -> Path:
    """Of our package, in this folder, from a copy: setuptools leaves folders of its
    own.  By PyPy, which has cffi itself, and need not get one that runs here."""
    shutil.copytree(PROJECT / "vmprof-integration", folder / "source")
    subprocess.run(
        [PROJECT / ".venv-pypy/bin/pypy3", "-m", "pip", "wheel", "-q", "--no-deps",
         "--disable-pip-version-check", "-w", folder, folder / "source"],
        check=True, env={**os.environ, "CC": "aarch64-linux-gnu-gcc",
                         "_PYTHON_HOST_PLATFORM": "linux-aarch64"})
    (wheel,) = folder.glob("*_aarch64.whl")
    return wheel


def install(target: Path) -> None:
    """Our packages, built for arm64, and what .venv-pypy has beside."""
    (there,) = (PROJECT / ".venv-pypy/lib").glob("pypy3.*/site-packages")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(there, target, symlinks=True)
    shutil.rmtree(target / "vmprof_allocation")
    with tempfile.TemporaryDirectory(dir=PROJECT / ".build") as folder:
        zipfile.ZipFile(make_wheel(Path(folder))).extractall(target)


def make(release: str) -> Path:
    """Returns the command."""
    folder = PROJECT / ".build/arm64" / release
    folder.mkdir(parents=True, exist_ok=True)
    root, command = folder / "root", folder / "pypy3"
    if not root.exists():
        make_root(release, root)
    install(folder / "site")
    add_site(root, folder / "site")
    command.write_text(COMMAND % (
        sys.executable, Path(__file__).with_name("enter.py"), root))
    command.chmod(0o755)
    return command


if __name__ == "__main__":
    print(make(sys.argv[1]))
