"""attach, control and live on programs that give hostile answers."""
from __future__ import annotations

import fcntl
import os
import random
import socket
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from conftest import PyPy
from controlled import prepared, refused
from made_profiles import Log
from running import Running
from vmprof_allocation.engines.hook.discovery import hand_over
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote import work_folder
from vmprof_allocation.remote.control import client, meeting
from vmprof_convert.report import where_memory

RUN = "0123456789abcdef"
#: Source of the program.  answer() can use `asked`, the fields of the request, and
#: `is_child`.
_SOURCE = """
    import os, shutil, signal, socket, sys, threading
    {before}
    def answer(asked, is_child):
        {answer}
    def converse():
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.connect("{folder}/%d" % os.getpid())
        while True:
            request = peer.recv(65536).decode("utf-8", "surrogateescape")
            if not request:
                return
            fields = answer(request.split("\\0"), is_child)
            peer.send("\\0".join(fields).encode("utf-8", "surrogateescape"))
    is_child = False
    def called(*_):
        threading.Thread(target=converse, daemon=True).start()
    signal.signal(signal.SIGURG, called)
    {fork}
    print("ready")
    while sys.stdin.read(1):
        pass
"""
_FORK = """
    child = os.fork()
    if not child:
        is_child = True
        while True:
            signal.pause()
    import atexit
    atexit.register(os.kill, child, signal.SIGKILL)
"""


def small_profile() -> bytes:
    log = Log()
    log.settings(run=RUN)
    log.allocation([log.function("f")], size=100)
    return log.data()


def hostile(pypy: PyPy, answer: str, before: str = "", *, has_child: bool = False
            ) -> AbstractContextManager[Running]:
    """Start a program that answers with the result of the statements `answer`."""
    meeting.make_folder(os.geteuid())
    source = textwrap.dedent(_SOURCE).format(
        folder=meeting.folder(os.geteuid()), before=before,
        answer=answer.replace("\n", "\n    "),
        fork=textwrap.dedent(_FORK) if has_child else "")
    return prepared(pypy, source)


@pytest.mark.parametrize(("command", "answer"), [
    ("status", ["done", "a", "b", "c"]),
    ("status", ["done", "/x", "1", "", "2", "x", "4", ""]),
    ("status", ["done", "/x", "\u00b2", "", "2", "3", "4", ""]),
    ("status", ["done", "/x", "9" * 5000, "", "2", "3", "4", ""]),
    ("status", ["x" * 60000]),
    ("status", ["\x1b[2J"]),
    ("status", ["refused", "\x1b[2J\nno"]),
    ("start", ["done", "/x"]),
    ("start", ["done", "/x", RUN]),
    ("stop", ["done"]),
    ("stop", ["done", "a", "b"]),
    ("snapshot", ["done"]),
    ("memory", ["done", "a"]),
    ("memory", ["done", "a=b"]),
    ("memory", ["done", "a=1"]),
    ("interval 1k", ["done", "x"]),
    ("rotate -o out.vmprof", ["done"]),
])
def test_invalid_answer_gives_one_line_and_exit_code_2(
        pypy: PyPy, command: str, answer: list[str]) -> None:
    with hostile(pypy, "return %r" % answer) as program:
        message = refused(pypy, program, *command.split())
        assert message.startswith("pypy-alloc: process %d" % program.pid)
        assert "\x1b" not in message and len(message) < 600


def test_attach_and_live_open_no_file_that_an_answer_names(stock_pypy: PyPy) -> None:
    other = stock_pypy.folder / "other.vmprof"
    other.write_bytes(small_profile())
    with hostile(stock_pypy, "return ['done', %r, %r]" % (str(other), RUN)) as program:
        for what, arguments in ("attach", ["-d", "0.2"]), ("live", ["--updates", "1"]):
            run = program.command(*arguments, what=what)
            assert (run.code, run.out, run.err.count("\n")) == (2, "", 1), run
            assert "received the request to write the profile to" in run.err
            assert repr(str(other)) in run.err


def test_answer_is_never_used_as_an_option_of_the_report(stock_pypy: PyPy) -> None:
    """A child once named -oFILE as its profile, and root's report overwrote FILE."""
    whole, victim = stock_pypy.folder / "whole", stock_pypy.folder / "victim.txt"
    whole.write_bytes(small_profile())
    victim.write_text("of root")
    option = stock_pypy.folder / "-ovictim.txt"
    option.write_text("x")
    with hostile(stock_pypy, """
        if asked[0] == "stop":
            return ["done", ""]
        if asked[0] != "hold":
            return ["done"]
        if is_child:
            return ["done", "-ovictim.txt", %r]
        shutil.copy(%r, asked[2])
        return ["done", asked[2], %r]""" % (RUN, str(whole), RUN),
                 has_child=True) as program:
        run = program.command("--children", "-d", "0.2")
    assert victim.read_text() == "of root"
    assert run.code == 1 and "process %d" % program.pid in run.err, run
    assert "answered that it writes to '-ovictim.txt'" in run.err


