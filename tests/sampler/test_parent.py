"""Runs without -o, whose parent process shows the report and ends like the program."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import PYPY, PyPy

WORK = """
    import ctypes, os, signal, subprocess, sys, time
    def work():
        return [str(i) for i in range(200000)]
    kept = work()
"""
#: time after which all earlier allocations are in the file (PROFILE.rst: one second)
WAIT = "time.sleep(2.5)\n"


def arguments(script: Path, *flags: str) -> list[str]:
    return ["-m", "vmprof", "--allocation-sampling", "4k", *flags, str(script)]


@pytest.fixture
def temporary(pypy: PyPy) -> Iterator[Path]:
    """Return the folder of the temporary profiles, and check that none remains."""
    path = pypy.folder / "tmp"
    path.mkdir()
    pypy.environment["TMPDIR"] = str(path)
    yield path
    assert list(path.iterdir()) == []


def script(pypy: PyPy, end: str) -> Path:
    path = pypy.script(WORK)
    with path.open("a") as file:
        file.write(end)
    return path


def run_in(pypy: PyPy, command: list[str], code: int) -> tuple[str, str]:
    """Run a command, and return its stdout and stderr.

    They are read until all processes have closed them.
    """
    done = subprocess.run(command, cwd=pypy.folder, env=pypy.environment,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def remove_held(err: str) -> None:
    """Remove the profiles of processes that outlive the report, which names them."""
    for path in re.findall(r"is still running, and continues to write into "
                           r"(\S+)", err):
        os.unlink(path)


@pytest.mark.parametrize("end,code,normal", [
    ("", 0, True), ("sys.exit(3)", 3, True), ("1 / 0", 1, True),
    (WAIT + "os.kill(os.getpid(), signal.SIGTERM)", -15, False),
    (WAIT + "os.kill(os.getpid(), signal.SIGKILL)", -9, False),
    (WAIT + "os._exit(5)", 5, False), (WAIT + "os.abort()", -6, False),
    (WAIT + "os.execv('/bin/sh', ['sh', '-c', 'exit 7'])", 7, False),
])
def test_report_comes_however_the_program_ends(
        pypy: PyPy, temporary: Path, end: str, code: int,
        normal: bool) -> None:
    _, err = run_in(pypy, [PYPY, *arguments(script(pypy, end))], code)
    assert "work  " in err or "<listcomp>  " in err, err
    assert "the GC itself counted" in err
    assert ("did not end normally" not in err) == normal


def test_timeout_shows_a_report(pypy: PyPy, temporary: Path) -> None:
    path = script(pypy, "while True: time.sleep(1)\n")
    _, err = run_in(pypy, ["timeout", "4", PYPY, *arguments(path)], 124)
    assert "<listcomp>  " in err and "did not end normally" in err


def test_interrupt_of_the_group_shows_a_report(
        pypy: PyPy, temporary: Path) -> None:
    """Ctrl-C sends the signal to all processes of the terminal."""
    process = subprocess.Popen(
        [PYPY, *arguments(script(pypy, "print('up', flush=True)\n" + WAIT))],
        cwd=pypy.folder, env=pypy.environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert err.count("KeyboardInterrupt") == 1
    assert "the GC itself counted" in err
    assert "did not end normally" not in err


def test_report_if_sigchld_is_ignored(pypy: PyPy, temporary: Path) -> None:
    """Some supervisors ignore SIGCHLD, so the parent cannot wait for its child."""
    path = script(pypy, "print('ran')\n")
    done = subprocess.run(
        [PYPY, *arguments(path)], cwd=pypy.folder, env=pypy.environment,
        capture_output=True, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "allocated in" in done.stderr


def test_names_that_the_terminal_cannot_show(
        pypy: PyPy, temporary: Path) -> None:
    path = pypy.folder / "\u00fc\u20ac.py"
    path.write_text("kept = [str(i) for i in range(10000)]\n", "utf-8")
    run = pypy.command(*arguments(path), PYTHONIOENCODING="ascii",
                       LC_ALL="C.UTF-8")
    assert run.code == 0
    assert "allocated in" in run.err and "Traceback" not in run.err
    assert "\\xfc\\u20ac.py" in run.err


def test_report_is_out_before_the_program_ends(
        pypy: PyPy, temporary: Path) -> None:
    """In a common file, the report follows the output of the program."""
    path = script(pypy, "print('out'); print('err', file=sys.stderr)\n")
    with (pypy.folder / "both").open("w") as file:
        subprocess.run([PYPY, *arguments(path)], stdout=file, stderr=file,
                       cwd=pypy.folder, env=pypy.environment, check=True)
        # the report is complete now, although the file is still open
        text = (pypy.folder / "both").read_text()
    assert text.index("out\n") < text.index("allocated in")
    assert "the GC itself counted: " in text and text.endswith("\n")


NOTICED = """
    import os
    try:
        print(os.wait())
    except ChildProcessError:
        print("no child")
    for line in open("/proc/self/status"):
        if line.startswith("Threads"):
            threads = line
    print(open("/proc/self/task/%d/children" % os.getpid()).read())
    print([n for n in os.listdir("/proc/self/fd") if 2 < int(n) < 1000])
"""


def test_program_sees_no_child_of_the_sampler(pypy: PyPy, temporary: Path) -> None:
    path = pypy.script(NOTICED)
    out, err = run_in(pypy, [PYPY, *arguments(path)], 0)
    assert out.startswith("no child\n\n")
    assert "the GC itself counted" in err


#: Program that executes PYPY so that it adopts orphaned descendants, as process 1 does.
SUBREAPER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_parent_that_adopts_orphans_waits_for_the_program(
        pypy: PyPy, temporary: Path) -> None:
    """As process 1 of a container, the parent adopts two orphans of the program.

    One of them ends before the program, and the other one outlives it.
    """
    path = script(pypy, """
