"""Test --native, which adds the C frames inside the innermost Python frame to stacks.
"""
from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from conftest import PYPY, PyPy
from run_profiles import children, functions
from vmprof_convert import readers
from vmprof_convert.profile.model import NATIVE, Profile

EXTENSION = """
#include <Python.h>

/* no symbol that anybody exports */
static PyObject *__attribute__((noinline)) make_list(long count)
{
    PyObject *list = PyList_New(0);

    for (long i = 0; list != NULL && i < count; i++) {
        PyObject *text = PyUnicode_FromFormat("item %d", (int)i);
        if (text != NULL)
            PyList_Append(list, text);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *fill(PyObject *self, PyObject *count)
{
    PyObject *list = make_list(PyLong_AsLong(count));

    (void)self;
    if (list == NULL)           /* so that the call above is no jump */
        PyErr_SetString(PyExc_ValueError, "no list");
    return list;
}

/* what Python calls from here is further in than this */
static PyObject *__attribute__((noinline)) call_often(PyObject *function)
{
    PyObject *result = NULL;

    for (int i = 0; i < 100; i++) {
        Py_XDECREF(result);
        result = PyObject_CallFunction(function, "i", i);
    }
    return result;
}

static PyObject *calls(PyObject *self, PyObject *function)
{
    PyObject *result = call_often(function);

    (void)self;
    if (result == NULL)
        PyErr_SetString(PyExc_ValueError, "no result");
    return result;
}

static PyMethodDef methods[] = {
    { "fill", fill, METH_O, "" }, { "calls", calls, METH_O, "" },
    { NULL, NULL, 0, NULL }
};
static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "filler", "", -1, methods,
                                     NULL, NULL, NULL, NULL };
PyMODINIT_FUNC PyInit_filler(void) { return PyModule_Create(&module); }
"""
INSIDE = ["fill", "make_list"]


@pytest.fixture
def filler(stock_pypy: PyPy) -> Path:
    """Compile EXTENSION as a module in the program's folder."""
    return stock_pypy.compile_extension("filler", EXTENSION, "-O1")


#: The prefix of the names of PyPy's own functions, in builds that are not stripped.
OWN = "pypy_g_"


def names(profile: Profile, stack: int, *, native: bool) -> list[str]:
    """Return the names of a stack's native frames, or of its Python frames.

    The outermost frame is first.
    """
    found = [profile.function(frame.address).name for frame in profile.stacks[stack]
             if (frame.kind == "native") == native]
    return [name for name in found if not name.startswith(OWN)]


def has_names(profile: Profile) -> bool:
    return any(f.name.startswith(OWN) for f in profile.functions.values())


def stacks_inside(profile: Profile, name: str) -> list[list[str]]:
    """Return the native frames of samples whose innermost Python function has this
    name.
    """
    return [names(profile, stack, native=True) for stack in profile.samples.stack
            if names(profile, stack, native=False)[-1:] == [name]]


@pytest.mark.parametrize("jit", ["off", ""])
def test_functions_of_a_compiled_extension(
        stock_pypy: PyPy, filler: Path, jit: str) -> None:
    """Native frames have names from the extension's file, exported or not. They are
    inside the calling Python function. A Python function that C code calls back is
    inside the native frames of the caller.
    """
    profile = stock_pypy.sample("""
        import filler
        def returns(i):
            return [b"x" * 100 for _ in range(i)]
        def fills():
            for i in range(200):
                filler.fill(500)
        def is_called():
            for i in range(200):
                filler.calls(returns)
        fills()
        is_called()
    """, "4k", "--native", jit=jit).profile()
    found = stacks_inside(profile, "fills")
    # Up to a tenth of the stacks are from the JIT, and from the list of arguments.
    assert len(found) > 1000
    assert sum(stack[:2] == INSIDE for stack in found) > 0.9 * len(found)
    # With the JIT, <listcomp> may be inlined in `returns`, so this cannot be checked.
    if jit == "off":
        for stack in stacks_inside(profile, "<listcomp>"):
            assert "call_often" not in stack
    native = {f for f in profile.functions.values() if f.name in INSIDE}
    assert {(f.kind, f.file, f.line) for f in native} == {(NATIVE, str(filler), 0)}
    # libpypy's own functions have names, or are counted as nameless
    assert (profile.nameless > 0) != has_names(profile)
    assert not any(f.name.startswith("libpypy") for f in profile.functions.values())


