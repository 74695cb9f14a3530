"""A sampled program that uses vmprof itself.

Either a call of vmprof is refused, or it works and ends the profile.  The profile is
then complete and contains the reason.
"""
from __future__ import annotations

import pytest

from conftest import PyPy, Run
from truth import innermost
from vmprof_convert import readers

ENDED = ("vmprof: the profile ends before the program does: the program "
         "disabled vmprof\n")


def sampled(pypy: PyPy, source: str, *flags: str) -> Run:
    return pypy.command("-m", "vmprof", "--allocation-sampling", "4k", *flags,
                        "-o", "out.vmprof", str(pypy.script(source)))


def names(run: Run) -> set[str]:
    profile = run.profile()
    return {innermost(profile, stack) for stack in profile.samples.stack
            if stack >= 0}


@pytest.mark.parametrize("flags", [(), ("--period", "0.001")])
@pytest.mark.parametrize("disable", [
    "import _vmprof; _vmprof.disable()",
    "import vmprof; vmprof.disable()",
])
def test_program_that_disables_vmprof(
        stock_pypy: PyPy, flags: tuple[str, ...], disable: str) -> None:
    """The names of functions were once read from buffers that vmprof had unmapped."""
    run = sampled(stock_pypy, """
        import time
        def before():
            end = time.process_time() + 0.1
            while time.process_time() < end:
                garbage = [str(i) for i in range(1000)]
        def after():
            for i in range(2000):
                exec("def f%%d(): return [%%d]" %% (i, i))  # new names
                garbage = bytes(300000)
        before()
        %s
        after()
        print("end")
    """ % disable, *flags)
    assert (run.code, run.out, run.err) == (0, "end\n", ENDED)
    profile = run.profile()
    assert profile.end_time is not None
    assert profile.settings["ended"] == "the program disabled vmprof"
    assert any(name in ("before", "<listcomp>") for name in names(run))
    assert "after" not in names(run)


def test_program_that_enables_vmprof_for_its_own_file(stock_pypy: PyPy) -> None:
    """vmprof.enable() is refused while we sample.

    After vmprof.disable(), the program's file gets CPU samples, but no allocations.
    """
    run = sampled(stock_pypy, """
        import os, time, vmprof, _vmprof
        def work(seconds):
            end = time.process_time() + seconds
            while time.process_time() < end:
                garbage = [str(i) for i in range(1000)]
        work(0.05)
        file = os.open("own.vmprof", os.O_RDWR | os.O_CREAT)
        try:
            vmprof.enable(file, 0.01)
        except Exception as e:
            print(e)
        vmprof.disable()
        vmprof.enable(file, 0.01, native=False)
        work(0.5)
        vmprof.disable()
        work(0.05)
    """)
    assert (run.code, run.out) == (0, "vmprof is already enabled\n")
    assert run.err == ENDED
    assert run.profile().end_time is not None
    own = readers.read(stock_pypy.folder / "own.vmprof")
    assert own.settings == {} and own.end_time is not None
    # 50 samples on an idle machine; our samples would be thousands
    assert 5 <= len(own.samples) <= 500


def test_program_that_disables_vmprof_while_threads_allocate(
        stock_pypy: PyPy) -> None:
    run = sampled(stock_pypy, """
        import threading, _vmprof
        going = [True]
        def work():
            while going[0]:
                garbage = [str(i) for i in range(1000)]
        threads = [threading.Thread(target=work) for i in range(3)]
        for thread in threads:
            thread.start()
        for i in range(300):
            garbage = [str(i) for i in range(1000)]
        _vmprof.disable()
        for i in range(300):
            exec("def f%d(): return [%d]" % (i, i))
            garbage = [str(i) for i in range(1000)]
        going[0] = False
        for thread in threads:
            thread.join()
        print("end")
    """)
    assert (run.code, run.out, run.err) == (0, "end\n", ENDED)
    assert run.profile().end_time is not None


def test_program_that_keeps_vmprofs_functions(stock_pypy: PyPy) -> None:
    """disable() has the same effect if the program imported it before the start."""
    script = stock_pypy.script("""
        from _vmprof import disable
        import vmprof_allocation
        for i in range(3):
            session = vmprof_allocation.start("out.vmprof", "4k")
            garbage = [str(i) for i in range(10000)]
            disable()
            garbage = [str(i) for i in range(10000)]
            try:
                vmprof_allocation.stop()
            except vmprof_allocation.AllocationSamplingError as e:
                print(e)
    """)
    run = stock_pypy.command(str(script))
    assert run.out.count("the program disabled vmprof\n") == 3, run.err
    assert run.profile().end_time is not None
