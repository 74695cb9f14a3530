"""Tests of the command `pypy-alloc report`.

The tests cover its memory, output, arguments and exit codes.
"""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import report_runs
from conftest import PYPY, PyPy
from made_profiles import Log, large
from report_runs import report, text
from vmprof_convert import readers


def write(folder: Path, log: Log | bytes) -> Path:
    path = folder / "app.vmprof"
    path.write_bytes(log if isinstance(log, bytes) else log.data())
    return path


def sampled(**settings: object) -> Log:
    """Return a log with samples of two functions."""
    log = Log()
    log.settings(**settings)
    for name, size in ("one", 16), ("two", 32):
        log.allocation([log.function(name)], size=size, time=10**9)
    return log


def lines(log: Log, folder: Path) -> list[str]:
    done = report(write(folder, log))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


# ________________________________________
# memory


def resident(command: list[str]) -> float:
    """Return the largest resident memory of a command in MiB."""
    script = ("import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:],"
              " os.environ); _, status, used = os.wait4(pid, 0); "
              "print(used.ru_maxrss / 1024); sys.exit(bool(status))")
    # A small process starts the command. Until exec, a child has the memory of its
    # parent, and the parent must not be this large process.
    done = subprocess.run(
        [sys.executable, "-c", script, *command], text=True,
        capture_output=True, timeout=300,
        # The command would choose this nursery itself and restart. Until then, the
        # size of the nursery would depend on the processor's cache.
        env={**os.environ, "PYPY_GC_NURSERY": "2M"})
    assert done.returncode == 0, done.stderr
    return float(done.stdout.splitlines()[-1])


#: the number of samples, with which a column of numbers takes 2.3 MiB
MANY = 300_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("many"), large(MANY, depth=40, distinct=5000))


@pytest.mark.slow
@pytest.mark.parametrize("python,mib", [(sys.executable, 36), (PYPY, 105)],
                         ids=["cpython", "pypy"])
@pytest.mark.parametrize("facts", [False, True])
def test_memory_of_the_report_of_many_samples(
        many: Path, tmp_path: Path, python: str, mib: int, facts: bool) -> None:
    """The limits include the interpreter, CPython with 9 MiB or PyPy with 50 MiB.

    PyPy's memory differs from run to run. The report stores data of live objects only.
    """
    path = write(tmp_path, large(MANY, 40, 5000, facts=True)) if facts else many
    assert resident([python, "-m", "vmprof_allocation", "report", str(path),
                     *(["--by", "function,type"] if facts else [])]) < mib


@pytest.mark.slow
def test_memory_does_not_grow_with_the_samples(many: Path, tmp_path: Path) -> None:
    few = write(tmp_path, large(20_000, depth=40, distinct=5000))
    command = [sys.executable, "-m", "vmprof_allocation", "report"]
    assert resident([*command, str(many)]) - resident([*command, str(few)]) < 2.5


def test_report_of_pypy_restarts_with_a_small_nursery(tmp_path: Path,
                                                      pypy: PyPy) -> None:
    """The report does not restart if the user chose the size of the nursery."""
    path = write(tmp_path, sampled())
    script = pypy.script("""
        import os, sys
        from vmprof_allocation import __main__
        sys.argv = ["vmprof_allocation", "report", %r]
        os.execve = lambda program, arguments, variables: print(
            arguments[1:], variables.get("PYPY_GC_NURSERY"))
        __main__.main()
    """ % str(path))
    del pypy.environment["PYPY_GC_NURSERY"]
    run = pypy.command(str(script))
    assert run.out.splitlines()[0] == (
        "['-m', 'vmprof_allocation', 'report', %r] 2M" % str(path))
    run = pypy.command(str(script), PYPY_GC_NURSERY="4M")
    assert run.out.startswith("allocated in")


# ________________________________________
# output


