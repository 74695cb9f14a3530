"""The command control, on control-enabled programs and on other programs."""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import PYPY, PyPy
from controlled import (
    BUSY,
    THREADS,
    WAITS,
    WAYS,
    Way,
    check_estimate,
    control,
    done,
    prepared,
    profile,
    refused,
    socket_of,
    status,
)
from running import running
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote import process_info
from vmprof_allocation.remote.control import client, meeting
from vmprof_allocation.remote.control.prepared import SIGNAL, number_of


def test_control_enabled_process_only_has_one_more_handler(pypy: PyPy) -> None:
    source = """
        import sys
        print("ready")
        sys.stdin.readline()
        print(*sorted(name for name in sys.modules if name.startswith("vmprof")))
    """
    with running(pypy, source, interpreter=PYPY) as plain, prepared(
            pypy, source) as program:
        assert program.threads() == plain.threads() == 1
        assert len(program.descriptors()) == len(plain.descriptors())
        blocked, ignored, caught = (line.split()[1] for line in program.signals())
        assert (blocked, ignored) == tuple(
            line.split()[1] for line in plain.signals()[:2])
        assert int(caught, 16) == int(plain.signals()[2].split()[1], 16) | (
            1 << SIGNAL - 1)
        assert plain.end() == "\n"
        assert program.end().split() == [
            "vmprof_allocation", "vmprof_allocation.critical",
            "vmprof_allocation.critical.forks",
            "vmprof_allocation.critical.interrupts", "vmprof_allocation.errors",
            "vmprof_allocation.remote", "vmprof_allocation.remote.control",
            "vmprof_allocation.remote.control.prepared"]


@WAYS
@pytest.mark.parametrize("source", [BUSY, THREADS], ids=["one thread", "threads"])
def test_start_status_rate_and_stop(pypy: PyPy, begun: Way, source: str) -> None:
    with begun(pypy, source) as program:
        assert status(pypy, program) == {"pid": program.pid, "is_on": False}
        out = done(pypy, program, "start", "--allocation-sampling", "16k",
                   "-o", "out.vmprof")
        path = str(pypy.folder / "out.vmprof")
        assert path in out
        found = status(pypy, program)
        assert (found["is_on"], found["path"], found["interval"], found["limit"]) == (
            True, path, 16384, None)
        done(pypy, program, "interval", "8k")
        assert path in done(pypy, program, "status")
        assert path in done(pypy, program, "stop")
        assert status(pypy, program)["is_on"] is False
        # the profile is whole before the program ends
        found_profile = profile(pypy, "out.vmprof")
        check_estimate(found_profile)
        assert found_profile.end_time is not None
        assert {16384, 8192} == set(found_profile.samples.interval)
        assert program.end() == "ended\n"
        assert not os.path.lexists(socket_of(program))


@WAYS
def test_status_after_rate_shows_the_new_interval(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, WAITS) as program:
        done(pypy, program, "start", "-o", "out.vmprof")
        assert status(pypy, program)["limit"] is not None
        done(pypy, program, "interval", "64k")
        found = status(pypy, program)
        assert (found["interval"], found["limit"]) == (65536, None)
        program.end()


@WAYS
def test_start_and_stop_often(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, BUSY) as program:
        for _ in range(3):
            done(pypy, program, "start", "--allocation-sampling", "16k")
            done(pypy, program, "stop")
            found = profile(pypy, "vmprof-%d.vmprof" % program.pid)
            assert found.end_time is not None
        assert program.threads() == 1
        assert program.end() == "ended\n"


@WAYS
def test_lines_of_code_that_is_compiled_while_it_is_sampled(
        stock_pypy: PyPy, begun: Way) -> None:
    """Code that is compiled during a run with --lines has lines.

    This also holds for a second such run, after a run without --lines, in which
    compiled code has no lines.
    """
    pypy = stock_pypy
    with begun(pypy, """
        import sys, threading, time
        def late(number):
            space = {}
            exec("def late(n):\\n"
                 "    kept = []\\n"
                 "    for i in range(n):\\n"
                 "        kept = [str(i + %d) * 100]\\n" % number, space)
            space["late"](5000)
        def work():
            number = 0
            while True:
                late(number)
                number += 1
                time.sleep(0.001)
        threading.Thread(target=work, daemon=True).start()
        print("ready")
        sys.stdin.readline()
        print("ended")
    """) as program:
        for number, flags in enumerate((["--lines"], [], ["--lines"])):
            name = "%d.vmprof" % number
            done(pypy, program, "start", "--allocation-sampling", "16k", "-o", name,
                 *flags)
            time.sleep(1)
            done(pypy, program, "stop")
            found = profile(pypy, name)
            lines = {frame.line for number in set(found.samples.stack)
                     for frame in found.stacks[number] if frame.kind == "jit"
                     and found.function(frame.address).name == "late"}
            assert ("lines" in found.settings) == bool(flags)
            assert lines == {0} if not flags else lines <= {0, 3, 4} and 4 in lines
        assert program.end() == "ended\n"


