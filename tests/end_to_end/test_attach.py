"""Test the command attach, which samples a program that runs without the sampler."""
from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import PYPY, PyPy, Run
from controlled import BUSY as BUSY_ALONE
from controlled import THREADS as BUSY
from native_build import HERE
from run_profiles import functions
from running import Running, running, wait_until
from truth import SIGMAS, sigmas
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.control.client import Process
from vmprof_allocation.remote.entry import maps, target
from vmprof_allocation.remote.entry.maps import Mapping
from vmprof_allocation.remote.entry.target import Target, refusal
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile

NATIVE = HERE / "native"

def profile(pypy: PyPy, name: str) -> Profile:
    return readers.read(pypy.folder / name)


def check_estimate(pypy: PyPy) -> None:
    found = pypy.profile()
    assert len(found.samples) > 100
    assert abs(sigmas(found)) < SIGMAS


def test_a_program_with_threads(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        run = program.attach()
        assert "allocate" in run.out
        assert program.end() == "ended\n"
    check_estimate(stock_pypy)
    assert "allocate" in functions(stock_pypy.profile())


def test_attaches_to_a_program_that_never_used_threads(stock_pypy: PyPy) -> None:
    """PyPy creates the GIL with the first thread, so attach has to create the GIL."""
    with running(stock_pypy, BUSY_ALONE) as program:
        program.attach()
        assert program.end() == "ended\n"
    check_estimate(stock_pypy)


@pytest.mark.parametrize("wait", [
    "time.sleep(600)", "select.select([sys.stdin], [], [])", "sys.stdin.readline()",
    "threading.Event().wait()", "poll()", "signal.pause()"])
def test_a_waiting_program_continues_to_wait(stock_pypy: PyPy, wait: str) -> None:
    """Attach must restart a system call that the kernel ends with EINTR."""
    with running(stock_pypy, """
        import select, signal, sys, threading, time
        class Ended(BaseException):
            pass
        def end(number, frame):
            raise Ended
        signal.signal(signal.SIGUSR1, end)
        def poll():
            poll = select.epoll()
            poll.register(0, select.EPOLLIN)
            poll.poll()
        print("ready")
        try:
            %s
            print("woken")
        except Ended:
            print("ended")
    """ % wait) as program:
        program.attach()
        program.process.send_signal(10)
        assert program.end() == "ended\n"
    assert stock_pypy.profile().moments[-1].allocated > 0


@pytest.fixture
def churn(tmp_path: Path) -> str:
    """Build churn.c, and return the first lines of programs that use this library."""
    for name, source in ("churn.so", NATIVE / "churn.c"), ("other.so", "-xc /dev/null"):
        subprocess.run(
            ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu99", "-fPIC",
             "-mno-red-zone", "-shared", "-pthread", "-o", tmp_path / name,
             *str(source).split()], check=True)
    return """
    import ctypes, sys, threading
    library = ctypes.CDLL("./churn.so")
    library.keep.restype = ctypes.c_char_p
    OTHER = b"./other.so"
    """


def test_a_program_in_malloc_and_the_loader_is_sampled(stock_pypy: PyPy,
                                                       churn: str) -> None:
    """Attach neither hangs nor crashes a program that holds the locks of malloc or the
    loader nearly all the time.
    """
    with running(stock_pypy, churn + """
    import select
    library.begin(OTHER)
    print("ready")
    ended = False
    while not ended:
        library.churn(1000, OTHER)
        ended = bool(select.select([sys.stdin], [], [], 0)[0])
    print(library.end() > 10000)
    """) as program:
        program.attach_often(30)
        assert program.end() == "True\n"


def test_registers_and_errno_are_put_back(stock_pypy: PyPy, churn: str) -> None:
    """The registers include the vector registers. The 128 bytes below the stack pointer
    (the red zone) are restored, too.
    """
    with running(stock_pypy, churn + """
    import select
    print("ready")
    kept = None
    while kept is None and not select.select([sys.stdin], [], [], 0)[0]:
        kept = library.keep(10000)
    print(kept)
    """) as program:
        program.attach_often(30)
        assert program.end() == "None\n"


