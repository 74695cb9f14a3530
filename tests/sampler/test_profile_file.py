"""The end of a profile's file, and harm to the file by the program or the system."""
from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from conftest import PYPY, PyPy, has_builtin
from truth import SIGMAS, sigmas
from vmprof_allocation.session.profile_file import HEAD
from vmprof_convert import readers


def test_killed_run_leaves_a_profile_that_loads(pypy: PyPy) -> None:
    """The profile is complete up to the last flush, with the names of its functions.

    The program does nothing for more than a second before the signal.
    """
    script = pypy.script("""
        import sys, time
        def allocate():
            # no large lists: an object is one sample, whatever its size
            return [[str(i) for i in range(100)] for j in range(2000)]
        exec(compile("def made_at_run_time():\\n return allocate()", "x.py", "exec"))
        made_at_run_time()
        print("ready", flush=True)
        time.sleep(60)
    """)
    process = subprocess.Popen(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "16k", "-o",
         "out.vmprof", str(script)], cwd=pypy.folder, env=pypy.environment,
        stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 30
    size = -1
    # a flush is due after one second, but a loaded machine may need longer
    while time.monotonic() < deadline:
        time.sleep(1.2)
        if os.path.getsize(pypy.folder / "out.vmprof") == size:
            break
        size = os.path.getsize(pypy.folder / "out.vmprof")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    profile = readers.read(pypy.folder / "out.vmprof")
    assert profile.end_time is None
    assert profile.lost_stacks == 0
    assert profile.moments[-1].allocated > 5 * 2**20
    expected = profile.moments[-1].allocated / 16384
    assert abs(len(profile.samples) - expected) < 6 * expected ** 0.5 + 20
    names = {profile.function(f.address).name
             for stack in profile.stacks for f in stack}
    assert {"made_at_run_time", "allocate", "<module>"} <= names
    assert not any(name.startswith("<unknown") for name in names)


def test_program_that_closes_all_files(pypy: PyPy) -> None:
    """A file of the program gets the number of our file, but must not get our data."""
    run = pypy.sample("""
        import os
        first = [str(i) for i in range(100000)]
        os.closerange(3, 1000)
        files = [open("own%d.txt" % i, "w") for i in range(20)]
        for i in range(20000):
            files[i % 20].write("line\\n")
            str(i)
        for file in files:
            file.close()
        sizes = {os.path.getsize("own%d.txt" % i) for i in range(20)}
        print(sizes)
    """, "1k")
    assert run.out == "{5000}\n"
    assert run.err == ("vmprof: the profile is not complete: the program "
                       "closed its file\n")


def test_program_that_forgets_to_stop(pypy: PyPy) -> None:
    script = pypy.script("""
        import vmprof_allocation
        vmprof_allocation.start("out.vmprof", "1k")
        kept = [str(i) for i in range(10000)]
        print("end")
    """)
    run = pypy.command(str(script))
    assert (run.code, run.out, run.err) == (0, "end\n", "")
    assert run.profile().end_time is not None
    assert len(run.profile().samples) > 100


def test_existing_profile_survives_a_refused_start(pypy: PyPy) -> None:
    (pypy.folder / "out.vmprof").write_bytes(HEAD + b"precious")
    script = pypy.script("""
        import os, vmprof, vmprof_allocation
        fd = os.open("other", os.O_RDWR | os.O_CREAT)
        vmprof.enable(fd)
        try:
            vmprof_allocation.start("out.vmprof")
        except vmprof_allocation.AllocationSamplingError:
            print(open("out.vmprof").read()[-8:])
    """)
    assert pypy.command(str(script)).out == "precious\n"


def sampled_into_fifo(pypy: PyPy, source: str) -> tuple[
        subprocess.Popen[str], int]:
    """Run a program, and read its profile until the program makes the file "running".

    Returns:
        The process, and the descriptor of the pipe.
    """
    os.mkfifo(pypy.folder / "fifo")
    reading = os.open(pypy.folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "64", "-o", "fifo",
         str(pypy.script(source))],
        cwd=pypy.folder, env=pypy.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (pypy.folder / "running").exists() and process.poll() is None:
        try:
            os.read(reading, 65536)
        except BlockingIOError:
            pass
        time.sleep(0.001)
    return process, reading


def test_fifo_whose_reader_leaves(pypy: PyPy) -> None:
    """The program continues, and the sampler reports the error at the end."""
    process, reading = sampled_into_fifo(pypy, """
        import signal
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        open("running", "w").close()
        print(sum(len([i]) for i in range(1000000)))
    """)
    os.close(reading)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (0, "1000000\n"), err
    assert err == ("vmprof: the profile is not complete: the reader of the pipe has "
                   "ended\n")