@WAYS
def test_a_snapshot_ends_the_profile_and_begins_the_next(
        stock_pypy: PyPy, begun: Way) -> None:
    pypy = stock_pypy
    with begun(pypy, BUSY) as program:
        done(pypy, program, "start", "--allocation-sampling", "16k", "-o", "a.vmprof")
        out = done(pypy, program, "rotate", "-o", "b.vmprof")
        assert str(pypy.folder / "a.vmprof") in out
        first = profile(pypy, "a.vmprof")
        assert first.end_time is not None
        assert status(pypy, program)["path"] == str(pypy.folder / "b.vmprof")
        done(pypy, program, "stop")
        assert program.end() == "ended\n"
    for name in "a.vmprof", "b.vmprof":
        check_estimate(profile(pypy, name))


@WAYS
def test_program_in_poll_answers_several_commands(pypy: PyPy, begun: Way) -> None:
    """A server that waits for requests is such a program.

    Each command may have to stop its thread during the same call of poll().
    """
    with begun(pypy, """
        import select, sys
        waits = select.poll()
        waits.register(0, select.POLLIN)
        print("ready")
        while not waits.poll(30000):
            pass
    """) as program:
        for _ in range(6):
            assert status(pypy, program)["pid"] == program.process.pid


@WAYS
@pytest.mark.parametrize("wait", [
    "time.sleep(600)", "select.select([sys.stdin], [], [])", "sys.stdin.readline()",
    "threading.Event().wait()", "lock.acquire()", "poll()", "thread.join()",
    "asyncio.run(asyncio.sleep(600))", "listener.accept()"])
def test_program_that_waits_answers_and_continues_to_wait(
        pypy: PyPy, begun: Way, wait: str) -> None:
    with begun(pypy, """
        import asyncio, select, signal, socket, sys, threading, time
        class Ended(BaseException):
            pass
        def end(number, frame):
            raise Ended
        signal.signal(signal.SIGUSR1, end)
        def poll():
            poll = select.epoll()
            poll.register(0, select.EPOLLIN)
            poll.poll()
        thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
        thread.start()
        lock = threading.Lock()
        lock.acquire()
        listener = socket.create_server(("127.0.0.1", 0))
        print("ready")
        try:
            %s
            print("woken")
        except Ended:
            print("ended")
    """ % wait) as program:
        done(pypy, program, "start", "-o", "out.vmprof")
        done(pypy, program, "stop")
        program.process.send_signal(signal.SIGUSR1)
        assert program.end() == "ended\n"
    assert profile(pypy, "out.vmprof").end_time is not None


def test_wakeup_descriptor_of_a_program_keeps_working(pypy: PyPy) -> None:
    """asyncio's wakeup descriptor also receives the signal of control."""
    with prepared(pypy, """
        import asyncio, signal, sys
        async def main():
            loop = asyncio.get_running_loop()
            ended = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, ended.set)
            print("ready")
            await ended.wait()
            print("ended")
        asyncio.run(main())
    """) as program:
        assert status(pypy, program)["is_on"] is False
        program.process.send_signal(signal.SIGUSR1)
        assert program.end() == "ended\n"


def test_forked_child_is_control_enabled(pypy: PyPy) -> None:
    with prepared(pypy, """
        import os, sys
        print("ready")
        child = os.fork()
        if child:
            print(child)
            os.waitpid(child, 0)
        else:
            sys.stdin.readline()
    """) as program:
        child = int(program.read())
        assert status(pypy, child) == {"pid": child, "is_on": False}
        done(pypy, child, "start", "--allocation-sampling", "1k", "-o", "out.vmprof")
        assert status(pypy, child)["is_on"] is True
        assert status(pypy, program)["is_on"] is False
        done(pypy, child, "stop")
        program.end()


