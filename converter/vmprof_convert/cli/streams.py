"""Standard output and standard error, of which either may be closed."""
from __future__ import annotations

import os
import shutil
import sys
from typing import BinaryIO


def say(text: str) -> None:
    """On stdout, if anybody listens: the work is done, anyway."""
    if sys.stdout is None:
        return
    try:
        print(text, flush=True)
    except BrokenPipeError:
        nobody_listens()


def write(data: BinaryIO) -> None:
    """Copy `data` to stdout, from its position to its end, if anybody reads there."""
    try:
        shutil.copyfileobj(data, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        nobody_listens()


def complain(text: str) -> None:
    """On stderr."""
    # with None, print() would take stdout
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def nobody_listens() -> None:
    # or Python would try again at the end
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
