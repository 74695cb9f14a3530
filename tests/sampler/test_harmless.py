"""The program behaves the same with the sampler, and stop() restores everything.

The tests compare output, exit code and behaviour.
"""
from __future__ import annotations

import subprocess

import pytest

from conftest import EMULATED, PYPY, PyPy, has_builtin, not_emulated
from peek import NOTHING, PEEK
from run_profiles import functions
from truth import innermost


def test_stop_puts_every_byte_back(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(PEEK + """
    before, pages_before = memory(), pages()
    vmprof_allocation.start("out.vmprof", "1k")
    during = memory()
    garbage = [str(i) for i in range(100000)]
    assert not top_is_real()
    vmprof_allocation.stop()
    print(all(a != b for a, b in zip(before[0], during[0])),
          before[1][0] != during[1][0],
          memory() == before, pages() == pages_before, top_is_real())
    """)
    run = stock_pypy.command(str(script))
    assert run.out.split() == ["True"] * 5, run.err


def test_start_and_stop_1000_times(pypy: PyPy) -> None:
    script = pypy.script((NOTHING if has_builtin() else PEEK) + """
    import os, threading
    before = memory()
    fds = len(os.listdir("/proc/self/fd"))
    tasks = len(os.listdir("/proc/self/task"))
    for i in range(1000):
        with vmprof_allocation.sample("out.vmprof", "64"):
            garbage = [str(j) for j in range(200)]
    print(memory() == before, top_is_real(),
          len(os.listdir("/proc/self/fd")) == fds,
          len(os.listdir("/proc/self/task")) == tasks)
    """)
    run = pypy.command(str(script))
    assert run.out.split() == ["True"] * 4, run.err
    assert len(run.profile().samples) > 0


PROGRAM = """
    import sys, os, gc, weakref
    class Node:
        pass
    def work():
        nodes = [Node() for i in range(50000)]
        refs = [weakref.ref(n) for n in nodes[::100]]
        del nodes
        gc.collect()
        return sum(r() is None for r in refs)
    print(work(), sys.argv[1:], __name__, sys.path[0] == os.path.dirname(
        os.path.abspath(__file__)), sys.modules["__main__"].__file__ == __file__)
    print("to stderr", file=sys.stderr)
"""


@pytest.mark.parametrize("end", [
    "", "sys.exit(3)", "sys.exit('message')", "1 / 0",
    "raise KeyboardInterrupt", "sys.exit()", "os._exit(5)",
    "os.kill(os.getpid(), 15)", "def f(:",
])
def test_output_and_exit_code_are_the_programs(pypy: PyPy, end: str) -> None:
    source = PROGRAM + "    " + end + "\n"
    plain = pypy.run(source, "a", "--period", "-o")
    sampled = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1k", "-o", "out.vmprof",
        str(pypy.script(source)), "a", "--period", "-o")
    assert (sampled.code, sampled.out) == (plain.code, plain.out)
    assert sampled.err == plain.err


@pytest.mark.parametrize("interval", ["64", "128k"])
def test_no_extra_collections(pypy: PyPy, interval: str) -> None:
    source = """
        import gc
        counted = [0]
        def on_minor(stats):
            counted[0] += stats.count
        gc.hooks.on_gc_minor = on_minor
        for i in range(300000):
            [i]
        gc.hooks.reset()
        print(counted[0])
    """
    plain = int(pypy.run(source, jit="off").out)
    sampled = int(pypy.sample(source, interval, jit="off").out)
    assert plain > 10
    # the time of the first collection depends on earlier allocations
    assert abs(plain - sampled) <= 1


def test_errno_is_kept(pypy: PyPy) -> None:
    """Each sample makes system calls, which must not change the program's errno."""
    run = pypy.sample("""
        import ctypes, errno
        libc = ctypes.CDLL(None, use_errno=True)
        wrong = 0
        for i in range(20000):
            ctypes.set_errno(0)
            libc.close(-1)
            garbage = [i] * 20
            if ctypes.get_errno() != errno.EBADF:
                wrong += 1
        print(wrong)
    """, "64")
    assert run.out.strip() == "0"


def test_signals_and_timers_of_the_program(pypy: PyPy) -> None:
    run = pypy.sample("""
        import signal, time
        ticks = []
        signal.signal(signal.SIGALRM, lambda *a: ticks.append(time.time()))
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        end = time.time() + 0.5
        while time.time() < end:
            [str(i) for i in range(1000)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(ticks) > 5)
    """, "1k")
    assert run.out == "True\n"