def test_all_numbers_of_an_answer_about_memory_are_shown(pypy: PyPy) -> None:
    """Any numbers make a table, and not a traceback."""
    names = [kind + "." + name for kind in (
        "pypy", "libraries", "files", "shared", "stacks", "code", "arenas", "blocks",
        "anonymous") for name in ("resident", "private", "swapped", "size")]
    names += ["arenas", "huge", "transparent", "peak", "gc.large", "gc.nursery",
              "gc.arenas", "threads", "malloc.used", "malloc.free", "malloc.arenas",
              "malloc.mapped", "cgroup.limit", "cgroup.used", "cgroup.files"]
    rng = random.Random(1)
    for _ in range(300):
        facts = {name: rng.choice([0, 1, 10**17, rng.randrange(2**40)])
                 for name in names}
        assert where_memory.sheet(facts, 1).tables
        assert where_memory.json(facts, 1)


@pytest.fixture
def other_user(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the UID of this user, while the process seems to have another UID."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    return user


def test_a_file_of_another_user_is_opened(tmp_path: Path, other_user: int) -> None:
    path = tmp_path / "a.vmprof"
    path.write_bytes(b"x")
    fd = work_folder.open_profile(str(path), other_user)
    assert fd is not None
    os.close(fd)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "of a third user"])
def test_other_files_in_place_of_a_users_profile_are_refused(
        tmp_path: Path, other_user: int, kind: str) -> None:
    path = tmp_path / "a.vmprof"
    if kind == "link":
        (tmp_path / "secret").write_text("x")
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)         # opening it would wait for a writer
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x")
        other_user += 2
    with pytest.raises(AllocationSamplingError, match="cannot read the profile"):
        work_folder.open_profile(str(path), other_user)


def test_a_folder_that_its_user_replaces_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.vmprof").write_text("of root")
    with work_folder.own(os.geteuid(), os.getegid()) as folder:
        moved = tmp_path / "moved"
        os.rename(folder.path, moved)
        os.symlink(elsewhere, folder.path)
        (moved / "1.vmprof").write_text("of the program")
        fd = folder.open_profile("1.vmprof")
        assert fd is not None
        with open(fd) as file:
            assert file.read() == "of the program"
        folder.remove("1.vmprof")
        with pytest.raises(OSError):
            hand_over._write(folder.path, b"names")
    assert os.listdir(elsewhere) == ["1.vmprof"] and os.listdir(moved) == []
    os.unlink(folder.path)


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the sockets' folder, which its user replaces when a command locks it."""
    folder = tmp_path / "sockets"
    elsewhere = tmp_path / "elsewhere"
    folder.mkdir(0o700)
    elsewhere.mkdir()
    monkeypatch.setattr(meeting, "folder", lambda uid: str(folder))
    lock = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        lock(fd, operation)
        if not folder.is_symlink():
            os.rename(folder, tmp_path / "moved")
            folder.symlink_to(elsewhere)

    monkeypatch.setattr(fcntl, "flock", flock)
    return folder


def test_sockets_stay_in_the_folder_that_was_checked(
        sockets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "elsewhere" / "7"
    there.write_text("of root")
    process: Any = client.Process.__new__(client.Process)
    process.pid, process.uid = 7, os.geteuid()
    with socket.socket(socket.AF_UNIX,
                              socket.SOCK_SEQPACKET) as listener:
        process._listen(listener, str(sockets / "7"), 1e12)
    assert there.read_text() == "of root"
    assert (tmp_path / "moved" / "7").is_socket()


def test_a_file_in_place_of_a_socket_is_not_removed(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch
                                                    ) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir(0o700)
    (folder / "7").write_text("x")
    monkeypatch.setattr(meeting, "folder", lambda uid: str(folder))
    process: Any = client.Process.__new__(client.Process)
    process.pid, process.uid = 7, os.geteuid()
    with socket.socket(socket.AF_UNIX,
                              socket.SOCK_SEQPACKET) as listener, pytest.raises(
                                  AllocationSamplingError):
        process._listen(listener, str(folder / "7"), 1e12)
    assert (folder / "7").read_text() == "x"
