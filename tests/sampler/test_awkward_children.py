"""Children of a sampled program under circumstances that are not the usual ones: what
their profiles say then, and that none of them gets lost uncounted."""
from __future__ import annotations

from conftest import PyPy
from run_profiles import children, functions
from truth import SIGMAS, sigmas

WORK = """
    import os, resource, subprocess, sys
    def in_parent():
        return [str(i) for i in range(100000)]
    def in_child():
        return [str(i) for i in range(200000)]
"""


def test_limit_of_a_child_and_of_its_child(stock_pypy: PyPy) -> None:
    """The interval follows it, as in the first process."""
    run = stock_pypy.sample(WORK + """
    def work():
        for i in range(60):
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


def test_statistics_before_the_first_sample(stock_pypy: PyPy) -> None:
    """They begin with the child."""
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
    """Its file can be opened, and not be written."""
    run = stock_pypy.sample(WORK + """
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os._exit(len(in_child()) == 200000)
    print(os.wait()[1] >> 8)
    """, "64k")
    assert run.out == "1\n"
    assert children(run.path) == []
    assert run.profile().settings["children"] == "1"


def test_many_names_of_other_programs(stock_pypy: PyPy) -> None:
    """Those for which there is no room count as one."""
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
