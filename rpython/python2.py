"""Get a Python 2.7, which RPython is written in.

    python3 rpython/python2.py FOLDER

makes FOLDER/python2, which runs a Python 2.7 that has pytest and py (unzipped
to FOLDER/lib), and says which one was taken:

1. what the environment variable PYTHON2 names,
2. a PyPy 2.7 on PATH: pypy2 or pypy,
3. the PyPy 2.7 of Debian bullseye, unpacked to FOLDER/root,
4. a python2.7 or python2 on PATH, or one of pyenv's.

PyPy comes first because RPython's tests run four times faster on it.

Debian 12 has no Python 2.7, but its apt can fetch bullseye's, checks the
signatures (bullseye's key is in Debian's keyring) and needs neither root nor
a change to the system for it: all of apt's folders are below FOLDER.
"""
from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements-python2.txt"

PACKAGES = ("pypy", "pypy-lib")
#: What these link to.  Newer releases of Debian don't have the first ones any
#: more; of the others, only those that the system lacks are unpacked, since
#: the programs that Python runs (gcc) would find ours before the system's.
LIBRARIES = {
    "libffi.so.7": "libffi7", "libssl.so.1.1": "libssl1.1",
    "libcrypto.so.1.1": "libssl1.1", "libexpat.so.1": "libexpat1",
    "libbz2.so.1.0": "libbz2-1.0", "libz.so.1": "zlib1g",
    "libtinfo.so.6": "libtinfo6", "libgcc_s.so.1": "libgcc-s1",
}
#: Names of Debian itself, whatever the machine's release is called.
SUITES = {"oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"}

PROBE = """
import sys
if sys.version_info[:2] != (2, 7):
    sys.exit("it is Python %d.%d" % sys.version_info[:2])
import ctypes, hashlib, platform, select
hashlib.md5(b"")
print(sys.executable)
name = platform.python_implementation()
if name == "PyPy":
    name += " %d.%d.%d" % sys.pypy_version_info[:3]
print("%s (Python %s)" % (name, platform.python_version()))
"""

WRAPPER = """\
#!/bin/sh
# %(name)s; written by rpython/python2.py
here=$(dirname "$(readlink -f "$0")")
# PyPy's default depends on the CPU's cache: with a large one, tests of RPython
# that count on a nursery of some MB fail
export PYPY_GC_NURSERY="${PYPY_GC_NURSERY:-4M}"
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$here/lib${PYTHONPATH:+:$PYTHONPATH}"
# one of RPython's tests starts a Python without PYTHONPATH
export PYTHONUSERBASE="${PYTHONUSERBASE:-$here/user}"
%(libraries)sexec %(command)s "$@"
"""


class Problem(Exception):
    """What the user has to know, and can do something about."""


@dataclasses.dataclass
class Python2:
    name: str
    path: str
    #: folders that have to be on LD_LIBRARY_PATH
    libraries: list[Path] = dataclasses.field(default_factory=list)


def last_lines(text: str, number: int = 3) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join("    " + line for line in lines[-number:] or ["(silently)"])


