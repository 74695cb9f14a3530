"""Children of a sampled program are sampled, each into its own profile.

They are forked children, and children that become the same interpreter by exec.
"""
from __future__ import annotations

import os
import signal
import subprocess

import pytest

import record_rows
from conftest import PYPY, PyPy
from made_profiles import OBJECTS, TOTALS, WAITING
from run_profiles import children, functions
from truth import SIGMAS, sigmas
from vmprof_convert import readers

WORK = """
    import os, subprocess, sys
    def in_parent():
        return [str(i) for i in range(100000)]
    def in_child():
        return [str(i) for i in range(200000)]
"""


def test_forked_children_and_grandchildren_are_sampled(pypy: PyPy) -> None:
    """Each child's profile contains only the allocations since the fork."""
    run = pypy.sample(WORK + """
    in_parent()
    for i in range(2):
        child = os.fork()
        if child == 0:
            in_child()
            if i == 1:
                grandchild = os.fork()
                if grandchild == 0:
                    in_child()
                    os._exit(0)
                print(os.getpid(), grandchild, flush=True)
                os.wait()
            sys.exit()
        os.wait()
        in_parent()
    print(os.getpid())
    """, "4k")
    parent, grandparent = (line.split() for line in run.out.splitlines())
    first = run.profile()
    found = children(run.path)
    assert run.err == ""
    assert len(found) == 3
    assert first.settings["pid"] == grandparent[0]
    assert "parent" not in first.settings
    for profile in found:
        is_grandchild = profile.settings["pid"] == parent[1]
        assert profile.settings["parent"] == (parent if is_grandchild
                                              else grandparent)[0]
        assert profile.end_time is not None
        assert profile.command == first.command
        assert abs(sigmas(profile)) < SIGMAS
        assert "in_child" in functions(profile)
        assert "in_parent" not in functions(profile)
        # at its end, the interpreter allocates some objects of 100 bytes outside of
        # all Python functions
        assert profile.lost_stacks <= 3
        assert profile.has_lifetimes
        assert int(profile.settings["clock"]) > int(first.settings["clock"])
        assert min(profile.samples.time) >= 0
    assert len({p.settings["seed"] for p in [first, *found]}) == 4
    assert "in_child" not in functions(first)
    assert abs(sigmas(first)) < SIGMAS
    assert first.children == 0


def test_no_follow_counts_children_without_a_profile(pypy: PyPy) -> None:
    run = pypy.sample(WORK + """
    if os.fork() == 0:
        in_child()
        os._exit(0)
    os.wait()
    subprocess.run([sys.executable, "-c", "print(len([str(i) for i in range(99)]))"])
    """, "4k", "--no-follow")
    assert run.out == "99\n"
    assert children(run.path) == []
    assert run.profile().settings["children"] == "1"


def test_children_without_samples_leave_no_file(pypy: PyPy) -> None:
    run = pypy.sample("""
        import os
        for i in range(1000):
            if os.fork() == 0:
                os._exit(len([None] * i) > 1000)
            assert os.wait()[1] == 0
        print("end")
    """, "1G")
    assert run.out == "end\n"
    assert [path.name for path in pypy.folder.glob("*.vmprof")] == [
        "out.vmprof"]


def test_children_that_become_this_interpreter(stock_pypy: PyPy) -> None:
    """The children start by subprocess, with any environment and flags, or by exec.

    The children see no variable of the sampler, and their own children do not inherit
    one.
    """
    (stock_pypy.folder / "child.py").write_text("""if True:
        import os, sys
        def in_child():
            return [str(i) for i in range(100000)]
        in_child()
        print(sorted(name for name in os.environ if "VMPROF" in name))
    """)
    run = stock_pypy.sample("""
        import os, subprocess, sys
        child = [sys.executable, "child.py"]
        subprocess.run(child)
        cache = {"XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
        subprocess.run(child, env={"A": "1", **cache})
        subprocess.run([sys.executable, "-I", "child.py"])
        sys.stdout.flush()
        if os.fork() == 0:
            os.execv(sys.executable, child)
        os.wait()
        os.execve(sys.executable, child, {"PATH": "/bin", **cache})
    """, "4k")
    assert run.out == "[]\n" * 5
    found = children(run.path)
    first = run.profile()
    assert first.ended == "the process became another program"
    programs = [p for p in found if "in_child" in functions(p)]
    assert len(programs) == 5
    for profile in programs:
        assert profile.end_time is not None
        assert abs(sigmas(profile)) < SIGMAS
    # the first process, which became the interpreter again by exec
    assert first.settings["pid"] in {p.settings["pid"] for p in programs}


