"""Provide a Python 2.7, which RPython needs.

    python3 rpython/python2.py FOLDER

writes FOLDER/python2, a program that runs a Python 2.7 with pytest and py (unzipped to
FOLDER/lib), and prints the chosen interpreter.  This is the first one of

1. the interpreter in the environment variable PYTHON2,
2. a PyPy 2.7 on PATH: pypy2 or pypy,
3. the PyPy 2.7 of Debian bullseye, unpacked to FOLDER/root,
4. a python2.7 or python2 on PATH, or an interpreter of pyenv.

PyPy is preferred because it runs RPython's tests four times faster.

Debian 12 has no Python 2.7, but its apt can download bullseye's.  It checks the
signatures, because Debian's keyring has bullseye's key.  All folders of apt are below
FOLDER, so this needs neither root nor changes of the system.
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
#: Packages of the libraries that PyPy links to.  Newer releases of Debian lack the
#: first three libraries.  Only missing libraries are unpacked, because the programs
#: that Python runs (gcc) would find ours before the system's.
LIBRARIES = {
    "libffi.so.7": "libffi7", "libssl.so.1.1": "libssl1.1",
    "libcrypto.so.1.1": "libssl1.1", "libexpat.so.1": "libexpat1",
    "libbz2.so.1.0": "libbz2-1.0", "libz.so.1": "zlib1g",
    "libtinfo.so.6": "libtinfo6", "libgcc_s.so.1": "libgcc-s1",
}
#: Debian's names of suites in addition to the code name of the machine's release
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
    """An error with a message for the user."""


@dataclasses.dataclass
class Python2:
    """A Python 2.7: its name for messages, and its path."""

    name: str
    path: str
    #: folders that LD_LIBRARY_PATH must contain
    libraries: list[Path] = dataclasses.field(default_factory=list)


def last_lines(text: str, number: int = 3) -> str:
    """Return the last `number` lines of a text that are not empty, indented."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join("    " + line for line in lines[-number:] or ["(silently)"])


def run(what: str, command: list[str], folder: Path | None = None) -> None:
    """Run a command, without its output.

    Args:
        what: the name of the action in error messages.
        command: the program and its arguments.
        folder: the working directory, or None for the present one.

    Raises:
        Problem: the program cannot run or failed.  The message contains the last lines
            of its output.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise Problem("can't run %s: %s" % (command[0], error)) from None
    if done.returncode:
        # apt prints warnings after its errors
        errors = [line for line in done.stdout.splitlines()
                  if line.startswith("E: ")]
        raise Problem("%s failed (exit code %d):\n%s" % (
            what, done.returncode,
            last_lines("\n".join(errors) or done.stdout)))


def absolute(path: Path) -> Path:
    """Return the absolute path without resolving symbolic links."""
    return Path(os.path.abspath(path))


def probe(path: str, libraries: tuple[Path, ...] = ()) -> Python2:
    """Check that a program is a working Python 2.7, by running it.

    The existence of the file is not enough: pyenv leaves a "python2.7" on PATH that
    only prints an error message.

    Args:
        path: the program.
        libraries: folders that LD_LIBRARY_PATH must contain.

    Returns:
        The interpreter with the path that it reports, which may differ from 'path'.

    Raises:
        Problem: the program is no working Python 2.7.
    """
    environment = dict(os.environ)
    # PYTHONPATH may contain modules for Python 3
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
    """Return the Python 2.7 with this path, or with this name on PATH.

    Raises:
        Problem: the program is missing, or no working Python 2.7.
    """
    path = shutil.which(name)
    if path is None:
        raise Problem("there is no program %s" % name)
    found = probe(path)
    try:
        # a shim or wrapper may depend on the working directory or on settings
        return probe(found.path)
    except Problem:
        return dataclasses.replace(found, path=path)


def library_path(folders: tuple[Path, ...]) -> str:
    """Return a value of LD_LIBRARY_PATH: these folders, and then the present value."""
    before = os.environ.get("LD_LIBRARY_PATH")
    return ":".join([str(f) for f in folders] + ([before] if before else []))


# Debian ---------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Mirror:
    """A mirror of Debian."""

    uri: str
    #: the field Signed-By of a .sources file: names of keyrings, or a whole key
    signed_by: str = ""


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, or an empty list if it is not readable."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        # lists of other publishers may be unreadable, because they contain passwords
        return []


def entries(etc: Path) -> Iterator[dict[str, str]]:
    """Yield the entries of apt's list of sources, in both formats.

    Args:
        etc: the folder of apt's settings.

    Yields:
        The fields of an entry, by their names in lower case.
    """
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
    """Return the mirrors from which this machine gets Debian.

    Args:
        etc: the folder of apt's settings.
        codename: the code name of the machine's release.
    """
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
    # Try mirrors with "debian" in the URL first: other publishers also use Debian's
    # names of suites.
    return sorted(result, key=lambda mirror: "debian" not in mirror.uri)


def archive(mirror: Mirror) -> Mirror | None:
    """Return Debian's archive, which keeps releases that the mirrors have dropped.

    Returns:
        The host "archive" in the mirror's domain, or None if the domain is not
        Debian's.
    """
    parts = urllib.parse.urlsplit(mirror.uri)
    domain = (parts.hostname or "").split(".")[-2:]
    if parts.scheme not in ("http", "https") or domain[0] != "debian":
        return None
    return dataclasses.replace(mirror, uri="%s://archive.%s/debian" % (
        parts.scheme, ".".join(domain)))


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    """Return the code name of the machine's release, or an empty string."""
    match = re.search(r'^VERSION_CODENAME="?(\w+)',
                      "\n".join(lines_of(os_release)), re.MULTILINE)
    return match.group(1) if match else ""


