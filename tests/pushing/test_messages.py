"""Test that the pusher writes its messages to the stderr of the program."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vmprof_push import messages


def _reopened(stderr: int) -> list[str]:
    """Return is_inherited() and reopened(), without its path, in a process with this
    stderr.
    """
    done = subprocess.run(
        [sys.executable, "-c", "import json; from vmprof_push import messages as m; "
         "print(m.is_inherited(), *m.reopened()[1:])"],
        stdout=subprocess.PIPE, stderr=stderr, text=True, check=True)
    return done.stdout.split()


def test_only_a_regular_file_is_inherited(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        assert _reopened(file.fileno()) == ["True"]
    read_end, write_end = os.pipe()
    status = os.fstat(write_end)
    assert _reopened(write_end) == [
        "False", "%d:%d:%d" % (status.st_dev, status.st_ino, status.st_rdev)]
    os.close(read_end)
    os.close(write_end)


def test_another_file_gets_no_message(tmp_path: Path) -> None:
    """If another file has the path of the program's stderr, the pusher does not write.
    """
    path = tmp_path / "file"
    path.write_text("data\n")
    status = path.stat()
    same = "%d:%d:%d" % (status.st_dev, status.st_ino, status.st_rdev)
    messages.write("message", str(path), same + "1")
    assert path.read_text() == "data\n"
    messages.write("message", str(path), same)
    assert path.read_text() == "vmprof: message\n"
    messages.write("message", str(tmp_path / "gone"), same)
