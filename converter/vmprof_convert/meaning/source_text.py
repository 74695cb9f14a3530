"""The source text of the program's own functions, as far as this machine has it.

A profile may come from anybody, and what it names goes wherever the result goes:
so no file is read that is no Python source.
"""
from __future__ import annotations

import os
import stat
import tokenize

from vmprof_convert.meaning.origins import PROGRAM, Origins
from vmprof_convert.profile.model import PYTHON, Profile

SUFFIX = ".py"
#: bytes of a file that are read: larger ones weren't written by hand
MAX_SOURCE = 2**22


def read(profile: Profile) -> tuple[dict[str, str], int]:
    """By file, of the *.py files that are the program's own; and how many of them
    are not on this machine, or no longer what they were when the program ran."""
    origins = Origins(profile)
    files = {function.file for function in profile.functions.values()
             if function.kind == PYTHON and os.path.isabs(function.file)
             and function.file.endswith(SUFFIX)
             and origins.of(function) == PROGRAM}
    texts = {}
    for file in sorted(files):
        text = _read(file, profile.start_time)
        if text is not None:
            texts[file] = text
    return texts, len(files) - len(texts)


def _read(path: str, start: float) -> str | None:
    try:
        # a link may be called anything
        if not os.path.realpath(path).endswith(SUFFIX):
            return None
        status = os.stat(path)
        # anything may stand in a profile: a device would never end
        if (not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE
                or (start and status.st_mtime > start)):
            return None
        with tokenize.open(path) as file:
            return file.read(MAX_SOURCE)
    except (OSError, SyntaxError, ValueError):
        return None