class Apt:
    """An apt-get that uses its own folders, sources and package states."""

    def __init__(self, folder: Path):
        """Create the folders and the settings in an empty folder."""
        self.folder = folder
        for name in ("etc/parts", "state/lists/partial",
                     "cache/archives/partial", "packages"):
            (folder / name).mkdir(parents=True)
        # apt must not know any installed package
        (folder / "state/status").touch()
        # The settings are a file, because options of the command line cannot remove
        # hooks that the system's settings define.
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
        """Run apt-get in the folder for downloaded packages.  Raises Problem."""
        run("apt-get " + " ".join(arguments),
            ["apt-get", "-q", "-c", str(self.settings), *arguments],
            self.folder / "packages")

    def use(self, mirror: Mirror) -> None:
        """Load bullseye's list of packages from a mirror.  Raises Problem."""
        lines = ["Types: deb", "URIs: " + mirror.uri, "Suites: bullseye",
                 "Components: main", "Targets: Packages"]
        if mirror.signed_by:
            lines.append("Signed-By: " + mirror.signed_by)
        (self.folder / "etc/parts/bullseye.sources").write_text(
            "\n".join(lines) + "\n")
        self.get("update")

    def unpack(self, root: Path, *packages: str) -> None:
        """Download packages and unpack them to 'root'.  Raises Problem."""
        self.get("download", *packages)
        for path in sorted((self.folder / "packages").glob("*.deb")):
            run("unpacking " + path.name,
                ["dpkg-deb", "-x", str(path), str(root)])
            path.unlink()


def library_folders(root: Path) -> tuple[Path, ...]:
    """Return the folders below an unpacked Debian that contain libraries."""
    return tuple(sorted([*root.glob("lib/*-linux-gnu"),
                         *root.glob("usr/lib/*-linux-gnu")]))


def missing_libraries(root: Path) -> list[str]:
    """Return the packages of the libraries that the unpacked PyPy does not find.

    Raises:
        Problem: ldd cannot run, or the package of a missing library is unknown.
    """
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
    """Return the PyPy in an unpacked Debian.  Raises Problem."""
    found = probe(str(root / "usr/lib/pypy/bin/pypy-c"), library_folders(root))
    return dataclasses.replace(found, name=found.name + ", Debian bullseye's")


def bullseye(folder: Path, etc: Path = Path("/etc/apt")) -> Python2:
    """Return Debian bullseye's PyPy, after unpacking it to folder/root if necessary.

    Args:
        folder: the parent of the folder `root`.
        etc: the folder of apt's settings.

    Raises:
        Problem: the download failed from each mirror.
    """
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
            # apt downloads as another user, which must be able to enter the folder
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


# Choice and installation ----------------------------------------------------

def choose(folder: Path) -> Python2:
    """Return the first Python 2.7 of the list in the module's description.

    Raises:
        Problem: there is no Python 2.7, or PYTHON2 is no working Python 2.7.
    """
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
    """Download wheels for Python 2.7 with pip, which checks their hashes.

    Args:
        what: the name of the requirements in error messages.
        requirements: the file of requirements, with hashes.
        folder: the folder of the wheels.

    Raises:
        Problem: there is no pip, or the download failed.
    """
    if importlib.util.find_spec("pip") is None:
        raise Problem("%s has no pip: use the Python of an environment (make "
                      "does), or install Debian's python3-pip" % sys.executable)
    run("pip download %s" % what, [
        sys.executable, "-m", "pip", "download", "-q",
        "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
        "--python-version", "27", "--implementation", "py", "--abi", "none",
        "--require-hashes", "-r", str(requirements), "-d", str(folder)])


def add_libraries(folder: Path, requirements: Path = REQUIREMENTS) -> None:
    """Unzip pytest and py to folder/lib unless they are there.  Raises Problem."""
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
    """Write folder/python2, which runs the interpreter.  Return its path."""
    def shell(path: Path) -> str:
        """Return a path as text of the wrapper.

        Paths below the wrapper's folder are relative, so that the folder can be moved.
        """
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
    """Run the command, and return its exit code."""
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
