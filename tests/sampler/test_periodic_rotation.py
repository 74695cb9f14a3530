"""The option --rotate, which divides the profiles of a run and of its children."""
from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

import found as objects
from conftest import PYPY, PyPy
from vmprof_convert import readers
from vmprof_convert.analysis import holders
from vmprof_convert.cli import run_files
from vmprof_convert.profile.model import Profile

THING = """
    import os, subprocess, sys, time
    class Thing:
        pass
    def work(seconds):
        kept = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            kept += [Thing() for i in range(100)]
            time.sleep(0.01)
        return kept
    def parts():
        return [name for name in os.listdir() if ".w" in name]
"""


def rotate(pypy: PyPy, *arguments: str, every: str = "0.2", output: str = "app.vmprof",
           interval: str = "1") -> tuple[int, str, str]:
    run = pypy.command("-m", "vmprof", "--allocation-sampling", interval, "--rotate",
                       every, "-o", output, *arguments)
    return run.code, run.out, run.err


def profiles(folder: Path) -> dict[str, list[Profile]]:
    """Return the segments of each process in order, by the first segment's name."""
    found: dict[str, list[Profile]] = {}
    for path in sorted(folder.glob("*.vmprof"), key=lambda path: (
            int((re.findall(r"\.w(\d+)$", path.stem) or ["1"])[0]))):
        found.setdefault(re.sub(r"\.w\d+$", "", path.stem), []).append(
            readers.read(path))
    for of_process in found.values():
        first = of_process[0].settings
        for number, profile in enumerate(of_process, 1):
            assert profile.settings.get("part", "1") == str(number)
            assert (profile.misfits, profile.torn) == (0, 0)
            assert profile.end_time is not None
            for name in "pid", "run", "parent":
                assert profile.settings.get(name) == first.get(name)
    return found


def things(found: list[Profile]) -> int:
    return sum(type_ >= 0 and profile.types[type_].python == "__main__.Thing"
               for profile in found for type_ in profile.samples.type)


def test_no_object_is_lost_between_segments(stock_pypy: PyPy) -> None:
    """The run has a first process, a forked child, its child, and a child by exec."""
    anew = stock_pypy.script(THING + """
    print("anew", os.getpid(), len(work(1.5)))
    """, "anew.py")
    script = stock_pypy.script(THING + """
    def say(name, count):
        os.write(1, b"%%s %%d %%d\\n" %% (name, os.getpid(), count))
    if os.fork() == 0:
        kept = work(0.7)
        child = os.fork()
        if child == 0:
            say(b"grandchild", len(work(0.8)))
            sys.exit()
        kept += work(0.8)
        os.waitpid(child, 0)
        say(b"child", len(kept))
        sys.exit()
    subprocess.run([sys.executable, %r], check=True)
    kept = work(0.5)
    os.wait()
    say(b"first", len(kept))
    """ % str(anew))
    code, out, err = rotate(stock_pypy, str(script))
    assert (code, err) == (0, "")
    said = {int(pid): int(count) for _, pid, count in map(str.split, out.splitlines())}
    assert len(said) == 4
    found = profiles(stock_pypy.folder)
    assert len(found) == 4
    for name, of_process in found.items():
        pid = of_process[0].settings["pid"]
        assert name == ("app" if "parent" not in of_process[0].settings
                        else "app." + pid)
        assert things(of_process) == said[int(pid)]
    # the number of segments depends on the machine
    assert max(map(len, found.values())) >= 3
    # the name of the first profile selects the whole run, and the name of a child's
    # profile selects all segments of the child
    files = run_files.find([str(stock_pypy.folder / "app.vmprof")]).files
    assert sorted(len(file.later) + 1 for file in files) == sorted(
        map(len, found.values()))
    for name, of_process in found.items():
        if name != "app":
            file, = run_files.find([str(stock_pypy.folder / (name + ".vmprof"))]).files
            assert len(file.later) + 1 == len(of_process)