def test_other_programs_see_no_variable(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import subprocess
        subprocess.run(["env"])
    """, "4k")
    assert "VMPROF" not in run.out
    assert "PATH=" in run.out


def test_other_programs_are_named(stock_pypy: PyPy) -> None:
    """A failed attempt in a folder of $PATH is no program that ran."""
    run = stock_pypy.sample("""
        import os, subprocess, sys
        for i in range(3):
            subprocess.run(["true"])
        subprocess.run("exit 0", shell=True)
        try:
            subprocess.run(["there-is-no-such-program"])
        except FileNotFoundError:
            pass
        subprocess.run([sys.executable, "-c", ""])
        if os.fork() == 0:
            os.execv("/bin/true", ["a"])
        os.wait()
    """, "64k")
    assert run.profile().settings["programs"] == "4 true,1 sh"
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof")
    assert ("the process ran other programs, which are not included: 4 true, 1 sh"
            in report.out)


def test_forks_during_cpu_samples(pypy: PyPy) -> None:
    """A child must not wait in vmprof's handler for the sample of another thread.

    The other thread does not exist in the child, so the child would never end.
    """
    run = pypy.sample(WORK + """
    import threading
    stop = False
    def compute():
        while not stop:
            sum(range(1000))
    threads = [threading.Thread(target=compute) for i in range(3)]
    for thread in threads:
        thread.start()
    for i in range(100):
        if os.fork() == 0:
            in_child()
            sys.exit()
        assert os.wait()[1] == 0
    stop = True
    print("end")
    """, "64k", "--period", "0.001")
    assert run.out == "end\n"
    found = children(run.path)
    assert len(found) == 100
    for profile in found:
        assert profile.end_time is not None


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(pypy: PyPy, method: str) -> None:
    run = pypy.sample("""
        import multiprocessing, os, sys
        def work(n):
            return len([str(i) for i in range(50000)])
        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            with context.Pool(2) as pool:
                print(sum(pool.map(work, range(20), chunksize=1)))
                pool.close()
                pool.join()
    """, "4k", arguments=(method,))
    assert run.out == "1000000\n", run.err
    found = children(run.path)
    workers = [p for p in found if "work" in functions(p)]
    assert 1 <= len(workers) <= 2
    for profile in [run.profile(), *found]:
        assert abs(sigmas(profile)) < SIGMAS
        assert profile.end_time is not None


@pytest.mark.parametrize("end", [
    "os._exit(0)", "os.kill(os.getpid(), signal.SIGTERM)", "os.abort()",
    "os.setpgid(0, 0); os.kill(0, signal.SIGTERM)",
    "os.setpgid(0, 0); os.kill(-os.getpid(), signal.SIGKILL)",
    "os.execv('/bin/true', ['true'])"])
def test_ends_of_a_child(stock_pypy: PyPy, end: str) -> None:
    run = stock_pypy.sample(WORK + """
    import signal
    if os.fork() == 0:
        in_child()
        %s
    os.wait()
    """ % end, "4k")
    profile, = children(run.path)
    assert abs(sigmas(profile)) < SIGMAS
    assert len(profile.samples) > 1000
    if "_exit" in end:
        assert profile.end_time is not None
        assert profile.ended == ""
    else:
        assert profile.ended


def test_child_that_is_killed(pypy: PyPy) -> None:
    """The child loses the samples since the last flush, as its parent would."""
    run = pypy.sample(WORK + """
    import signal, time
    reader, writer = os.pipe()
    if os.fork() == 0:
        in_child()
        time.sleep(1.5)
        os.write(writer, b"x")
        time.sleep(60)
    os.read(reader, 1)
    os.kill(0, signal.SIGCONT)
    child = [int(name.split(".")[1]) for name in os.listdir(".")
             if name.startswith("out.") and name != "out.vmprof"]
    os.kill(child[0], signal.SIGKILL)
    os.wait()
    """, "4k")
    profile, = children(run.path, salvage=True)
    assert profile.end_time is None
    assert len(profile.samples) > 1000
    assert abs(sigmas(profile)) < SIGMAS


def test_waiting_samples_of_a_killed_process_are_written_once(pypy: PyPy) -> None:
    """With a nursery that is never full, all samples wait for their outcome.

    Each flush writes the new waiting samples, and none twice.
    """
    run = pypy.sample("""
    import os, signal, time
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for _ in range(30):
            kept = [[i] for i in range(2000)]
            time.sleep(0.1)
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    os.kill(child, signal.SIGKILL)
    os.wait()
    """, "1k", PYPY_GC_NURSERY="512M")
    path, = run.path.parent.glob("out.*.vmprof")
    data = path.read_bytes()
    found = record_rows.tables(data)
    assert OBJECTS not in found and len(found[TOTALS]) > 3
    keys = [row[0] for row in found[WAITING]]
    assert keys == list(range(1, len(keys) + 1)) and len(keys) > 1000
    profile = readers.read_bytes(data)
    assert len(profile.samples) == len(keys)
    assert abs(sigmas(profile)) < SIGMAS


def test_child_that_samples_itself(pypy: PyPy) -> None:
    """When the child starts a run, the inherited run ends in the child."""
    script = pypy.script(WORK + """
    import vmprof_allocation
    with vmprof_allocation.sample("out.vmprof", "4k") as session:
        for allocates in False, True:
            if os.fork() == 0:
                if allocates:
                    in_parent()
                with vmprof_allocation.sample("own%d.vmprof" % allocates, "4k"):
                    in_child()
                print(session.is_on, flush=True)
                os._exit(0)
            os.wait()
    """)
    run = pypy.command(str(script))
    assert (run.out, run.err) == ("False\n" * 2, "")
    found = children(run.path)
    assert sum("in_parent" in functions(profile) for profile in found) == 1
    for profile in found:
        assert "in_child" not in functions(profile)
        assert profile.end_time is not None
    for name in "own0.vmprof", "own1.vmprof":
        run.path = pypy.folder / name
        assert "in_child" in functions(run.profile())
        assert abs(sigmas(run.profile())) < SIGMAS


def test_child_ends_the_session_that_it_has(pypy: PyPy) -> None:
    """In the child, stop() ends only the child's profile."""
    script = pypy.script(WORK + """
    import vmprof_allocation
    session = vmprof_allocation.start("out.vmprof", "4k")
    if os.fork() == 0:
        in_child()
        vmprof_allocation.mark("here")
        vmprof_allocation.stop()
        print(os.path.basename(session.output) == "out.%d.vmprof" % os.getpid(),
              session.is_on, flush=True)
        in_parent()
        os._exit(0)
    os.wait()
    in_parent()
    vmprof_allocation.stop()
    """)
    run = pypy.command(str(script))
    assert (run.out, run.err) == ("True False\n", "")
    profile, = children(run.path)
    assert [mark.name for mark in profile.marks] == ["here"]
    assert "in_parent" not in functions(profile)
    assert "in_parent" in functions(run.profile())


def test_forks_of_threads_and_threads_of_children(pypy: PyPy) -> None:
    run = pypy.sample(WORK + """
    import threading
    def fork():
        if os.fork() == 0:
            threads = [threading.Thread(target=in_child) for i in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os._exit(0)
        os.wait()
    stop = False
    def allocate():
        while not stop:
            in_parent()
    beside = threading.Thread(target=allocate)
    beside.start()
    for i in range(5):
        forking = threading.Thread(target=fork)
        forking.start()
        forking.join()
    stop = True
    beside.join()
    """, "4k")
    found = children(run.path)
    assert len(found) == 5
    for profile in found:
        assert abs(sigmas(profile)) < SIGMAS
        assert len(set(profile.samples.thread)) >= 3
        assert "in_parent" not in functions(profile)


def test_child_in_another_folder_with_new_functions(pypy: PyPy) -> None:
    """The path of the child's profile does not depend on the current folder.

    The profile contains the names of functions that the parent does not have.
    """
    run = pypy.sample(WORK + """
    if os.fork() == 0:
        os.chdir("/")
        scope = {}
        exec("def made_later():\\n return [str(i) for i in range(100000)]", scope)
        scope["made_later"]()
        os._exit(0)
    os.wait()
    """, "4k")
    profile, = children(run.path)
    assert "made_later" in functions(profile)


def test_child_that_cannot_write_a_profile_is_counted(pypy: PyPy) -> None:
    """The folder of the profiles is renamed during the fork, as an example.

    The child runs without sampling.
    """
    run = pypy.sample(WORK + """
    here = os.getcwd()
    os.rename(here, here + "-moved")
    if os.fork() == 0:
        os._exit(len(in_child()) == 200000)
    print(os.wait()[1] >> 8)
    os.rename(here + "-moved", here)
    """, "4k")
    assert run.out == "1\n"
    assert children(run.path) == []
    assert run.profile().settings["children"] == "1"


def test_only_the_first_process_has_cpu_samples(pypy: PyPy) -> None:
    """vmprof's timer does not run in a child."""
    run = pypy.sample(WORK + """
    if os.fork() == 0:
        for i in range(20):
            in_child()
        os._exit(0)
    os.wait()
    for i in range(20):
        in_parent()
    """, "64k", "--period", "0.001")
    profile, = children(run.path)
    assert profile.settings["period"] == ""
    assert 0 not in profile.samples.size
    assert 0 in run.profile().samples.size


def test_no_file_remains_without_an_output(pypy: PyPy) -> None:
    (pypy.folder / "tmp").mkdir()
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "4k",
        str(pypy.script(WORK + """
    if os.fork() == 0:
        in_child()
        os._exit(0)
    os.wait()
    subprocess.run([sys.executable, "-c", "[str(i) for i in range(99999)]"])
    """)), TMPDIR=str(pypy.folder / "tmp"))
    assert run.code == 0
    assert "allocated in" in run.err
    assert list((pypy.folder / "tmp").iterdir()) == []