def test_extension_without_symbols(stock_pypy: PyPy) -> None:
    """Functions of a stripped extension have no names, but the name of the file."""
    filler = stock_pypy.compile_extension("filler", EXTENSION, "-O1", "-s")
    profile = stock_pypy.sample("""
        import filler
        def fills():
            for i in range(200):
                filler.fill(500)
        fills()
    """, "4k", "--native").profile()
    known = [stack for stack in stacks_inside(profile, "fills")
             if len(stack) >= 2 and all(
                 name.startswith(filler.name + "+0x") for name in stack[:2])]
    assert len(known) > 500


def test_library_that_calls_back_through_cffi(stock_pypy: PyPy) -> None:
    stock_pypy.compile_c("""
        int call_often(int (*function)(int), int count)
        {
            int sum = 0;
            for (int i = 0; i < count; i++)
                sum += function(i);
            return sum;
        }
    """, "often.so", "-O1")
    profile = stock_pypy.sample("""
        import _cffi_backend, cffi
        ffi = cffi.FFI()
        ffi.cdef("int call_often(int (*function)(int), int count);")
        library = ffi.dlopen("./often.so")
        @ffi.callback("int(int)")
        def called(i):
            return len([b"y"] * 300)
        def main():
            for i in range(100):
                library.call_often(called, 200)
        main()
    """, "1k", "--native", jit="off").profile()
    # Allocations for the callback belong to its caller until its Python frame exists.
    assert sum("call_often" in stack for stack in stacks_inside(profile, "main")) > 100
    inside = stacks_inside(profile, "called")
    assert len(inside) > 1000
    assert not any("call_often" in stack for stack in inside)


