"""The builds of PyPy that `make hard` tests.

These are this machine's PyPy, and the PyPys of other Debian releases. Each other
release has its own root folder.
"""
from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from python2 import codename, mirrors
from suites import PYPI

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".build" / "hard"
PACKAGES = ("pypy3", "pypy3-venv", "pypy3-dev", "pypy3-lib-testsuite", "gcc",
            "g++", "libc6-dev", "make")
#: the certificate authorities that this machine trusts
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")

#: arguments with which an interpreter runs `pip install`
PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check")

#: A shell script that runs a program in the root folder of another release. The
#: project's folder, the folder for temporary files, /dev and /proc are this machine's.
#: The mounts are in their own namespace, and end with the program.
ENTER = """
root=$1; shift
for folder in "$@"; do
    shift
    [ "$folder" = -- ] && break
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot "$root" sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""


@dataclasses.dataclass(frozen=True)
class Build:
    """A PyPy and the files for its tests."""

    #: folder of all files for this build
    folder: Path
    #: interpreter with our package and the suites from PyPI
    pypy: Path
    #: root folder of another release, or None for this machine
    root: Path | None = None
    #: time limit of a whole suite in seconds
    timeout: float = 150.0

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command that runs this PyPy."""
        return self.inside(self.pypy, *arguments)

    def inside(self, *command: str | Path) -> list[str]:
        """Return the command that runs `command` in this build's release."""
        words = list(map(str, command))
        if self.root is None:
            return words
        return ["unshare", "--mount", "sh", "-ec", ENTER, "enter",
                str(self.root), str(ROOT), tempfile.gettempdir(), "--",
                *words]

    def say(self, *arguments: str | Path) -> str:
        """Run this PyPy with these arguments, and return its output."""
        return subprocess.run(self.command(*arguments), text=True, check=True,
                              stdout=subprocess.PIPE).stdout.strip()

    def source(self, suite: str) -> Path:
        """Return the folder of the suite's unpacked source distribution."""
        return self.folder / "sources" / suite


def do(command: Sequence[str | Path], what: str) -> bool:
    """Run a command, and print the end of its output if it fails."""
    done = subprocess.run(list(map(str, command)), text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        print("%s failed (exit code %d):\n%s" % (
            what, done.returncode, "\n".join(done.stdout.splitlines()[-5:])),
            file=sys.stderr)
    return done.returncode == 0


def must(command: Sequence[str | Path], what: str) -> None:
    """Run a command, and exit if it fails."""
    if not do(command, what):
        sys.exit(2)


def given(pypy: Path) -> Build:
    """Return a build for a PyPy that already has all packages.

    Its time limit is longer, because it may run in an emulator.
    """
    path = pypy.resolve()
    return Build(FOLDER / "-".join(path.parts[-3:-1]), path, timeout=1500)


def prepare(suite: str | None) -> Build:
    """Install our packages and the suites' packages for the PyPy of a Debian release.

    The release is this machine's if `suite` is None.
    """
    folder = FOLDER / (suite or "here")
    folder.mkdir(parents=True, exist_ok=True)
    build = Build(folder, folder / "venv" / "bin" / "pypy3",
                  folder / "root" if suite else None)
    if suite:
        unpack(build, suite)
    install(build)
    for name, (requirement, _) in PYPI.items():
        fetch(build, name, requirement)
        # if a package cannot be installed, the other suites still run
        if name != "greenlet":      # PyPy contains greenlet
            do(build.command(*PIP, requirement), "installing %s" % name)
    return build


def install(build: Build) -> None:
    """Install our packages from the source into a build's environment."""
    if not build.pypy.exists():
        must(build.inside("pypy3", "-m", "venv", build.folder / "venv"),
             "the environment")
    # build from a copy without the files of an earlier build
    with tempfile.TemporaryDirectory() as copy:
        for name in "converter", "vmprof-integration":
            shutil.copytree(ROOT / name, Path(copy) / name,
                            ignore=shutil.ignore_patterns("build", "*.egg-info"))
        must(build.command(*PIP, Path(copy) / "converter",
                           Path(copy) / "vmprof-integration"),
             "installing vmprof-allocation")


def install_for_tests(build: Build) -> None:
    """Install our packages, and the packages that the tests of `make test` need."""
    install(build)
    must(build.command(*PIP, "-r", ROOT / "tests" / "requirements-pypy.txt"),
         "installing what tests need")


def is_unpacked(build: Build) -> bool:
    return (build.folder / "unpacked").exists()


def unpack(build: Build, suite: str) -> None:
    """Install a Debian release with PyPy and a compiler into the build's root folder.
    """
    assert build.root is not None
    if is_unpacked(build):
        return
    if os.getuid() != 0:
        sys.exit("another release needs root, for debootstrap and chroot: run "
                 "`make hard BUILD=%s` as root" % suite)
    found = mirrors(Path("/etc/apt"), codename())
    if not found:
        sys.exit("this machine's apt knows no mirror of Debian's")
    if not (build.root / "etc/debian_version").exists():
        must(["debootstrap", "--variant=minbase", suite, build.root,
              found[0].uri], "debootstrap")
    # debootstrap writes no such file, and tests need localhost
    shutil.copyfile("/etc/hosts", build.root / "etc/hosts")
    # a mirror may be a snapshot, whose valid signature has expired
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y",
           "-o", "Acquire::Check-Valid-Until=false")
    must(build.inside(*apt, "update"), "apt-get update")
    must(build.inside(*apt, "install", "--no-install-recommends", *PACKAGES),
         "apt-get install")
    # Trust the authorities that this machine trusts. The file is copied, because
    # packages of the release would change a mounted file. The folder has links to other
    # places.
    if TRUSTED.exists():
        trusted = build.root / TRUSTED.relative_to("/")
        trusted.parent.mkdir(parents=True, exist_ok=True)
        trusted.unlink(missing_ok=True)
        shutil.copyfile(TRUSTED, trusted)
    (build.folder / "unpacked").touch()


def fetch(build: Build, name: str, requirement: str) -> None:
    """Download the source distribution of a package, and unpack it for its suite."""
    folder = build.source(name)
    if folder.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        if not do([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                   "--no-binary", ":all:", "--dest", scratch,
                   "--disable-pip-version-check", requirement],
                  "fetching %s" % requirement):
            return
        archive, = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(scratch)
        top, = (path for path in Path(scratch).iterdir() if path.is_dir())
        folder.parent.mkdir(parents=True, exist_ok=True)
        must(["cp", "-r", top, folder], "unpacking %s" % name)
