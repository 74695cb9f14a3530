"""The profiles of a run of several processes."""
from __future__ import annotations

import re
from pathlib import Path

from vmprof_convert import readers
from vmprof_convert.profile.model import Profile


def children(first: Path, *, salvage: bool = False) -> list[Profile]:
    """Those beside the first process's profile; each says that it is of the same
    run."""
    run = readers.read(first, salvage=salvage).settings["run"]
    result = []
    for path in first.parent.glob(first.stem + ".*" + first.suffix):
        profile = readers.read(path, salvage=salvage)
        assert profile.settings["run"] == run
        # one that became another program may have left one before
        assert re.fullmatch(r"%s\.%s(-2)?\.vmprof" % (
            first.stem, profile.settings["pid"]), path.name)
        result.append(profile)
    return result


def functions(profile: Profile) -> set[str]:
    """The names of all functions in its samples' stacks."""
    return {profile.function(frame.address).name
            for stack in set(profile.samples.stack)
            for frame in profile.stacks[stack]}
