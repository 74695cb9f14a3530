"""Read the source text of user functions, if this machine has it.

A profile may come from an untrusted source, and the text becomes part of the output.
Therefore only Python source files are read, and no other files that the profile names.
"""
from __future__ import annotations

import os
import stat
import tokenize

from vmprof_convert.meaning.origins import PROGRAM, Origins
from vmprof_convert.profile.model import PYTHON, Profile

SUFFIX = ".py"
#: the largest number of bytes of a file that is read; larger files are not written by
#: hand
MAX_SOURCE = 2**22


def read(profile: Profile) -> tuple[dict[str, str], int]:
    """Return the texts of the *.py files that contain functions of user code.

    Returns:
        The texts by file, and the number of files that are missing on this machine or
        were changed after the start of the program.
    """
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
    """Return the text of a Python file; None if it is unreadable or newer than `start`.

    Args:
        path: the path of the file.
        start: the start of the program in seconds since 1970; 0.0 if it is unknown.
    """
    try:
        # A link may have any name.
        if not os.path.realpath(path).endswith(SUFFIX):
            return None
        status = os.stat(path)
        # The profile may name a device, whose content never ends.
        if (not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE
                or (start and status.st_mtime > start)):
            return None
        with tokenize.open(path) as file:
            return file.read(MAX_SOURCE)
    except (OSError, SyntaxError, ValueError):
        return None
