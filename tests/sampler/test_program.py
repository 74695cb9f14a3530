"""The program runs as without the sampler, in an interpreter that contains only the
program and the sampler."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from conftest import EMULATED, PYPY, ROOT, PyPy, Run, has_builtin, not_emulated
from truth import innermost

SAMPLED = ("--allocation-sampling", "16k", "-o", "out.vmprof")

WHO = """
    import os, sys
    import json                         # the standard library is there
    main = sys.modules["__main__"]
    print(__name__, __file__, __package__, __spec__, type(__loader__))
    print(main.__dict__ is globals(), sorted(globals()))
    print(sys.argv, sys.path, sys.flags, sys.warnoptions, sys._xoptions)
    print(sys.executable, sys.prefix, getattr(sys, "orig_argv", [])[-1:])
    print(sorted(os.environ), os.getcwd(), __debug__)
"""


def sampled(pypy: PyPy, *arguments: str, flags: tuple[str, ...] = (),
            **environment: str) -> Run:
    return pypy.command(*flags, "-m", "vmprof", *SAMPLED, *arguments,
                        timeout=300, **environment)


def same(pypy: PyPy, *arguments: str, flags: tuple[str, ...] = (),
         **environment: str) -> Run:
    """Run a program with and without the sampler, and compare both runs.

    Returns:
        The sampled run.
    """
    plain = pypy.command(*flags, *arguments, timeout=300, **environment)
    run = sampled(pypy, *arguments, flags=flags, **environment)
    assert [run.code, without_addresses(run.out), without_addresses(run.err)] \
        == [plain.code, *map(without_addresses, (plain.out, plain.err))]
    return run


def without_addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x", text)


def make_folder(pypy: PyPy, name: str = "folder", main: str = WHO) -> None:
    (pypy.folder / name).mkdir()
    (pypy.folder / name / "__init__.py").touch()
    pypy.script(main, name + "/__main__.py")


@pytest.mark.parametrize("flags", [
    (), ("-I",), ("-E",), ("-s",), ("-O",), ("-B", "-u"), ("-bb",),
    ("-W", "error", "-X", "utf8"), ("-Werror", "-Xdev"), ("--jit", "off"),
    ("-OO", "-W", "m", "--jit", "vec=0"),
], ids=" ".join)
def test_isolated_and_other_flags_of_the_interpreter(
        pypy: PyPy, flags: tuple[str, ...]) -> None:
    (pypy.folder / "scripts").mkdir()
    pypy.script(WHO, "scripts/app.py")
    run = same(pypy, "scripts/app.py", "-m", "x y", "", flags=flags)
    assert run.code == 0
    assert len(run.profile().stacks) > 0


@pytest.mark.parametrize("name,value", [
    ("PYTHONSAFEPATH", "1"), ("PYTHONPATH", "elsewhere"),
    ("PYTHONOPTIMIZE", "1"), ("PYTHONWARNINGS", "ignore"),
])
def test_safe_path_and_other_variables(
        pypy: PyPy, name: str, value: str) -> None:
    assert same(pypy, str(pypy.script(WHO)), flags=(),
                **{name: value}).code == 0


@pytest.mark.parametrize("form,flags", [
    (["-mvmprof"], []), (["-Im", "vmprof"], ["-I"]), (["-Omvmprof"], ["-O"]),
    (["-W", "m", "-m", "vmprof"], ["-W", "m"]), (["-BOm", "vmprof"], ["-BO"]),
    (["-m", "vmprof.__main__"], []),
], ids=" ".join)
def test_forms_of_the_interpreters_command_line(
        pypy: PyPy, form: list[str], flags: list[str]) -> None:
    path = str(pypy.script(WHO))
    plain = pypy.command(*flags, path)
    run = pypy.command(*form, *SAMPLED, path)
    assert (run.code, run.out, run.err) == (0, plain.out, plain.err)


@pytest.mark.parametrize("arguments", [
    ("-m", "amodule"), ("-m", "folder"), ("-m", "folder.inner"), ("folder",),
    ("app.pyz",), ("-m", "amodule", "-m", "vmprof", "--", "-o"),
], ids=" ".join)
def test_modules_folders_and_archives(
        pypy: PyPy, arguments: tuple[str, ...]) -> None:
    make_folder(pypy)
    pypy.script(WHO, "folder/inner.py")
    pypy.script(WHO, "amodule.py")
    with zipfile.ZipFile(pypy.folder / "app.pyz", "w") as archive:
        archive.write(pypy.folder / "folder" / "__main__.py", "__main__.py")
    assert same(pypy, *arguments).code == 0


def test_main_and_argv_while_threads_and_exit_handlers_run(pypy: PyPy) -> None:
    pypy.script("""
        import atexit, pickle, sys, threading, time
        class C:
            pass
        def later():
            time.sleep(0.3)
            print(sys.modules["__main__"].__dict__ is globals(),
                  len(pickle.dumps(C())), sys.argv, flush=True)
        threading.Thread(target=later).start()
        atexit.register(later)
    """, "amodule.py")
    assert same(pypy, "-m", "amodule", "x").out.count("True") == 2


def test_threads_and_exit_handlers_are_in_the_profile(pypy: PyPy) -> None:
    """The program's first exit handler runs last, and is still in the profile."""
    run = pypy.sample("""
        import atexit, threading, time
        filler = b"x" * 20000
        def first():
            for i in range(1000):
                filler[:10000]
        def thread():
            time.sleep(0.2)
            for i in range(1000):
                filler[:10000]
        atexit.register(first)
        threading.Thread(target=thread).start()
    """, "4k", jit="off")
    profile = run.profile()
    assert profile.end_time is not None
    names = [innermost(profile, stack) for stack in profile.samples.stack]
    for name in "first", "thread":
        assert names.count(name) > 850