def test_a_sleep_in_c_keeps_its_duration(stock_pypy: PyPy) -> None:
    """After attach has interrupted a sleep, the kernel continues it with the rest of
    the time.
    """
    with running(stock_pypy, """
        import ctypes
        print("ready")
        print(ctypes.CDLL(None).usleep(3000000))
    """) as program:
        program.attach()
        assert program.end() == "0\n"


def test_signals_are_handled_meanwhile(stock_pypy: PyPy, churn: str) -> None:
    """A signal that arrives while attach has stopped the thread ends the thread's
    waiting system call, as without attach. The stop itself does not end the system
    call.
    """
    with running(stock_pypy, churn + """
    library.answer()
    print("ended")
    """) as program:
        attaching = threading.Thread(target=program.attach_often, args=(20,))
        attaching.start()
        answers = 0
        while attaching.is_alive():
            program.process.send_signal(signal.SIGUSR1)
            assert program.read() == "handled"
            answers += 1
            # The thread makes other system calls, so that attach can stop it there.
            time.sleep(0.002)
        assert answers > 20
        assert program.end() == "ended\n"


def things(program: Running) -> tuple[object, ...]:
    return program.descriptors(), program.threads(), program.signals()


def test_attach_leaves_only_the_library_and_modules(stock_pypy: PyPy) -> None:
    with running(stock_pypy, """
        import sys, threading
        def work():
            while True:
                [bytes(i) for i in range(100)]
                event.wait(0.001)
        event = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        names, path = set(sys.modules), list(sys.path)
        print("ready")
        for line in sys.stdin:
            print(sorted(name for name in set(sys.modules) - names
                         if not name.startswith("vmprof_allocation")),
                  sys.path == path, sorted(globals())[-1], threading.active_count())
    """) as program:
        before = things(program)
        program.attach()
        assert things(program) == before
        answer = program.ask()
        program.attach()
        mappings = program.mappings()
        program.attach()
        assert things(program) == before
        assert answer == program.ask()
        # If two threads of the sampler existed at once, a thread's stack and a heap of
        # malloc stay mapped.
        assert len(program.mappings()) <= len(mappings) + 4
        program.end()
    loaded, _, rest = answer.partition("]")
    assert rest.split() == ["True", "work", "2"]
    # attach has left no modules of Python's library in the program
    assert "typing" not in loaded and "ctypes" not in loaded


def test_50_attaches_leak_no_memory(stock_pypy: PyPy) -> None:
    """Find leaks from 80 KiB per attach. tests/hard/test_attach_often.py finds leaks
    from 8 KiB.
    """
    with running(stock_pypy, BUSY) as program:
        program.attach_often(20)
        before, mappings = things(program), len(program.mappings())
        code, resident = program.code(), program.status("VmRSS")
        program.attach_often(50)
        assert things(program) == before
        assert len(program.mappings()) <= mappings + 8
        assert program.code() < code + 50 * 40960
        assert program.status("VmRSS") < resident + 4096
        assert program.end() == "ended\n"


def test_ctrl_c_ends_the_sampling_early_and_reports(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        command = program.begin("-d", "600")
        time.sleep(0.3)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
        assert (command.returncode, err) == (0, "")
        assert "allocate" in out and "estimated total" in out
        assert program.end() == "ended\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_ends_the_sampling(
        stock_pypy: PyPy, number: signal.Signals) -> None:
    with running(stock_pypy, BUSY) as program:
        before = program.threads(), set(program.descriptors())
        command = program.begin("-d", "600", "-o", "killed.vmprof")
        command.send_signal(number)
        command.communicate(timeout=60)
        wait_until(lambda: (program.threads(), set(program.descriptors())) == before)
        assert profile(stock_pypy, "killed.vmprof").moments[-1].allocated > 0
        program.attach()
        assert program.end() == "ended\n"


