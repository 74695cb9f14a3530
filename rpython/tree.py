"""Create a tree of RPython with our patches.

    python3 rpython/tree.py TREE [--pristine | --samples]

creates the folder TREE from

1. the wheel of rpython 0.2.1, which pip downloads once to the parent folder of TREE
   (the sdist lacks a file that rvmprof needs),
2. the patches in patches/series, in this order,
3. the files of added/, at the same paths in the tree,
4. the C files that the patched RPython shares with the hook engine.

With --pristine, the tree consists of the wheel only, for comparisons.  With --samples,
it contains the first of the two submissions about allocations: the patches up to
SAMPLES, and the files of samples/ instead of rvmprof's files in added/.  Each tree has
its own pytest.ini.

An existing tree is replaced if one of its sources has changed, and is otherwise not
touched.  Replacing it removes manual changes and files of translations.

The patches have no lines of context (`git diff -U0`), so only the line numbers
determine the position of a hunk.  They are exact because the wheel's hash is fixed.
Each warning of patch(1) is therefore an error.  A file must also have the hash in git's
"index" line, because a hunk that only inserts lines fits anywhere.
"""
from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from python2 import Problem, absolute, download

HERE = Path(__file__).parent
WHEEL = "rpython-0.2.1-py2-none-any.whl"
SHA256 = "a8ab1e5d7baf95c27a7fdb4d55825d584b2e5fd153bdff42e9d8a7625e403feb"

#: folder in a tree for the C files that the builtin engine shares with the hook engine
ALLOCATION_FOLDER = Path("rpython/rlib/rvmprof/src/allocation")

#: last patch of the first submission (`--samples`), which takes samples
SAMPLES = "05-rvmprof-samples.patch"
#: new files of the first submission
FIRST = HERE / "samples"
#: folder in a tree whose added files belong to the second submission, which records
#: outcomes; the first submission has the files of FIRST instead
RVMPROF_FOLDER = Path("rpython/rlib/rvmprof")

#: part of the names of the GC's new files in the second submission
OUTCOMES = "outcomes"

#: file in a tree with the hash of its sources
STAMP = ".made-from"

#: Without this file, pytest would use the pytest.ini of the surrounding repository,
#: which is for Python 3.  RPython cannot translate rewritten asserts.
PYTEST_INI = """\
[pytest]
addopts = --assert=plain -p no:cacheprovider
"""


@dataclasses.dataclass(frozen=True)
class Patch:
    """A patch of the series, with its text."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """Return the file name."""
        return self.path.name


@dataclasses.dataclass(frozen=True)
class Ours:
    """The sources of a tree in addition to the wheel: patches and new files."""

    patches: Path = HERE / "patches"
    added: Path = HERE / "added"
    shared: Path | None = (HERE.parent / "vmprof-integration/vmprof_allocation"
                           / "native/shared")
    #: new files of the first submission, or None for the complete series
    samples: Path | None = dataclasses.field(default=None, kw_only=True)

    def text(self, path: Path) -> str:
        """Return the text of a patch as input of patch(1)."""
        return path.read_text(encoding="utf-8", errors="surrogateescape")

    def series(self) -> list[Patch]:
        """Return the patches in order.

        Raises:
            Problem: the file "series" is missing, or names a patch that is missing or
                is named twice.
        """
        path = self.patches / "series"
        if not path.is_file():
            raise Problem("there is no %s, which has to name the patches, one a "
                          "line" % path)
        lines = [line.partition("#")[0].strip()
                 for line in path.read_text(encoding="utf-8").splitlines()]
        result = [self.patches / line for line in lines if line]
        for number, patch in enumerate(result):
            if not patch.is_file():
                raise Problem("%s names %s, which isn't there: write it, or "
                              "take the line out" % (path, patch.name))
            if patch in result[:number]:
                raise Problem("%s names %s twice: take one line out"
                              % (path, patch.name))
        if self.samples is not None:
            result = [patch for patch in result if patch.name <= SAMPLES]
        return [Patch(patch, self.text(patch)) for patch in result]

    def files(self) -> Iterator[tuple[Path, Path]]:
        """Yield the path of each added file, and its path in a tree."""
        for path, place in below(self.added):
            if self.samples is None or not (
                    RVMPROF_FOLDER in place.parents or OUTCOMES in place.name):
                yield path, place
        if self.samples is not None:
            yield from below(self.samples)
            return
        if self.shared is None:
            return
        shared = sorted(self.shared.glob("*.[ch]"))
        if not shared:
            raise Problem("there is no C in %s, which the engines share"
                          % self.shared)
        for path in shared:
            yield path, ALLOCATION_FOLDER / path.name


def below(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the path of each file below a folder, and its relative path."""
    for path in sorted(folder.rglob("*")):
        # Python writes .pyc files next to our files
        if path.is_file() and path.suffix != ".pyc":
            yield path, path.relative_to(folder)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(cache: Path, expected: str = SHA256) -> Path:
    """Return the path of the wheel, after a download from PyPI if necessary.

    Args:
        cache: the folder of the wheel.
        expected: the SHA-256 of the wheel.

    Raises:
        Problem: the download failed, or the wheel has another hash.
    """
    path = cache / WHEEL
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="wheel.") as name:
            work = Path(name)
            requirements = work / "requirements.txt"
            release = "%s==%s" % tuple(WHEEL.split("-")[:2])
            requirements.write_text("%s --hash=sha256:%s\n" % (release, expected))
            download(release, requirements, work)
            # another process may download the wheel at the same time
            os.replace(work / WHEEL, path)
    found = sha256(path)
    if found != expected:
        raise Problem("%s has the SHA-256 %s instead of %s: remove it, and it "
                      "is fetched again" % (path, found, expected))
    return path