PROGRAMS = {
    "zlib": """
        import zlib
        def main():
            for i in range(100):
                zlib.decompress(zlib.compress(b"x%d" % i * 300))
    """,
    "sqlite3": """
        import sqlite3
        def main():
            db = sqlite3.connect(":memory:")
            db.create_function("doubled", 1, lambda x: 2 * x)
            db.execute("create table t (x)")
            db.executemany("insert into t values (?)", ((i,) for i in range(100)))
            db.execute("select sum(doubled(x)) from t").fetchall()
    """,
    "recursion": """
        import sys
        sys.setrecursionlimit(3000)
        def down(n):
            kept = [n] * 40
            return down(n - 1) if n else len(kept)
        def main():
            for i in range(3):
                down(900)
    """,
    "many ways to call": """
        class Many:
            def __init__(self, n): self.n = [n] * 30
            def __lt__(self, other): return [self.n] < [other.n]
            def __iter__(self): yield from (list(self.n) for i in range(3))
            def __getattr__(self, name): return name * 3
            def __hash__(self): return hash(str(self.n))
            def __eq__(self, other): return self is other
        def main():
            for i in range(5):
                some = sorted(map(Many, range(20)))
                {x: list(x) for x in some}
                getattr(some[0], "other")
                exec("kept = [str(i) for i in range(30)]", {})
                "".join(map(str, (len([x] * 30) for x in range(20))))
    """,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_python_frames_are_the_same_without_native_frames(stock_pypy: PyPy,
                                                          program: str) -> None:
    """With --native, each object has the same Python frames as without it, even in
    stacks that are too deep for a record. (The number of objects may differ, because
    PyPy's caches depend on addresses.)
    """
    results: list[set[tuple[str, ...]]] = []
    for is_native in 0, 1:
        run = stock_pypy.command("--jit", "off", str(stock_pypy.script(
            PROGRAMS[program] + """
        import sys, vmprof_allocation
        native = sys.argv[1] == "1"
        # what is made once, is made before
        with vmprof_allocation.sample("first.vmprof", "1G", native=native):
            main()
        with vmprof_allocation.sample("out.vmprof", 1, native=native):
            main()
        """)), str(is_native))
        assert run.code == 0, run.err
        profile = run.profile()
        found = {tuple(names(profile, stack, native=False))
                 for stack in set(profile.samples.stack)}
        # A stack that is too deep has lost its outer frames, including main().
        results.append({stack for stack in found
                        if "main" in stack or len(stack) > 400})
        assert ("native" in profile.settings) == bool(is_native)
        assert "native-frames" in profile.settings["capabilities"].split(",")
        assert is_native or not any(
            f.kind == NATIVE for f in profile.functions.values())
    assert results[0] == results[1]
    assert any(len(stack) > 500 for stack in results[0]) == (program == "recursion")


def test_threads(stock_pypy: PyPy, filler: Path) -> None:
    """Stacks are unwound while another thread loads and unloads a library."""
    stock_pypy.compile_c("", "other.so")
    run = stock_pypy.sample("""
        import cffi, threading, filler
        ffi = cffi.FFI()
        ended = []
        def fills():
            for i in range(100):
                filler.fill(300)
            ended.append(1)
        def loads():
            while len(ended) < 4:
                ffi.dlclose(ffi.dlopen("./other.so"))
            print("loaded")
        threads = [threading.Thread(target=fills) for i in range(4)]
        threads.append(threading.Thread(target=loads))
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """, "4k", "--native")
    assert (run.out, run.err) == ("loaded\n", "")
    profile = run.profile()
    inside = {thread: names(profile, stack, native=True) for thread, stack in zip(
        profile.samples.thread, profile.samples.stack)
        if names(profile, stack, native=True)[:2] == INSIDE}
    assert len(inside) == 4


def test_cpu_samples_have_no_native_frames(stock_pypy: PyPy, filler: Path) -> None:
    """CPU samples interrupt the program anywhere, where unwinding may be unsafe."""
    profile = stock_pypy.sample("""
        import filler
        for i in range(1000):
            filler.fill(300)
    """, "4k", "--native", "--period", "0.001").profile()
    of_time = [names(profile, stack, native=True) for size, stack in zip(
        profile.samples.size, profile.samples.stack) if size == 0 and stack >= 0]
    assert of_time and not any(of_time)
    assert len(stacks_inside(profile, "<module>")) > 1000


def test_children(stock_pypy: PyPy, filler: Path) -> None:
    """The profiles of forked children, and of children that became this interpreter by
    exec, have names. Only the child itself can look up the names of its functions.
    """
    run = stock_pypy.sample("""
        import os, subprocess, sys, filler
        for i in range(100):
            filler.fill(300)
        for end in os._exit, sys.exit:
            pid = os.fork()
            if pid == 0:
                for i in range(100):
                    filler.fill(300)
                end(0)
            os.waitpid(pid, 0)
        subprocess.run([sys.executable, "-c", "import filler\\n"
                        "for i in range(100): filler.fill(300)"], check=True)
    """, "4k", "--native")
    found = children(run.path)
    assert len(found) == 3
    for profile in run.profile(), *found:
        assert set(INSIDE) <= functions(profile)
        assert not any("+0x" in name and name.startswith(filler.name)
                       for name in functions(profile))


def test_process_that_was_killed(stock_pypy: PyPy, filler: Path) -> None:
    """A process looks up the names at its end. If the process was killed, the report
    shows the files of the functions instead.
    """
    symbols = subprocess.run(["nm", filler], text=True, check=True,
                             capture_output=True).stdout
    offsets = ["%s+0x%x" % (filler.name, int(line.split()[0], 16))
               for name in INSIDE for line in symbols.splitlines()
               if line.split()[-1] == name]
    assert len(offsets) == 2
    script = stock_pypy.script("""
        import filler
        def fills():
            while True:
                filler.fill(300)
        fills()
    """)
    path = stock_pypy.folder / "out.vmprof"
    program = subprocess.Popen(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "4k", "--native", "-o", path,
         script], cwd=stock_pypy.folder, env=stock_pypy.environment)
    found: list[list[str]] = []
    try:
        while offsets not in found and program.poll() is None:
            time.sleep(0.2)
            if path.exists() and path.stat().st_size:
                found = [stack[:2] for stack in stacks_inside(
                    readers.read(path, salvage=True), "fills")]
    finally:
        program.kill()
    assert program.wait() == -9
    assert offsets in [stack[:2] for stack in stacks_inside(
        readers.read(path, salvage=True), "fills")]


