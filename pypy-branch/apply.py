"""Put the series on a checkout of PyPy, as commits.

    python3 pypy-branch/apply.py CHECKOUT

CHECKOUT is a clean git checkout of pypy/pypy at one of the commits that
README.rst names, or at a later one that left the files of the series as they
were.  Each patch becomes a commit on the current branch, with what it says of
itself as the message and with the new files that belong to it.

The patches are made of what is in patches/ and of RPython's: see complete.py.
The RPython half of the new files is rpython/added, and the C that is shared
with the hook engine; the rest is added/ here.  The patches have no lines of
context: git's hashes of the files say whether they fit.  If one does not,
nothing is changed.
"""
from __future__ import annotations

import argparse
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

#: the folders whose new files come with a patch
NEW = {
    "02-incminimark-sample-point.patch": ("rpython/memory", "rpython/jit"),
    "05-rvmprof-allocation-samples.patch": ("rpython/rlib",),
    "06-vmprof-module.patch": ("pypy/module",),
    "07-documentation.patch": ("pypy/doc",),
}
OURS = (tree.Ours(), complete.Ours(HERE / "patches", HERE / "added", shared=None))


def new_files() -> dict[str, Path]:
    """The new files, by their places in PyPy."""
    return {str(place): path for ours in OURS for path, place in ours.files()}


def new_files_of(patch: tree.Patch) -> dict[str, Path]:
    return {place: path for place, path in new_files().items()
            if place.startswith(tuple(folder + "/" for folder in
                                      NEW.get(patch.name, ())))}


def message(patch: tree.Patch) -> str:
    """What a patch says before its first file."""
    return patch.text.partition("\nindex ")[0] + "\n"


def git(checkout: Path, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(["git", *arguments], cwd=checkout, input=text,
                          capture_output=True, text=True)
    if done.returncode:
        raise Problem("git %s in %s: %s" % (arguments[0], checkout,
                                            done.stderr.strip()))
    return done.stdout


def patched(checkout: Path, work: Path) -> dict[tree.Patch, dict[str, bytes]]:
    """For each patch, the files that it changes, as they are then.  `work` is
    an empty folder, where that is tried."""
    result: dict[tree.Patch, dict[str, bytes]] = {}
    for patch in OURS[1].series():
        names = [name for name, _ in tree.git_hashes(patch)]
        for name in names:
            if not (checkout / name).is_file():
                raise Problem("%s has no file %s: is it a checkout of PyPy?"
                              % (checkout, name))
            if not (work / name).exists():
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkout / name, work / name)
        try:
            tree.apply(patch, work)
        except Problem as problem:
            raise Problem(
                "%s\nCheck out one of the commits that %s names, run this "
                "there, and rebase" % (problem, HERE / "README.rst")) from None
        result[patch] = {name: (work / name).read_bytes() for name in names}
    return result


def apply(checkout: Path) -> int:
    """Returns the number of commits."""
    if not (checkout / ".git").exists():
        raise Problem("%s is not a git checkout" % checkout)
    if git(checkout, "status", "--porcelain").strip():
        raise Problem("%s has changes or files that are not committed: commit "
                      "or remove them" % checkout)
    git(checkout, "var", "GIT_COMMITTER_IDENT")
    for place in new_files():
        if (checkout / place).exists():
            raise Problem("%s has a file %s already: is the series applied?"
                          % (checkout, place))
    with tempfile.TemporaryDirectory() as work:
        changes = patched(checkout, Path(work))
    start = git(checkout, "rev-parse", "HEAD").strip()
    try:
        for patch, files in changes.items():
            for name, data in files.items():
                (checkout / name).write_bytes(data)
            added = new_files_of(patch)
            for place, path in added.items():
                (checkout / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, checkout / place)
            git(checkout, "add", "--", *files, *added)
            git(checkout, "commit", "--quiet", "--file=-", text=message(patch))
    except BaseException:
        git(checkout, "reset", "--hard", "--quiet", start)
        for place in new_files():
            (checkout / place).unlink(missing_ok=True)  # not added yet
        raise
    return len(changes)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Put the series on a checkout of PyPy, as commits.")
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    checkout = parser.parse_args().checkout.resolve()
    try:
        count = apply(checkout)
    except (Problem, OSError) as error:
        print("apply.py: error: %s" % error, file=sys.stderr)
        return 2
    print("%s: %d commits" % (checkout, count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