def inputs(wheel: Path, ours: Ours | None) -> str:
    """Return a hash of all sources of a tree, as a line of text for the file STAMP.

    Args:
        wheel: the wheel of rpython.
        ours: the other sources, or None for a pristine tree.
    """
    state = hashlib.sha256()

    def add(name: str, path: Path) -> None:
        state.update(("%s %s %o\n" % (
            name, sha256(path), path.stat().st_mode & 0o111)).encode())

    add("program", Path(__file__))
    add("wheel", wheel)
    if ours is not None:
        for patch in ours.series():
            add("patch " + patch.name, patch.path)
        for path, place in ours.files():
            add("file " + str(place), path)
    return state.hexdigest() + "\n"


def unzip(wheel: Path, folder: Path) -> None:
    """Extract a wheel into a folder, and make its programs executable."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            # zipfile extracts files without their permissions
            if entry.external_attr >> 16 & 0o111:
                path.chmod(path.stat().st_mode | 0o111)


def git_hashes(patch: Patch) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each file in a patch, and git's hashes of the original file.

    There is one abbreviated hash per "index" line.  A patch that applies to several
    versions of a file has several of these lines.
    """
    for match in re.finditer(r"((?:^index .*\n)+)--- .*\n\+\+\+ b/(\S+)$",
                             patch.text, re.MULTILINE):
        yield match.group(2), re.findall(
            r"^index ([0-9a-f]{7,40})\.\.[0-9a-f]{7,40}\b", match.group(1),
            re.MULTILINE)


def git_hash(path: Path) -> str:
    """Return git's hash of a file's contents, or zeros if there is no such file."""
    if not path.is_file():
        return "0" * 40
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def apply(patch: Patch, folder: Path) -> None:
    """Apply a patch to the files in a folder.

    Raises:
        Problem: a file of the patch does not have the expected hash, or patch(1)
            printed a warning or an error.
    """
    for name, expected in git_hashes(patch):
        found = git_hash(folder / name)
        if not found.startswith(tuple(expected)):
            raise Problem("%s does not apply exactly: before it, %s is not the file "
                          "%s, but %s: make it anew from the tree with the "
                          "patches before it" % (
                              patch.path, name, " or ".join(expected), found[:11]))
    try:
        done = subprocess.run(
            ["patch", "-p1", "-F0", "--forward", "--unified",
             "--no-backup-if-mismatch", "-d", str(folder)],
            input=patch.text, encoding="utf-8", errors="surrogateescape",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # environment variables change the behaviour and the messages of patch
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"})
    except FileNotFoundError:
        raise Problem("there is no program patch: install GNU patch (Debian's "
                      "package: patch)") from None
    # for a hunk at another position, patch succeeds but prints a message
    said = [line for line in done.stdout.splitlines()
            if not line.startswith("patching file ")]
    if done.returncode or said:
        raise Problem("%s does not apply exactly: make it anew from the tree "
                      "with the patches before it\n%s" % (
                          patch.path, "\n".join("    " + line for line in
                                                done.stdout.splitlines())))


def lay_out(folder: Path, wheel: Path, ours: Ours | None) -> None:
    """Write the files of a tree into an empty folder.

    Raises:
        Problem: a patch does not apply, or two sources have the same file.
    """
    unzip(wheel, folder)
    if ours is None:
        return
    files = list(ours.files())
    for path, place in files:
        if (folder / place).exists():
            raise Problem("%s would replace %s, which is RPython's: rename it, "
                          "or make it a patch" % (path, place))
    for patch in ours.series():
        apply(patch, folder)
    for path, place in files:
        if (folder / place).exists():
            raise Problem("%s is put at %s twice: remove one" % (path, place))
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)


def build(tree: Path, wheel: Path, ours: Ours | None) -> bool:
    """Create a tree of RPython, or replace it if its sources have changed.

    Args:
        tree: the folder of the tree.
        wheel: the wheel of rpython.
        ours: the other sources, or None for a pristine tree.

    Returns:
        Whether the tree was written.

    Raises:
        Problem: the folder was not created by this function, or a source is invalid.
    """
    tree = absolute(tree)
    stamp = tree / STAMP
    if os.path.lexists(tree) and not stamp.is_file():
        raise Problem("%s is there, and was not made by tree.py: remove it, or "
                      "name another folder" % tree)
    wanted = inputs(wheel, ours)
    if stamp.is_file() and stamp.read_text() == wanted:
        return False
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent,
                                     prefix=tree.name + ".") as name:
        new = Path(name) / "new"
        new.mkdir()
        lay_out(new, wheel, ours)
        (new / "pytest.ini").write_text(PYTEST_INI)
        (new / STAMP).write_text(wanted)
        if tree.exists():
            tree.rename(Path(name) / "old")
        new.rename(tree)
    return True


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        description="Lay out RPython 0.2.1 with our patches.")
    parser.add_argument("tree", type=Path, metavar="TREE")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--pristine", action="store_true",
                       help="without the patches, to compare with")
    which.add_argument("--samples", action="store_true",
                       help="with those of the submission that takes samples")
    options = parser.parse_args()
    tree = absolute(options.tree)
    try:
        made = build(tree, fetch(tree.parent),
                     None if options.pristine
                     else Ours(samples=FIRST if options.samples else None))
    except (Problem, OSError) as error:
        print("tree.py: error: %s" % error, file=sys.stderr)
        return 2
    print("%s: %s" % (tree, "made" if made else "unchanged"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
