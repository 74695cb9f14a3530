"""Write to standard output and standard error, either of which may be closed."""
from __future__ import annotations

import os
import shutil
import sys
from typing import BinaryIO


class OutputError(Exception):
    """The output cannot be written; the message is one line."""


def say(text: str) -> None:
    """Print a line to stdout, unless stdout is closed or its reader has gone."""
    if sys.stdout is None:
        return
    try:
        print(text, flush=True)
    except BrokenPipeError:
        nobody_listens()


def write(data: BinaryIO) -> None:
    """Copy the rest of a stream to stdout, unless the reader of stdout has gone."""
    try:
        shutil.copyfileobj(data, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        nobody_listens()


def complain(text: str) -> None:
    """Print a line to stderr, unless stderr is closed."""
    # print() would write to stdout if the file were None
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def nobody_listens() -> None:
    """Redirect stdout to /dev/null after its reader has gone."""
    # otherwise, Python would try to write the rest of the output when it exits
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
