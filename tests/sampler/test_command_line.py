"""The options of `pypy3 -m vmprof` for allocations, accepted and refused ones."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest

from conftest import PyPy, Run, has_builtin
from controlled import WAITS
from running import running
from vmprof_allocation.engines.builtin.engine import BuiltinEngine
from vmprof_allocation.engines.hook.engine import HookEngine
from vmprof_allocation.session.profile_file import HEAD
from vmprof_convert import readers

APP = """
    import sys
    print(__name__, sys.argv[1:])
    kept = [str(i) for i in range(50000)]
"""


def one_line(run: Run) -> str:
    """Check that a run was refused, and return its line on stderr.

    The exit code is 2, and nothing is on stdout.
    """
    assert run.code == 2, run
    assert run.out == ""
    assert run.err.startswith("vmprof: ")
    assert run.err.count("\n") == 1, run.err
    return run.err


# ____________________________________________________________
# accepted command lines

def test_help_shows_the_flags(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof", "--help")
    assert run.code == 0
    for flag in ("--allocation-sampling", "--allocation-seed",
                 "--allocation-distribution", "--period", "--output", "--quiet"):
        assert flag in run.out


def test_quiet(stock_pypy: PyPy) -> None:
    """--quiet suppresses notes, but no errors."""
    flags = "--allocation-sampling", "1k", "-o", "out.vmprof"
    script = str(stock_pypy.script(APP))
    # without --quiet, notes say that this build of PyPy is unknown, and that the result
    # of the search cannot be stored
    quiet = stock_pypy.command("-m", "vmprof", *flags, "--quiet", script,
                               XDG_CACHE_HOME="/dev/null")
    assert (quiet.code, quiet.out, quiet.err) == (0, "__main__ []\n", "")
    assert len(stock_pypy.profile().samples) > 0
    assert "need --allocation-sampling" in one_line(stock_pypy.command(
        "-m", "vmprof", "--quiet", script))
    assert "cannot open" in one_line(stock_pypy.command(
        "-m", "vmprof", *flags, "--quiet", "missing.py"))


def test_quiet_prints_the_report(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k", "--quiet",
                       str(pypy.script(APP)))
    assert run.code == 0 and "allocated in " in run.err


@pytest.mark.parametrize("rate,interval", [
    ("1.5 MB", 1572864), ("1", 1), ("4611686018427387904", 2**62)])
def test_rates(pypy: PyPy, rate: str, interval: int) -> None:
    source = "x = [str(i) for i in range(100)]\n"
    profile = pypy.sample(source, rate).profile()
    assert int(profile.settings["interval"]) == interval
    assert set(profile.samples.interval) <= {interval}
    if interval <= 64:
        assert len(profile.samples) > 100


def test_module_with_arguments_that_look_like_flags(pypy: PyPy) -> None:
    pypy.script(APP, "amodule.py")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k",
                       "-o", "out.vmprof", "-m", "amodule", "--period", "9",
                       "--allocation-sampling", "x", "-o", "-m")
    assert run.out == ("__main__ ['--period', '9', '--allocation-sampling', "
                       "'x', '-o', '-m']\n")
    assert run.code == 0
    assert run.profile().settings["interval"] == "1024"


def test_flag_of_the_program_is_not_ours(pypy: PyPy) -> None:
    """No flag before the program is ours, so stock vmprof runs."""
    run = pypy.command("-m", "vmprof", "-o", "out.vmprof",
                       str(pypy.script(APP)), "--allocation-sampling", "0")
    assert run.out == "__main__ ['--allocation-sampling', '0']\n"
    assert run.profile().settings == {}


@pytest.mark.parametrize("flags", [
    ["--lines"], ["--mem"], ["--no-native"], ["-n"], ["--jitlog"],
    ["--period", "0.01"], ["-p", "0.01"],
])
def test_other_flags_keep_working(pypy: PyPy, flags: list[str]) -> None:
    run = pypy.sample(APP, "1k", *flags)
    assert run.out == "__main__ []\n"
    profile = run.profile()
    assert 1024 in profile.samples.interval
    if flags == ["--mem"]:
        assert max(profile.samples.memory) > 1000
    if flags == ["--jitlog"]:
        assert (pypy.folder / "out.vmprof.jit").exists()
    assert run.err == ""


def test_config_file_of_vmprof(pypy: PyPy) -> None:
    (pypy.folder / "ini").write_text("[global]\nperiod = 0.01\n")
    profile = pypy.sample(APP, "1k", "--config", "ini").profile()
    assert profile.settings["period"] == "0.01"


def test_profile_contains_the_capabilities_of_its_engine(pypy: PyPy) -> None:
    settings = pypy.sample(APP, "1k").profile().settings
    capabilities = settings["capabilities"].split(",")
    assert {"lifetimes", "limits", "time-samples", "types"} <= set(capabilities)
    assert capabilities == sorted(capabilities)
    assert settings["facts"] == "types,lifetimes"
    if settings["engine"] == "builtin":
        assert capabilities == list(BuiltinEngine(None).capabilities())
    else:       # before prepare(), the engine does not know if it can record these two
        assert not {"lifetimes", "types"} & set(HookEngine().capabilities())


def test_summary_goes_to_stderr_and_leaves_no_file(pypy: PyPy) -> None:
    (pypy.folder / "tmp").mkdir()
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k",
                       str(pypy.script(APP)),
                       TMPDIR=str(pypy.folder / "tmp"))
    assert run.out == "__main__ []\n"
    assert "<listcomp>" in run.err or "<module>" in run.err
    assert list((pypy.folder / "tmp").iterdir()) == []


def test_existing_profile_is_replaced(pypy: PyPy) -> None:
    out = pypy.folder / "out.vmprof"
    out.write_bytes(HEAD + b"x" * 10**7)
    pypy.sample(APP, "16k")
    assert out.stat().st_size < 10**6
    assert readers.read(out).settings["interval"] == "16384"


@pytest.mark.parametrize("command", [
    ("-m", "vmprof", "--allocation-sampling", "16k", "-o", "notes.txt", "app.py"),
    ("-c", "import vmprof_allocation; vmprof_allocation.start('notes.txt')"),
    ("-m", "vmprof_allocation", "attach", "PID", "-o", "notes.txt"),
    ("-m", "vmprof_allocation", "control", "PID", "start", "-o", "notes.txt"),
    ("-m", "vmprof_allocation", "control", "PID", "rotate", "-o", "notes.txt"),
], ids=["command", "start", "attach", "control-start", "control-rotate"])
def test_file_that_is_not_a_profile_is_kept(
        pypy: PyPy, command: tuple[str, ...]) -> None:
    """An existing file is only replaced if it is a profile: -o may be a mistake."""
    (pypy.folder / "notes.txt").write_text("precious")
    (pypy.folder / "app.py").write_text("print('started')")
    with running(pypy, WAITS) as program:
        run = pypy.command(*(str(program.pid) if word == "PID" else word
                             for word in command))
    assert (pypy.folder / "notes.txt").read_text() == "precious"
    assert run.code == (1 if command[0] == "-c" else 2)
    assert "its 8 bytes are not a profile. Choose another file" in run.err
    assert run.out == ""


def test_profile_into_a_pipe(pypy: PyPy) -> None:
    """The sampler only appends to a profile, so `-o /dev/stdout | ...` works."""
    script = pypy.script("kept = [str(i) for i in range(50000)]\n")
    os.mkfifo(pypy.folder / "fifo")
    data: list[bytes] = []
    thread = threading.Thread(target=lambda: data.append(
        (pypy.folder / "fifo").read_bytes()))
    thread.start()
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k",
                       "-o", "fifo", str(script))
    thread.join()
    assert run.code == 0
    assert len(readers.read_bytes(data[0]).samples) > 100


def test_doctor_of_a_process_that_is_sampled(stock_pypy: PyPy) -> None:
    """doctor does not report the sampler's own patches as changes of PyPy's code."""
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "1M", "-o",
                             "out.vmprof", "-m", "vmprof_allocation", "doctor")
    assert (run.code, run.err) == (0, "")
    assert ("this process is being sampled into "
            "%r") % str(stock_pypy.folder / "out.vmprof") in run.out


def test_profile_is_not_written_to_standard_output(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1M", "-o", "-",
                       str(pypy.script("print(1)")))
    assert (run.code, run.out) == (2, "")
    assert "standard output belongs to the program" in run.err
    assert not (pypy.folder / "-").exists()


def test_doctor(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof_allocation", "doctor")
    assert run.code == 0
    assert "BAD" not in run.out
    assert "\nallocations can be sampled here" in run.out


def test_report(pypy: PyPy) -> None:
    pypy.sample(APP, "1k")
    run = pypy.command("-m", "vmprof_allocation", "report", "out.vmprof")
    assert run.code == 0
    assert "the GC itself counted" in run.out
    bad = pypy.command("-m", "vmprof_allocation", "report", "app.py")
    assert bad.code == 2
    assert bad.err.count("\n") == 1 and "not a vmprof profile" in bad.err


# ____________________________________________________________
# refused command lines

@pytest.mark.parametrize("rate", ["0", "", "\u0661"])
def test_bad_rate(pypy: PyPy, rate: str) -> None:
    out = pypy.folder / "out.vmprof"
    out.write_bytes(b"precious")
    line = one_line(pypy.command(
        "-m", "vmprof", "-o", "out.vmprof", "--allocation-sampling=" + rate,
        str(pypy.script(APP)), PYTHONIOENCODING="utf-8"))
    assert "invalid sample interval" in line
    assert out.read_bytes() == b"precious"


@pytest.mark.parametrize("flags,said", [
    (["--allocation-seed", "x"], "invalid seed 'x'"),
    (["--allocation-sampling", "auto:2"], "invalid limit 'auto:2'"),
    (["--allocation-sampling", "auto", "--allocation-distribution", "fixed"],
     "a fixed distribution cannot follow a limit"),
    (["--period", "nan"], "invalid period nan"),
    (["--web"], "--web"),
    (["--web-auth", "token"], "--web-auth"),
])
def test_bad_flags(pypy: PyPy, flags: list[str], said: str) -> None:
    assert said in one_line(pypy.command(
        "-m", "vmprof", "--allocation-sampling", "128k", *flags,
        str(pypy.script(APP))))


@pytest.mark.parametrize("flags", [
    ["--allocation-distribution", "regular"], ["--period", "x"],
    ["--no-such-flag"], ["--web", "-o", "x"],
])
def test_flags_that_argparse_refuses(pypy: PyPy, flags: list[str]) -> None:
    out = pypy.folder / "out.vmprof"
    out.write_bytes(b"precious")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k", "-o",
                       "out.vmprof", *flags, str(pypy.script(APP)))
    assert run.code == 2
    assert "Traceback" not in run.err
    assert out.read_bytes() == b"precious"


@pytest.mark.parametrize("flags, said", [
    (["--allocation-sampling"],
     "invalid sample interval 'app.py': write a number of bytes, such as"),
    (["--allocation-samp"], "and then the program"),
    (["--native-memory"], "invalid sample interval 'app.py': write a number of bytes"),
    (["--allocation-sampling", "8k", "-o"],
     "no program follows '-o app.py': write the value of -o, and then the program"),
    (["--rotate"], "no program follows '--rotate app.py'"),
    (["--push"], "no program follows '--push app.py'"),
])
def test_option_whose_value_was_forgotten(
        pypy: PyPy, flags: list[str], said: str) -> None:
    """The option takes the program as its value."""
    program = pypy.script(APP)
    program.rename(program.with_name("app.py"))
    assert said in one_line(pypy.command("-m", "vmprof", *flags, "app.py"))
    assert (pypy.folder / "app.py").exists()


def test_seed_without_sampling(pypy: PyPy) -> None:
    assert "need --allocation-sampling" in one_line(pypy.command(
        "-m", "vmprof", "--allocation-seed", "1", str(pypy.script(APP))))


@pytest.mark.parametrize("program", ["missing.py", "", "no/such/app.py"])
def test_program_that_does_not_exist(pypy: PyPy, program: str) -> None:
    line = one_line(pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1k", "-o", "out.vmprof",
        program))
    assert "cannot open the program" in line
    assert not (pypy.folder / "out.vmprof").exists()


def test_module_that_does_not_exist(pypy: PyPy) -> None:
    assert "no module named 'no_such_module'" in one_line(pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1k", "-m",
        "no_such_module"))


@pytest.mark.parametrize("output", ["/dev/full/x", "missing/out.vmprof", "."])
def test_output_that_cannot_be_written(pypy: PyPy, output: str) -> None:
    assert "cannot write the profile" in one_line(pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1k", "-o", output,
        str(pypy.script(APP))))


def test_full_disk_is_refused(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k",
                       "-o", "/dev/full", str(pypy.script(APP)))
    assert (run.code, run.out) == (2, "")
    assert run.err == (
        "vmprof: cannot start the sampling: vmprof reports: No space left on device\n"
        if has_builtin() else
        "vmprof: starting the profile failed: No space left on device; "
        "nothing is being sampled\n")


@pytest.mark.parametrize("limit", [0, 1, 100, 4000])
def test_a_limit_of_files_that_no_profile_fits_in(pypy: PyPy, limit: int) -> None:
    """The program continues, although it has the default action for SIGXFSZ."""
    run = pypy.run("""
        import resource, signal, vmprof_allocation
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (%d, resource.RLIM_INFINITY))
        try:
            vmprof_allocation.start("out.vmprof")
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
    """ % limit)
    assert (run.code, run.err) == (0, "")
    assert ("it has reached the size limit for files of this process (ulimit "
            "-f)") in run.out
    assert not run.path.exists()


@pytest.mark.parametrize("option", [(), ("--retainers",), ("--memory",),
                                    ("--rotate", "1")],
                         ids=lambda option: "".join(option[:1]))
def test_default_action_of_sigxfsz_does_not_end_the_program(
        pypy: PyPy, option: tuple[str, ...]) -> None:
    """At the end of the sampling, vmprof.disable() writes names, beyond the limit."""
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "8k", *option, "-o", "out.vmprof",
        str(pypy.script("""
            import resource, signal
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            kept = [bytes(200) for i in range(20000)]
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
            print(len(kept))
        """)))
    assert (run.code, run.out) == (0, "20000\n"), run.err
    assert run.err.endswith("the profile is not complete: it has reached the size "
                            "limit for files of this process (ulimit -f)\n")


def test_disk_that_becomes_full_harms_nothing(pypy: PyPy) -> None:
    limited = """\
        import resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))
        print(sum(len([i]) for i in range(2000000)))
    """
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "64",
                       "-o", "out.vmprof", str(pypy.script(limited)))
    assert (run.code, run.out) == (0, "2000000\n")
    assert run.err == ("vmprof: the profile is not complete: it has reached the size "
                       "limit for files of this process (ulimit -f)\n")
    profile = run.profile()             # the records before the error are whole
    assert profile.end_time is None
    assert len(profile.samples) > 100


def test_cpython_is_refused(pypy: PyPy) -> None:
    """A CPython that has vmprof and our flags prints one line, too."""
    (pypy.folder / "out.vmprof").write_text("precious")
    done = subprocess.run(
        [sys.executable, "-m", "vmprof", "--allocation-sampling", "1k",
         "-o", "out.vmprof", str(pypy.script(APP))],
        cwd=pypy.folder, capture_output=True, text=True)
    line = one_line(Run(done.returncode, done.stdout, done.stderr,
                        pypy.folder))
    assert "this is CPython" in line
    assert (pypy.folder / "out.vmprof").read_text() == "precious"
    doctor = subprocess.run(
        [sys.executable, "-m", "vmprof_allocation", "doctor"],
        capture_output=True, text=True)
    assert doctor.returncode == 1
    assert "this is CPython" in doctor.stdout


@pytest.mark.parametrize("change,said", [
    ("sys.platform = 'darwin'", "needs Linux, but this is darwin"),
    ("os.uname = lambda: types.SimpleNamespace(machine='riscv64')",
     "is possible on x86-64 and AArch64, but this is riscv64"),
])
def test_other_systems_are_refused(stock_pypy: PyPy, change: str, said: str) -> None:
    """The test replaces the functions that report the system."""
    script = stock_pypy.script("""
        import os, sys, types
        %s
        import vmprof_allocation
        try:
            vmprof_allocation.start("out.vmprof")
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
    """ % change)
    assert said in stock_pypy.command(str(script)).out
    assert not (stock_pypy.folder / "out.vmprof").exists()


def test_already_enabled_is_refused(pypy: PyPy) -> None:
    script = pypy.script("""
        import vmprof_allocation as va
        va.start("one.vmprof")
        try:
            va.start("two.vmprof")
        except va.AllocationSamplingError as e:
            print(e)
        va.stop()
        try:
            va.stop()
        except va.AllocationSamplingError as e:
            print(e)
        import vmprof, os
        fd = os.open("three.vmprof", os.O_RDWR | os.O_CREAT)
        vmprof.enable(fd)
        try:
            va.start("two.vmprof")
        except va.AllocationSamplingError as e:
            print(e)
        vmprof.disable()
        print(os.path.exists("two.vmprof"))
    """)
    lines = pypy.command(str(script)).out.splitlines()
    assert lines[0].startswith("allocation sampling is already on")
    assert lines[1].startswith("allocation sampling is not on")
    assert lines[2].startswith("vmprof is already enabled")
    assert lines[3] == "False"
    assert len(readers.read(pypy.folder / "one.vmprof").stacks) >= 0



def hide_the_converter(pypy: PyPy) -> str:
    """Return a PYTHONPATH in which vmprof_convert cannot be imported."""
    (pypy.folder / "hidden").mkdir()
    pypy.script("import sys; sys.modules['vmprof_convert'] = None",
                "hidden/sitecustomize.py")
    return str(pypy.folder / "hidden")


def test_report_without_the_converter(pypy: PyPy) -> None:
    """The error is reported before the program runs."""
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "4k",
        str(pypy.script("print('ran')")), PYTHONPATH=hide_the_converter(pypy))
    assert (run.code, run.out) == (2, "")
    assert run.err == (
        "vmprof: the report needs vmprof-convert, which is missing in this "
        "environment. Install it, or write the profile to a file with -o\n")


def test_report_command_without_the_converter(pypy: PyPy) -> None:
    pypy.sample("print(1)", "4k")
    run = pypy.command("-m", "vmprof_allocation", "report", "out.vmprof",
                       PYTHONPATH=hide_the_converter(pypy))
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1 and "Install it" in run.err


@pytest.mark.parametrize("arguments", [
    "None", "'x', None", "'x', b'128k'", "'x', 1.5", "'x', True"])
def test_arguments_of_the_wrong_type(pypy: PyPy, arguments: str) -> None:
    run = pypy.command(str(pypy.script("""
        import vmprof_allocation
        try:
            vmprof_allocation.sample(%s)
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
    """ % arguments)))
    assert run.code == 0, run.err
    assert re.match(r"invalid (output None|sample interval (None|b'128k'|1\.5|True)): ",
                    run.out), run.out


def test_code_on_the_command_line(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "4k",
                       "-o", "out.vmprof", "-c", "import sys; print(sys.argv)",
                       "-x", "y")
    assert (run.code, run.out, run.err) == (0, "['-c', '-x', 'y']\n", "")
    assert pypy.profile().end_time is not None


def test_a_jit_that_compiles_at_once(stock_pypy: PyPy) -> None:
    """start() checks the nursery by allocations, which the JIT must not delay."""
    run = stock_pypy.sample("print(1)", "4k",
                            jit="threshold=2,function_threshold=2,trace_eagerness=2")
    assert run.out == "1\n"


def test_a_nursery_that_is_too_small_is_named(stock_pypy: PyPy) -> None:
    script = stock_pypy.script("print(1)")
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "4k", "-o",
                             "out.vmprof", str(script), PYPY_GC_NURSERY="1")
    assert (run.code, run.out) == (2, "")
    assert "PYPY_GC_NURSERY" in run.err and "not known" not in run.err