def test_child_without_a_sample_leaves_no_profile(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(THING + """
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
    for i in range(20):
        bytes(100000000)
    os.wait()
    """)
    # the child allocates some kilobytes, which is a sample once in thousands of runs
    assert rotate(stock_pypy, str(script), interval="64M") == (0, "", "")
    assert set(profiles(stock_pypy.folder)) == {"app"}


def test_child_of_a_thread_has_one_profile(stock_pypy: PyPy) -> None:
    """A child that another thread than the main one forks ends with that thread."""
    script = stock_pypy.script(THING + """
    import threading
    def fork():
        child = os.fork()
        if child == 0:
            work(0.6)
        else:
            assert os.waitpid(child, 0)[1] == 0
            print(child)
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    """)
    code, child, err = rotate(stock_pypy, str(script))
    assert (code, err) == (0, "")
    found = profiles(stock_pypy.folder)
    assert len(found["app"]) > 1 and len(found["app." + child.strip()]) == 1


def test_segments_are_shown_as_one_run(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(THING + "    work(0.7)\n")
    assert rotate(stock_pypy, str(script)) == (0, "", "")
    of_process, = profiles(stock_pypy.folder).values()
    run = stock_pypy.command("-m", "vmprof_allocation", "report", "--json",
                             "app.vmprof")
    samples = sum(sum(map(bool, profile.samples.size)) for profile in of_process)
    assert run.code == 0 and '"samples": %d' % samples in run.out


def test_rotation_ends_with_the_sampling(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(THING + """
    from vmprof_allocation.session import session
    work(0.5)
    session.current().stop()
    there = parts()
    time.sleep(0.5)
    assert parts() == there != []
    """)
    assert rotate(stock_pypy, str(script)) == (0, "", "")


def test_segment_that_the_program_makes_is_counted(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(THING + """
    from vmprof_allocation.session import session
    part = session.current().part
    session.current().rotate("own.vmprof")
    work(2.5)
    print(part, *parts())
    """)
    code, out, err = rotate(stock_pypy, str(script), every="1")
    assert (code, err) == (0, "")
    part, *names = out.split()
    assert "app.w%d.vmprof" % (int(part) + 1) not in names
    assert "app.w%d.vmprof" % (int(part) + 2) in names
    own = readers.read_head(stock_pypy.folder / "own.vmprof").settings
    assert own["part"] == str(int(part) + 1)


def test_a_program_that_goes_to_another_folder(stock_pypy: PyPy) -> None:
    (stock_pypy.folder / "there").mkdir()
    script = stock_pypy.script(THING + """
    os.chdir("there")
    work(0.5)
    assert os.listdir() == []
    """)
    assert rotate(stock_pypy, str(script)) == (0, "", "")
    of_process, = profiles(stock_pypy.folder).values()
    assert len(of_process) >= 2


def test_program_whose_folder_was_removed(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(THING + """
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    work(0.7)
    """)
    assert rotate(stock_pypy, str(script)) == (0, "", "")
    of_process, = profiles(stock_pypy.folder).values()
    assert len(of_process) >= 2


def test_a_folder_that_goes_away_and_comes_back(stock_pypy: PyPy) -> None:
    """The present profile continues, and one message reports the error."""
    (stock_pypy.folder / "here").mkdir()
    script = stock_pypy.script(THING + """
    os.rename("here", "there")
    kept = work(0.7)
    os.rename("there", "here")
    print(len(kept) + len(work(0.7)))
    """)
    code, out, err = rotate(stock_pypy, str(script), output="here/app.vmprof")
    assert code == 0
    assert re.fullmatch(
        r"vmprof: cannot begin a new profile: cannot write the profile to "
        r"'.*/here/app\.w\d+\.vmprof': No such file or directory\n", err)
    of_process, = profiles(stock_pypy.folder / "here").values()
    assert len(of_process) >= 2 and things(of_process) == int(out)


def test_segments_of_an_earlier_run_are_replaced(stock_pypy: PyPy) -> None:
    """A run replaces the segments of an earlier run that have the same numbers."""
    script = stock_pypy.script(THING + "    work(float(sys.argv[1]))\n")
    for seconds in "1.2", "0.5":
        assert rotate(stock_pypy, str(script), seconds) == (0, "", "")
    heads = [readers.read_head(path).settings
             for path in stock_pypy.folder.glob("app*.vmprof")]
    heads.sort(key=lambda settings: int(settings.get("part", "1")))
    runs = [settings["run"] for settings in heads]
    assert 2 == len(set(runs)) == len(list(itertools.groupby(runs)))
    file, = run_files.find([str(stock_pypy.folder / "app.vmprof")]).files
    assert len(file.later) + 1 == runs.count(runs[0])


@pytest.mark.parametrize("flags, said", [
    (["--rotate", "0", "-o", "app.vmprof"], "'0': it must be 0.1 to 10000000 seconds"),
    (["--rotate", "nan", "-o", "app.vmprof"], "'nan': it must be"),
    (["--rotate", "1w", "-o", "app.vmprof"], "'1w': it must be"),
    (["--rotate", "1000d", "-o", "app.vmprof"], "'1000d': it must be"),
    (["--rotate", "-5", "-o", "app.vmprof"], "'-5': it must be"),
    (["--rotate", "60"], "write the name of the first one after -o"),
    (["--rotate", "60", "-o", "pipe"], "cannot begin a second profile in the pipe"),
    (["--rotate", "60", "--push", "otlp+http://localhost"], "writes no files"),
])
def test_requests_that_make_no_sense(stock_pypy: PyPy, flags: list[str],
                                     said: str) -> None:
    script = stock_pypy.script("""
        import os
        os.mkfifo("pipe")
        reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
        import subprocess, sys
        sys.exit(subprocess.call(sys.argv[1:]))
    """, "with_pipe.py")
    program = stock_pypy.script("print(1)", "program.py")
    run = stock_pypy.command(str(script), PYPY, "-m", "vmprof",
                             "--allocation-sampling", "64k", *flags, str(program))
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("vmprof: ") and run.err.count("\n") == 1
    assert said in run.err
    assert not list(stock_pypy.folder.glob("*.vmprof"))


def test_each_segment_contains_the_retainers(stock_pypy: PyPy) -> None:
    """In a child, each segment except the last one has retainers.

    The estimates concern the objects that were alive at the snapshot.
    """
    script = stock_pypy.script(THING + """
    kept = []
    def run():
        global kept
        for _ in range(6):
            before = len(parts())
            while len(parts()) < before + 1:
                kept += work(0.02)
    work(0.3)
    child = os.fork()
    run()
    if child:
        os.waitpid(child, 0)
        run()
    """)
    assert rotate(stock_pypy, "--retainers", str(script), every="0.5",
                  interval="4k") == (
        0, "", "")
    first, *others = sorted(profiles(stock_pypy.folder).items(),
                            key=lambda item: len(item[0]))
    (of_child,) = (found for _, found in others)
    for found, is_last_asked in (first[1], True), (of_child, False):
        assert len(found) >= 3
        if not is_last_asked:
            found.pop()         # on a busy machine, the last segment has retainers, too
        sizes: list[int] = []
        for profile in found:
            assert profile.held and {held.problem for held in profile.held} == {0}
            rows = {row.holders[0].path: row
                    for row in holders.find(profile, profile.held[-1]).rows}
            if "__main__.kept" not in rows:     # on a busy machine, run() just begins
                assert sizes == []
                continue
            row = rows["__main__.kept"]
            low, high = row.estimate.low, row.estimate.high
            # five standard deviations, and the objects that are still young
            assert abs(row.estimate.value - row.bytes) < 2.6 * (high - low) + 2e5, row
            sizes.append(row.bytes)
        assert len(sizes) >= 2 and sizes == sorted(sizes)


def test_each_segment_ends_with_a_snapshot_of_a_small_heap(stock_pypy: PyPy) -> None:
    """Without a snapshot, the garbage would be alive: no major collection runs."""
    script = stock_pypy.script(THING + """
    def make(count):
        return [[i] for i in range(count)]
    kept = make(200000)
    len(make(400000))
    while not parts():
        time.sleep(0.01)
    """)
    run = stock_pypy.command(
        "-m", "vmprof", "--allocation-sampling", "8k", "--rotate", "1",
        "-o", "app.vmprof", str(script), PYPY_GC_NURSERY="64M")
    assert (run.code, run.out, run.err) == (0, "", "")
    (segments,) = profiles(stock_pypy.folder).values()
    assert [len(profile.snapshots) for profile in segments] == [1] * len(segments)
    for profile in segments[:-1]:
        objects.found(profile, "list").check("alive", 200000, also=4000)


def test_last_snapshot_waits_for_another_one(stock_pypy: PyPy) -> None:
    """Another thread takes a snapshot while the program ends."""
    run = stock_pypy.sample("""
        import _thread, os
        from vmprof_allocation.session.session import current
        def children():
            found = ""
            for task in os.listdir("/proc/self/task"):
                with open("/proc/self/task/%s/children" % task) as file:
                    found += file.read()
            return found
        kept = [[str(i)] for i in range(300000)]
        before, done = children(), []
        def ask():
            current().retainers()
            done.append(1)
        _thread.start_new_thread(ask, ())
        while children() == before and not done:
            pass
    """, "64k", "--rotate", "60", "--retainers")
    assert run.err == ""
    assert [held.problem for held in run.profile().held] == [0, 0]


@pytest.mark.parametrize("flags, said", [
    (["--rotate", "60", "-o", "app.vmprof"],
     "--rotate, --retainers, --leaks, --memory, --native-memory, --view and --quiet "
     "need"),
    (["--control", "--rotate", "60"], "--rotate has no effect"),
])
def test_without_sampling(stock_pypy: PyPy, flags: list[str], said: str) -> None:
    run = stock_pypy.command("-m", "vmprof", *flags,
                             str(stock_pypy.script("print(1)")))
    assert (run.code, run.out) == (2, "") and said in run.err


def test_child_of_an_idle_child_has_one_rotating_thread(stock_pypy: PyPy) -> None:
    """A program that becomes a daemon has such a child.

    The rotating thread of the idle child must not start in its child, too, where it
    would begin with a collection.
    """
    run = stock_pypy.sample("""
        import os, sys, time
        def work():
            return [str(i) for i in range(50000)]
        work()
        for _ in range(2):
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                sys.stdout.flush()
                os._exit(0)
        for _ in range(20):
            work()
        print(len(os.listdir("/proc/self/task")))
    """, "16k", "--rotate", "60")
    # the main thread, the writing thread, and the rotating thread
    assert (run.code, run.out, run.err) == (0, "3\n", "")