def run(what: str, command: list[str], folder: Path | None = None) -> None:
    """Run a program; only what it says about a failure matters."""
    try:
        done = subprocess.run(
            command, cwd=folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise Problem("can't run %s: %s" % (command[0], error)) from None
    if done.returncode:
        # apt's own errors, if it is apt: its warnings come after them
        errors = [line for line in done.stdout.splitlines()
                  if line.startswith("E: ")]
        raise Problem("%s failed (exit code %d):\n%s" % (
            what, done.returncode,
            last_lines("\n".join(errors) or done.stdout)))


def absolute(path: Path) -> Path:
    """Unlike resolve(), this leaves symbolic links as the user named them."""
    return Path(os.path.abspath(path))


def probe(path: str, libraries: tuple[Path, ...] = ()) -> Python2:
    """Run an interpreter; it is a Problem if it isn't a working 2.7.

    That a file is there says nothing: pyenv leaves "python2.7" on PATH that
    only prints an error message.
    """
    environment = dict(os.environ)
    # may hold modules for Python 3
    environment.pop("PYTHONPATH", None)
    if libraries:
        environment["LD_LIBRARY_PATH"] = library_path(libraries)
    try:
        done = subprocess.run(
            [path, "-W", "error::RuntimeWarning", "-c", PROBE], text=True,
            env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem("%s is no working Python 2.7: %s" % (path, error)) from None
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 2:
        raise Problem("%s is no working Python 2.7 (exit code %d):\n%s" % (
            path, done.returncode, last_lines(done.stderr)))
    executable, name = lines
    return Python2(name, executable, list(libraries))


def find(name: str) -> Python2:
    """The interpreter with this name or path."""
    path = shutil.which(name)
    if path is None:
        raise Problem("there is no program %s" % name)
    found = probe(path)
    try:
        # not the shim or wrapper, which may depend on the current folder or
        # on a setting of today
        return probe(found.path)
    except Problem:
        return dataclasses.replace(found, path=path)


def library_path(folders: tuple[Path, ...]) -> str:
    before = os.environ.get("LD_LIBRARY_PATH")
    return ":".join([str(f) for f in folders] + ([before] if before else []))


# Debian ---------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Mirror:
    uri: str
    #: as in a .sources file: names of keyrings, or a whole key
    signed_by: str = ""


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        # that of another publisher may be kept secret
        return []


def entries(etc: Path) -> Iterator[dict[str, str]]:
    """The entries in a machine's apt folder, of both formats: fields by their
    names in lower case."""
    for path in sorted(etc.glob("sources.list.d/*.sources")):
        fields: dict[str, str] = {}
        key = ""
        for line in [*lines_of(path), ""]:
            if line.startswith("#"):
                continue
            if not line.strip():
                if fields:
                    yield fields
                fields = {}
            elif line[0] in " \t":
                if key in fields:
                    fields[key] += "\n" + line
            else:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
    for path in [etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]:
        for line in lines_of(path):
            match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s*)?(\S+)\s+(\S+)\s+([^#]*)",
                             line)
            if match:
                options, uri, suite, components = match.groups(default="")
                fields = {"types": "deb", "uris": uri, "suites": suite,
                          "components": components}
                for option in options.split():
                    key, _, value = option.partition("=")
                    fields[key.rstrip("+").lower()] = value.replace(",", " ")
                yield fields


def mirrors(etc: Path, codename: str) -> list[Mirror]:
    """Where this machine gets Debian from."""
    result: list[Mirror] = []
    for fields in entries(etc):
        if (fields.get("enabled", "yes").lower() in ("no", "false", "0")
                or "deb" not in fields.get("types", "").split()
                or "main" not in fields.get("components", "").split()
                or not (SUITES | {codename}).intersection(
                    fields.get("suites", "").split())):
            continue
        for uri in fields.get("uris", "").split():
            mirror = Mirror(uri, fields.get("signed-by", ""))
            if not uri.startswith("cdrom:") and mirror not in result:
                result.append(mirror)
    # others' packages are published under Debian's names, too
    return sorted(result, key=lambda mirror: "debian" not in mirror.uri)


def archive(mirror: Mirror) -> Mirror | None:
    """Where a release goes when the mirrors drop it: the host "archive" of
    Debian's own domain.  None if the mirror is not in that."""
    parts = urllib.parse.urlsplit(mirror.uri)
    domain = (parts.hostname or "").split(".")[-2:]
    if parts.scheme not in ("http", "https") or domain[0] != "debian":
        return None
    return dataclasses.replace(mirror, uri="%s://archive.%s/debian" % (
        parts.scheme, ".".join(domain)))


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    match = re.search(r'^VERSION_CODENAME="?(\w+)',
                      "\n".join(lines_of(os_release)), re.MULTILINE)
    return match.group(1) if match else ""


class Apt:
    """apt-get with folders, sources and package states of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("etc/parts", "state/lists/partial",
                     "cache/archives/partial", "packages"):
            (folder / name).mkdir(parents=True)
        # what is installed doesn't matter here
        (folder / "state/status").touch()
        # a file, since hooks that the system's settings name can't be
        # cleared on the command line
        self.settings = folder / "apt.conf"
        self.settings.write_text("".join('%s;\n' % line for line in (
            'Dir::Etc::sourcelist "/dev/null"',
            'Dir::Etc::sourceparts "%s/etc/parts"' % folder,
            'Dir::Etc::preferences "/dev/null"',
            'Dir::Etc::preferencesparts "/dev/null"',
            'Dir::State "%s/state"' % folder,
            'Dir::State::status "%s/state/status"' % folder,
            'Dir::Cache "%s/cache"' % folder,
            'Acquire::Languages "none"',
            'Acquire::Retries "2"',
            'APT::Update::Error-Mode "any"',
            '#clear APT::Update::Post-Invoke',
            '#clear APT::Update::Post-Invoke-Success',
        )))

    def get(self, *arguments: str) -> None:
        run("apt-get " + " ".join(arguments),
            ["apt-get", "-q", "-c", str(self.settings), *arguments],
            self.folder / "packages")

    def use(self, mirror: Mirror) -> None:
        lines = ["Types: deb", "URIs: " + mirror.uri, "Suites: bullseye",
                 "Components: main", "Targets: Packages"]
        if mirror.signed_by:
            lines.append("Signed-By: " + mirror.signed_by)
        (self.folder / "etc/parts/bullseye.sources").write_text(
            "\n".join(lines) + "\n")
        self.get("update")

    def unpack(self, root: Path, *packages: str) -> None:
        self.get("download", *packages)
        for path in sorted((self.folder / "packages").glob("*.deb")):
            run("unpacking " + path.name,
                ["dpkg-deb", "-x", str(path), str(root)])
            path.unlink()


def library_folders(root: Path) -> tuple[Path, ...]:
    return tuple(sorted([*root.glob("lib/*-linux-gnu"),
                         *root.glob("usr/lib/*-linux-gnu")]))


def missing_libraries(root: Path) -> list[str]:
    """Packages with what the files of PyPy don't find."""
    paths = [root / "usr/lib/pypy/bin/pypy-c",
             *root.glob("usr/lib/pypy/lib_pypy/_pypy_openssl.*.so")]
    try:
        output = subprocess.run(
            ["ldd", *map(str, paths)], text=True, capture_output=True,
            env={**os.environ, "LC_ALL": "C",
                 "LD_LIBRARY_PATH": library_path(library_folders(root))}).stdout
    except OSError as error:
        raise Problem("can't run ldd: %s" % error) from None
    names = sorted(set(re.findall(r"(\S+) => not found", output)))
    unknown = [name for name in names if name not in LIBRARIES]
    if unknown:
        raise Problem("bullseye's PyPy needs %s: please install the packages "
                      "that hold them" % ", ".join(unknown))
    return sorted({LIBRARIES[name] for name in names})


def unpacked(root: Path) -> Python2:
    found = probe(str(root / "usr/lib/pypy/bin/pypy-c"), library_folders(root))
    return dataclasses.replace(found, name=found.name + ", Debian bullseye's")


def bullseye(folder: Path, etc: Path = Path("/etc/apt")) -> Python2:
    """Debian bullseye's PyPy, in folder/root."""
    root = folder / "root"
    if root.exists():
        try:
            return unpacked(root)
        except Problem:
            shutil.rmtree(root)
    for program in "apt-get", "dpkg-deb":
        if shutil.which(program) is None:
            raise Problem("there is no %s here" % program)
    tries = mirrors(etc, codename())
    if not tries:
        raise Problem("%s names no mirror of Debian" % etc)
    for mirror in list(tries):
        older = archive(mirror)
        if older is not None and older not in tries:
            tries.append(older)
    failures = []
    for mirror in tries:
        with tempfile.TemporaryDirectory(dir=folder, prefix="apt.") as name:
            work = Path(name)
            # apt's downloads drop root's rights, and have to get in here
            work.chmod(0o755)
            try:
                apt = Apt(work)
                apt.use(mirror)
                apt.unpack(work / "root", *PACKAGES)
                missing = missing_libraries(work / "root")
                if missing:
                    apt.unpack(work / "root", *missing)
                unpacked(work / "root")
            except Problem as problem:
                failures.append("%s: %s" % (mirror.uri, problem))
                continue
            (work / "root").rename(root)
            return unpacked(root)
    raise Problem("\n".join(failures))


# all of it ------------------------------------------------------------------

def choose(folder: Path) -> Python2:
    """The Python 2.7 to use."""
    wish = os.environ.get("PYTHON2")
    if wish:
        path = shutil.which(wish)
        if path and Path(path).resolve() == (folder / "python2").resolve():
            raise Problem("PYTHON2 is %s, the file to be written: unset it, or "
                          "name an interpreter" % wish)
        try:
            return find(wish)
        except Problem as problem:
            raise Problem("%s\nPYTHON2 is %s: unset it, or set it to a Python "
                          "2.7" % (problem, wish)) from None
    for name in "pypy2", "pypy":
        try:
            found = find(name)
        except Problem:
            continue
        if found.name.startswith("PyPy"):
            return found
    try:
        return bullseye(folder)
    except Problem as problem:
        failure = "no PyPy 2.7 from Debian bullseye: %s" % problem
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    tried = ["python2.7", "python2"]
    tried += map(str, sorted(pyenv.glob("versions/2.7.*/bin/python2.7")))
    for name in tried:
        try:
            found = find(name)
        except Problem:
            continue
        print("%s\ntaking %s, on which RPython's tests take longer"
              % (failure, found.path), file=sys.stderr)
        return found
    raise Problem("%s\nno Python 2.7 elsewhere (tried: pypy2 pypy %s): install "
                  "one, and set PYTHON2 to its path" % (
                      failure, " ".join(tried)))


def download(what: str, requirements: Path, folder: Path) -> None:
    """Let pip fetch wheels for Python 2.7; it checks their hashes."""
    if importlib.util.find_spec("pip") is None:
        raise Problem("%s has no pip: use the Python of an environment (make "
                      "does), or install Debian's python3-pip" % sys.executable)
    run("pip download %s" % what, [
        sys.executable, "-m", "pip", "download", "-q",
        "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
        "--python-version", "27", "--implementation", "py", "--abi", "none",
        "--require-hashes", "-r", str(requirements), "-d", str(folder)])


def add_libraries(folder: Path, requirements: Path = REQUIREMENTS) -> None:
    """Unzip pytest and py to folder/lib."""
    lib = folder / "lib"
    stamp = lib / requirements.name
    if stamp.is_file() and stamp.read_bytes() == requirements.read_bytes():
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix="lib.") as name:
        work = Path(name)
        download("-r %s" % requirements, requirements, work)
        new = work / "lib"
        for path in work.glob("*.whl"):
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(new)
        shutil.copyfile(requirements, new / requirements.name)
        if lib.exists():
            lib.rename(work / "old")
        new.rename(lib)
    for name in "python2.7", "pypy2.7":
        site_packages = folder / "user" / "lib" / name / "site-packages"
        site_packages.parent.mkdir(parents=True, exist_ok=True)
        if not site_packages.is_symlink():
            site_packages.symlink_to("../../../lib")


def write_wrapper(folder: Path, python2: Python2) -> Path:
    def shell(path: Path) -> str:
        """A path as the wrapper says it: what is below its own folder, from
        there, so that the folder can be moved."""
        if folder in path.parents:
            return '"$here"/' + shlex.quote(str(path.relative_to(folder)))
        return shlex.quote(str(path))

    libraries = ""
    if python2.libraries:
        libraries = 'export LD_LIBRARY_PATH=%s"${LD_LIBRARY_PATH:+:$' \
            'LD_LIBRARY_PATH}"\n' % ":".join(map(shell, python2.libraries))
    path = folder / "python2"
    with tempfile.TemporaryDirectory(dir=folder, prefix="wrapper.") as name:
        new = Path(name) / "python2"
        new.write_text(WRAPPER % {
            "name": python2.name, "libraries": libraries,
            "command": shell(Path(python2.path))})
        new.chmod(0o755)
        os.replace(new, path)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Get a Python 2.7, with pytest: FOLDER/python2.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = absolute(parser.parse_args().folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        python2 = choose(folder)
        add_libraries(folder)
        probe(str(write_wrapper(folder, python2)))
    except (Problem, OSError) as error:
        print("python2.py: error: %s" % error, file=sys.stderr)
        return 2
    print("%s: %s" % (python2.name, python2.path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
