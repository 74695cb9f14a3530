"""Child processes of a sampled program run undisturbed.

With --no-follow, they are not sampled, but counted.  test_children.py tests children
that are sampled.
"""
from __future__ import annotations

import os
import signal
import subprocess
import time

from conftest import PYPY, PyPy, has_builtin, not_emulated
from peek import NOTHING, PEEK
from truth import SIGMAS, innermost, sigmas
from vmprof_convert import readers


def test_forked_child_is_not_sampled_with_no_follow(pypy: PyPy) -> None:
    run = pypy.sample("""
        import os, sys
        def parent():
            return [str(i) for i in range(100000)]
        def child():
            return [str(i) for i in range(300000)]
        parent()
        pid = os.fork()
        if pid == 0:
            child()
            sys.exit(7)         # through the end of our own command
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        parent()
        print(code)
    """, "4k", "--no-follow")
    assert run.out == "7\n"
    assert run.err == ""
    profile = run.profile()
    names = {innermost(profile, s)
             for s in profile.samples.stack}
    assert "child" not in names
    assert profile.end_time is not None
    # at its end, the interpreter allocates outside of all functions
    assert profile.lost_stacks <= 1


def test_subprocess_and_multiprocessing(pypy: PyPy) -> None:
    run = pypy.sample("""
        import subprocess, sys, multiprocessing
        def square(n):
            return [n * n for i in range(1000)][0]
        if __name__ == "__main__":
            out = subprocess.run([sys.executable, "-c", "print(42)"],
                                 stdout=subprocess.PIPE)
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(out.stdout, pool.map(square, range(5)))
    """, "1k")
    assert run.out == "b'42\\n' [0, 1, 4, 9, 16]\n"
    assert run.profile().end_time is not None


def test_pool_that_was_not_shut_down(pypy: PyPy) -> None:
    """The threads of the pool end only when the interpreter ends them."""
    run = pypy.sample("""
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        print(list(pool.map(lambda n: len(str(n)), range(5))))
    """, "1k")
    assert run.out == "[1, 1, 1, 1, 1]\n"


def test_fork_then_exec_is_not_killed_by_a_timer(pypy: PyPy) -> None:
    """vmprof starts its timer again after a fork.

    A timer survives an exec, but the handler of its signal does not.
    """
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1k", "-o", "out.vmprof",
        str(pypy.script("""
            import os, subprocess, sys
            subprocess.run([sys.executable, "-c", ""])
            os.execv(sys.executable, [sys.executable, "-c", '''if True:
                import signal, time
                print(signal.getitimer(signal.ITIMER_PROF))
                end = time.process_time() + 1.5
                while time.process_time() < end:
                    pass
                print("alive")'''])
        """)))
    assert (run.code, run.out) == (0, "(0.0, 0.0)\nalive\n"), run.err


def test_forked_child_may_sample_itself(pypy: PyPy) -> None:
    script = pypy.script((NOTHING if has_builtin() else PEEK) + """
    import os, sys
    before = memory()
    def child():
        with vmprof_allocation.sample("child.vmprof", "1k"):
            garbage = [str(i) for i in range(100000)]
        return memory() == before and top_is_real()
    with vmprof_allocation.sample("out.vmprof", "1k"):
        pid = os.fork()
        if pid == 0:
            os._exit(3 if child() else 4)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        garbage = [str(i) for i in range(100000)]
    print(code)
    """)
    run = pypy.command(str(script))
    assert run.out == "3\n", run.err
    for name in "child", "out":
        profile = readers.read(pypy.folder / (name + ".vmprof"))
        assert len(profile.samples) > 1000
        assert profile.end_time is not None


def test_timers_of_the_program_survive_a_fork(pypy: PyPy) -> None:
    run = pypy.sample("""
        import signal, subprocess, time
        ticks = {signal.SIGVTALRM: 0, signal.SIGPROF: 0}
        def tick(number, frame):
            ticks[number] += 1
        for number, timer in ((signal.SIGVTALRM, signal.ITIMER_VIRTUAL),
                              (signal.SIGPROF, signal.ITIMER_PROF)):
            signal.signal(number, tick)
            signal.setitimer(timer, 0.005, 0.005)
        for i in range(3):
            end = time.process_time() + 0.2
            while time.process_time() < end:
                garbage = [str(j) for j in range(50)]
            print([count > 5 for count in ticks.values()])
            for number in ticks:
                ticks[number] = 0
            subprocess.run(["true"])
    """, "64k")
    assert run.out == "[True, True]\n" * 3


