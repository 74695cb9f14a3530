"""The builds of PyPy that `make hard` tries: this machine's, and those of other
releases of Debian, in folders of their own."""
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
#: the certificates of this machine
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")

#: behind an interpreter
PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check")

#: Runs a program in another release: what it sees below the project's folder
#: and that for temporary files is the same, its devices and processes are this
#: machine's.  The mounts are its own, and end with it.
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
    #: has all that is made for it
    folder: Path
    #: with our package and the suites from PyPI
    pypy: Path
    #: of another release; None: this machine's
    root: Path | None = None
    #: seconds, for a whole suite
    timeout: float = 150.0

    def command(self, *arguments: str | Path) -> list[str]:
        """What runs this PyPy."""
        return self.inside(self.pypy, *arguments)

    def inside(self, *command: str | Path) -> list[str]:
        """What runs `command` in this build's release."""
        words = list(map(str, command))
        if self.root is None:
            return words
        return ["unshare", "--mount", "sh", "-ec", ENTER, "enter",
                str(self.root), str(ROOT), tempfile.gettempdir(), "--",
                *words]

    def say(self, *arguments: str | Path) -> str:
        """What this PyPy prints."""
        return subprocess.run(self.command(*arguments), text=True, check=True,
                              stdout=subprocess.PIPE).stdout.strip()

    def source(self, suite: str) -> Path:
        """Where the suite's source distribution is unpacked."""
        return self.folder / "sources" / suite


def do(command: Sequence[str | Path], what: str) -> bool:
    """Run it; its output matters only if it fails."""
    done = subprocess.run(list(map(str, command)), text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        print("%s failed (exit code %d):\n%s" % (
            what, done.returncode, "\n".join(done.stdout.splitlines()[-5:])),
            file=sys.stderr)
    return done.returncode == 0


def must(command: Sequence[str | Path], what: str) -> None:
    if not do(command, what):
        sys.exit(2)


def given(pypy: Path) -> Build:
    """One that somebody else prepared, for an emulator perhaps."""
    path = pypy.resolve()
    return Build(FOLDER / "-".join(path.parts[-3:-1]), path, timeout=1500)


def prepare(suite: str | None) -> Build:
    """The PyPy of this release of Debian, with all that is installed in it."""
    folder = FOLDER / (suite or "here")
    folder.mkdir(parents=True, exist_ok=True)
    build = Build(folder, folder / "venv" / "bin" / "pypy3",
                  folder / "root" if suite else None)
    if suite:
        unpack(build, suite)
    install(build)
    for name, (requirement, _) in PYPI.items():
        fetch(build, name, requirement)
        # without what is not there, the others can still run
        if name != "greenlet":      # PyPy's own
            do(build.command(*PIP, requirement), "installing %s" % name)
    return build


def install(build: Build) -> None:
    """What the source has now."""
    if not build.pypy.exists():
        must(build.inside("pypy3", "-m", "venv", build.folder / "venv"),
             "the environment")
    # from a copy, which has nothing that an earlier build has left
    with tempfile.TemporaryDirectory() as copy:
        for name in "converter", "vmprof-integration":
            shutil.copytree(ROOT / name, Path(copy) / name,
                            ignore=shutil.ignore_patterns("build", "*.egg-info"))
        must(build.command(*PIP, Path(copy) / "converter",
                           Path(copy) / "vmprof-integration"),
             "installing vmprof-allocation")


def install_for_tests(build: Build) -> None:
    """What those of `make test` need in it."""
    install(build)
    must(build.command(*PIP, "-r", ROOT / "tests" / "requirements-pypy.txt"),
         "installing what tests need")


def is_unpacked(build: Build) -> bool:
    return (build.folder / "unpacked").exists()


def unpack(build: Build, suite: str) -> None:
    """Debian, at least what PyPy needs."""
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
    # debootstrap makes none, and tests need localhost
    shutil.copyfile("/etc/hosts", build.root / "etc/hosts")
    # a mirror may be a snapshot, whose signature is good but old
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y",
           "-o", "Acquire::Check-Valid-Until=false")
    must(build.inside(*apt, "update"), "apt-get update")
    must(build.inside(*apt, "install", "--no-install-recommends", *PACKAGES),
         "apt-get install")
    # whom this machine trusts.  Not mounted, as its packages would change it
    # here, too; and the one file: links would lead out of there
    if TRUSTED.exists():
        trusted = build.root / TRUSTED.relative_to("/")
        trusted.parent.mkdir(parents=True, exist_ok=True)
        trusted.unlink(missing_ok=True)
        shutil.copyfile(TRUSTED, trusted)
    (build.folder / "unpacked").touch()


def fetch(build: Build, name: str, requirement: str) -> None:
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
