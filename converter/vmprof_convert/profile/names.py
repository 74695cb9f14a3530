"""Names of threads and processes for reports and viewers."""
from __future__ import annotations

from vmprof_convert.profile.model import Profile


def names(profile: Profile) -> dict[int, str]:
    """Return the known names of threads, by the kernel's thread number."""
    pid = profile.settings.get("pid", "")
    # the setting may be any text in a damaged profile
    is_number = pid.isascii() and pid.isdigit() and len(pid) < 20
    return {**({int(pid): "MainThread"} if is_number else {}),
            **{number: name for number, name in profile.threads.items() if name}}


def process_name(profile: Profile, source: str) -> str:
    """Return the number and the command of a process, or `source` and the command.

    `source`, the name of the profile's file, replaces an unknown process number.
    """
    return " ".join(filter(None, (str(profile.pid or "") or source,
                                  profile.command)))