def test_program_whose_stdout_is_closed(pypy: PyPy) -> None:
    """The profile must not become descriptor 1."""
    script = pypy.script("""
        import os
        try:
            os.write(1, b"not for the profile")
        except OSError:
            open("refused", "w").close()
        garbage = [str(i) for i in range(100000)]
    """)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&- <&-', "sh", PYPY, "-m", "vmprof",
         "--allocation-sampling", "4k", "-o", "out.vmprof", str(script)],
        cwd=pypy.folder, env=pypy.environment)
    assert done.returncode == 0
    assert (pypy.folder / "refused").exists()
    assert len(readers.read(pypy.folder / "out.vmprof").samples) > 100


def test_numbers_of_the_programs_descriptors(pypy: PyPy) -> None:
    source = """
        import os
        print([os.open(os.devnull, os.O_RDONLY) for i in range(5)])
    """
    assert pypy.sample(source, "4k").out == pypy.run(source).out


@pytest.mark.parametrize("end,said", [
    ("os._exit(3)", "the program called os._exit()"),
    ("os.execv('/bin/sh', ['sh', '-c', 'exit 3'])",
     "the process became another program"),
    ("os.execve('/bin/sh', ['sh', '-c', 'exit 3'], {})",
     "the process became another program"),
    ("os.abort()", "the process sent itself a signal"),
    ("os.kill(os.getpid(), 9)", "the process sent itself a signal"),
    ("import signal; signal.raise_signal(15)", "the process sent itself a signal"),
])
def test_program_that_ends_without_exit_handlers(
        pypy: PyPy, end: str, said: str) -> None:
    """All samples of a short program are in the profile."""
    if has_builtin():
        pytest.skip("only the hook engine hears of that")
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "4k", "-o", "out.vmprof",
        str(pypy.script("""
            import os
            try:
                os.execv("/missing", ["x"])
            except OSError:
                pass
            def allocate():
                for i in range(200):
                    kept.append([str(i) for i in range(100)])
            kept = []
            allocate()
            os.kill(os.getpid(), 17)            # SIGCHLD: nothing happens
            %s
        """ % end)))
    assert run.code == (-6 if "abort" in end else -9 if "kill" in end else
                        -15 if "raise" in end else 3)
    profile = run.profile()
    assert profile.settings["ended"] == said
    assert profile.end_time is None
    assert len(profile.samples) > 100
    assert abs(sigmas(profile)) < SIGMAS
    assert "allocate" in {profile.function(f.address).name
                          for stack in profile.stacks for f in stack}


def test_pipe_whose_reader_stalls(pypy: PyPy) -> None:
    """The program continues after some seconds.

    At its end, the sampler reports the error.
    """
    process, reading = sampled_into_fifo(pypy, """
        open("running", "w").close()
        print(sum(len([i]) for i in range(1000000)))
    """)
    out, err = process.communicate(timeout=100)
    os.close(reading)
    assert (process.returncode, out) == (0, "1000000\n"), err
    assert err == ("vmprof: the profile is not complete: the reader of the pipe no "
                   "longer reads\n")


@pytest.mark.parametrize("action,said", [
    ("os.unlink('out.vmprof')", "removed 'out.vmprof'"),
    ("os.truncate('out.vmprof', 0)", "this program or another one changed"),
])
def test_program_that_damages_its_profile(pypy: PyPy, action: str, said: str) -> None:
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "4k", "-o", "out.vmprof",
        str(pypy.script("import os\ngarbage = [[i] for i in range(10**5)]\n%s\n"
                        % action)))
    assert (run.code, run.out) == (0, "")
    assert said in run.err and run.err.count("\n") == 1


def test_two_runs_with_the_same_output(pypy: PyPy) -> None:
    """The second run is refused, and the profile of the first run is complete."""
    script = pypy.script("""
        import subprocess, sys, vmprof_allocation
        garbage = [str(i) for i in range(100000)]
        done = subprocess.run(
            [sys.executable, "-m", "vmprof", "--allocation-sampling", "4k",
             "-o", "out.vmprof", "-m", "this"], capture_output=True, text=True)
        print(done.returncode, done.stderr)
    """)
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "4k", "-o",
                       "out.vmprof", str(script))
    assert run.out.startswith("2 vmprof: another process writes its profile")
    assert run.profile().end_time is not None


def test_output_that_would_replace_the_program(pypy: PyPy) -> None:
    script = pypy.script("print('still here')\n")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "4k", "-o",
                       script.name, str(script))
    assert (run.code, run.out) == (2, "")
    assert "would replace 'app.py'" in run.err
    assert script.read_text() == "print('still here')\n"