def test_child_of_the_same_interpreter_is_control_enabled(pypy: PyPy) -> None:
    with prepared(pypy, """
        import subprocess, sys
        print("ready")
        sys.stdout.flush()
        subprocess.call([sys.executable, "-u", "-c",
                         "import os, sys; print(os.getpid()); sys.stdin.readline()"])
    """) as program:
        assert status(pypy, int(program.read()))["is_on"] is False
        program.end()


@contextmanager
def started(pypy: PyPy, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program from the command line, and check that it ends successfully.

    `flags` may end with the program; the default is BUSY.
    """
    program = [] if "-c" in flags else [str(pypy.script(BUSY))]
    process = subprocess.Popen(
        [PYPY, "-u", "-m", "vmprof", *flags, *program],
        cwd=pypy.folder, env=pypy.environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.communicate(timeout=60)[0] == "ended\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_control_stops_the_sampling_that_the_command_line_started(pypy: PyPy) -> None:
    with started(pypy, "--allocation-sampling", "16k", "-o", "out.vmprof",
                 "--control") as process:
        assert status(pypy, process.pid)["path"] == str(
            pypy.folder / "out.vmprof")
        done(pypy, process.pid, "stop")
        check_estimate(profile(pypy, "out.vmprof"))


def test_program_is_control_enabled_by_the_flag_alone(pypy: PyPy) -> None:
    with started(pypy, "--control") as process:
        assert status(pypy, process.pid)["is_on"] is False
    assert [path.name for path in pypy.folder.iterdir()] == ["app.py"]


@pytest.mark.parametrize("flags", [(), (
    "--allocation-sampling", "16k", "-o", "out.vmprof")])
def test_code_of_the_command_line_is_control_enabled(
        pypy: PyPy, flags: tuple[str, ...]) -> None:
    with started(pypy, "--control", *flags, "-c",
                 textwrap.dedent(BUSY)) as process:
        assert status(pypy, process.pid)["is_on"] is bool(flags)
        if not flags:
            done(pypy, process.pid, "start", "-o", "out.vmprof")
        done(pypy, process.pid, "stop")


@pytest.mark.parametrize("flag", ["-o", "--period"])
def test_options_of_a_profile_need_the_sampling(pypy: PyPy, flag: str) -> None:
    run = pypy.command("-m", "vmprof", "--control", flag, "0.5",
                       str(pypy.script("print('ran')")))
    assert (run.code, run.out) == (2, "")
    assert "--control without --allocation-sampling writes no profile" in run.err
    assert run.err.count("\n") == 1


def test_program_is_control_enabled_by_the_function(pypy: PyPy) -> None:
    with running(pypy, """
        import sys, vmprof_allocation
        vmprof_allocation.prepare()
        vmprof_allocation.prepare()
        print("ready")
        sys.stdin.readline()
    """, interpreter=PYPY) as program:
        # the process of the tests cannot attach, so it sends the signal
        assert ask_here(program.pid) == []
        assert status(pypy, program)["is_on"] is False
        program.end()


def test_only_the_main_thread_can_prepare(pypy: PyPy) -> None:
    run = pypy.run("""
        import threading, vmprof_allocation
        def prepare():
            try:
                vmprof_allocation.prepare()
            except vmprof_allocation.AllocationSamplingError as e:
                print(e)
        thread = threading.Thread(target=prepare)
        thread.start()
        thread.join()
    """)
    assert "main thread" in run.out, run.err


def test_another_signal(pypy: PyPy) -> None:
    with prepared(pypy, WAITS, "USR2") as program:
        # the command reads the signal from the program's environment
        assert status(pypy, program)["is_on"] is False
        assert program.end() == "ended\n"
    with running(pypy, """
        import sys, vmprof_allocation
        vmprof_allocation.prepare("SIGUSR2")
        print("ready")
        sys.stdin.readline()
    """, interpreter=PYPY) as program:
        with pytest.raises(AllocationSamplingError, match="the program's own pypy3"):
            ask_here(program.pid)
        assert client.Process(program.pid, 10, "USR2").ask(meeting.STATUS) == []
        done(pypy, program, "--signal", "USR2", "status")
        program.end()


@pytest.mark.parametrize("word", ["", "1", "on"])
def test_the_usual_signal(word: str) -> None:
    assert number_of(word) == signal.SIGURG


@pytest.mark.parametrize("word", ["USR3", "SIGKILL", "stop", "0", "65", "-1", "1.5",
                                  "_DFL", "\u0661\u0662", "SEGV", "CHLD", "TERM"])
def test_invalid_signals_are_refused(word: str) -> None:
    with pytest.raises(AllocationSamplingError, match="signal"):
        number_of(word)


def test_invalid_variable_changes_nothing_in_the_program(pypy: PyPy) -> None:
    run = pypy.run("print('ran')", VMPROF_CONTROL="nonsense")
    assert (run.code, run.out, run.err) == (0, "ran\n", "")


def test_a_real_time_signal() -> None:
    assert number_of("RTMAX") == number_of("SIGRTMAX") == signal.SIGRTMAX


def test_invalid_variable_is_reported_by_the_command(pypy: PyPy) -> None:
    with prepared(pypy, WAITS, "USR3") as program:
        assert "invalid signal 'USR3'" in refused(pypy, program, "status")
        assert program.end() == "ended\n"


def test_a_program_that_is_not_prepared_gets_no_signal(pypy: PyPy) -> None:
    """The program's own handler for the signal must not run."""
    with running(pypy, CAUGHT) as program:
        assert status(pypy, program)["is_on"] is False
        assert program.end() == "ended\n"


CAUGHT = """
    import signal, sys
    def caught(number, frame):
        print("caught")
    signal.signal(signal.SIGURG, caught)
    print("ready")
    sys.stdin.readline()
    print("ended")
"""


def test_a_program_that_caught_the_signal_itself(pypy: PyPy) -> None:
    """Its environment says that the program is control-enabled.

    So control first sends the signal, and the program's own handler runs.
    """
    with prepared(pypy, CAUGHT) as program:
        assert status(pypy, program)["is_on"] is False
        assert program.end() == "caught\nended\n"


def test_program_whose_threads_are_greenlets(pypy: PyPy) -> None:
    """gevent replaces threads by greenlets.

    A greenlet could not answer while the program waits, so a real thread has to.
    """
    with running(pypy, """
        import _thread, select, sys
        def start(*arguments):
            print("a greenlet")
        _thread.start_new_thread = start
        print("ready")
        select.select([sys.stdin], [], [])
        print("ended")
    """) as program:
        assert status(pypy, program)["is_on"] is False
        done(pypy, program, "start", "-o", "out.vmprof")
        done(pypy, program, "stop")
        assert program.end() == "ended\n"


def test_program_that_has_another_copy_of_our_package(pypy: PyPy) -> None:
    """The command reports why the program cannot load the package."""
    with running(pypy, """
        import sys, types
        sys.modules["vmprof_allocation"] = types.ModuleType("vmprof_allocation")
        sys.modules["vmprof_allocation"].__file__ = "/elsewhere/__init__.py"
        print("ready")
        sys.stdin.readline()
        print("ended")
    """) as program:
        assert ("cannot load vmprof-allocation: it has loaded another version from "
                "/elsewhere/"
                in refused(pypy, program, "status"))
        assert program.end() == "ended\n"


def test_a_program_in_another_container_that_sees_our_files(pypy: PyPy) -> None:
    """A control-enabled program in another container cannot find the socket by itself.

    The command passes the path of the socket.
    """
    with prepared(pypy, """
        import select, os, sys
        os.getpid = lambda: 1
        print("ready")
        select.select([sys.stdin], [], [])
        print("ended")
    """) as program:
        run = pypy.command("-c", """
import sys
from vmprof_allocation.remote.control import client, meeting
client.Process._is_here = lambda self: False
print(client.Process(int(sys.argv[1]), 30).ask(meeting.STATUS))
""", str(program.pid))
        assert (run.code, run.out, run.err) == (0, "[]\n", "")
        assert program.end() == "ended\n"


def test_a_prepared_program_whose_main_thread_is_in_c_code(pypy: PyPy) -> None:
    """The signal's handler waits for the end of the C code.

    Therefore, another thread answers.
    """
    with prepared(pypy, """
        import ctypes, signal, sys, threading
        libc = ctypes.CDLL(None)
        def end():
            sys.stdin.readline()
            print("ended")
            sys.stdout.flush()
            libc._exit(0)
        threading.Thread(target=end).start()
        print("ready")
        while True:
            libc.usleep(3600 * 10**6)
    """) as program:
        assert status(pypy, program)["is_on"] is False
        done(pypy, program, "start", "-o", "out.vmprof")
        done(pypy, program, "stop")
        assert program.end() == "ended\n"


def test_a_handler_of_the_programs_is_not_replaced(pypy: PyPy) -> None:
    run = pypy.run("""
        import signal, vmprof_allocation
        handler = lambda number, frame: None
        signal.signal(signal.SIGURG, handler)
        try:
            vmprof_allocation.prepare()
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
        print(signal.getsignal(signal.SIGURG) is handler)
    """)
    assert run.out.splitlines() == [
        "the program has a handler for signal 23. Choose another "
        "signal", "True"], run.err


def ask_here(pid: int, timeout: float = 1) -> list[str]:
    """Request the status of a program by this CPython process, which cannot attach."""
    return client.Process(pid, timeout).ask(meeting.STATUS)


def test_a_program_that_is_stopped(pypy: PyPy) -> None:
    with prepared(pypy, WAITS) as program:
        program.process.send_signal(signal.SIGSTOP)
        while "T (stopped)" not in Path(
                "/proc/%d/status" % program.pid).read_text():
            time.sleep(0.01)
        with pytest.raises(AllocationSamplingError, match="kill -CONT"):
            ask_here(program.pid)
        assert "kill -CONT" in refused(pypy, program, "--timeout", "1", "status")
        program.process.send_signal(signal.SIGCONT)
        # the signal of the earlier command arrives, and its socket is gone
        assert status(pypy, program)["is_on"] is False
        assert program.end() == "ended\n"


BLOCKS = """
    import select, signal, sys
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
    print("ready")
    select.select([sys.stdin], [], [])
    print("ended")
"""


def test_why_a_program_does_not_answer(pypy: PyPy) -> None:
    with prepared(pypy, BLOCKS) as program:
        with pytest.raises(AllocationSamplingError,
                           match="its main thread blocks signal 23"):
            ask_here(program.pid)
        assert program.end() == "ended\n"
    with prepared(pypy, CAUGHT) as program:
        with pytest.raises(AllocationSamplingError, match="it handles another signal "
                                                          "than this command sends"):
            ask_here(program.pid)
        assert program.end() == "caught\nended\n"


def test_a_program_that_blocks_the_signal(pypy: PyPy) -> None:
    with prepared(pypy, BLOCKS) as program:
        assert status(pypy, program)["is_on"] is False
        assert program.end() == "ended\n"


def test_a_program_that_ends_meanwhile(pypy: PyPy) -> None:
    """The command ends before its timeout, as soon as the program has ended."""
    with prepared(pypy, """
        import signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
        print("ready")
        while not signal.sigpending():
            pass
    """) as program, pytest.raises(AllocationSamplingError, match="has ended"):
        ask_here(program.pid, 600)


def test_program_that_ends_during_the_attach(pypy: PyPy) -> None:
    with running(pypy, """
        import sys, time
        print("ready")
        end = time.time() + 1
        while time.time() < end:
            pass
    """) as program:
        run = control(pypy, program, "--timeout", "600", "status")
        # our thread often starts before the program ends after a second
        assert "has ended" in run.err or "is not sampled" in run.out, run


@WAYS
def test_a_path_with_a_tab_and_a_newline(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, WAITS) as program:
        out = done(pypy, program, "start", "-o", "a\tb\nc.vmprof")
        assert "a\\tb\\nc.vmprof" in out
        done(pypy, program, "stop")
        assert program.end() == "ended\n"
    assert profile(pypy, "a\tb\nc.vmprof").end_time is not None


def test_answers_contain_no_control_codes_for_the_terminal() -> None:
    assert process_info.printable("a\x1b]0;b\x07\n\xe9\udcff") == (
        "a\\x1b]0;b\\x07\\n\xe9\udcff")


def test_a_link_in_place_of_the_socket_is_not_followed(pypy: PyPy) -> None:
    victim = pypy.folder / "victim"
    victim.write_text("text")
    before = victim.stat()
    with prepared(pypy, WAITS) as program:
        os.symlink(victim, socket_of(program))
        assert status(pypy, program)["is_on"] is False
        program.end()
    assert victim.stat() == before
    assert not os.path.lexists(socket_of(program))


def test_socket_of_a_starting_command_is_not_replaced(pypy: PyPy) -> None:
    """The other command has the lock of the folder until its socket listens."""
    with prepared(pypy, WAITS) as program:
        path = socket_of(program)
        with client._locked(os.path.dirname(path), 0), socket.socket(
                socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.bind(path)
            assert "cannot listen" in refused(
                pypy, program, "--timeout", "0.5", "status")
            assert os.path.exists(path)
        assert status(pypy, program)["is_on"] is False
        program.end()


def test_signal_without_a_command(pypy: PyPy) -> None:
    with prepared(pypy, WAITS) as program:
        for _ in range(100):
            program.process.send_signal(SIGNAL)
        assert program.end() == "ended\n"


def test_a_request_that_is_too_long_is_not_sent() -> None:
    """The peer would take the first part of the request for the whole request."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        with pytest.raises(AllocationSamplingError, match="at most 65536 are possible"):
            client.Connection(7, ours).ask(meeting.START, "x" * 65536)
        theirs.send(b"done\0yes")
        assert client.Connection(7, ours).ask(meeting.STOP) == ["yes"]
        assert theirs.recv(65536) == b"stop"


def test_invalid_process_numbers_are_refused(pypy: PyPy) -> None:
    assert "does not exist" in refused(pypy, 2**22 + 1, "status")
    assert "invalid PID 0: write the PID of a process" in refused(pypy, 0, "status")
    run = pypy.command("-m", "vmprof_allocation", "control", "status", "12")
    assert run.code == 2
    assert ("invalid PID 'status': write the PID of a process before the other "
            "arguments") in run.err


@pytest.mark.parametrize("arguments, why", [
    (("start", "--allocation-sampling", "0"), "too small"),
    (("interval", "x"), "write a number of bytes"),
    (("start", "-o", "."), "it is not a regular file"),
    (("start", "-o", "no/such/folder/a.vmprof"), "cannot write the profile"),
    (("stop",), "is not on"), (("interval", "1k"), "is not on"),
    (("rotate", "-o", "b.vmprof"), "is not on")])
def test_requests_that_make_no_sense_are_refused(
        pypy: PyPy, arguments: tuple[str, ...], why: str) -> None:
    with prepared(pypy, WAITS) as program:
        assert why in refused(pypy, program, *arguments)
        assert status(pypy, program)["is_on"] is False
        assert program.end() == "ended\n"


@WAYS
def test_second_start_is_refused(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, WAITS) as program:
        done(pypy, program, "start", "-o", "a.vmprof")
        assert ("already on, and writes "
                "to") in refused(pypy, program, "start", "-o", "b.vmprof")
        assert not (pypy.folder / "b.vmprof").exists()
        assert program.end() == "ended\n"
    assert profile(pypy, "a.vmprof").end_time is not None


@WAYS
def test_the_socket_of_a_killed_command_is_replaced(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, WAITS) as program:
        path = socket_of(program)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as old:
            old.bind(path)
        assert status(pypy, program)["is_on"] is False
        program.end()
    assert not os.path.exists(path)


@WAYS
def test_two_commands_at_once(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, WAITS) as program:
        path = socket_of(program)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.bind(path)
            other.listen(1)
            assert "another command" in refused(pypy, program, "status")
        os.unlink(path)
        program.end()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_a_socket_that_others_could_put_there_is_not_used(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setattr(meeting, "_RUNTIME", str(tmp_path / "none-%d"))
    monkeypatch.setattr(meeting, "_TEMPORARY", str(tmp_path))
    uid = os.geteuid()
    meeting.make_folder(uid)
    path = meeting.socket_of(1, uid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        assert meeting.is_safe(path, uid)
        assert not meeting.is_safe(path, uid + 1)
        os.chmod(os.path.dirname(path), mode)
        assert not meeting.is_safe(path, uid)
        with pytest.raises(PermissionError, match="only user"):
            meeting.make_folder(uid)


def test_link_in_place_of_the_folder_is_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_RUNTIME", str(tmp_path / "none-%d"))
    monkeypatch.setattr(meeting, "_TEMPORARY", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(0o700)
    os.symlink(tmp_path / "elsewhere", meeting.folder(os.geteuid()))
    with pytest.raises(PermissionError):
        meeting.make_folder(os.geteuid())
