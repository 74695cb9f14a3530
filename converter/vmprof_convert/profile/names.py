"""What threads are called, by the kernel's numbers; and processes."""
from __future__ import annotations

from vmprof_convert.profile.model import Profile


def names(profile: Profile) -> dict[int, str]:
    """Of the threads whose names are known."""
    pid = profile.settings.get("pid", "")
    # of a damaged profile it may be anything
    is_number = pid.isascii() and pid.isdigit() and len(pid) < 20
    return {**({int(pid): "MainThread"} if is_number else {}),
            **{number: name for number, name in profile.threads.items() if name}}


def process_name(profile: Profile, source: str) -> str:
    """Its number and what it runs; or the name of the profile's file, `source`."""
    return " ".join(filter(None, (str(profile.pid or "") or source,
                                  profile.command)))