def test_greenlet_switches_do_not_end_the_sampling(pypy: PyPy) -> None:
    run = pypy.sample("""
        import greenlet
        filler = b"x" * 5000
        def a():
            for i in range(2000):
                filler[:4000]
                other.switch()
        def b():
            while True:
                filler[:4000]
                main.switch()
        main = greenlet.greenlet(a)
        other = greenlet.greenlet(b)
        main.switch()
        def after():
            for i in range(2000):
                filler[:4000]
        after()
    """, "1k", jit="off")
    profile = run.profile()
    names = [innermost(profile, stack)
             for stack, size in zip(profile.samples.stack, profile.samples.size)
             if stack >= 0 and 4000 < size < 4100]
    for function in "a", "b", "after":
        # 98 % of these objects are sampled
        assert names.count(function) > 1900


def test_reference_cycles_finalizers_and_weakrefs(pypy: PyPy) -> None:
    source = """
        import gc, weakref
        dead = []
        class Node:
            def __del__(self):
                dead.append([str(i) for i in range(10)])
        def work():
            for i in range(3000):
                a, b = Node(), Node()
                a.other, b.other = b, a
                weakref.finalize(a, dead.append, None)
            gc.collect(); gc.collect(); gc.collect()
        work()
        print(len(dead))
    """
    assert pypy.sample(source, "64").out == pypy.run(source).out


def test_python_threads_starting_and_stopping(pypy: PyPy) -> None:
    """Other threads allocate while a thread starts and stops the sampling."""
    script = pypy.script((NOTHING if has_builtin() else PEEK) + """
    import threading
    before = memory()
    going = [True]
    totals = []
    def worker(n):
        total = 0
        while going[0]:
            total += len([str(i) for i in range(n)])
        totals.append(total % n)
    threads = [threading.Thread(target=worker, args=(n,)) for n in (10, 1000, 7)]
    for t in threads:
        t.start()
    for i in range(100):
        with vmprof_allocation.sample("out.vmprof", "1k") as session:
            for j in range(50):
                [None] * 1000
                if j % 10 == 0:
                    session.set_interval(512 << (j // 10))
    going[0] = False
    for t in threads:
        t.join()
    print(totals, memory() == before, top_is_real())
    """)
    run = pypy.command(str(script))
    assert run.out == "[0, 0, 0] True True\n", run.err


def test_sampling_off_writes_what_vmprof_writes(pypy: PyPy) -> None:
    """Without our flags, vmprof runs its own main() and its own enable()."""
    script = pypy.script("""
        import sys
        print([m for m in sys.modules
               if m.startswith("vmprof_allocation.engines.hook")])
        for i in range(3000000):
            str(i)
    """)
    run = pypy.command("-m", "vmprof", "-o", "out.vmprof", str(script))
    assert (run.code, run.out) == (0, "[]\n")
    profile = run.profile()
    assert set(profile.samples.thread) == {0}
    assert set(profile.samples.size) == {0}
    assert profile.settings == {}


#: Program code that forbids new executable memory, like systemd's
#: MemoryDenyWriteExecute.  PyPy's JIT uses mmap(), which stays allowed.
SECCOMP = """
    import ctypes, errno, struct
    libc = ctypes.CDLL(None, use_errno=True)
    def instruction(code, yes, no, k):
        return struct.pack("<HBBI", code, yes, no, k)
    program = b"".join([
        instruction(0x20, 0, 0, 0),             # the system call's number:
        instruction(0x15, 0, 3, 10),            # mprotect()?
        instruction(0x20, 0, 0, 32),            # its protection
        instruction(0x45, 0, 1, 4),             # PROT_EXEC?
        instruction(0x06, 0, 0, 0x50000 | errno.EACCES),
        instruction(0x06, 0, 0, 0x7fff0000)])   # allowed
    buffer = ctypes.create_string_buffer(program)
    filter = ctypes.create_string_buffer(struct.pack(
        "<HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0      # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, filter) == 0       # PR_SET_SECCOMP
"""