def test_children_that_were_not_sampled_are_named(tmp_path: Path) -> None:
    assert ("  2 child processes were not sampled: their allocations are "
            "missing") in lines(sampled(children=2), tmp_path)
    assert ("  1 child process was not sampled: its allocations are "
            "missing") in lines(sampled(children=1), tmp_path)
    assert "child" not in "\n".join(lines(sampled(), tmp_path))


def test_early_end_is_explained(tmp_path: Path) -> None:
    found = lines(sampled(ended="the program disabled vmprof"), tmp_path)
    assert ("  the profile ends before the program did: the program disabled "
            "vmprof") in found
    assert "did not end normally" not in "\n".join(found)


def test_interval_under_a_limit_is_one_number(tmp_path: Path) -> None:
    """The report has the average, and not the range from 640 B to 28 MiB."""
    log = Log()
    f = log.function("f")
    log.settings(interval=65536, limit="5000ppm")
    for interval in 640, 28 * 2**20, 2**20, 2**20:
        log.allocation([f], size=16, interval=interval)
    assert lines(log, tmp_path)[0] == (
        "allocated in 0.00 s (4 samples, auto: one per 7.50 MiB on average):")


@pytest.mark.parametrize("interval", ["", "x", "-5", "1e3", "9" * 5000,
                                      "\u0663"])
def test_an_invalid_interval_counts_as_0(tmp_path: Path, interval: str) -> None:
    log = Log()
    log.settings(interval=interval)
    log.flush()
    assert "(0 samples, one per 0 B on average)" in lines(log, tmp_path)[0]


def test_interval_that_the_program_set_is_an_average(tmp_path: Path) -> None:
    log = Log()
    f = log.function("f")
    log.settings(interval=1024)
    for interval in 1024, 3 * 1024:
        log.allocation([f], size=1, interval=interval)
    assert "(2 samples, one per 2.00 KiB on average)" in lines(log, tmp_path)[0]


def test_profile_without_any_sample(tmp_path: Path) -> None:
    log = Log()
    log.settings(interval=2**20)
    log.flush()
    assert lines(log, tmp_path) == [
        "allocated in 0.00 s (0 samples, one per 1 MiB on average):",
        "estimated total: 0 B (95 %: 0 B .. 2.46 MiB); the GC itself counted: "
        "0 B"]


@pytest.mark.parametrize("version", [1, 2, 4, 6])
def test_time_samples_alone_ended_normally(tmp_path: Path,
                                           version: int) -> None:
    """A trailer has no time in versions below 5."""
    log = Log(interpreter="cpython", version=6)
    log.raw_stack([log.function("f")], 1)
    data = bytearray(log.data())
    at = data.index(b"\x05\x00\x06", 40) + 2
    data[at] = version
    if version < 4:
        del data[at + 1]            # flags
    if version < 5:
        del data[-24:]
    path = tmp_path / "app.vmprof"
    path.write_bytes(data)
    done = report(path)
    assert done.stdout.startswith("10 ms of time in 1 sample, one per 10 ms:\n\n")
    assert done.stdout.endswith(
        "allocations: not sampled; use --allocation-sampling\n")


def test_time_samples_of_pypy_alone(pypy: PyPy) -> None:
    script = pypy.script("for i in range(10**7): str(i)\n")
    assert pypy.command("-m", "vmprof", "-o", "out.vmprof",
                        str(script)).code == 0
    found = report(pypy.folder / "out.vmprof").stdout.splitlines()
    assert re.fullmatch(r"\S+ m?s of time in \d+ samples, one per \S+ [mu]s:", found[0])
    assert found[-1] == "allocations: not sampled; use --allocation-sampling"


# ________________________________________
# cut stacks


