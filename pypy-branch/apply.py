"""Apply the series to a checkout of PyPy, or of vmprof-python, as commits.

    python3 pypy-branch/apply.py CHECKOUT

CHECKOUT is a clean git checkout of pypy/pypy, at a commit in README.rst, or at a later
commit that has not changed the files of the series.  Each patch becomes a commit on the
current branch.  The head of the patch is the commit's message, and the commit contains
the new files that belong to the patch.

PyPy's rvmprof/src/shared must be equal to vmprof-python's src.  A checkout of
vmprof-python gets the changes of these files: one commit per patch that has such
changes, with the same message.

complete.py makes the patches from patches/ and ../rpython/patches.  The new files for
RPython are in ../rpython/added, and in the folder of C files that the engines share;
the other new files are in added/.  The patches have no lines of context.  Git's hashes
of the files decide whether a patch applies.  If a patch does not apply, the checkout is
not changed.
"""
from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "rpython"))
import complete  # noqa: E402
import tree  # noqa: E402
from python2 import Problem  # noqa: E402

#: the patch to which new files belong, by patterns of their names; the first matching
#: pattern decides
NEW = {
    "rpython/rlib/rvmprof/test/test_signals.py": "04-rvmprof-signals.patch",
    "rpython/memory/*%s*" % tree.OUTCOMES: "06-gc-outcomes.patch",
    "rpython/memory/*": "02-incminimark-sample-point.patch",
    "rpython/jit/*": "02-incminimark-sample-point.patch",
    "rpython/rlib/*": "07-rvmprof-recorder.patch",
    "pypy/module/*": "07-rvmprof-recorder.patch",
    "pypy/doc/*": "11-documentation.patch",
}
#: patches for Python 3 only
PYTHON_3 = ("12-delegating-generators.patch",)
#: folder in PyPy with the files that vmprof-python has in its folder src
SHARED = "rpython/rlib/rvmprof/src/shared/"
SOURCE = "src/"
OURS = (tree.Ours(), complete.Ours(HERE / "patches", HERE / "added", shared=None))


#: the patch for vmprof-python's own reader, which then skips allocation samples
READER = tree.Patch(HERE / "vmprof-python.patch",
                    (HERE / "vmprof-python.patch").read_text())


def new_files() -> dict[str, Path]:
    """Return the paths of all new files, by their paths in PyPy."""
    return {str(place): path for ours in OURS for path, place in ours.files()}


def new_files_of(patch: tree.Patch) -> dict[str, Path]:
    """Return the paths of the new files of a patch, by their paths in PyPy."""
    if patch.name == tree.SAMPLES:      # a later patch replaces these files
        return {str(place): path for path, place in tree.below(tree.FIRST)}
    return {place: path for place, path in new_files().items()
            if patch.name == next((name for pattern, name in NEW.items()
                                   if fnmatch.fnmatchcase(place, pattern)), None)}


def message(patch: tree.Patch) -> str:
    """Return the message of a patch: the text before its first file."""
    return patch.text.partition("\nindex ")[0] + "\n"


@dataclasses.dataclass
class Commit:
    """The contents of a commit."""

    message: str
    #: contents of changed and new files, by their paths in the checkout
    files: dict[str, bytes]


def git(checkout: Path, *arguments: str, text: str | None = None) -> str:
    """Run git, and return its output.

    Args:
        checkout: the checkout.
        *arguments: the arguments of git.
        text: the input of git, or None.

    Raises:
        Problem: git failed.
    """
    done = subprocess.run(["git", *arguments], cwd=checkout, input=text,
                          capture_output=True, text=True)
    if done.returncode:
        raise Problem("git %s in %s: %s" % (arguments[0], checkout,
                                            done.stderr.strip()))
    return done.stdout


def try_out(patch: tree.Patch, checkout: Path, work: Path,
            moved: tuple[str, str] = ("", "")) -> dict[str, bytes]:
    """Apply a patch to copies of the files that it changes.

    Args:
        patch: the patch.
        checkout: the checkout, which is not changed.
        work: a folder for the copies.  It contains the files that earlier patches have
            changed.
        moved: the prefix of the names in the patch, and the prefix in the checkout that
            replaces it.

    Returns:
        The contents of the changed files, by their paths in the checkout.

    Raises:
        Problem: a file is missing, or the patch does not apply.
    """
    places = {name: moved[1] + name[len(moved[0]):]
              for name, _ in tree.git_hashes(patch)}
    for name, place in places.items():
        if not (checkout / place).is_file():
            raise Problem("%s has no file %s: is it a checkout of PyPy?"
                          % (checkout, place))
        if not (work / name).exists():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / place, work / name)
    try:
        tree.apply(patch, work)
    except Problem as problem:
        raise Problem(
            "%s\nCheck out one of the commits that %s names, run this "
            "there, and rebase" % (problem, HERE / "README.rst")) from None
    return {place: (work / name).read_bytes() for name, place in places.items()}


