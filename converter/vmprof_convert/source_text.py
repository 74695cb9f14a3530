"""The source text of a profile's functions, as far as this machine has it."""
from __future__ import annotations

import os
import stat
import tokenize

from vmprof_convert.model import PYTHON, Profile

#: bytes of a file that are read: larger ones weren't written by hand
MAX_SOURCE = 2**22


def read(profile: Profile) -> tuple[dict[str, str], int]:
    """By file; and how many files are not on this machine, or no longer what they
    were when the program ran."""
    files = {function.file for function in profile.functions.values()
             if function.kind == PYTHON and os.path.isabs(function.file)}
    texts = {}
    for file in sorted(files):
        text = _read(file, profile.start_time)
        if text is not None:
            texts[file] = text
    return texts, len(files) - len(texts)


def _read(path: str, start: float) -> str | None:
    try:
        status = os.stat(path)
        # anything may stand in a profile: a device would never end
        if (not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE
                or (start and status.st_mtime > start)):
            return None
        with tokenize.open(path) as file:
            return file.read(MAX_SOURCE)
    except (OSError, SyntaxError, ValueError):
        return None