def test_gunicorn(pypy: PyPy) -> None:
    """The workers allocate, and SIGTERM to the first process ends all processes."""
    (pypy.folder / "app.py").write_text("""if True:
        import os
        def view():
            return [str(i) for i in range(20000)]
        def app(environ, start_response):
            text = b"%d %d" % (os.getpid(), len(view()))
            start_response("200 OK", [("Content-Length", str(len(text)))])
            return [text]
    """)
    server = subprocess.Popen(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "16k", "-o", "out.vmprof",
         "-m", "gunicorn", "-w", "2", "-b", "unix:socket", "--pythonpath", ".",
         "app:app"], cwd=pypy.folder, env=pypy.environment,
        stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        asked = pypy.command(str(pypy.script("""
            import socket, time
            def ask():
                end = time.monotonic() + 60
                while True:
                    client = socket.socket(socket.AF_UNIX)
                    try:
                        client.connect("socket")
                        break
                    except OSError:
                        client.close()
                        assert time.monotonic() < end
                        time.sleep(0.1)
                client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                answer = b""
                while piece := client.recv(4096):
                    answer += piece
                client.close()
                worker, length = answer.split()[-2:]
                assert length == b"20000"
                return worker
            # one that has not served yet may have its parent's handlers still: it would
            # not end when it is told to
            asked, workers = 0, set()
            while asked < 60 or (asked < 5000 and len(workers) < 2):
                workers.add(ask())
                asked += 1
            print(len(workers))
        """, "ask.py")))
        assert asked.out == "2\n", asked.err
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=60)
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
    assert server.returncode == 0, err
    first = pypy.profile()
    found = children(pypy.folder / "out.vmprof")
    assert len(found) == 2
    assert any("view" in functions(profile) for profile in found)
    assert "view" not in functions(first)
    for profile in [first, *found]:
        assert abs(sigmas(profile)) < SIGMAS
        assert profile.end_time is not None


def test_nobody_else_can_read_a_profile(pypy: PyPy) -> None:
    """Profiles contain command lines, also the profiles of children and segments."""
    pypy.sample("""
        import glob, os, time
        kept = [str(i) for i in range(20000)]
        if not os.fork():
            kept = [str(i) for i in range(20000)]
            os._exit(0)
        os.wait()
        while len(glob.glob("*.vmprof")) < 3:
            time.sleep(0.01)
        kept = [str(i) for i in range(20000)]
    """, "4k", "--rotate", "0.1")
    found = list(pypy.folder.glob("*.vmprof"))
    assert len(found) >= 3
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}
