"""Put the series on a checkout of PyPy, or of vmprof-python, as commits.

    python3 pypy-branch/apply.py CHECKOUT

CHECKOUT is a clean git checkout of pypy/pypy at one of the commits that
README.rst names, or at a later one that left the files of the series as they
were.  Each patch becomes a commit on the current branch, with what it says of
itself as the message and with the new files that belong to it.

PyPy's rvmprof/src/shared is to be equal to vmprof-python's src.  A checkout of
vmprof-python gets what the series changes and adds there: a commit of each patch
that does, with the same message.

The patches are made of what is in patches/ and of RPython's: see complete.py.
The RPython half of the new files is rpython/added, and the C that is shared
with the hook engine; the rest is added/ here.  The patches have no lines of
context: git's hashes of the files say whether they fit.  If one does not,
nothing is changed.
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

#: patterns of the names of the new files that come with a patch; of a file that two
#: match, the first one holds
NEW = {
    "rpython/rlib/rvmprof/test/test_signals.py": "04-rvmprof-signals.patch",
    "rpython/memory/*%s*" % tree.OUTCOMES: "06-gc-outcomes.patch",
    "rpython/memory/*": "02-incminimark-sample-point.patch",
    "rpython/jit/*": "02-incminimark-sample-point.patch",
    "rpython/rlib/*": "07-rvmprof-recorder.patch",
    "pypy/module/*": "07-rvmprof-recorder.patch",
    "pypy/doc/*": "11-documentation.patch",
}
#: what PyPy 2.7 has no use for
PYTHON_3 = ("12-delegating-generators.patch",)
#: of rvmprof, what PyPy shares with vmprof-python, which has it in src
SHARED = "rpython/rlib/rvmprof/src/shared/"
SOURCE = "src/"
OURS = (tree.Ours(), complete.Ours(HERE / "patches", HERE / "added", shared=None))


#: vmprof-python's own reader passes over allocation samples
READER = tree.Patch(HERE / "vmprof-python.patch",
                    (HERE / "vmprof-python.patch").read_text())


def new_files() -> dict[str, Path]:
    """The new files, by their places in PyPy."""
    return {str(place): path for ours in OURS for path, place in ours.files()}


def new_files_of(patch: tree.Patch) -> dict[str, Path]:
    if patch.name == tree.SAMPLES:      # a later patch has others of these names
        return {str(place): path for path, place in tree.below(tree.FIRST)}
    return {place: path for place, path in new_files().items()
            if patch.name == next((name for pattern, name in NEW.items()
                                   if fnmatch.fnmatchcase(place, pattern)), None)}


def message(patch: tree.Patch) -> str:
    """What a patch says before its first file."""
    return patch.text.partition("\nindex ")[0] + "\n"


@dataclasses.dataclass
class Commit:
    message: str
    #: changed files, and new ones, by their places in the checkout
    files: dict[str, bytes]


def git(checkout: Path, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(["git", *arguments], cwd=checkout, input=text,
                          capture_output=True, text=True)
    if done.returncode:
        raise Problem("git %s in %s: %s" % (arguments[0], checkout,
                                            done.stderr.strip()))
    return done.stdout


def try_out(patch: tree.Patch, checkout: Path, work: Path,
            moved: tuple[str, str] = ("", "")) -> dict[str, bytes]:
    """The changed files as they are then.  `work` is a folder of files that
    were tried before.  `moved`: how the names in the patch begin, and how they
    begin in the checkout."""
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
    is_python_3 = (checkout / "lib-python/3").exists()
    with tempfile.TemporaryDirectory() as work:
        return [Commit(message(patch), {
                    **try_out(patch, checkout, Path(work)),
                    **{place: path.read_bytes()
                       for place, path in new_files_of(patch).items()}})
                for patch in OURS[1].series()
                if is_python_3 or patch.name not in PYTHON_3]


def shared_part(patch: tree.Patch) -> tree.Patch:
    """Only what is about files that PyPy shares with vmprof-python."""
    parts = ("\n" + patch.text).split("\nindex ")[1:]
    return tree.Patch(patch.path, "".join(
        "index " + part.rstrip("\n") + "\n" for part in parts
        if "\n+++ b/" + SHARED in part))


def shared_of(files: dict[str, Path]) -> dict[str, Path]:
    """Those among them, by their places in vmprof-python."""
    return {SOURCE + place[len(SHARED):]: path
            for place, path in files.items() if place.startswith(SHARED)}


def vmprofs(checkout: Path) -> list[Commit]:
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
    """Returns the number of commits."""
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
            (checkout / place).unlink(missing_ok=True)  # not added yet
        raise
    return len(commits)


def main() -> int:
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
