"""Install Debian for arm64 with PyPy and our packages, to run it in an emulator.

    arm64.py RELEASE

This program creates .build/arm64/RELEASE. `root` has the system, `site` has our
packages, and `pypy3` is a command that tests can use as PYPY. The program needs
Debian's debootstrap, qemu-user-static and gcc-aarch64-linux-gnu. The installation runs
no emulated program.
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
#: Debian packages that are installed in addition to the smallest system
PACKAGES = "pypy3,pypy3-dev,pypy3-lib-testsuite,ca-certificates,procps"
COMMAND = """\
#!/bin/sh
exec "%s" "%s" "%s" /usr/bin/pypy3 "$@"
"""


def make_root(release: str, root: Path, packages: str = PACKAGES) -> None:
    """Unpack a Debian system into a folder, without running scripts of its packages."""
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        made = Path(folder, "root")
        subprocess.run(["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase",
                        "--include=" + packages, release, made],
                       check=True, stdout=subprocess.DEVNULL)
        for package in sorted(made.glob("var/cache/apt/archives/*.deb")):
            unpack(package, made)
            package.unlink()
        # debootstrap makes /proc a link if it has no permission to make devices
        if (made / "proc").is_symlink():
            (made / "proc").unlink()
        (made / "etc/hosts").write_text("127.0.0.1 localhost\n")
        made.rename(root)


def unpack(package: Path, root: Path) -> None:
    """Unpack a Debian package into a folder."""
    contents = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package],
                                stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root],
                   stdin=contents.stdout, check=True)
    if contents.wait() != 0:
        sys.exit("arm64.py: %s can't be unpacked" % package)


def add_site(root: Path, site: Path) -> None:
    """Add a folder to the system's import path.

    The folder has the same path in the system as on this machine, so that the tests
    find its files.
    """
    (library,) = (root / "usr/lib").glob("pypy3.*")
    target = root / "usr/local/lib" / library.name / "dist-packages"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "tried.pth").write_text("import site; site.addsitedir(%r)\n" % str(site))


def make_wheel(folder: Path) -> Path:
    """Build the sampler's wheel in a folder, from a copy of the source.

    setuptools would add folders to the source itself. This machine's PyPy builds the
    wheel, because it contains cffi.
    """
    shutil.copytree(PROJECT / "vmprof-integration", folder / "source")
    subprocess.run(
        [PROJECT / ".venv-pypy/bin/pypy3", "-m", "pip", "wheel", "-q", "--no-deps",
         "--disable-pip-version-check", "-w", folder, folder / "source"],
        check=True, env={**os.environ, "CC": "aarch64-linux-gnu-gcc",
                         "_PYTHON_HOST_PLATFORM": "linux-aarch64"})
    (wheel,) = folder.glob("*_aarch64.whl")
    return wheel


def install(target: Path) -> None:
    """Install our packages for arm64, and the other packages of .venv-pypy, in a
    folder.
    """
    (there,) = (PROJECT / ".venv-pypy/lib").glob("pypy3.*/site-packages")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(there, target, symlinks=True)
    shutil.rmtree(target / "vmprof_allocation")
    with tempfile.TemporaryDirectory(dir=PROJECT / ".build") as folder:
        zipfile.ZipFile(make_wheel(Path(folder))).extractall(target)


def make(release: str) -> Path:
    """Create `root` if it is missing, `site` and `pypy3`; return the path of `pypy3`.
    """
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
