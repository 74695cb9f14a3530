"""Test programs whose profiles are pushed to a server.

A *window* is a segment of a profile, and a *spool* is the folder for waiting segments.
"""
from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import select
import signal
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import otlp_request
from conftest import PYPY, PyPy
from engine_stand_in import StandIn, hang, status
from otlp_request import Request
from vmprof_allocation.session import periodic_rotation
from vmprof_allocation.settings.parsing import make_settings
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_push.folder import LOCK

#: flags with which every byte is sampled, so that sums are exact
EACH = ("--allocation-sampling", "1")

LOOP = """
    import sys, time
    class Thing:
        pass
    def work():
        return [Thing() for i in range(200)]
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        work()
        time.sleep(0.01)
"""


@pytest.fixture
def spools(pypy: PyPy) -> Iterator[Path]:
    """Create the folder for the pushers' folders, which must be empty after the test.
    """
    folder = Path(tempfile.mkdtemp())
    pypy.environment["TMPDIR"] = str(folder)
    yield folder
    until = time.monotonic() + 120
    while list(folder.iterdir()):
        assert time.monotonic() < until, glob.glob(str(folder / "*" / "*"))
        time.sleep(0.05)
    folder.rmdir()


def arrived(engine: StandIn, spools: Path) -> list[Request]:
    """Wait until the pushers have ended, and return all requests of the server."""
    until = time.monotonic() + 120
    while list(spools.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return [otlp_request.read(request.body) for request in engine.requests]


def push(engine: StandIn, every: float = 0.3) -> list[str]:
    return ["-m", "vmprof", "--push", "otlp+http://127.0.0.1:%d" % engine.port,
            "--push-every", str(every)]


def total(requests: list[Request], name: str = "alloc_space") -> int:
    return sum(request.types[name].sum for request in requests)


def has_samples(window: Path) -> bool:
    """Return whether a segment's file has samples already."""
    try:
        return len(readers.read(window, salvage=True).samples) > 0
    except ProfileError:
        return False


def test_segments_of_a_program_arrive(pypy: PyPy, spools: Path) -> None:
    script = str(pypy.script(LOOP, "shop.py"))
    with StandIn() as engine:
        run = pypy.command(*push(engine), *EACH, script, "2")
        assert (run.code, run.out, run.err) == (0, "", "")
        requests = arrived(engine, spools)
    assert len(requests) >= 3
    pids = {request.resource["process.pid"] for request in requests}
    assert len(pids) == 1
    assert {request.resource["service.name"] for request in requests} == {"shop"}
    for request in requests:
        assert {"alloc_space", "alloc_objects"} <= set(request.types)
    numbers = [next(iter(request.types.values())).attributes["vmprof.window"]
               for request in requests]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    functions = {sample.stack[-1][0] for request in requests
                 for sample in request.types["alloc_space"].samples}
    assert any("(shop.py:" in name for name in functions)


def test_a_program_that_pushes_takes_no_heap_snapshot(stock_pypy: PyPy, spools: Path
                                                      ) -> None:
    script = str(stock_pypy.script("""
        from vmprof_allocation import AllocationSamplingError
        from vmprof_allocation.session.session import current
        try:
            current().retainers()
        except AllocationSamplingError as e:
            print(e)
    """))
    with StandIn() as engine:
        run = stock_pypy.command(*push(engine), script)
    assert run.out == (
        "no heap snapshot is taken: this process pushes its profiles, and the "
        "protocols have no field for retainers; sample into a file instead\n")


def test_last_segment_of_a_killed_program_arrives(pypy: PyPy, spools: Path) -> None:
    script = str(pypy.script(LOOP))
    with StandIn() as engine:
        program = subprocess.Popen([PYPY, *push(engine, 60), *EACH, script, "1000"],
                                   cwd=pypy.folder, env=pypy.environment)
        until = time.monotonic() + 60
        while not any(map(has_samples, spools.glob("*/*.vmprof"))):
            assert time.monotonic() < until
            time.sleep(0.05)
        program.send_signal(signal.SIGKILL)
        program.wait()
        request, = arrived(engine, spools)
    assert request.resource["process.pid"] == program.pid
    assert total([request]) > 0


def test_forked_children_have_their_own_segments(pypy: PyPy, spools: Path) -> None:
    script = pypy.script("import os, sys\n"
                         "children = []\n"
                         "for i in range(2):\n"
                         "    child = os.fork()\n"
                         "    if child == 0:\n"
                         "        children = []\n"
                         "        break\n"
                         "    children.append(child)\n" + "\n".join(
                             line[4:] for line in LOOP.split("\n")) +
                         "for child in children:\n"
                         "    assert os.waitpid(child, 0)[1] == 0\n"
                         "print(*children)\n")
    with StandIn() as engine:
        run = pypy.command(*push(engine), *EACH, str(script), "2")
        assert (run.code, run.err) == (0, "")
        children = set(map(int, run.out.split("\n")[-2].split()))
        requests = arrived(engine, spools)
    by_pid: dict[object, list[Request]] = {}
    for request in requests:
        by_pid.setdefault(request.resource["process.pid"], []).append(request)
    assert len(children) == 2 and children < by_pid.keys() and len(by_pid) == 3
    for windows in by_pid.values():
        assert len(windows) >= 3


def test_a_child_forked_during_a_rotation_locks_no_segment(stock_pypy: PyPy) -> None:
    """If a child kept the lock of a segment, the pusher would never send the segment.
    """
    run = stock_pypy.run("""
        import fcntl, os, vmprof_allocation
        from vmprof_allocation.session import next_profile
        read, write = os.pipe()
        class Forked(next_profile.ProfileFile):
            def open(self):
                super().open()
                if not os.fork():
                    os.close(write)
                    os.read(read, 1)
                    os._exit(0)
        windows = ["app.vmprof", "app.w2.vmprof", "app.w3.vmprof"]
        session = vmprof_allocation.start(windows[0])
        next_profile.ProfileFile, kept = Forked, next_profile.ProfileFile
        session.rotate(windows[1])
        next_profile.ProfileFile = kept
        session.rotate(windows[2])
        session.stop()
        for window in windows:
            with open(window) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(write)
        os.wait()
    """)
    assert (run.code, run.out, run.err) == (0, "", "")


def test_sampling_ends_if_pushing_cannot_start(pypy: PyPy, spools: Path) -> None:
    with StandIn() as engine:
        run = pypy.run("""
            import vmprof_allocation
            from vmprof_allocation.session import periodic_rotation, session
            def fail(*_):
                raise RuntimeError("no")
            for owner, name in (session.Session, "_start"), (
                    periodic_rotation.PeriodicRotation, "_start"):
                kept = getattr(owner, name)
                setattr(owner, name, fail)
                try:
                    vmprof_allocation.push("otlp+http://127.0.0.1:%d")
                except RuntimeError:
                    print("refused", session._running)
                setattr(owner, name, kept)
            vmprof_allocation.start("later.vmprof")
            vmprof_allocation.stop()
        """ % engine.port)
        assert (run.code, run.out, run.err) == (0, "refused []\n" * 2, "")
        arrived(engine, spools)


def test_many_children_in_a_row_do_not_crash(pypy: PyPy, spools: Path) -> None:
    """Pushing starts threads, and PyPy would crash if one started during a fork."""
    script = pypy.script("""
        import os
        def work():
            return [[i] for i in range(300_000)]
        for i in range(20):
            child = os.fork()
            if child == 0:
                work()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """)
    with StandIn() as engine:
        run = pypy.command(*push(engine), "--allocation-sampling", "64k", str(script))
        assert (run.code, run.out, run.err) == (0, "", "")
        requests = arrived(engine, spools)
    assert len({request.resource["process.pid"] for request in requests}) >= 20


def test_the_program_keeps_its_gc_hooks(pypy: PyPy, spools: Path) -> None:
    script = pypy.script("""
        import gc, os
        def minor(stats):
            pass
        def seen():
            return [[i] for i in range(300_000)] and gc.hooks.on_gc_minor
        if os.fork() == 0:
            assert seen() is None       # ours came and went
            gc.hooks.on_gc_minor = minor
            if os.fork() == 0:
                assert seen() is minor
                os._exit(7)
            assert seen() is minor
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        assert seen() is None
    """)
    with StandIn() as engine:
        run = pypy.command(*push(engine), str(script))
        assert (run.code, run.out, run.err) == (0, "", "")
        arrived(engine, spools)


def test_a_child_that_runs_this_interpreter_pushes(pypy: PyPy, spools: Path) -> None:
    child = pypy.script(LOOP, "child.py")
    script = pypy.script("import subprocess, sys\n"
                         "kept = [bytearray(1000) for i in range(1000)]\n"
                         "subprocess.run([sys.executable, %r, '1.5'], check=True)\n"
                         % str(child))
    with StandIn() as engine:
        run = pypy.command(*push(engine), *EACH, str(script))
        assert (run.code, run.out, run.err) == (0, "", "")
        requests = arrived(engine, spools)
    windows = [request for request in requests
               if request.resource["service.name"] == "child"]
    assert len(windows) >= 3


def test_an_unavailable_server_does_not_delay_the_program(
        pypy: PyPy, spools: Path) -> None:
    with StandIn(*[status(503)] * 10_000) as engine:
        run = pypy.run("""
            import vmprof_allocation
            from vmprof_push import start
            start._DRAIN = 1.0
            vmprof_allocation.push("otlp+http://127.0.0.1:%d", every=0.3)
        """ % engine.port + textwrap.indent(LOOP, " " * 8), "1")
        assert (run.code, run.out) == (0, "")
        assert arrived(engine, spools) and not engine.taken


@pytest.mark.parametrize("is_terminal", [False, True])
def test_stderr_ends_with_the_program(pypy: PyPy, spools: Path,
                                      is_terminal: bool) -> None:
    """The pusher writes messages to the program's stderr, but does not keep a pipe or a
    terminal open after the program's end.
    """
    script = pypy.script("""
        import sys, threading, vmprof_allocation
        from vmprof_push import start
        start._DRAIN, start._TIMEOUT = 0.1, 1000.0
        vmprof_allocation.push("otlp+http://127.0.0.1:" + sys.argv[1], 1, every=0.1)
        end = threading.Thread(target=sys.stdin.read)
        end.start()
        while end.is_alive():
            kept = [bytearray(1000) for i in range(100)]
            end.join(0.01)
    """)
    read_end, write_end = os.openpty() if is_terminal else os.pipe()
    with StandIn(status(503), *[hang] * 1000) as engine:
        process = subprocess.Popen(
            [PYPY, str(script), str(engine.port)], stdin=subprocess.PIPE,
            stderr=write_end, env=pypy.environment)
        os.close(write_end)
        message = b""
        while not message.endswith(b"\n"):
            assert select.select([read_end], [], [], 60)[0]
            message += os.read(read_end, 1000)
        assert message.startswith(b"vmprof: cannot push to http://127.0.0.1:")
        for _ in range(2):          # then the pusher waits for the second answer
            engine.arrived.get(timeout=60)
        assert process.stdin
        process.stdin.close()
        assert process.wait(60) == 0
        # reading from a pseudo-terminal that no process has open fails with EIO
        with contextlib.suppress(OSError):
            assert select.select([read_end], [], [], 30)[0], "still open"
            assert os.read(read_end, 1000) == b""
        folder, = spools.iterdir()
        with open(folder / LOCK) as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(read_end)


def test_from_code(pypy: PyPy, spools: Path) -> None:
    """push() starts a thread, which stop() ends. The program loads no code of the
    pusher before push(), and never the code that sends.
    """
    with StandIn() as engine:
        run = pypy.run("""
            import sys, _thread, time
            before = _thread._count()
            import vmprof_allocation
            assert "vmprof_push" not in sys.modules
            assert "vmprof_convert" not in sys.modules
            assert _thread._count() == before
            pushing = vmprof_allocation.push(
                "otlp+http://127.0.0.1:%d", 1, every=60, service="s", version="7")
            while _thread._count() != before + 1:
                time.sleep(0.01)
            class Thing:
                pass
            kept = [Thing() for i in range(100_000)]
            assert "vmprof_push.sending" not in sys.modules
            pushing.stop()
            pushing.stop()
            while _thread._count() > before:
                time.sleep(0.01)
        """ % engine.port)
        assert (run.code, run.out, run.err) == (0, "", "")
        request, = arrived(engine, spools)
    assert request.resource["service.name"] == "s"
    assert request.resource["service.version"] == "7"
    things = sum(sample.value for sample in request.types["alloc_objects"].samples
                 if sample.attributes["type"] == "__main__.Thing")
    assert things == 100_000


@pytest.mark.parametrize("settings", ["{}", "[", '{"url": "ftp://nowhere"}'])
def test_sampling_ends_if_the_pusher_fails(pypy: PyPy, spools: Path, settings: str
                                           ) -> None:
    """A pusher with invalid settings removes its folder when it ends, by which the
    program notices the end.
    """
    run = pypy.run("""
        import os, time, vmprof_allocation
        from vmprof_push import start
        run = start._run
        def spoil(script):
            with open(start.folder + "/settings.json", "w") as file:
                file.write(%r)
            run(script)
        def make(**_):
            start.folder = mkdtemp()
            return start.folder
        mkdtemp, start.tempfile.mkdtemp, start._run = (
            start.tempfile.mkdtemp, make, spoil)
        push = vmprof_allocation.push("otlp+http://127.0.0.1:1", every=0.1)
        while push.session.is_on:
            kept = [bytearray(1000) for i in range(1000)]
            time.sleep(0.01)
        assert not os.path.exists(start.folder)
        vmprof_allocation.start("later.vmprof")
        vmprof_allocation.stop()
    """ % settings)
    assert (run.code, run.out) == (0, "")
    # ignore the message of a rotation, if the folder disappears during the rotation
    lines = [line for line in run.err.splitlines() if "continues in" not in line]
    assert ("vmprof: the process that pushes the profiles has ended: sampling "
            "ends") in lines
    assert len(lines) == 2 and any("push" in line for line in lines), lines


def test_sampling_ends_if_the_pusher_cannot_run(pypy: PyPy, spools: Path) -> None:
    """If the pusher cannot start, the shell that starts it removes the folder."""
    run = pypy.run("""
        import os, sys, time, vmprof_allocation
        with open("no-interpreter", "w") as file:
            file.write("#!/bin/sh\\nsleep 1; exit 1\\n")
        os.chmod("no-interpreter", 0o700)
        sys.executable = os.path.abspath("no-interpreter")
        push = vmprof_allocation.push("otlp+http://127.0.0.1:1", every=0.1)
        while push.session.is_on:
            kept = [bytearray(1000) for i in range(1000)]
            time.sleep(0.01)
    """)
    assert (run.code, run.out, run.err) == (
        0, "", "vmprof: the process that pushes the profiles has ended: sampling "
               "ends\n")


def test_number_of_unsent_segments_is_bounded(stock_pypy: PyPy) -> None:
    """If no pusher takes the segments, the program keeps only the first profile and the
    last segments, up to a number or to a sum of bytes.
    """
    run = stock_pypy.run("""
        import os, time
        from vmprof_allocation.session.periodic_rotation import PeriodicRotation
        from vmprof_allocation.session.session import Session
        from vmprof_allocation.settings.parsing import make_settings
        for files, size, stay in (3, 10**9, 3), (10**9, 1, 0):
            settings = make_settings("64k", rotate=0.1)
            settings.max_files, settings.max_bytes = files, size
            session = Session(settings, "%d.vmprof" % files)
            session.start()
            rotating = PeriodicRotation(session)
            rotating.begin()
            while session.part < 8:
                kept = [bytearray(1000) for i in range(1000)]
                time.sleep(0.01)
            rotating.stop()
            there = sorted(int(name.split(".")[1][1:]) for name in os.listdir()
                           if name.startswith("%d.w" % files))
            assert os.path.exists("%d.vmprof" % files)
            assert there == [*range(session.part - stay, session.part + 1)], there
    """)
    assert (run.code, run.out, run.err) == (0, "", "")


@pytest.mark.parametrize("seconds, is_taken", [(600.0, True), (0.2, False)])
def test_process_1_of_a_container_waits_for_the_pusher(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float,
        is_taken: bool) -> None:
    """The end of process 1 ends all processes of the container, including the pusher.
    So process 1 waits until the segments are taken, or at most `seconds`.
    """
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(periodic_rotation, "_LAST", seconds)
    first, later = tmp_path / "1.vmprof", tmp_path / "1.w2.vmprof"
    for path in first, later, tmp_path / "settings.json":
        path.write_bytes(b"data")
    stopped: list[bool] = []
    settings = make_settings("64k", rotate=3600.0)
    settings.max_files = 1
    session: Any = SimpleNamespace(settings=settings, path=str(first),
                                   stop=lambda: stopped.append(True))

    def take() -> None:
        later.unlink()
        first.write_bytes(b"")

    taking = threading.Timer(0.5, take)
    if is_taken:
        taking.start()
    periodic_rotation.PeriodicRotation(session).stop()
    assert stopped == [True]
    assert later.exists() is not is_taken


@pytest.mark.parametrize("flags, said", [
    (["--push", "http://localhost"], "is not a known protocol"),
    (["--push", "otlp+http://localhost", "-o", "x.vmprof"], "writes no files"),
    (["--push", "otlp+http://localhost", "--view"], "writes no files"),
    (["--push", "otlp+http://localhost", "--push-every", "0"], "it must be 0.05 to"),
    (["--push-every", "5"], "needs --push"),
])
def test_requests_that_make_no_sense(pypy: PyPy, spools: Path, flags: list[str],
                                     said: str) -> None:
    run = pypy.command("-m", "vmprof", *flags, str(pypy.script("print(1)")))
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("vmprof: ") and run.err.count("\n") == 1
    assert said in run.err


def test_invalid_credentials_are_refused(pypy: PyPy, spools: Path) -> None:
    run = pypy.command("-m", "vmprof", "--push", "otlp+http://localhost",
                       str(pypy.script("print(1)")), VMPROF_PUSH_HEADERS="s3cr3t")
    assert (run.code, run.out) == (2, "")
    assert "VMPROF_PUSH_HEADERS" in run.err and "s3cr3t" not in run.err


def test_nothing_is_lost_between_segments(stock_pypy: PyPy, spools: Path) -> None:
    script = stock_pypy.script("""
        import time
        class Thing:
            pass
        def work(kept):
            for i in range(3_000):
                kept.append(Thing())
        for i in range(30):
            work([])
            time.sleep(0.02)
    """)
    with StandIn() as engine:
        run = stock_pypy.command(*push(engine, 0.05), *EACH, str(script))
        assert (run.code, run.out, run.err) == (0, "", "")
        requests = arrived(engine, spools)
    assert len(requests) > 5
    assert sum(sample.value for request in requests
               for sample in request.types["alloc_objects"].samples
               if sample.attributes["type"] == "__main__.Thing") == 90_000


def test_segments_contain_live_objects_of_earlier_ones(
        stock_pypy: PyPy, spools: Path) -> None:
    """Each segment has all objects that are alive at its end, also objects that earlier
    segments have sampled.
    """
    script = stock_pypy.script("""
        import gc, time
        class Thing:
            pass
        kept = [Thing() for i in range(20_000)]
        for i in range(10):
            gc.collect()
            time.sleep(0.1)
        del kept[5_000:]
        for i in range(10):
            gc.collect()
            time.sleep(0.1)
    """)
    with StandIn() as engine:
        run = stock_pypy.command(*push(engine, 0.2), *EACH, str(script))
        assert (run.code, run.out, run.err) == (0, "", "")
        requests = arrived(engine, spools)

    def things(name: str) -> list[int]:
        return [sum(sample.value for sample in request.types[name].samples
                    if sample.attributes["type"] == "__main__.Thing")
                if name in request.types else 0 for request in sorted(
                    requests, key=lambda request: next(iter(
                        request.types.values())).attributes["vmprof.window"])]

    assert sum(things("alloc_objects")) == 20_000
    in_use = things("inuse_objects")
    # the last segment may lack the 5,000 objects, because PyPy drops them at its end
    assert in_use[2] == 20_000 and in_use[-2] == 5_000, in_use
    assert in_use == sorted(in_use[:3]) + sorted(in_use[3:], reverse=True)


def test_a_folder_without_locks_is_refused(pypy: PyPy, spools: Path) -> None:
    """Without locks, the pusher cannot recognize segments that are still written."""
    run = pypy.run("""
        import errno, fcntl, os, vmprof_allocation
        def flock(*_):
            raise OSError(errno.ENOLCK, "No locks available")
        fcntl.flock = flock
        try:
            vmprof_allocation.push("otlp+http://localhost")
        except vmprof_allocation.AllocationSamplingError as error:
            print(error)
    """)
    assert (run.code, run.err) == (0, "")
    assert "does not support locks" in run.out and "TMPDIR" in run.out


def test_a_program_can_end_after_its_first_thread(pypy: PyPy, spools: Path) -> None:
    """At its end, the program does not wait for the rotating thread, which may sleep
    until the next segment.
    """
    script = str(pypy.script("""
    import ctypes, threading, time
    def work():
        time.sleep(0.7)
        print(len([str(i) for i in range(10000)]), flush=True)
    threading.Thread(target=work).start()
    ctypes.CDLL(None).pthread_exit(None)
    """))
    with StandIn() as engine:
        run = pypy.command(*push(engine, 3600), *EACH, script, timeout=60)
        assert (run.code, run.out, run.err) == (0, "10000\n", "")
        assert total(arrived(engine, spools)) > 10000 * 16
