"""rotate() in forked children that are sampled."""
from __future__ import annotations

from conftest import PyPy
from run_profiles import functions
from truth import SIGMAS, sigmas
from vmprof_convert import readers

WORK = """
    import os, sys
    import vmprof_allocation
    from vmprof_allocation import AllocationSamplingError
    def work():
        return [str(i) for i in range(50000)]
    def refused(call, *arguments):
        try:
            call(*arguments)
        except AllocationSamplingError as e:
            return str(e)
"""


def test_child_that_is_forked_between_rotations(stock_pypy: PyPy) -> None:
    """The child belongs to the run, and numbers its own profiles from 1."""
    run = stock_pypy.run(WORK + """
    def in_child():
        return work()
    def after_that():
        return work()
    descriptors = lambda: len(os.listdir("/proc/self/fd"))
    session = vmprof_allocation.start("app.vmprof", "4k", seed=1)
    work()
    session.rotate("app.w2.vmprof")
    child = os.fork()
    if child == 0:
        in_child()
        assert session.path == os.path.abspath("app.%d.vmprof" % os.getpid())
        error = refused(session.rotate, session.path)
        assert "is being written" in error, error
        before = descriptors()
        session.rotate("child.vmprof")
        assert (session.path, session.part) == ("child.vmprof", 2)
        assert descriptors() == before
        after_that()
        if os.fork() == 0:
            in_child()
            session.rotate("its.vmprof")
            sys.exit()
        os.wait()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    session.rotate("app.w3.vmprof")
    work()
    session.stop()
    print(child)
    """)
    assert (run.code, run.err) == (0, "")
    child = run.out.strip()
    found = [readers.read(stock_pypy.folder / name) for name in (
        "app.vmprof", "app.w2.vmprof", "app.w3.vmprof")]
    parent = found[0].settings
    first, second, its = (readers.read(stock_pypy.folder / name) for name in (
        "app.%s.vmprof" % child, "child.vmprof", "its.vmprof"))
    for profile in first, second, its:
        assert profile.settings["run"] == parent["run"]
        assert profile.end_time is not None and profile.misfits == 0
    for profile in first, second:
        assert abs(sigmas(profile)) < SIGMAS
        assert (profile.settings["pid"], profile.settings["parent"]) == (
            child, parent["pid"])
    assert its.settings["parent"] == child
    assert [profile.settings.get("part") for profile in (first, second, its)] == [
        None, "2", "2"]
    assert "in_child" in functions(first) - functions(second)
    assert "after_that" in functions(second) - functions(first)
    assert not any("in_child" in functions(profile) for profile in found)


def test_rotation_in_a_child_without_a_profile_is_refused(stock_pypy: PyPy) -> None:
    run = stock_pypy.run(WORK + """
    session = vmprof_allocation.start("app.vmprof", "1G", seed=1)
    if os.fork() == 0:
        print(refused(session.rotate, "child.vmprof"), os.path.exists("child.vmprof"))
        sys.exit()
    os.wait()
    """)
    assert (run.code, run.err) == (0, "")
    assert ("this forked process has no profile until its first "
            "sample") in run.out and "False" in run.out
