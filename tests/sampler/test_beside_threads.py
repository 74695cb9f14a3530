"""Start and stop while other threads of the program run vmprof's code."""
from __future__ import annotations

import pathlib
import subprocess
import textwrap

from conftest import PyPy


def test_start_while_profiling_signals_arrive(stock_pypy: PyPy) -> None:
    """vmprof takes no sample during another sample, or while the JIT's table changes.

    start() needs a sample, and was once refused in one of some thousand cases.
    """
    script = stock_pypy.script("""
        import os, signal, threading, vmprof_allocation
        going = [True]
        def compile_things():
            while going[0]:
                for i in range(30):
                    code = "def f(n):\\n for i in range(n): n + %d" % i
                    names = {}
                    exec(code, names)
                    names["f"](3000)
        threads = [threading.Thread(target=compile_things, daemon=True)
                   for i in range(2)]
        for thread in threads:
            thread.start()
        for i in range(100):
            with vmprof_allocation.sample("out.vmprof", "64k", period=0.0005):
                garbage = [str(i) for i in range(100)]
        going[0] = False
        for thread in threads:
            thread.join()
        print("ok")
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "ok\n", run.err


def test_stop_while_threads_name_their_functions(
        stock_pypy: PyPy, tmp_path: pathlib.Path) -> None:
    """PyPy writes the name of a function into vmprof's buffers without the GIL.

    Meanwhile stop() disables vmprof, which unmaps these buffers.  Before PyPy writes,
    it calls strnlen() for the name.  The test makes this call take two milliseconds.
    """
    source = tmp_path / "slow.c"
    source.write_text(textwrap.dedent("""
        #define _GNU_SOURCE
        #include <stddef.h>
        #include <time.h>
        #include <unistd.h>
        size_t strnlen(const char *s, size_t n)
        {
            struct timespec a, b;
            size_t length = 0;
            while (length < n && s[length])
                length++;
            clock_gettime(CLOCK_MONOTONIC, &a);
            do
                clock_gettime(CLOCK_MONOTONIC, &b);
            while (gettid() != getpid() && (b.tv_sec - a.tv_sec) * 1000000000L
                   + b.tv_nsec - a.tv_nsec < 2000000);
            return length;
        }
    """))
    library = tmp_path / "slow.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-fno-builtin", "-o",
                    library, source], check=True)
    script = stock_pypy.script("""
        import threading, vmprof_allocation
        going = [True]
        def name_functions():
            while going[0]:
                exec("def f(): pass", {})
        threads = [threading.Thread(target=name_functions) for i in range(2)]
        for thread in threads:
            thread.start()
        for i in range(20):
            with vmprof_allocation.sample("out.vmprof", "64k"):
                garbage = [str(i) for i in range(100)]
        going[0] = False
        for thread in threads:
            thread.join()
        print("ok")
    """)
    run = stock_pypy.command(str(script), LD_PRELOAD=str(library))
    assert run.out == "ok\n", run.err