def pypys(checkout: Path) -> list[Commit]:
    """Return the commits for a checkout of PyPy.  Raises Problem."""
    is_python_3 = (checkout / "lib-python/3").exists()
    with tempfile.TemporaryDirectory() as work:
        return [Commit(message(patch), {
                    **try_out(patch, checkout, Path(work)),
                    **{place: path.read_bytes()
                       for place, path in new_files_of(patch).items()}})
                for patch in OURS[1].series()
                if is_python_3 or patch.name not in PYTHON_3]


def shared_part(patch: tree.Patch) -> tree.Patch:
    """Return the part of a patch for files that PyPy shares with vmprof-python."""
    parts = ("\n" + patch.text).split("\nindex ")[1:]
    return tree.Patch(patch.path, "".join(
        "index " + part.rstrip("\n") + "\n" for part in parts
        if "\n+++ b/" + SHARED in part))


def shared_of(files: dict[str, Path]) -> dict[str, Path]:
    """Select the files that PyPy shares with vmprof-python.

    Args:
        files: paths of files, by their paths in PyPy.

    Returns:
        The paths of the shared files, by their paths in vmprof-python.
    """
    return {SOURCE + place[len(SHARED):]: path
            for place, path in files.items() if place.startswith(SHARED)}


def vmprofs(checkout: Path) -> list[Commit]:
    """Return the commits for a checkout of vmprof-python.  Raises Problem."""
    commits = []
    with tempfile.TemporaryDirectory() as work:
        for patch in OURS[1].series():
            part = shared_part(patch)
            files = {place: path.read_bytes()
                     for place, path in shared_of(new_files_of(patch)).items()}
            if part.text:
                files |= try_out(part, checkout, Path(work), (SHARED, SOURCE))
            if patch.name == tree.SAMPLES:
                files |= try_out(READER, checkout, Path(work))
            if files:
                commits.append(Commit(message(patch), files))
    return commits


def apply(checkout: Path) -> int:
    """Apply the series to a checkout.  If this fails, the checkout is not changed.

    Args:
        checkout: a checkout of PyPy or vmprof-python.

    Returns:
        The number of commits.

    Raises:
        Problem: the checkout is not clean, has the series already, or a patch does not
            apply.
    """
    if not (checkout / ".git").exists():
        raise Problem("%s is not a git checkout" % checkout)
    if git(checkout, "status", "--porcelain").strip():
        raise Problem("%s has changes or files that are not committed: commit "
                      "or remove them" % checkout)
    git(checkout, "var", "GIT_COMMITTER_IDENT")
    is_vmprofs = (checkout / "vmprof" / "__main__.py").exists()
    added = shared_of(new_files()) if is_vmprofs else new_files()
    for place in added:
        if (checkout / place).exists():
            raise Problem("%s has a file %s already: is the series applied?"
                          % (checkout, place))
    commits = vmprofs(checkout) if is_vmprofs else pypys(checkout)
    start = git(checkout, "rev-parse", "HEAD").strip()
    try:
        for commit in commits:
            for place, data in commit.files.items():
                (checkout / place).parent.mkdir(parents=True, exist_ok=True)
                (checkout / place).write_bytes(data)
            git(checkout, "add", "--", *commit.files)
            git(checkout, "commit", "--quiet", "--file=-", text=commit.message)
    except BaseException:
        git(checkout, "reset", "--hard", "--quiet", start)
        for place in added:
            (checkout / place).unlink(missing_ok=True)  # `git add` may be missing
        raise
    return len(commits)


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        description="Put the series on a checkout of PyPy, or its part of it "
        "on one of vmprof-python, as commits.")
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    checkout = parser.parse_args().checkout.resolve()
    try:
        count = apply(checkout)
    except (Problem, OSError) as error:
        print("apply.py: error: %s" % error, file=sys.stderr)
        return 2
    print("%s: %d commit%s" % (checkout, count, "s" * (count != 1)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