@not_emulated
def test_kernel_that_forbids_writable_code_is_a_refusal(
        stock_pypy: PyPy) -> None:
    script = stock_pypy.script(SECCOMP + """
    import runpy, sys
    import vmprof_allocation
    for i in range(2):
        try:
            vmprof_allocation.start("out.vmprof", "1k")
        except vmprof_allocation.UnknownBuild as e:
            print(e)
    sys.argv[:] = ["x", "doctor"]
    runpy.run_module("vmprof_allocation", run_name="__main__")
    """)
    run = stock_pypy.command(str(script))
    assert run.code == 1, run.err
    lines = run.out.splitlines()
    assert lines[0] == lines[1] == lines[-1]
    assert "changing PyPy's code in memory: Permission denied" in lines[0]
    assert "  BAD  changing PyPy's code in memory: Permission denied" in lines
    assert not (stock_pypy.folder / "out.vmprof").exists()


def test_no_proc_is_a_refusal(stock_pypy: PyPy) -> None:
    script = stock_pypy.script("""
        import builtins, io, runpy, sys
        from vmprof_allocation.engines.hook.discovery import process
        def no_proc(path, *arguments, open=open):
            if str(path).startswith("/proc"):
                raise FileNotFoundError(2, "No such file or directory", path)
            return open(path, *arguments)
        process.open = no_proc
        sys.argv[:] = ["x", "doctor"]
        runpy.run_module("vmprof_allocation", run_name="__main__")
    """)
    run = stock_pypy.command(str(script))
    assert (run.code, run.err) == (1, "")
    assert "needs /proc/self/maps: No such file" in run.out


#: A library that hides /proc.  It is loaded before libc.
NO_PROC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#define REPLACE(name) \\
    int name(const char *path, int flags, ...) \\
    { \\
        int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, #name); \\
        va_list list; \\
        mode_t mode; \\
        if (strncmp(path, "/proc", 5) == 0) { \\
            errno = ENOENT; \\
            return -1; \\
        } \\
        va_start(list, flags); \\
        mode = va_arg(list, mode_t); \\
        va_end(list); \\
        return next(path, flags, mode); \\
    }