def test_profiles_of_one_run_after_the_other(
        stock_pypy: PyPy, filler: Path) -> None:
    """Each profile has the names of all functions in its stacks, also in the stacks of
    inherited objects.
    """
    run = stock_pypy.command(str(stock_pypy.script("""
        import vmprof_allocation, filler
        def fills():
            return [filler.fill(300) for i in range(60)]
        session = vmprof_allocation.sample("1.vmprof", "4k", native=True)
        with session:
            kept = fills()
            session.rotate("2.vmprof")
            session.rotate("3.vmprof")
            fills()
        with vmprof_allocation.sample("4.vmprof", "4k", native=True):
            fills()
        with vmprof_allocation.sample("5.vmprof", "4k"):
            fills()
    """)))
    assert run.code == 0, run.err
    profiles = [readers.read(stock_pypy.folder / ("%d.vmprof" % i))
                for i in range(1, 6)]
    for profile in profiles[:4]:
        found = {f.name for f in profile.functions.values() if f.kind == NATIVE}
        assert set(INSIDE) <= found
        assert not any(name.startswith(filler.name) for name in found)
    assert not any(f.kind == NATIVE for f in profiles[4].functions.values())


def test_report_mentions_functions_without_a_name(stock_pypy: PyPy,
                                                  filler: Path) -> None:
    run = stock_pypy.sample("""
        import filler
        for i in range(200):
            filler.fill(300)
    """, "4k", "--native")
    said = stock_pypy.command("-m", "vmprof_allocation", "report", "--notes",
                              str(run.path)).out
    assert ("this PyPy has no names for " in said) != has_names(run.profile())


@pytest.mark.parametrize("flags, problem", [
    (["--native"],
     "--native, --rotate, --retainers, --leaks, --memory, --native-memory, --view and "
     "--quiet need --allocation-sampling"),
    (["--native", "--no-native", "--allocation-sampling", "1k"],
     "--native and --no-native exclude each other"),
    (["--native", "--control"], "--native has no effect"),
])
def test_incompatible_flags_of_native_are_refused(stock_pypy: PyPy, flags: list[str],
                                                  problem: str) -> None:
    run = stock_pypy.command("-m", "vmprof", *flags, str(stock_pypy.script("")))
    assert (run.code, problem in run.err) == (2, True), run.err


def test_unwinder_that_takes_locks_is_refused(stock_pypy: PyPy) -> None:
    """Before version 12, libgcc's unwinder takes locks. Then --native is refused, and
    no profile is written.
    """
    stock_pypy.compile_c("".join(
        "void _Unwind_%s(void) {}\n" % name for name in (
            "Backtrace", "GetCFA", "GetIP", "GetRegionStart",
            "FindEnclosingFunction")), "libgcc_s.so.1")
    run = stock_pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1k", "--native", "-o", "out.vmprof",
        str(stock_pypy.script("print('runs')")),
        LD_LIBRARY_PATH=str(stock_pypy.folder))
    assert (run.code, run.out) == (2, "")
    assert ("cannot record native frames: they need glibc 2.35 or later, libgcc 12 or "
            "later") in run.err
    assert "Omit --native" in run.err