@pytest.mark.parametrize("jit", ["off", ""])
def test_cut_stacks_of_a_recursion_of_known_depth(pypy: PyPy,
                                                  jit: str) -> None:
    """The outermost function of a stack that is not cut is of PyPy's start or end."""
    run = pypy.sample("""
        import sys
        sys.setrecursionlimit(10000)
        def down(n, leaf):
            return down(n - 1, leaf) if n else leaf()
        def work():
            return len([str(i) for i in range(400)])
        for _ in range(20):
            for n in range(470, 530):
                down(n, work)
            down(60, work)
    """, "2k", jit=jit)
    profile = run.profile()
    names = [[profile.function(frame.address).name for frame in stack]
             for stack in profile.stacks]
    whole = [bool({"entry_point", "run_exitfuncs"} & set(stack))
             for stack in names]
    cut = sum(not whole[stack] for stack in profile.samples.stack)
    assert 1000 < cut < len(profile.samples)
    assert profile.cut_stacks == cut
    if jit == "off":
        # a stack of 509 frames just fits
        assert {len(stack) for stack, is_whole in zip(names, whole)
                if is_whole} >= {508, 509}
    said = report(run.path).stdout
    assert "cut: the stacks of %d samples were deeper" % cut in said


# ________________________________________
# arguments and pipes


@pytest.mark.parametrize("flag", ["-n", "--limit"])
def test_number_of_functions(tmp_path: Path, flag: str) -> None:
    path = write(tmp_path, sampled())
    found = report(path, flag, "1").stdout
    assert "two" in found and "one  " not in found
    assert "... and 1 function more" in found
    assert " more" not in report(path, flag, "2").stdout


@pytest.mark.parametrize("number", ["-1", "0", "x", "1.5", ""])
def test_refuses_an_invalid_number_of_functions(tmp_path: Path, number: str) -> None:
    done = report(write(tmp_path, sampled()), "-n", number)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith(
        "invalid number of rows %r: write 1 or more" % number)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["report", "doctor"])
@pytest.mark.parametrize("python", [sys.executable, PYPY],
                         ids=["cpython", "pypy"])
def test_a_reader_that_closes_the_pipe_is_not_an_error(tmp_path: Path, python: str,
                                                       command: str) -> None:
    """The commands write no message, and `doctor` ends by SIGPIPE."""
    arguments = [str(write(tmp_path, sampled()))] if command == "report" else []
    read, write_ = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [python, "-m", "vmprof_allocation", command, *arguments],
            stdout=write_, stderr=subprocess.PIPE, text=True, timeout=300)
    finally:
        os.close(write_)
    assert (done.returncode, done.stderr) == (
        0 if command == "report" else -signal.SIGPIPE, "")


def test_report_that_can_not_be_written(tmp_path: Path) -> None:
    path = write(tmp_path, sampled())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vmprof_allocation", "report", str(path)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (
        2, "pypy-alloc: cannot write to standard output: No space left on "
        "device\n")


@pytest.mark.parametrize("options", [
    ["report"], ["report", "-o", "-"], ["export", "--format", "firefox", "-o", "-"]])
@pytest.mark.parametrize("program", report_runs.PROGRAMS.values())
def test_standard_output_that_is_closed(tmp_path: Path, program: str,
                                        options: list[str]) -> None:
    path = write(tmp_path, sampled())
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", program, *options,
         str(path)], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr.endswith(": cannot write to standard output: it is closed\n")
    assert done.stderr.count("\n") == 1
    # an output file does not need standard output
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", program, "report",
         str(path), "-o", str(tmp_path / "a.md")],
        stderr=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.md").read_text().startswith("allocated in ")


def test_standard_input_and_errors_that_are_closed(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "vmprof_convert",
         "report", "-"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "vmprof-convert: standard input: it is closed\n"
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "vmprof_convert",
         "report", str(tmp_path / "no")], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("options", [["report"], ["export", "--format", "firefox"]])
def test_standard_output_on_a_full_disk(tmp_path: Path, options: list[str]) -> None:
    path = write(tmp_path, sampled())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vmprof_convert", *options, str(path), "-o", "-"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (
        2, "vmprof-convert: cannot write to standard output: No space left on device\n")


def test_reports_of_a_table_and_of_a_stream_are_equal(tmp_path: Path) -> None:
    path = write(tmp_path, large(5000, depth=20, distinct=300))
    assert text(readers.read(path)) == report(path, "--by", "function").stdout != ""