REPLACE(open)
REPLACE(open64)
"""


@not_emulated
def test_command_line_without_proc(stock_pypy: PyPy) -> None:
    """Stock vmprof once ran instead, and reported --allocation-sampling as unknown."""
    library = stock_pypy.compile_c(NO_PROC, "no_proc.so", "-ldl")
    script = stock_pypy.script("print('ran')")
    done = subprocess.run(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "128k", "-o", "out.vmprof",
         str(script)], env={**stock_pypy.environment, "LD_PRELOAD": str(library)},
        cwd=stock_pypy.folder, text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    # newer versions of PyPy have the command line in sys.orig_argv
    assert done.stderr in (
        "vmprof: cannot read PyPy's command line from /proc/self/cmdline. Check that "
        "/proc is mounted (mount -t proc proc /proc)\n",
        "vmprof: sampling a stock PyPy needs /proc/self/maps: No such file or "
        "directory\n")
    assert not (stock_pypy.folder / "out.vmprof").exists()


def test_program_with_its_own_profiling_timer_gets_it_back(pypy: PyPy) -> None:
    script = pypy.script("""
        import signal, time, vmprof_allocation
        ticks = []
        signal.signal(signal.SIGPROF, lambda *a: ticks.append(1))
        signal.setitimer(signal.ITIMER_PROF, 0.05, 0.05)
        with vmprof_allocation.sample("out.vmprof", "16k"):
            garbage = [str(i) for i in range(100000)]
        ticks.clear()
        end = time.process_time() + 1
        while time.process_time() < end:
            pass
        print(len(ticks) > 3)
    """)
    run = pypy.command(str(script))
    assert run.out == "True\n", run.err


def test_jit_calls_with_many_arguments(pypy: PyPy) -> None:
    """Compiled code lowers the stack pointer for such a call.

    The stack then has an argument at the address where vmprof expects a return address.
    """
    run = pypy.sample("""
        from cffi import FFI
        ffi = FFI()
        ffi.cdef("double f(%s);" % ", ".join(["long"] * 30))
        kept = [None]
        @ffi.callback("double(%s)" % ", ".join(["long"] * 30))
        def f(*arguments):
            kept[0] = [a + 1 for a in arguments]
            return 1.0
        def loop():
            total = 0.0
            for i in range(20000):
                total += f(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                           16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
                           i, i)
            return total
        print(loop())
    """, "4k" if EMULATED else "256")
    assert run.out == "20000.0\n"


def test_threads_that_start_threads_are_waited_for(pypy: PyPy) -> None:
    run = pypy.sample("""
        import threading, time
        filler = b"x" * 20000
        def second():
            time.sleep(0.3)
            for i in range(1000):
                filler[:10000]
        def first():
            time.sleep(0.1)
            threading.Thread(target=second).start()
        threading.Thread(target=first).start()
    """, "4k", jit="off")
    profile = run.profile()
    names = [innermost(profile, s)
             for s in profile.samples.stack]
    assert names.count("second") > 900


def test_handling_of_sigprof_does_not_change(pypy: PyPy) -> None:
    script = pypy.script("""
        import vmprof_allocation
        def ignored():
            for line in open("/proc/self/status"):
                if line.startswith("SigIgn"):
                    return int(line.split()[1], 16) >> 26 & 1
        before = ignored()
        with vmprof_allocation.sample("out.vmprof", "1k"):
            pass
        print(before, ignored())
    """)
    assert pypy.command(str(script)).out == "0 0\n"


def test_pypy_reports_whether_vmprof_ignores_its_signals(stock_pypy: PyPy) -> None:
    """vmprof_enter_signal() reports it without a walk of the stack."""
    script = stock_pypy.script("""
        import _vmprof, ctypes
        pypy = ctypes.CDLL(None)
        def ignores():
            result = pypy.vmprof_enter_signal()
            pypy.vmprof_exit_signal()
            return bool(result)
        with open("plain.vmprof", "w+b") as file:
            print(ignores())
            _vmprof.enable(file.fileno(), 0.9, 0, 0, 0, 0)
            print(ignores())
            _vmprof.stop_sampling()
            print(ignores())
            _vmprof.start_sampling()
            print(ignores())
            _vmprof.disable()
            print(ignores())
    """)
    assert stock_pypy.command(str(script)).out.split() == [
        "True", "False", "True", "False", "True"]


def test_samples_that_vmprof_ignores_have_no_stack(pypy: PyPy) -> None:
    """This also holds for stacks that have already been sampled."""
    script = pypy.script("""
        import _vmprof, vmprof_allocation
        filler = b"x" * 2000
        def work():
            for i in range(10000):
                filler[:1000]
        with vmprof_allocation.sample("out.vmprof", "2k", seed=1):
            work()
            _vmprof.stop_sampling()
            work()
            _vmprof.start_sampling()
            work()
    """)
    run = pypy.command("--jit", "off", str(script))
    assert (run.code, run.err) == (0, ""), run.err
    profile = run.profile()
    names = [innermost(profile, s) for s in profile.samples.stack if s >= 0]
    # at an interval of 2 KB, 44 % of the objects of somewhat more than 1 KB are
    # sampled; sigma is 50 samples
    assert 4200 < profile.lost_stacks < 4800
    assert 8400 < names.count("work") < 9600


def test_start_in_a_deep_stack(pypy: PyPy) -> None:
    """The stack is deeper than vmprof records."""
    script = pypy.script("""
        import sys, vmprof_allocation
        sys.setrecursionlimit(10000)
        def down(n):
            if n:
                return down(n - 1)
            with vmprof_allocation.sample("out.vmprof", "1k"):
                return len([str(i) for i in range(10000)])
        print(down(1500))
    """)
    run = pypy.command(str(script))
    assert run.out == "10000\n", run.err
    profile = run.profile()
    assert profile.cut_stacks == len(profile.samples) > 100
    report = pypy.command("-m", "vmprof_allocation", "report", "out.vmprof", "--notes")
    assert "deeper than vmprof records" in report.out


@pytest.mark.parametrize("gigabytes", [1, 3])
def test_address_space_next_to_pypy_that_is_in_use(
        stock_pypy: PyPy, gigabytes: int) -> None:
    """An array, a cache or a database file may occupy these addresses.

    The sampler then uses other free addresses.
    """
    script = stock_pypy.script(PEEK + """
    maps = [mmap.mmap(-1, 1 << 30) for i in range(%d)]
    with vmprof_allocation.sample("out.vmprof", "4k") as session:
        garbage = [str(i) for i in range(10000)]
        print(session.statistics().samples > 10)
    """ % gigabytes)
    # occupy the addresses before the engine looks for free address space
    text = script.read_text()
    head, _, tail = text.partition("engine.prepare()\n")
    maps = "import mmap; maps = [mmap.mmap(-1, 1 << 30) for i in range(%d)]\n"
    script.write_text(head + maps % gigabytes + "engine.prepare()\n" + tail)
    run = stock_pypy.command(str(script))
    assert run.out == "True\n", run.err


def test_library_that_is_mapped_twice(stock_pypy: PyPy) -> None:
    """The lowest mapping of PyPy's file is the program's own, not the code."""
    script = stock_pypy.script("""
        import mmap
        path, = {line.split()[-1] for line in open("/proc/self/maps")
                 if "libpypy" in line}
        with open(path, "rb") as file:
            copy = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        import vmprof_allocation
        with vmprof_allocation.sample("out.vmprof", "4k") as session:
            garbage = [str(i) for i in range(10000)]
            print(session.statistics().samples > 10)
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "True\n", run.err


