"""Without -o: a parent of the program's shows the report, however the program ends, and
then ends as it did."""
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
#: what was allocated is written within a second: see PROFILE.rst
WAIT = "time.sleep(2.5)\n"


def arguments(script: Path, *flags: str) -> list[str]:
    return ["-m", "vmprof", "--allocation-sampling", "4k", *flags, str(script)]


@pytest.fixture
def temporary(pypy: PyPy) -> Iterator[Path]:
    """Where the profiles are while they are needed, and not longer."""
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
    """What it prints on stdout and stderr; that is read until nobody holds
    it any more."""
    done = subprocess.run(command, cwd=pypy.folder, env=pypy.environment,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def remove_held(err: str) -> None:
    """Profiles of processes that outlive the report stay, and are named."""
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
    """Ctrl-C reaches all who belong to the terminal."""
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


def test_who_ignores_dead_children(pypy: PyPy, temporary: Path) -> None:
    """SIGCHLD ignored, as some supervisors do: nobody can be waited for."""
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
    """And comes after what the program printed, in the same file."""
    path = script(pypy, "print('out'); print('err', file=sys.stderr)\n")
    with (pypy.folder / "both").open("w") as file:
        subprocess.run([PYPY, *arguments(path)], stdout=file, stderr=file,
                       cwd=pypy.folder, env=pypy.environment, check=True)
        # at once: not after whoever holds it has closed it
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


def test_program_has_no_child_of_ours(pypy: PyPy, temporary: Path) -> None:
    path = pypy.script(NOTICED)
    out, err = run_in(pypy, [PYPY, *arguments(path)], 0)
    assert out.startswith("no child\n\n")
    assert "the GC itself counted" in err


#: makes PYPY adopt the orphans among its descendants, as process 1 does
SUBREAPER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_parent_that_adopts_orphans_waits_for_the_program(
        pypy: PyPy, temporary: Path) -> None:
    """As process 1 of a container: orphans end, and one outlives the program."""
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
    os.kill(daemon, 0)      # it still sleeps
    os.kill(daemon, signal.SIGKILL)
    remove_held(err)
    assert "<listcomp>  " in err
    assert time.monotonic() - start < 60


def test_program_that_closes_all_files_and_opens_its_own(
        pypy: PyPy, temporary: Path) -> None:
    """Its files get our numbers: nothing of ours ends up there."""
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
    """Whether it is for the command or, as Ctrl-C, for all of its group."""
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


def test_command_that_is_killed_takes_the_program_with_it(
        pypy: PyPy, temporary: Path) -> None:
    """As it would be killed itself, without us."""
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
        assert process.stdout.read() == ""      # until nobody has it
    profile, = temporary.iterdir()              # nobody is there to show it
    profile.unlink()


def test_program_that_fails_to_start_leaves_no_report(
        pypy: PyPy, temporary: Path) -> None:
    """It is no program: the interpreter says so."""
    (pypy.folder / "amodule.py").write_text("")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k", "-m",
                       "no_such_module")
    assert (run.code, run.err.count("\n")) == (2, 1)


def test_log_of_the_program_is_its_own(pypy: PyPy, temporary: Path) -> None:
    """PyPy's log: neither missing nor overwritten by another process."""
    path = script(pypy, "print(os.environ.get('PYPYLOG'))\n"
                        "import gc; gc.disable(); gc.collect()\n")
    logs = []
    # of the second, processes of ours collect between fork and exec
    pypy.environment["PYPY_GC_NURSERY"] = "32k"
    for name, command in ("plain", [str(path)]), ("log", arguments(path)):
        pypy.environment["PYPYLOG"] = "gc-collect-done:" + name
        out, _ = run_in(pypy, [PYPY, *command], 0)
        assert out == "None\n"
        logs.append((pypy.folder / name).read_text().count("{gc-collect-done"))
    # begin.py asks for one when our modules go, and their import may cause another
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
