"""Identifiers that writers put into their files: of a profile and of its program."""
from __future__ import annotations

import hashlib

from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import shortened


def identity(profile: Profile, part: str = "") -> bytes:
    """Return sixteen bytes that identify a profile, the same for each conversion.

    A receiver can recognize a profile that it gets twice.

    Args:
        profile: The profile.
        part: The name of the part of the profile, if a writer converts its parts to
            separate files.
    """
    return hashlib.blake2b(repr((
        profile.run, profile.pid, profile.start_time, sorted(profile.settings.items()),
        part)).encode(), digest_size=16).digest()


def program(profile: Profile) -> str:
    """Return the path of the script or the name of the module that was run.

    The result is empty if the command is unknown. The arguments are omitted, because
    they may contain secrets.
    """
    words = profile.command.split(" ")
    return shortened(words[words[0] == "-m" and len(words) > 1])


def program_name(profile: Profile) -> str:
    """Return the name of the program without its folders and without ".py"."""
    return program(profile).rpartition("/")[2].removesuffix(".py")