def test_a_command_that_is_killed_at_any_moment_does_no_harm(
        stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        before = program.threads(), set(program.descriptors())
        chance = random.Random(1)
        for _ in range(10):
            command = subprocess.Popen(
                [PYPY, "-m", "vmprof_allocation", "attach", str(program.pid),
                 "-d", "600", "-o", "killed.vmprof"], cwd=stock_pypy.folder,
                env=stock_pypy.environment, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, 0.8))
            command.kill()
            command.wait()
        wait_until(lambda: (program.threads(), set(program.descriptors())) == before)
        program.attach()
        assert program.end() == "ended\n"


@pytest.mark.parametrize("end, code", [
    ("program.process.communicate()", 0), ("program.process.kill()", 0)])
def test_a_program_that_ends_early_is_reported(stock_pypy: PyPy, end: str,
                                               code: int) -> None:
    """If the program exits, the report contains all samples. If the program is killed,
    the report contains the samples that were written before.
    """
    with running(stock_pypy, BUSY) as program:
        command = program.begin("-d", "600", "--allocation-sampling", "16k")
        time.sleep(1.5)
        exec(end, {"program": program})
        out, err = command.communicate(timeout=60)
        assert command.returncode == code, err
        assert err.startswith("pypy-alloc: process %d has ended, and its "
                              "profile ends there\n" % program.pid)
        assert "allocate" in out


def refused(run: Run, *words: str) -> None:
    """Check that a command failed with one line on stderr that contains these words."""
    assert (run.code, run.out) == (2, ""), run.err
    assert run.err.startswith("pypy-alloc: ") and run.err.count("\n") == 1
    for word in words:
        assert word in run.err


