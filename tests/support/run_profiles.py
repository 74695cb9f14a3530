"""Reads the profiles of all processes of a run."""
from __future__ import annotations

import re
from pathlib import Path

from vmprof_convert import readers
from vmprof_convert.profile.model import Profile


def children(first: Path, *, salvage: bool = False) -> list[Profile]:
    """Return the profiles of child processes in the folder of the profile `first`.

    Each child's profile must have the run ID of `first`.
    """
    run = readers.read(first, salvage=salvage).settings["run"]
    result = []
    for path in first.parent.glob(first.stem + ".*" + first.suffix):
        profile = readers.read(path, salvage=salvage)
        assert profile.settings["run"] == run
        # a child may have written a profile before it became another program by exec
        assert re.fullmatch(r"%s\.%s(-2)?\.vmprof" % (
            first.stem, profile.settings["pid"]), path.name)
        result.append(profile)
    return result


def functions(profile: Profile) -> set[str]:
    """Return the names of all functions in a profile's stacks."""
    return {profile.function(frame.address).name
            for stack in set(profile.samples.stack)
            for frame in profile.stacks[stack]}