def test_profile_is_complete_if_exit_functions_are_cleared(stock_pypy: PyPy) -> None:
    """The program clears the sampler's exit function, too."""
    run = stock_pypy.sample("""
        import atexit
        atexit.register(print, "not this")
        filler = b"x" * 20000
        def work():
            for i in range(1000):
                filler[:10000]
        work()
        atexit._clear()
        work()
    """, "4k", jit="off")
    assert run.out == ""
    profile = run.profile()
    assert profile.end_time is not None and not profile.ended
    names = [innermost(profile, stack) for stack in profile.samples.stack]
    assert names.count("work") > 1700


def test_names_of_cpu_samples_if_exit_functions_are_cleared(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import atexit, time
        def only_spins():
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass
        atexit._clear()
        exec(compile("def late(f):\\n f()", "x.py", "exec"))
        late(only_spins)
    """, "1G", "--period", "0.005", jit="off")
    profile = run.profile()
    assert profile.end_time is not None
    names = {profile.function(f.address).name
             for stack in profile.stacks for f in stack}
    assert {"only_spins", "late"} <= names
    assert not any(name.startswith("<unknown") for name in names)


@pytest.mark.parametrize("end", [
    "class Odd(SystemExit): pass\nraise Odd(7)",
    "sys.exit(2**40)", "sys.exit(-1)", "sys.exit((1, 2))",
    "import atexit; atexit.register(sys.exit, 9)",
    "import atexit; atexit.register(lambda: 1 / 0)",
    "import threading; threading.Thread(target=sys.exit, args=(4,)).start()",
    "sys.excepthook = lambda *a: sys.exit(6); 1 / 0",
    "sys.stdout = sys.stderr = None; 1 / 0",
    "class S:\n write = None\n def flush(self): raise OSError\n"
    "sys.stdout = S()",
    "def deep(): deep()\ndeep()",
    "raise ImportError('x')", "raise KeyboardInterrupt",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()"
    "\nraise KeyboardInterrupt",
])
def test_unusual_ends_of_the_program(pypy: PyPy, end: str) -> None:
    """Exit codes and tracebacks are the interpreter's, and the profile is complete."""
    (pypy.folder / "app.py").write_text("import sys\nprint('x')\n" + end)
    assert same(pypy, "app.py").profile().end_time is not None


def test_signals_are_as_without_us(pypy: PyPy) -> None:
    """A shell ignores SIGINT for background jobs, and a program inherits that."""
    path = str(pypy.script("""
        import signal
        for number in signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ:
            print(signal.getsignal(number))
        for line in open("/proc/self/status"):
            if line.startswith(("SigBlk", "SigIgn")):
                print(line)
    """))
    outputs = set()
    for command in [[PYPY, path],
                    [PYPY, "-m", "vmprof", *SAMPLED, path]]:
        for ignored in "", "trap '' INT; ":
            done = subprocess.run(
                ["/bin/sh", "-c", ignored + 'exec "$@"', "sh", *command],
                capture_output=True, text=True, cwd=pypy.folder,
                env=pypy.environment)
            assert done.returncode == 0, done.stderr
            outputs.add((ignored, done.stdout))
    assert len(outputs) == 2


def test_children_inherit_nothing_of_the_sampler(pypy: PyPy) -> None:
    """Children get no variable, and with --no-follow, no descriptor.

    The same holds for a run inside a run.
    """
    pypy.script("""
        import os, subprocess, sys
        print(sorted(os.environ))
        print(os.listdir("/proc/self/fd"))
    """, "child.py")
    path = str(pypy.script("""
        import os, subprocess, sys
        subprocess.run([sys.executable, "child.py"], close_fds=False)
        os.system(sys.executable + " child.py")
        sys.stdout.flush()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "child.py"])
        os.wait()
        subprocess.run([sys.executable, "-m", "vmprof",
                        "--allocation-sampling", "1k", "-o", "inner.vmprof",
                        "child.py"])
    """))
    plain = pypy.command(path)
    (pypy.folder / "tmp").mkdir()
    for flags in [], ["--no-follow"]:
        run = pypy.command("-m", "vmprof", "--allocation-sampling", "16k", *flags,
                           path, TMPDIR=str(pypy.folder / "tmp"))
        lines = [line.replace("'TMPDIR', ", "") for line in run.out.splitlines()]
        expected = plain.out.splitlines()
        assert len(lines) == 8
        if not flags:
            # descriptors of the children's own profiles
            lines, expected = ([line.replace(", '512', '513', '514', '515'", "")
                                for line in both] for both in (lines, expected))
        assert lines == expected
        (pypy.folder / "inner.vmprof").unlink()
        assert list((pypy.folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("flags", [
    [], ["-o", "out.vmprof"], ["-o", "out.vmprof", "--jitlog"],
], ids=" ".join)
def test_closed_standard_files(
        pypy: PyPy, closed: str, flags: list[str]) -> None:
    """None of our files becomes the program's stdin, stdout or stderr."""
    (pypy.folder / "tmp").mkdir()
    path = str(pypy.script("""
        import sys
        kept = [str(i) for i in range(50000)]
        with open("standard", "w") as file:
            print(sys.stdin is None, sys.stdout is None, sys.stderr is None,
                  file=file)
        sys.exit(5)
    """))
    answers = set()
    for command in [[PYPY, path], [
            PYPY, "-m", "vmprof", "--allocation-sampling", "1k", *flags,
            path]]:
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" ' + closed, "sh", *command],
            cwd=pypy.folder, stdin=subprocess.DEVNULL, capture_output=True,
            env={**pypy.environment, "TMPDIR": str(pypy.folder / "tmp")})
        assert done.returncode == 5, done.stderr
        answers.add((pypy.folder / "standard").read_text())
    assert len(answers) == 1
    assert list((pypy.folder / "tmp").iterdir()) == []


# ____________________________________________________________
# contents of the program's process

def test_program_begins_with_few_objects_of_the_sampler(pypy: PyPy) -> None:
    """Few may stay, because each major collection walks all objects on the heap."""
    source = """
        import sys
        print(" ".join(sorted(sys.modules)))
        import gc
        # PyPy's table of them has room for twice as many then, with us or without
        names = [sys.intern("name%d" % i) for i in range(3000)]
        for i in range(5):
            gc.collect()
        print(gc.get_stats()._s.total_gc_memory)
    """
    plain = pypy.run(source).out.splitlines()
    run = pypy.sample(source, "1G").out.splitlines()
    new = set(run[0].split()) - set(plain[0].split())
    # functions of other modules also stay on the heap: see test_resident.py
    assert new <= {"__future__", "_cffi_backend", "_vmprof", "atexit", "fcntl", "gc",
                   "vmprof_allocation.errors", "vmprof_allocation.critical.forks",
                   "vmprof_allocation.session.resident", "zlib",
                   *(["_jitlog"] if EMULATED else [])}      # for AArch64's stacks
    # More of the builtin engine stays.  For AArch64's stacks, the JIT log of the
    # program's start stays, too.
    most = 500 if has_builtin() else 380 if EMULATED else 330
    assert int(run[1]) - int(plain[1]) < most * 1024


# ____________________________________________________________
# refused programs

def refused(run: Run) -> str:
    assert (run.code, run.out) == (2, ""), run
    assert run.err.startswith("vmprof: ") and run.err.count("\n") == 1, run.err
    return run.err


def test_folder_without_main_is_refused(pypy: PyPy) -> None:
    (pypy.folder / "folder").mkdir()
    assert "has no __main__.py" in refused(sampled(pypy, "folder"))


def test_archive_without_main_is_refused(pypy: PyPy) -> None:
    with zipfile.ZipFile(pypy.folder / "app.zip", "w") as archive:
        archive.writestr("main.py", "")
    assert "has no __main__.py" in refused(sampled(pypy, "app.zip"))


@not_emulated
def test_temporary_folder_that_is_full_is_refused(pypy: PyPy) -> None:
    path = str(pypy.script("print('ran')"))
    done = subprocess.run(
        ["/bin/sh", "-c", "ulimit -f 0; exec \"$@\"", "sh", PYPY, "-m",
         "vmprof", "--allocation-sampling", "1k", path], cwd=pypy.folder,
        env=pypy.environment, capture_output=True, text=True)
    assert "a temporary file" in refused(Run(
        done.returncode, done.stdout, done.stderr, pypy.folder))


@pytest.mark.parametrize("name", ["folder.nosuch", "amodule.nosuch", "json"])
def test_module_of_a_package_that_does_not_exist(
        pypy: PyPy, name: str) -> None:
    """The interpreter itself finds the error, after the package was imported."""
    (pypy.folder / "folder").mkdir()
    (pypy.folder / "folder" / "__init__.py").touch()
    pypy.script("", "amodule.py")
    run = sampled(pypy, "-m", name)
    assert (run.code, run.out) == (1, "")
    assert run.err.count("\n") == 1 and name in run.err


def test_package_is_imported_once(pypy: PyPy) -> None:
    make_folder(pypy, main="print('main')")
    pypy.script("print('package')", "folder/__init__.py")
    assert same(pypy, "-m", "folder").out == "package\nmain\n"


# ____________________________________________________________
# commands by name

def make_command(pypy: PyPy, name: str, text: str) -> str:
    """Make a folder with a command, and return a PATH that begins with the folder."""
    (pypy.folder / "bin").mkdir()
    path = pypy.folder / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return "%s:%s" % (path.parent, os.environ["PATH"])


def test_console_script_by_its_name(pypy: PyPy) -> None:
    path = make_command(pypy, "serve", "#!%s\nimport sys\nprint(sys.argv)\n"
                        % PYPY)
    run = sampled(pypy, "serve", "a", "-o", PATH=path)
    assert (run.code, run.out) == (
        0, "['%s/bin/serve', 'a', '-o']\n" % pypy.folder), run.err


@not_emulated
def test_console_script_of_this_interpreter(pypy: PyPy) -> None:
    """The environment of the interpreter need not be active."""
    run = sampled(pypy, "pip", "--version", PATH="/usr/bin:/bin")
    assert run.code == 0 and run.out.startswith("pip "), run


def test_file_in_the_folder_comes_before_the_path(pypy: PyPy) -> None:
    path = make_command(pypy, "serve", "print('on the path')\n")
    (pypy.folder / "serve").write_text("print('here')\n")
    assert sampled(pypy, "serve", PATH=path).out == "here\n"


@pytest.mark.parametrize("text", ["#!/bin/sh\nif true; then echo x; fi\n",
                                  "\x7fELF\x02\0\0"])
def test_command_that_is_not_python_is_refused(
        pypy: PyPy, text: str) -> None:
    path = make_command(pypy, "serve", text)
    assert "not written in Python" in refused(
        sampled(pypy, "serve", PATH=path))


# ____________________________________________________________
# the .pth file, which every start of the interpreter reads

PTH = (ROOT / "vmprof-integration" / "vmprof_allocation.pth").read_text()
OPEN_FILES = """
    import os, warnings
    def target(number):
        try:
            return os.readlink("/proc/self/fd/" + number)
        except OSError:
            return "the list itself"
    print(sorted(target(n) for n in os.listdir("/proc/self/fd") if int(n) > 2))
"""


def test_pth_leaves_no_descriptor(pypy: PyPy) -> None:
    pypy.script(OPEN_FILES, "amodule.py")
    run = pypy.command("-X", "dev", "-W", "always", "-m", "amodule")
    assert (run.code, run.out, run.err) == (0, "['the list itself']\n", "")


def test_pth_leaves_nothing_in_the_program(pypy: PyPy) -> None:
    """This also holds if the word `vmprof` is in the command line."""
    pypy.script("""
        import sys
        print([m for m in sys.modules if m.startswith("vmprof")],
              [f for f in sys.meta_path if "vmprof" in type(f).__module__])
    """, "amodule.py")
    runs = [pypy.command("-m", "amodule"),
            pypy.command("-m", "amodule", "vmprof", "--allocation-sampling"),
            pypy.command(str(pypy.folder / "amodule.py"), "vmprof")]
    assert {run.out for run in runs} == {"[] []\n"}


@pytest.mark.parametrize("trouble", [
    "os.open = None",                                       # as without /proc
    "sys.modules['vmprof_allocation.launch.begin'] = None; "       # a part is removed
    "sys.modules['vmprof_allocation.launch.startup'] = None",
    "sys.argv = []", "del sys.argv",
])
@pytest.mark.parametrize("variable", ["", "1\t2", "x"])
def test_pth_never_fails(pypy: PyPy, trouble: str, variable: str) -> None:
    (pypy.folder / "site").mkdir()
    (pypy.folder / "site" / "a.pth").write_text(PTH)
    script = pypy.script("""
        import os, site, sys
        sys.argv = ["-m"]
        vars(sys).pop("orig_argv", None)
        os.environ.update({"VMPROF_ALLOCATION": %r} if %r else {})
        %s
        site.addsitedir("site")
        site.addsitedir("site")
        print("going on")
    """ % (variable, variable, trouble))
    run = pypy.command(str(script))
    assert (run.code, run.out, run.err) == (0, "going on\n", "")


@not_emulated
def test_stock_vmprof_with_few_descriptors(pypy: PyPy) -> None:
    """Stock vmprof with our .pth file needs as many descriptors as without it."""
    script = str(pypy.script("print('done')"))
    plain = sampled_ = None
    for limit in range(4, 16):
        outcomes = []
        for pth in True, False:
            done = subprocess.run(
                ["/bin/sh", "-c", "ulimit -n %d; exec \"$@\"" % limit, "sh",
                 PYPY, *([] if pth else ["-S", "-c", WITHOUT_PTH]),
                 *(["-m", "vmprof"] if pth else []), "-o", "out.vmprof",
                 script], cwd=pypy.folder, env=pypy.environment,
                capture_output=True, text=True)
            outcomes.append((done.returncode, done.stdout))
        sampled_, plain = outcomes
        assert sampled_ == plain, limit
    assert plain == (0, "done\n")


WITHOUT_PTH = """if True:
    import os, runpy, sys
    sys.path.append(os.path.join(%r, "..", "lib", "pypy%%d.%%d" %%
                                 sys.version_info[:2], "site-packages"))
    sys.argv[0] = "-m"
    runpy.run_module("vmprof", run_name="__main__", alter_sys=True)
""" % os.path.dirname(PYPY)


def test_variable_for_another_process_is_ignored(pypy: PyPy) -> None:
    run = pypy.command(str(pypy.script("""
        import os
        print("VMPROF_ALLOCATION" in os.environ)
    """)), VMPROF_ALLOCATION="1" + "\t" * 12)
    assert (run.code, run.out, run.err) == (0, "False\n", "")


def test_cpython_reads_the_pth(pypy: PyPy) -> None:
    """The package may be installed to read profiles, and CPython works as before."""
    shutil.copy(pypy.script("print('x')"), pypy.folder / "amodule.py")
    done = subprocess.run([sys.executable, "-m", "amodule", "vmprof"],
                          cwd=pypy.folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")