def test_native_part_that_cannot_be_loaded(stock_pypy: PyPy) -> None:
    script = stock_pypy.script("""
        from vmprof_allocation.engines.hook import library
        import vmprof_allocation
        library.LIBRARY = "/missing/_hook.so"
        try:
            vmprof_allocation.start("out.vmprof")
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
    """)
    run = stock_pypy.command(str(script))
    assert "cannot load the native part of vmprof-allocation" in run.out
    assert not (stock_pypy.folder / "out.vmprof").exists()


@not_emulated
def test_handler_of_sigprof_that_the_program_removed(pypy: PyPy) -> None:
    script = pypy.script("""
        import signal, vmprof_allocation
        def caught():
            with open("/proc/self/status") as file:
                return [int(line.split()[1], 16) >> 26 & 1 for line in file
                        if line.startswith("SigCgt")]
        signal.signal(signal.SIGPROF, lambda *a: None)
        for period in None, 0.01:
            with vmprof_allocation.sample("out.vmprof", "64k", period=period):
                pass
            print(caught())
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        for period in None, 0.01:
            with vmprof_allocation.sample("out.vmprof", "64k", period=period):
                pass
            print(caught())
    """)
    run = pypy.command(str(script))
    assert run.out.split() == ["[1]", "[1]", "[0]", "[0]"], run.err


def test_pypy_that_was_loaded_as_a_plug_in(
        stock_pypy: PyPy) -> None:
    """The symbols of such a PyPy are not global (RTLD_LOCAL)."""
    script = stock_pypy.script("""
        from vmprof_allocation.engines.hook import _hook_abi
        from vmprof_allocation.engines.hook.library import LIBRARY
        from vmprof_allocation.engines.hook.discovery.process import Process
        class Local:
            "The process, as seen from a plug-in's host: without PyPy's names"
            def __getattr__(self, name):
                return getattr(_hook_abi.ffi, name)
            def dlopen(self, file):
                return (_hook_abi.ffi.dlopen("libc.so.6") if file is None
                        else _hook_abi.ffi.dlopen(file))
        process = object.__new__(Process)
        process.findings = []
        process._ffi = Local()
        process._lib = _hook_abi.ffi.dlopen(LIBRARY)
        path, base = process._find_library()
        print("libpypy" in path, base == Process().place.base)
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "True True\n", run.err


@not_emulated
def test_a_filter_of_system_calls_that_returns_errors(stock_pypy: PyPy) -> None:
    """During the sampling, the program forbids itself process_vm_readv()."""
    run = stock_pypy.sample("""
        import ctypes, platform, struct
        def rule(code, value, yes=0, no=0):
            return struct.pack("<HBBI", code, yes, no, value)
        class Filter(ctypes.Structure):
            _fields_ = ("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)
        process_vm_readv = {"x86_64": 310, "aarch64": 270}[platform.machine()]
        rules = (rule(0x20, 0) + rule(0x15, process_vm_readv, 0, 1)
                 + rule(6, 0x50000 | 1) + rule(6, 0x7fff0000))
        buffer = ctypes.create_string_buffer(rules, len(rules))
        libc = ctypes.CDLL(None)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(buffer)))) == 0
        class Kept: pass
        def work():
            return [Kept() for i in range(200_000)]
        print(len(work()))
    """, "4k")
    assert run.out == "200000\n"
    profile = run.profile()
    assert "work" in functions(profile)
    assert "__main__.Kept" in {type_.python for type_ in profile.types}
