"""The few objects of the sampler that stay on the heap while the program runs.

These objects end the profile, whatever the program has changed meanwhile.
"""
from __future__ import annotations

import textwrap

import pytest

from conftest import PyPy
from truth import innermost
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile


def work(name: str = "work") -> str:
    """Return a program that allocates 20 MB in a function of this name."""
    return ("def %s():\n    filler = b'x' * 20000\n"
            "    for i in range(2000):\n        filler[:10000]\n%s()\n" % (name, name))


def program(*parts: str) -> str:
    return "".join(map(textwrap.dedent, parts))


def samples_in(profile: Profile, name: str) -> int:
    return [innermost(profile, stack) for stack in profile.samples.stack].count(name)


def test_few_objects_of_the_sampler_stay_on_the_heap(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import gc, types
        gc.collect()
        print(*{f.__module__ for f in gc.get_objects()
                if type(f) in (types.FunctionType, type)
                and str(f.__module__).startswith("vmprof_allocation")})
    """, "1M")
    assert set(run.out.split()) <= {"vmprof_allocation." + name for name in (
        "critical.forks", "critical.interrupts", "engines.ending",
        "critical.descriptors", "engines.hook.ending", "engines.hook.heap_snapshot",
        "engines.hook.safepoint",
        "engines.thread_names", "errors", "session.profile_file",
        "session.resident")}


@pytest.mark.parametrize("gone", [
    "sys.path[:] = []",
    "sys.path[:] = []; sys.meta_path.clear(); sys.path_hooks.clear()",
    "os.chdir('/'); os.environ.clear()",
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "sys.meta_path = None",
    "sys.meta_path = ()",
    "sys.modules.clear()",
    "sys.setrecursionlimit(15)",
    # modules that are imported again do not know the present session, and must not
    # prevent its end
    "[sys.modules.pop(name) for name in list(sys.modules) if 'vmprof_all' in name]\n"
    "import vmprof_allocation, vmprof_allocation.session.session",
])
def test_profile_is_complete_after_changes_by_the_program(
        pypy: PyPy, gone: str) -> None:
    run = pypy.sample(program("import os, sys\n", work(), gone), "16k", jit="off")
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    assert profile.end_time is not None and not profile.ended
    assert samples_in(profile, "work") > 800


def test_another_version_was_installed_meanwhile(pypy: PyPy) -> None:
    (pypy.folder / "elsewhere" / "vmprof_allocation").mkdir(parents=True)
    pypy.script("raise ImportError('another version')",
                "elsewhere/vmprof_allocation/__init__.py")
    run = pypy.sample(program(work(), "import sys; sys.path.insert(0, 'elsewhere')"),
                      "16k", jit="off")
    assert (run.code, run.err) == (0, "")
    assert run.profile().end_time is not None


def test_program_does_not_see_imports_at_the_end(pypy: PyPy) -> None:
    """The program may even empty sys.modules."""
    run = pypy.sample(program(work(), """
        import sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                write("find %s" % name)
        write = sys.stdout.write
        finder = Finder()
        sys.modules.clear()
        sys.meta_path.insert(0, finder)
    """), "16k", jit="off")
    assert (run.code, run.out, run.err) == (0, "", "")
    assert run.profile().end_time is not None


def test_lost_profile_of_an_open_session_is_reported(pypy: PyPy) -> None:
    run = pypy.run("""
        import os, vmprof_allocation
        vmprof_allocation.start("lost.vmprof", "16k")
        os.unlink("lost.vmprof")
    """)
    assert (run.code, run.out) == (0, "")
    assert run.err == ("vmprof: the profile is lost: this program or another one "
                       "removed 'lost.vmprof'\n")


def test_lost_profile_is_reported_after_changes_by_the_program(pypy: PyPy) -> None:
    """Only the sampler's modules, which must be found again, have the reason."""
    run = pypy.sample(program(work(), """
        import os, sys
        os.unlink("out.vmprof")
        sys.path[:] = []
        sys.meta_path.clear()
    """), "16k", jit="off")
    assert run.code == 0
    assert run.err == ("vmprof: the profile is lost: this program or another one "
                       "removed 'out.vmprof'\n")


@pytest.mark.parametrize("raises", ["KeyboardInterrupt", "ValueError", "BaseException"])
@pytest.mark.parametrize("delay", [0.0001, 0.001])
def test_interrupt_at_the_end(pypy: PyPy, delay: float, raises: str) -> None:
    run = pypy.sample(program(work(), """
        import atexit, signal
        def hurry(number, frame):
            while frame is not None:
                if frame.f_code.co_name == "_end":
                    raise %s
                frame = frame.f_back
            signal.setitimer(signal.ITIMER_REAL, %r)
        signal.signal(signal.SIGALRM, hurry)
        atexit.register(signal.setitimer, signal.ITIMER_REAL, %r)
    """ % (raises, delay, delay)), "16k", jit="off")
    assert run.code == 0
    profile = run.profile()
    assert profile.end_time is not None and not profile.ended


def test_end_imports_nothing(stock_pypy: PyPy) -> None:
    """An import releases the GIL, which a computing thread keeps for a second or more.

    With eight such threads, the process once ended ten seconds late.
    """
    run = stock_pypy.sample(program(work(), """
        import atexit, sys, threading, time
        ending = []
        def tell(event, arguments):
            if ending and event in ("exec", "import", "marshal.loads", "open"):
                print(event, arguments)
        sys.addaudithook(tell)
        atexit.register(ending.append, None)
        threading.Thread(target=time.sleep, args=(600,), name="sleeps",
                         daemon=True).start()
    """), "16k", jit="off")
    assert (run.code, run.out, run.err) == (0, "", "")
    profile = run.profile()
    assert profile.end_time is not None and not profile.ended
    assert samples_in(profile, "work") > 800
    assert "sleeps" in profile.threads.values()


def test_native_code_ends_the_profile_without_exit_functions(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(program(work(), """
        import atexit
        atexit._clear()
    """), "16k", jit="off")
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    assert profile.end_time is not None
    assert samples_in(profile, "work") > 800


def test_program_that_imports_us_finds_the_present_session(pypy: PyPy) -> None:
    run = pypy.sample(program(work("before"), """
        import vmprof_allocation
        vmprof_allocation.mark("here")
        try:
            vmprof_allocation.start("other.vmprof", "1M")
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
    """, work("after")), "16k", jit="off")
    assert "already" in run.out
    profile = run.profile()
    assert profile.end_time is not None
    assert min(samples_in(profile, "before"), samples_in(profile, "after")) > 800
    assert "here" in [mark.name for mark in profile.marks]


def test_names_of_a_childs_threads(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import os, threading
        if os.fork() == 0:
            kept = []
            for name in "ended", "daemon":
                thread = threading.Thread(
                    target=lambda: [bytes(i) for i in range(2000)], name=name)
                thread.start()
                thread.join()
                kept.append(thread)
            [bytes(i) for i in range(2000)]
        else:
            os.wait()
    """, "16k")
    assert (run.code, run.err) == (0, "")
    child, = (path for path in stock_pypy.folder.glob("out.*.vmprof"))
    assert {"ended", "daemon"} <= set(readers.read(child).threads.values())


def test_child_has_no_threads_of_its_parents(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import os, threading
        done = threading.Event()
        thread = threading.Thread(target=done.wait, daemon=True, name="parent's")
        thread.start()
        if os.fork() == 0:
            [bytes(i) for i in range(2000)]
        else:
            os.wait()
            done.set()
            thread.join()
    """, "16k")
    assert (run.code, run.err) == (0, "")
    child, = map(readers.read, stock_pypy.folder.glob("out.*.vmprof"))
    assert child.end_time is not None and "parent's" not in child.threads.values()


def test_labels_apply_to_the_suspended_session(pypy: PyPy) -> None:
    run = pypy.sample(program(work("before"), """
        import vmprof_allocation
        labels = vmprof_allocation.labels(kind="b")
        labels.__enter__()
    """, work("inside"), "labels.__exit__()\n", work("after")), "16k", jit="off")
    profile = run.profile()
    labelled = {innermost(profile, stack)
                for stack in set(profile.samples.stack) if profile.labels_of(stack)}
    assert "inside" in labelled and not labelled & {"before", "after"}


@pytest.mark.parametrize("imports", ["", "import vmprof_allocation.session.session"])
def test_forked_children_and_theirs(stock_pypy: PyPy, imports: str) -> None:
    run = stock_pypy.sample(program("import os\n", work("before"), """
        def child():
            generation("child")
            fork(grandchild)
        def grandchild():
            generation("grandchild")
            if IMPORTS:
                from vmprof_allocation.session.session import current
                print(current().is_inherited,
                      current().path.endswith("out.%d.vmprof" % os.getpid()))
        def fork(then):
            pid = os.fork()
            if pid == 0:
                then()
            else:
                assert os.waitpid(pid, 0)[1] == 0
        def generation(name):
            exec(WORK.replace("NAME", name), {})
            exec(IMPORTS)
        fork(child)
    """.replace("IMPORTS", repr(imports)).replace("WORK", repr(work("NAME")))),
        "16k", jit="off")
    assert (run.code, run.err) == (0, "")
    assert run.out == ("True True\n" if imports else "")
    found = {}
    for path in stock_pypy.folder.glob("out*.vmprof"):
        profile = readers.read(path)
        assert profile.end_time is not None and not profile.ended, path
        functions = {innermost(profile, stack) for stack in profile.samples.stack}
        [name] = functions & {"before", "child", "grandchild", "NAME"}
        found[name] = profile
    assert set(found) == {"before", "child", "grandchild"}
    assert found["child"].settings["parent"] == str(found["before"].pid)
    assert found["grandchild"].settings["parent"] == str(found["child"].pid)


def test_child_starts_another_run(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import os
        pid = os.fork()
        if pid:
            print(os.waitpid(pid, 0)[1])
        else:
            import vmprof_allocation
            with vmprof_allocation.sample("own.vmprof", "16k"):
                exec(%r)
            os._exit(0)
    """ % work("own"), "16k", "--no-follow", jit="off")
    assert (run.out, run.err) == ("0\n", "")
    assert samples_in(readers.read(stock_pypy.folder / "own.vmprof"), "own") > 800


def test_our_own_work_is_not_in_the_profile_of_a_small_program(
        pypy: PyPy) -> None:
    """The profile once contained 4 MiB of the sampler, more than of many programs."""
    profile = pypy.sample("pass", "4k", jit="off").profile()
    assert 0 < profile.moments[-1].allocated < 3 * 2**20


def test_collection_after_the_start_is_not_recorded(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("import gc; gc.collect()", "1M")
    majors = [c for c in run.profile().collections if c.is_major]
    assert len(majors) == 1
    none = stock_pypy.sample("", "1M").profile()
    assert not [c for c in none.collections if c.is_major]


def test_threads_that_import_the_session_at_once(pypy: PyPy) -> None:
    run = pypy.sample("""
        import threading
        barrier, found = threading.Barrier(8), []
        def find():
            barrier.wait()
            from vmprof_allocation.session.session import current
            found.append(current())
        threads = [threading.Thread(target=find) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(found), len(set(map(id, found))), found[0].is_on)
    """, "16k")
    assert run.out == "8 1 True\n"
    assert run.profile().end_time is not None