def test_timer_of_time_samples_does_not_outlive_an_exec(stock_pypy: PyPy) -> None:
    """The signal of the timer would kill the new program."""
    run = stock_pypy.command(
        "-m", "vmprof", "--allocation-sampling", "64k", "--period", "0.001",
        "-o", "out.vmprof", str(stock_pypy.script("""
            import os
            os.execv("/bin/sh", ["sh", "-c",
                     "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo ok"])
        """)))
    assert (run.code, run.out) == (0, "ok\n")


def test_child_processes_are_counted(pypy: PyPy) -> None:
    run = pypy.sample("""
        import os, subprocess, sys
        for i in range(3):
            if os.fork() == 0:
                garbage = [str(i) for i in range(100000)]
                os._exit(0)
            os.wait()
        # what becomes another program at once is none of ours
        subprocess.run(["true"])
    """, "64k", "--no-follow")
    assert run.profile().settings["children"] == "3"


def test_child_that_defines_many_functions(pypy: PyPy) -> None:
    """In the child, vmprof has no file for its full buffers.

    vmprof once waited for 40 seconds, and raised an exception.
    """
    source = """
        import os
        if os.fork() == 0:
            for i in range(5000):
                exec(compile("def f%d(): pass" % i, "x.py", "exec"))
            os._exit(7)
        print(os.wait()[1] >> 8)
    """
    assert pypy.sample(source, "64k").out == "7\n"
    assert pypy.sample(source, "64k", "--period", "0.001").out == "7\n"


def test_pipe_ends_with_the_run_although_children_continue(pypy: PyPy) -> None:
    """A forked child once kept the pipe open, so the pipe's reader did not end."""
    script = pypy.script("""
        import os, time
        if os.fork() == 0:
            os.close(1); os.close(2)
            time.sleep(60)
        print("end")
    """)
    done = subprocess.Popen(
        ["sh", "-c", 'mkfifo f; cat f | wc -c > size & "$@"; wait', "sh", PYPY,
         "-m", "vmprof", "--allocation-sampling", "64k", "-o", "f",
         str(script)], cwd=pypy.folder, env=pypy.environment,
        stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, _ = done.communicate(timeout=40)
    finally:
        os.killpg(done.pid, signal.SIGKILL)
    assert out == "end\n"
    assert int((pypy.folder / "size").read_text()) > 1000


@not_emulated
def test_child_that_was_made_without_fork(pypy: PyPy) -> None:
    """The bare system call runs no fork handler.

    The child must not write into the profile of its parent.
    """
    run = pypy.sample("""
        import ctypes, os
        def work():
            for i in range(300):
                garbage = [str(j) for j in range(1000)]
        work()
        child = ctypes.CDLL(None).syscall(57)
        work()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        work()
        print("end")
    """, "4k")
    assert run.out == "end\n"
    assert abs(sigmas(run.profile())) < SIGMAS


def test_children_of_a_process_that_is_killed_are_counted(
        stock_pypy: PyPy) -> None:
    script = stock_pypy.script("""
        import os, time
        for i in range(3):
            if os.fork() == 0:
                garbage = [str(i) for i in range(100000)]
                os._exit(0)
            os.wait()
        garbage = [str(i) for i in range(10000)]
        print("ready", flush=True)
        time.sleep(60)
    """)
    process = subprocess.Popen(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "16k", "--no-follow", "-o",
         "out.vmprof", str(script)], cwd=stock_pypy.folder,
        env=stock_pypy.environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 30
    settings: dict[str, str] = {}
    while "children" not in settings and time.monotonic() < deadline:
        time.sleep(0.1)
        settings = readers.read(stock_pypy.folder / "out.vmprof",
                               salvage=True).settings
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert settings["children"] == "3"