for seconds in "0", "60":
    subprocess.run(["sh", "-c", "sleep %s >/dev/null 2>&1 & echo $!" % seconds])
time.sleep(1)
sys.exit(3)
""")
    out, err = run_in(
        pypy, [PYPY, "-c", SUBREAPER, PYPY, *arguments(path)], 3)
    ended, sleeps = map(int, out.split())
    os.kill(sleeps, signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.kill(ended, 0)
    assert "the GC itself counted" in err


def test_forked_daemon_does_not_delay_the_report(
        pypy: PyPy, temporary: Path) -> None:
    path = script(pypy, """
if os.fork() == 0:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.setsid()
    with open("daemon", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
time.sleep(2.5)
os._exit(6)
""")
    start = time.monotonic()
    _, err = run_in(pypy, [PYPY, *arguments(path)], 6)
    daemon = int((pypy.folder / "daemon").read_text())
    os.kill(daemon, 0)      # the daemon still sleeps
    os.kill(daemon, signal.SIGKILL)
    remove_held(err)
    assert "<listcomp>  " in err
    assert time.monotonic() - start < 60


def test_program_that_closes_all_files_and_opens_its_own(
        pypy: PyPy, temporary: Path) -> None:
    """The program's files get the numbers of our files, but must not get our data."""
    path = script(pypy, """
os.closerange(3, 4096)
files = [os.open("own", os.O_RDWR | os.O_CREAT | os.O_APPEND)]
while files[-1] < 1010:
    files.append(os.dup(files[-1]))
work()
sys.exit(4)
""")
    out, err = run_in(pypy, [PYPY, *arguments(path)], 4)
    assert out == ""
    assert (pypy.folder / "own").read_bytes() == b""
    assert "closed its file" in err
    assert err.count("allocated in") == 1


@pytest.mark.parametrize("to_all", [False, True])
def test_signal_reaches_the_program_once(
        pypy: PyPy, temporary: Path, to_all: bool) -> None:
    """The signal is for the command, or, like Ctrl-C, for its whole process group."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT,
               signal.SIGUSR1, signal.SIGUSR2)
    path = script(pypy, """
came = []
for number in %r:
    signal.signal(number, lambda number, frame: came.append(number))
    print("ready", flush=True)
    while not came:
        time.sleep(0.01)
    time.sleep(0.5)
    print(*came, flush=True)
    came.clear()
""" % [*map(int, numbers)])
    with subprocess.Popen(
            [PYPY, *arguments(path)], cwd=pypy.folder, env=pypy.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True) as process:
        assert process.stdout is not None
        for number in numbers:
            assert process.stdout.readline() == "ready\n"
            (os.killpg if to_all else os.kill)(process.pid, number)
            assert process.stdout.readline() == "%d\n" % number
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, ""), err
    assert "<listcomp>  " in err


def test_program_is_killed_with_the_command(pypy: PyPy, temporary: Path) -> None:
    """Without the sampler, the signal would kill the program itself."""
    path = script(pypy, """
print("ready", flush=True)
time.sleep(60)
print("still there")
""")
    with subprocess.Popen(
            [PYPY, *arguments(path)], cwd=pypy.folder, env=pypy.environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.read() == ""      # returns when all writers have ended
    profile, = temporary.iterdir()              # no parent is left to show the report
    profile.unlink()


def test_program_that_fails_to_start_leaves_no_report(
        pypy: PyPy, temporary: Path) -> None:
    """The interpreter reports the error, and no program has run."""
    (pypy.folder / "amodule.py").write_text("")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k", "-m",
                       "no_such_module")
    assert (run.code, run.err.count("\n")) == (2, 1)


def test_log_of_the_program_is_its_own(pypy: PyPy, temporary: Path) -> None:
    """PyPy's log of the program is complete, and no other process overwrites it."""
    path = script(pypy, "print(os.environ.get('PYPYLOG'))\n"
                        "import gc; gc.disable(); gc.collect()\n")
    logs = []
    # with this nursery, processes of the sampler collect between fork and exec
    pypy.environment["PYPY_GC_NURSERY"] = "32k"
    for name, command in ("plain", [str(path)]), ("log", arguments(path)):
        pypy.environment["PYPYLOG"] = "gc-collect-done:" + name
        out, _ = run_in(pypy, [PYPY, *command], 0)
        assert out == "None\n"
        logs.append((pypy.folder / name).read_text().count("{gc-collect-done"))
    # begin.py requests a collection when our modules are removed, and their import may
    # cause another collection
    assert 0 < logs[0] + 1 <= logs[1] <= logs[0] + 2


@pytest.mark.parametrize("name", ["capstone", "reader", "vmprof_allocation"])
def test_modules_of_the_program_do_not_disturb_the_report(
        pypy: PyPy, temporary: Path, name: str) -> None:
    (pypy.folder / (name + ".py")).write_text("1 / 0\n")
    (pypy.folder / "sub").mkdir()
    _, err = run_in(pypy, [PYPY, *arguments(script(pypy, ""))], 0)
    assert "the GC itself counted" in err


@pytest.mark.parametrize("limit,can", [(5, False), (12, True), (13, True)])
def test_few_descriptors(
        pypy: PyPy, temporary: Path, limit: int, can: bool) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", "ulimit -n %d; exec \"$@\"" % limit, "sh", PYPY,
         *arguments(script(pypy, ""))], cwd=pypy.folder,
        env=pypy.environment, capture_output=True, text=True)
    if can:
        assert done.returncode == 0
        assert done.stderr.startswith("allocated in")
    else:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
