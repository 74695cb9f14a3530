"""What tells a profile from all others, and a program."""
from __future__ import annotations

import hashlib

from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import shortened


def identity(profile: Profile, part: str = "") -> bytes:
    """Sixteen bytes, the same each time: who gets a profile twice can tell.  `part`:
    of what of it."""
    return hashlib.blake2b(repr((
        profile.run, profile.pid, profile.start_time, sorted(profile.settings.items()),
        part)).encode(), digest_size=16).digest()


def program(profile: Profile) -> str:
    """The script's path, or the module that was run; empty: not known.  Without
    arguments: one may be a secret."""
    words = profile.command.split(" ")
    return shortened(words[words[0] == "-m" and len(words) > 1])


def program_name(profile: Profile) -> str:
    """Without folders."""
    return program(profile).rpartition("/")[2].removesuffix(".py")
