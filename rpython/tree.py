"""Lay out RPython with our patches.

    python3 rpython/tree.py TREE [--pristine | --samples]

makes the folder TREE from

1. the wheel of rpython 0.2.1 (the sdist lacks a file that rvmprof needs),
   which pip fetches once, to the folder that TREE is in,
2. the patches that patches/series names, in its order,
3. the files of added/, at the same places in the tree; with --samples, those of
   samples/ instead of rvmprof's,
4. the C that the patched RPython shares with the hook engine.

With --pristine it is the wheel alone, to compare with; with --samples, the first of the
two submissions about allocations, patches up to SAMPLES.  Each has a pytest.ini of its
own.

The tree is made anew if any of these changed since, and otherwise left as it
is.  Changes made by hand, and what translations leave in there, are lost when
it is made anew.

The patches have no lines of context (`git diff -U0`), so only line numbers
say where a hunk belongs.  These are exact, as the wheel's hash is known: any
doubt of patch(1) is an error, and so is a file that is not the one that git's
"index" line names, for a hunk that only inserts fits anywhere.
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

#: Where the C that the engines share is in a tree, beside rvmprof's own.
ALLOCATION_FOLDER = Path("rpython/rlib/rvmprof/src/allocation")

#: The last patch of the submission that takes samples, its new files, and where in a
#: tree those are that the next one, which records what becomes of them, has instead.
SAMPLES = "05-rvmprof-samples.patch"
FIRST = HERE / "samples"
RVMPROF_FOLDER = Path("rpython/rlib/rvmprof")

#: In the names of the GC's new files that come with the next one.
OUTCOMES = "outcomes"

#: The file in a tree that tells what it was made from.
STAMP = ".made-from"

#: Without one in the tree, pytest would find that of the repository around it,
#: which is for Python 3's.  Rewritten asserts can't be translated.
PYTEST_INI = """\
[pytest]
addopts = --assert=plain -p no:cacheprovider
"""


@dataclasses.dataclass(frozen=True)
class Patch:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.name


@dataclasses.dataclass(frozen=True)
class Ours:
    """What goes on top of the wheel."""

    patches: Path = HERE / "patches"
    added: Path = HERE / "added"
    shared: Path | None = (HERE.parent / "vmprof-integration/vmprof_allocation"
                           / "native/shared")
    #: up to SAMPLES only: the files that it has instead of the later ones; or None
    samples: Path | None = dataclasses.field(default=None, kw_only=True)

    def text(self, path: Path) -> str:
        """Of a patch, as patch(1) is to have it."""
        return path.read_text(encoding="utf-8", errors="surrogateescape")

    def series(self) -> list[Patch]:
        """The patches, in order."""
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
        """The added files: where they are, and where they belong in a tree."""
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
    for path in sorted(folder.rglob("*")):
        # Python leaves its own files beside ours
        if path.is_file() and path.suffix != ".pyc":
            yield path, path.relative_to(folder)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(cache: Path, expected: str = SHA256) -> Path:
    """The wheel, from the cache or from PyPI."""
    path = cache / WHEEL
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="wheel.") as name:
            work = Path(name)
            requirements = work / "requirements.txt"
            release = "%s==%s" % tuple(WHEEL.split("-")[:2])
            requirements.write_text("%s --hash=sha256:%s\n" % (release, expected))
            download(release, requirements, work)
            # two runs at a time may both get here
            os.replace(work / WHEEL, path)
    found = sha256(path)
    if found != expected:
        raise Problem("%s has the SHA-256 %s instead of %s: remove it, and it "
                      "is fetched again" % (path, found, expected))
    return path


def inputs(wheel: Path, ours: Ours | None) -> str:
    """One hash of all that a tree is made from."""
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
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            # which zipfile itself forgets
            if entry.external_attr >> 16 & 0o111:
                path.chmod(path.stat().st_mode | 0o111)


def git_hashes(patch: Patch) -> Iterator[tuple[str, list[str]]]:
    """For each file of a patch: the name, and the beginning of git's hash of the file
    before; several of them, one an index line, if the patch is for several versions of
    the file.  (What it is after the patch follows from that.)"""
    for match in re.finditer(r"((?:^index .*\n)+)--- .*\n\+\+\+ b/(\S+)$",
                             patch.text, re.MULTILINE):
        yield match.group(2), re.findall(
            r"^index ([0-9a-f]{7,40})\.\.[0-9a-f]{7,40}\b", match.group(1),
            re.MULTILINE)


def git_hash(path: Path) -> str:
    """As `git hash-object` does; of no file, git's zeros."""
    if not path.is_file():
        return "0" * 40
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def apply(patch: Patch, folder: Path) -> None:
    """Apply one patch, exactly: to the files that it was made of."""
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
            # variables change what patch does and says
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"})
    except FileNotFoundError:
        raise Problem("there is no program patch: install GNU patch (Debian's "
                      "package: patch)") from None
    # of a hunk that fits elsewhere it only says so
    said = [line for line in done.stdout.splitlines()
            if not line.startswith("patching file ")]
    if done.returncode or said:
        raise Problem("%s does not apply exactly: make it anew from the tree "
                      "with the patches before it\n%s" % (
                          patch.path, "\n".join("    " + line for line in
                                                done.stdout.splitlines())))


def lay_out(folder: Path, wheel: Path, ours: Ours | None) -> None:
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
    """Make the tree; without ours, a pristine one.  False if it is there."""
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
