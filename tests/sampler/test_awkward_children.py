"""Children of a sampled program in unusual circumstances.

The tests check the profiles of the children, and that the parent counts each child that
has no profile.
"""
from __future__ import annotations

import os
import re
import time

from conftest import PyPy
from run_profiles import children, functions
from truth import SIGMAS, sigmas
from vmprof_convert import readers

WORK = """
    import os, resource, subprocess, sys
    def in_parent():
        return [str(i) for i in range(100000)]
    def in_child():
        return [str(i) for i in range(200000)]
"""


def test_interval_follows_the_limit_in_children(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(WORK + """
    def work():
        for i in range(200):    # until there are samples by which it can move
            in_child()
    if os.fork() == 0:
        work()
        if os.fork() == 0:
            work()
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
    """, "auto:100/s")
    found = children(run.path)
    assert len(found) == 2
    for profile in found:
        assert profile.settings["limit"] == "100/s"
        assert len(set(profile.samples.interval)) > 1
        assert abs(sigmas(profile)) < SIGMAS


def test_statistics_of_a_child_start_at_zero(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(WORK + """
    import vmprof_allocation
    with vmprof_allocation.sample("out.vmprof", "4k") as session:
        in_parent()
        session.set_interval("1G")
        if os.fork() == 0:
            counted = session.statistics()
            print(counted.samples, counted.lost, counted.time_samples, flush=True)
            os._exit(0)
        os.wait()
        print(session.statistics().samples > 0)
    """)
    run = stock_pypy.command(str(script))
    assert (run.out, run.err) == ("0 0 0\nTrue\n", "")


def test_child_whose_disk_is_full(stock_pypy: PyPy) -> None:
    """The child can open its file, but cannot write to the file."""
    run = stock_pypy.sample(WORK + """
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os._exit(len(in_child()) == 200000)
    print(os.wait()[1] >> 8)
    """, "64k")
    assert run.out == "1\n"
    assert children(run.path) == []
    assert run.profile().settings["children"] == "1"


def test_programs_without_a_name_are_counted_together(stock_pypy: PyPy) -> None:
    """The profile names at most 15 programs, and counts all others together."""
    run = stock_pypy.sample("""
        import os, subprocess
        for i in range(20):
            name = "a-long-name-of-a-program-%02d" % i
            os.symlink("/bin/true", name)
            subprocess.run(["./" + name])
    """, "64k")
    named = run.profile().settings["programs"].split(",")
    assert [name.split()[0] for name in named] == ["1"] * 15 + ["5"]
    assert named[-1] == "5 others"


def test_forks_while_other_threads_make_functions(stock_pypy: PyPy) -> None:
    """Another thread may hold the lock of vmprof's buffers at the fork.

    In such a child, the lock stays held.  The child is not sampled, but its parent
    counts it as a child without a profile.
    """
    run = stock_pypy.sample(WORK + """
    import threading
    stop = False
    def define():
        while not stop:
            for i in range(50):
                exec(compile("def f%d(): pass" % i, "x%d.py" % i, "exec"), {})
    threads = [threading.Thread(target=define) for i in range(3)]
    for thread in threads:
        thread.start()
    for i in range(50):
        if os.fork() == 0:
            os._exit(len(in_child()) != 200000)
        assert os.wait()[1] == 0
    stop = True
    for thread in threads:
        thread.join()
    print("end")
    """, "64k")
    assert run.out == "end\n"
    found = children(run.path)
    assert (len(found)
            + int(run.profile().settings.get("children", "0"))) == 50
    for profile in found:
        assert "in_child" in functions(profile)
        assert abs(sigmas(profile)) < SIGMAS


def test_environment_that_is_too_large_for_exec(stock_pypy: PyPy) -> None:
    """The sampler once copied the environment to the stack, where it did not fit."""
    run = stock_pypy.sample(WORK + """
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_STACK, (2**20, 2**20))
        try:
            os.execve(sys.executable, [sys.executable, "-c", ""],
                      {"a%d" % i: "" for i in range(200000)})
        except OSError:
            os._exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
    """, "64k")
    assert run.out == "7\n"


def test_first_process_has_no_parent_after_exec(stock_pypy: PyPy) -> None:
    """After its exec, the first process still has no parent, but its child has one."""
    (stock_pypy.folder / "child.py").write_text("""if True:
        import os, subprocess, sys
        def later():
            return [str(i) for i in range(100000)]
        later()
        print(os.getpid(), flush=True)
        if len(sys.argv) < 3:
            subprocess.run([sys.executable, "child.py", "x", "y"])
    """)
    run = stock_pypy.sample("""
        import os, sys
        os.execv(sys.executable, [sys.executable, "child.py", "x"])
    """, "4k")
    pid, child = run.out.split()
    parents = {p.settings["pid"]: p.settings.get("parent")
               for p in children(run.path) if "later" in functions(p)}
    assert parents == {pid: None, child: pid}


def test_child_with_arguments_like_our_flags_is_sampled(stock_pypy: PyPy) -> None:
    (stock_pypy.folder / "child.py").write_text("""if True:
        import os
        def later():
            return [str(i) for i in range(100000)]
        later()
        print(sorted(name for name in os.environ if "VMPROF" in name))
    """)
    run = stock_pypy.sample("""
        import subprocess, sys
        for flag in "--all", "--allow-x", "--allocation-sampling":
            subprocess.run([sys.executable, "child.py", flag])
            subprocess.run([sys.executable, "-m", "child", flag])
    """, "4k")
    assert run.out == "[]\n" * 6
    assert sum("later" in functions(p) for p in children(run.path)) == 6


def test_child_without_site_gets_no_variable(stock_pypy: PyPy) -> None:
    """Without the module site, no code in the child would remove the variable.

    The variable contains the settings.  So the parent does not set it, and counts the
    child as another program.
    """
    run = stock_pypy.sample("""
        import subprocess, sys
        source = "import os; print(sorted(n for n in os.environ if 'VMPROF' in n))"
        for flags in ["-S"], ["-BS"], ["-W", "error", "-ESc"]:
            subprocess.run([sys.executable, *flags,
                            *["-c"] * (not flags[-1].endswith("c")), source])
        # not the interpreter's own flag
        subprocess.run([sys.executable, "-c", "[str(i) for i in range(99999)]", "-S"])
    """, "4k")
    assert run.out == "[]\n" * 3
    assert len(children(run.path)) == 1
    (named,) = run.profile().settings["programs"].split(",")
    assert re.fullmatch(r"3 pypy3\S*", named)


def test_child_that_runs_vmprof_samples_itself(stock_pypy: PyPy) -> None:
    """The child samples itself, and does not belong to the run of its parent."""
    (stock_pypy.folder / "child.py").write_text("""if True:
        import os
        def later():
            return [str(i) for i in range(100000)]
        later()
        print(sorted(name for name in os.environ if "VMPROF" in name))
    """)
    run = stock_pypy.sample("""
        import subprocess, sys
        subprocess.run([sys.executable, "-m", "vmprof", "--allocation-sampling", "4k",
                        "-o", "own.vmprof", "child.py"])
    """, "4k")
    assert (run.out, run.err) == ("[]\n", "")
    assert children(run.path) == []
    run.path = stock_pypy.folder / "own.vmprof"
    assert "later" in functions(run.profile())


def test_child_overwrites_no_existing_file(stock_pypy: PyPy) -> None:
    """The child finds all names of its profile taken, and overwrites no file."""
    run = stock_pypy.sample("""
        import os, subprocess, sys
        child = '''if True:
            import os
            [str(i) for i in range(99999)]
            os.write(1, b"%d" % os.getpid())
        '''
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(reader, 1)
            os.execv(sys.executable, [sys.executable, "-c", child])
        for number in range(1, 101):
            mark = "-%d" % number if number > 1 else ""
            with open("out.%d%s.vmprof" % (pid, mark), "w") as file:
                file.write("x")
        os.write(writer, b"x")
        os.wait()
    """, "64k")
    files = list(stock_pypy.folder.glob("out.%s*.vmprof" % run.out))
    assert {path.read_bytes() for path in files} == {b"x"}
    assert len(files) == 100


def test_child_that_outlives_the_report(stock_pypy: PyPy) -> None:
    """After the report, the command keeps the temporary profile of a running child.

    It prints the path of this profile, but not the path of a file that only has a
    similar name.
    """
    temporary = stock_pypy.folder / "tmp"
    temporary.mkdir()
    script = stock_pypy.script(WORK + """
    reader, writer = os.pipe()
    child = '''if True:
        import os, sys, time
        kept = [str(i) for i in range(100000)]
        os.write(int(sys.argv[1]), b"x")
        while not os.path.exists("go"):
            time.sleep(0.05)
    '''
    null = open(os.devnull, "r+")
    for is_forked in True, False:
        if is_forked and os.fork() == 0:
            os.dup2(null.fileno(), 1)
            error = os.open("errors", os.O_WRONLY | os.O_CREAT)
            os.dup2(error, 2)
            sys.argv[1:] = [str(writer)]
            exec(child)
            sys.exit()
        if not is_forked:
            subprocess.Popen([sys.executable, "-c", child, str(writer)],
                             pass_fds=[writer], stdout=null,
                             stderr=open("errors2", "w"))
        os.read(reader, 1)
    name, = os.listdir("tmp")[:1]
    open("tmp/%s.1.x.vmprof" % name.split(".")[0], "w")
    """)
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "4k",
                             str(script), TMPDIR=str(temporary))
    assert run.code == 0
    stray = [p for p in temporary.iterdir() if p.name.endswith(".1.x.vmprof")]
    named = re.findall(r"vmprof: process (\d+) is still running, and continues to "
                       r"write into (\S+)", run.err)
    assert len(stray) == 1
    assert ({path for _, path in named}
            == {str(p) for p in temporary.iterdir()} - {str(stray[0])})
    (stock_pypy.folder / "go").touch()
    for pid, path in named:
        for _ in range(600):
            if not os.path.exists("/proc/%s/exe" % pid):
                break
            time.sleep(0.1)
        profile = readers.read(path)
        assert profile.settings["pid"] == pid
        assert profile.end_time is not None
    assert len(named) == 2
    for name in "errors", "errors2":
        assert (stock_pypy.folder / name).read_text() == ""


def test_doctor_says_whether_children_are_followed(stock_pypy: PyPy) -> None:
    run = stock_pypy.command("-m", "vmprof_allocation", "doctor")
    assert run.code == 0
    assert "  ok   children: followed\n" in run.out


#: A program in which a thread forks a child.  The child must end when the function of
#: this thread returns, because no other thread in the child would end it.
OF_A_THREAD = WORK + """
    import threading, time
    def fork():
        pid = os.fork()
        if pid == 0:
            %s
            in_child()
            return
        for i in range(600):
            if os.waitpid(pid, os.WNOHANG)[0]:
                print("ended")
                return
            time.sleep(0.1)
        os.kill(pid, 9)
        print("goes on")
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
"""


def test_child_that_a_thread_forked_ends_with_the_thread(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(OF_A_THREAD % "", "4k")
    assert run.out == "ended\n"
    (path,) = set(stock_pypy.folder.glob("out.*.vmprof"))
    assert "in_child" in functions(readers.read(path))


def test_child_that_a_thread_forked_without_a_free_descriptor(stock_pypy: PyPy) -> None:
    """Without a descriptor, the child cannot list its threads, and must still end."""
    run = stock_pypy.sample(OF_A_THREAD % """
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
            try:
                while True:
                    os.dup(0)
            except OSError:
                pass
            """, "4k")
    assert run.out == "ended\n"


def test_child_of_a_child_that_a_thread_forked(stock_pypy: PyPy) -> None:
    """The grandchild, too, must end when the function of the forking thread returns."""
    run = stock_pypy.sample(OF_A_THREAD % """
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            """, "4k")
    assert run.out == "ended\n"
    assert len(set(stock_pypy.folder.glob("out.*.vmprof"))) == 2


def test_child_that_a_thread_forked_and_that_samples_itself(pypy: PyPy) -> None:
    run = pypy.run(OF_A_THREAD % """
            import vmprof_allocation
            vmprof_allocation.start("out.vmprof", "4k")
            """)
    assert run.out == "ended\n", run.err
    assert "in_child" in functions(pypy.profile())
