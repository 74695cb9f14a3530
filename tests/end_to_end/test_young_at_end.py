"""Test objects that are still in the nursery when a process ends.

They have types, and a batched allocation counts as several objects.
"""
from __future__ import annotations

import pytest

from conftest import PyPy
from found import found
from run_profiles import children
from vmprof_convert.profile.model import Profile

pytestmark = pytest.mark.nurseries("4M", "240M")

#: A program with 400,000 lists and texts, which compiled code allocates in batches.
MAKE = """
    import multiprocessing, os, signal, subprocess, sys, threading
    def make():
        global kept
        kept = [[i, str(i)] for i in range(400000)]
"""
ENDS = {
    "os._exit": "os._exit(0)",
    "signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "raised signal": "signal.raise_signal(signal.SIGTERM)",
    "another program": "os.execvp('true', ['true'])",
    "a signal that is blocked": """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)
""",
    "a program that is not there": """
    try:
        os.execvp("no such program", ["x"])
    except OSError:
        pass
"""}


def check(profile: Profile) -> None:
    lists = found(profile, "list").total()
    lists.check("all", 400000, also=2000)
    unknown = found(profile, "[type not known]").total()
    assert unknown.samples.get("all", 0) < 0.01 * lists.samples["all"]


@pytest.mark.parametrize("how", ENDS)
def test_young_objects_have_types_at_any_end(stock_pypy: PyPy, how: str) -> None:
    stock_pypy.command(
        "-m", "vmprof", "--allocation-sampling", "8k", "-o", "out.vmprof",
        str(stock_pypy.script(MAKE + "    make()\n    " + ENDS[how].strip() + "\n")))
    check(stock_pypy.profile())


@pytest.mark.parametrize("end", ["", "os._exit(0)", "sys.exit()"])
def test_young_objects_of_children_have_types(stock_pypy: PyPy, end: str) -> None:
    run = stock_pypy.sample(MAKE + """
    def work():
        make()
        %s
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    """ % end, "8k")
    child, = children(run.path)
    check(child)


def test_a_killed_process_may_have_more_objects(stock_pypy: PyPy) -> None:
    stock_pypy.sample(MAKE + """
    import glob, time
    is_made, made = os.pipe()
    pid = os.fork()
    if not pid:
        make()
        os.write(made, b"made")
        threading.Event().wait()
    os.read(is_made, 4)
    profile, = glob.glob("*.%d.vmprof" % pid)
    written = -1
    while written != os.path.getsize(profile):      # the flusher has no more to write
        written = os.path.getsize(profile)
        time.sleep(3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    """, "8k")
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof")
    assert "there may be several times as many objects" in report.out
