"""Test the folder from which a pusher sends the segments of a program.

The tests cover counters, locks, and segments at which a pusher crashes.
"""
from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.settings.parsing import make_settings
from vmprof_push import __main__ as pusher
from vmprof_push import sending, start
from vmprof_push.protocols import Body
from vmprof_push.spool import DROPPED, Spool, Window
from vmprof_push.target import Target


def add(folder: Path, name: str, data: bytes = b"data") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_counts_dropped_segments_on_a_full_disk(tmp_path: Path) -> None:
    """If the file of the count cannot be written, the pusher continues to count."""
    (tmp_path / DROPPED).mkdir()
    add(tmp_path, "11.w2.vmprof")
    add(tmp_path, "11.w3.vmprof")
    spool = Spool(str(tmp_path))
    for window in spool.scan():
        spool.drop(window)
    assert spool.dropped == 2
    assert spool.scan() == []


def test_the_next_pusher_continues_the_count(tmp_path: Path) -> None:
    for number in range(2):
        add(tmp_path, "11.w%d.vmprof" % number)
        spool = Spool(str(tmp_path))
        for window in spool.scan():
            spool.drop(window)
    assert Spool(str(tmp_path)).dropped == 2


def test_the_first_profile_stays_as_an_empty_file(tmp_path: Path) -> None:
    """After the pusher has sent the first profile, an empty file must stay, because
    children look for the file. The pusher does not wait for a segment in this file.
    """
    first, later = add(tmp_path, "11.vmprof"), add(tmp_path, "11.12.vmprof")
    spool = Spool(str(tmp_path))
    windows = spool.scan()
    assert {window.path for window in windows} == {str(first), str(later)}
    for window in windows:
        spool.take(window)
    assert first.read_bytes() == b"" and not later.exists()
    assert spool.scan() == [] and not spool.is_used and first.exists()


def test_a_new_segment_is_not_locked(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pusher must not lock a new file, which the sampled process is about to lock.

    The process does not wait for the lock. It would report that another process writes
    to the file. A forked child would continue without the lock, and the pusher would
    remove the rest of the child's segment.
    """
    begun = add(tmp_path, "11.w1.vmprof", b"")
    locked: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: locked.append(fd))
    spool = Spool(str(tmp_path))
    assert spool.scan() == [] and spool.is_used and not locked
    monkeypatch.undo()
    # make the file old, as if its process had ended before it locked the file
    os.utime(begun, (0, 0))
    with begun.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert spool.scan() == [] and spool.is_used
    assert spool.scan() == [] and not spool.is_used
    assert not begun.exists()


def test_a_segment_that_ended_two_pushers_is_dropped(tmp_path: Path) -> None:
    path = add(tmp_path, "11.w1.vmprof")
    kept = add(tmp_path, "11.w2.vmprof")
    for _ in range(2):
        spool = Spool(str(tmp_path))
        assert not spool.drop_fatal()
        # keep the note that `finally` would remove, as if the pusher was killed
        reading = spool.read(Window(0, str(path), 4))
        reading.__enter__()
        note = (tmp_path / "read").read_bytes()
        del reading
        (tmp_path / "read").write_bytes(note)
    spool = Spool(str(tmp_path))
    assert spool.drop_fatal() and spool.dropped == 1
    assert not path.exists() and kept.exists()
    assert not Spool(str(tmp_path)).drop_fatal()


@pytest.mark.parametrize("note", [
    b"", b"2", b"2 ", b"\xff", b"2 read", b"2 ../other.vmprof"])
def test_an_invalid_note_removes_no_other_file(tmp_path: Path, note: bytes) -> None:
    other = add(tmp_path, "other.vmprof")
    folder = tmp_path / "folder"
    folder.mkdir()
    add(folder, "read", note)
    Spool(str(folder)).drop_fatal()
    assert other.exists()


def test_a_segment_is_dropped_if_our_code_fails(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> Body:
        raise RuntimeError("s3cr3t")

    monkeypatch.setattr(pusher.Pusher, "_body_of", fail)
    path = add(tmp_path, "11.w1.vmprof")
    one = pusher.Pusher(str(tmp_path), {
        "url": "otlp+http://localhost", "every": 1, "timeout": 1, "quiet": 1,
        "drain": 1, "owner": os.getpid(), "service": "", "version": ""})
    one._push(Window(0, str(path), 4))
    assert not path.exists() and not (tmp_path / "read").exists()
    assert capsys.readouterr().err == (
        "vmprof: cannot read a segment, and dropped it: there was a RuntimeError\n")


def test_a_server_that_accepts_gets_all_segments(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """While the server accepts segments, the pusher continues to send after the time
    `drain`, which begins at the program's end.
    """
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(12):
        add(folder, "11.w%d.vmprof" % number)
    sent = []

    def send(*_: object) -> sending.Outcome:
        time.sleep(0.2)
        sent.append(1)
        return sending.Outcome(True)

    monkeypatch.setattr(pusher, "send", send)
    monkeypatch.setattr(pusher.Pusher, "_body_of", lambda *_: Body(b"", {}))
    pusher.Pusher(str(folder), {
        "url": "otlp+http://localhost", "every": 1, "timeout": 1, "quiet": 0,
        "drain": 1, "owner": 2**30, "service": "", "version": ""}).run()
    assert len(sent) == 12 and capsys.readouterr().err == ""
    assert list(folder.iterdir()) == []


def test_recognizes_the_timeout_of_python_3_9(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.10, the classes socket.timeout and TimeoutError differ.
    """
    class Timeout(OSError):
        pass

    def connect(*_: object) -> None:
        raise Timeout("timed out")

    monkeypatch.setattr(socket, "timeout", Timeout)
    monkeypatch.setattr("http.client.HTTPConnection.connect", connect)
    outcome = sending.send(Target("otlp+http://localhost"), Body(b"", {}), {}, 1.0)
    assert outcome == sending.Outcome(False, "it did not answer in time")


def test_files_of_the_environment_are_found_from_anywhere(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMPROF_PUSH_HEADERS_FILE", "it's secret")
    monkeypatch.setenv("SSL_CERT_FILE", "ca.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    out = subprocess.run(
        ["/bin/sh", "-c", start._files() + "\ncd /\necho \"$VMPROF_PUSH_HEADERS_FILE\" "
         "\"$SSL_CERT_FILE\" \"${SSL_CERT_DIR-none}\""],
        check=True, text=True, stdout=subprocess.PIPE).stdout
    assert out == "%s/it's secret %s/ca.pem none\n" % (tmp_path, tmp_path)


def test_relative_files_stay_relative_in_a_removed_folder(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.delenv("VMPROF_PUSH_HEADERS_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "ca.pem")
    assert start._files() == "export SSL_CERT_FILE=ca.pem"


def test_no_folder_stays_if_it_can_t_be_filled(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(start, "_write", fail)
    with pytest.raises(AllocationSamplingError, match="No space left"):
        start.start(make_settings("auto"), "otlp+http://localhost")
    assert list(tmp_path.iterdir()) == []