def test_a_second_attach_is_refused(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        first = program.begin("-d", "600")
        refused(program.command(), "process %d" % program.pid,
                "another command (attach or live) samples the process")
        first.send_signal(signal.SIGINT)
        out, _ = first.communicate(timeout=60)
        assert "allocate" in out
        assert program.end() == "ended\n"


def test_refused_attaches_leak_no_memory(stock_pypy: PyPy) -> None:
    # The program runs no loop that the JIT would compile, so that its memory is
    # constant.
    with running(stock_pypy, """
        import sys, threading
        thread = threading.Thread(target=sys.stdin.readline)
        thread.start()
        print("ready")
        thread.join()
        print("ended")
    """) as program:
        first = program.begin("-d", "600")
        before = program.code()
        for _ in range(5):
            refused(program.command(), "another command (attach or live) samples the "
                                       "process")
        wait_until(lambda: program.code() <= before)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
        assert program.end() == "ended\n"


def test_a_program_that_is_sampled_already_is_refused(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY.replace("import sys, threading", """\
import sys, threading, vmprof_allocation
    vmprof_allocation.start('own.vmprof')"""), interpreter=PYPY) as program:
        refused(program.command("-o", "second.vmprof"), "already on")
        assert not (stock_pypy.folder / "second.vmprof").exists()
        assert program.end() == "ended\n"


def test_a_process_without_pypy_is_refused(pypy: PyPy) -> None:
    def attach(pid: int, *arguments: str) -> Run:
        return pypy.command("-m", "vmprof_allocation", "attach", str(pid), *arguments)
    refused(attach(os.getpid()), "is not a PyPy: it runs",
            os.readlink("/proc/self/exe"))
    refused(attach(2**22 + 1), "does not exist")
    refused(attach(0), "invalid PID 0: write the PID of a process")
    refused(attach(-1), "invalid PID -1: write the PID of a process")
    refused(attach(os.getpid(), "-d", "0"), "duration")
    refused(attach(os.getpid(), "-d", "nan"), "duration")
    refused(attach(os.getpid(), "--timeout", "-1"), "timeout")
    refused(attach(os.getpid(), "--allocation-sampling", "much"), "'much'")
    refused(attach(os.getpid(), "-o", ""), "empty")
    refused(attach(os.getpid(), "-o", "/dev/null"),
            "'/dev/null': it is not a regular file")


def test_an_ended_or_stopped_process_is_refused(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        program.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: "stopped" in Path(
            "/proc/%d/status" % program.pid).read_text())
        refused(program.command(), "is stopped", "kill -CONT")
        program.process.send_signal(signal.SIGCONT)
        program.attach()
        program.process.kill()
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        refused(program.command(), "has ended")


def test_a_file_that_the_program_can_not_write(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        before = program.threads(), set(program.descriptors())
        refused(program.command("-o", "no/such/folder.vmprof"),
                "cannot write the profile to", "folder.vmprof")
        wait_until(lambda: (program.threads(), set(program.descriptors())) == before)
        assert program.end() == "ended\n"


def test_a_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(AllocationSamplingError, match=r"belongs to user \d+; run this "
                       "command as that user, or as root"):
        Process(1, 10)


def test_another_interpreter_cannot_attach() -> None:
    """This test runs in CPython, which attach refuses as an interpreter."""
    with pytest.raises(AllocationSamplingError, match="own pypy3, on Linux"):
        Target(1)


def test_an_unknown_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(AllocationSamplingError,
                       match="riscv64, but only on x86-64 and AArch64"):
        Target(1)


@pytest.fixture
def any_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_check_here", lambda: None)


@pytest.mark.usefixtures("any_python")
def test_a_process_that_may_not_be_traced_is_refused(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int | str) -> list[Mapping]:
        if pid == "self":
            return []
        raise PermissionError(errno.EACCES, "no")
    monkeypatch.setattr(maps, "of", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(AllocationSamplingError, match="no permission to trace process"):
        Target(1)


@pytest.mark.parametrize("scope, is_root, words", [
    ("3", True, "only a reboot can change it"), ("1", True, "SYS_PTRACE"),
    ("1", False, "sysctl kernel.yama.ptrace_scope=0"),
    ("", False, "run this command as root"),
])
def test_a_missing_permission_has_a_remedy(monkeypatch: pytest.MonkeyPatch,
                                           tmp_path: Path, scope: str, is_root: bool,
                                           words: str) -> None:
    file = tmp_path / "ptrace_scope"
    if scope:
        file.write_text(scope + "\n")
    monkeypatch.setattr(target, "YAMA", str(file))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 12345)
    assert words in refusal(7, errno.EPERM)


STATUS = {"State": "R (running)", "TracerPid": "0", "Seccomp": "0",
          "Seccomp_filters": "0"}
FILTERED = {"Seccomp": "2", "Seccomp_filters": "1"}
MORE = {"Seccomp": "2", "Seccomp_filters": "2"}


@pytest.mark.usefixtures("any_python")
@pytest.mark.parametrize("theirs, ours, flag, words", [
    ({"TracerPid": "12"}, {}, False, "is traced by process 12"),
    ({"x86_Thread_features": "shstk"}, {}, False, "shadow stack"),
    ({"Seccomp": "1"}, {}, True, "seccomp"),
    (FILTERED, {}, False, "--despite-seccomp"),
    (MORE, FILTERED, False, "--despite-seccomp"),
    # Both processes have one filter, which is the container's.
    (FILTERED, FILTERED, False, ""),
    (FILTERED, {}, True, ""),
])
def test_the_process_status_is_checked(monkeypatch: pytest.MonkeyPatch,
                                       theirs: dict[str, str], ours: dict[str, str],
                                       flag: bool, words: str) -> None:
    monkeypatch.setattr(target, "read_status", lambda pid: {
        **STATUS, **(ours if pid == "self" else theirs)})
    monkeypatch.setattr(maps, "of", lambda pid: [])
    # If the status is accepted, the next check fails, because the list of the process's
    # mappings is empty.
    with pytest.raises(AllocationSamplingError, match=words or "is not a program"):
        Target(7, flag)


@pytest.mark.parametrize("number, words", [
    (errno.EPERM, "no permission to trace process 7 (ptrace)"),
    (errno.EACCES, "no permission to trace process 7 (ptrace)"),
    (errno.ESRCH, "process 7 has ended"),
    (errno.ENOEXEC, "process 7 has become another program"),
    (errno.ENOSYS, "PTRACE_GET_SYSCALL_INFO (Linux 5.3)"),
    (errno.ENOMEM, "cannot attach to process 7: Cannot allocate memory"),
])
def test_each_errno_has_an_explanation(number: int, words: str) -> None:
    assert words in refusal(7, number)


def test_a_pypy_without_cpyext(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent of this process is no PyPy, so it has no functions of cpyext, either.
    """
    monkeypatch.setattr(target, "_check_here", lambda: None)
    monkeypatch.setattr(Target, "_find_libpypy", lambda self: None)
    monkeypatch.setattr(Target, "_find_allocate", lambda self: (0, 0))
    monkeypatch.setattr(Target, "_check_malloc", lambda self: None)
    with pytest.raises(AllocationSamplingError, match="no PyPyGILState_Ensure"):
        Target(os.getppid())


def test_a_server_under_load(stock_pypy: PyPy) -> None:
    """gunicorn answers each request, in a new thread, while attach samples the server.
    """
    with running(stock_pypy, """
        import sys, threading, urllib.request
        from gunicorn.app.base import BaseApplication
        def index(environ, start_response):
            body = b"".join(bytes(i) for i in range(200))
            start_response("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        class Application(BaseApplication):
            def load_config(self):
                for name, value in dict(
                        bind="unix:socket", threads=4, workers=1, loglevel="error",
                        post_worker_init=lambda worker: print("ready")).items():
                    self.cfg.set(name, value)
            def load(self):
                return index
        Application().run()
    """, interpreter=PYPY) as master:
        pid = int(Path("/proc/%d/task/%d/children" % (
            master.pid, master.pid)).read_text())
        server = Running(master.process, stock_pypy)
        server.pid = pid
        clients = [Client(stock_pypy.folder / "socket") for _ in range(2)]
        for client in clients:
            client.start()
        try:
            for _ in range(3):
                run = server.attach()
                assert "index" in run.out
                check_estimate(stock_pypy)
        finally:
            for client in clients:
                client.is_ending = True
            for client in clients:
                client.join()
        assert all(client.answers > 10 for client in clients)
        assert [client.problem for client in clients] == [None, None]


class Client(threading.Thread):
    """A thread that sends requests to the server, and counts the answers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.is_ending = False
        self.answers = 0
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            while not self.is_ending:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(60)
                connection.connect(str(self._path))
                with connection, connection.makefile("rb") as answer:
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    text = answer.read()
                    assert b" 200 OK" in text and len(text) > 19900
                    self.answers += 1
        except Exception as e:
            self.problem = e


def test_children_are_not_followed(stock_pypy: PyPy) -> None:
    """Without --children, attach only counts the forked children. They have no open
    files of the sampler.
    """
    with running(stock_pypy, """
        import os, sys, threading, time
        def wait():
            for line in sys.stdin:
                child = os.fork()
                if child == 0:
                    [bytes(1000) for i in range(100000)]
                    print(len(os.listdir("/proc/self/fd")))
                    os._exit(7)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                print(code)
        thread = threading.Thread(target=wait)
        thread.start()
        print("ready")
        while thread.is_alive():
            [bytes(i) for i in range(100)]
    """) as program:
        before = program.ask(), program.read()
        command = program.begin("-d", "600", "-o", "parent.vmprof")
        assert (program.ask(), program.read()) == before
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
        assert command.returncode == 0, err
        assert "child" in out
        assert list(stock_pypy.folder.glob("*.vmprof")) == [
            stock_pypy.folder / "parent.vmprof"]


def test_without_a_cache_that_can_be_written(stock_pypy: PyPy) -> None:
    """The names of types come from the cache file, because they are too long for a
    message to the program.
    """
    with running(stock_pypy, BUSY) as program:
        stock_pypy.environment["XDG_CACHE_HOME"] = "/dev/null/nowhere"
        program.attach()
        assert program.end() == "ended\n"
    found = stock_pypy.profile()
    assert any(type_.python for type_ in found.types)
