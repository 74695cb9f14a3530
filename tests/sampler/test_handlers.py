"""Signal handlers of the program that call start() and stop().

They interrupt other calls of start() and stop().  After stop(), the sampling is off.
"""
from __future__ import annotations

from conftest import PyPy


def test_handler_that_stops_and_starts_before_start_returns(pypy: PyPy) -> None:
    """stop() must end the handler's session, although the first call then returns."""
    script = pypy.script("""
        import vmprof_allocation
        from vmprof_allocation.session.session import Session
        start = Session.start
        def start_and_be_interrupted(self, engine=None):
            start(self, engine)
            Session.start = start
            vmprof_allocation.stop()
            vmprof_allocation.start("second.vmprof")
        Session.start = start_and_be_interrupted
        first = vmprof_allocation.start("first.vmprof")
        print(first.is_on)
        vmprof_allocation.stop()
        with vmprof_allocation.sample("third.vmprof"):
            print("off")
    """)
    run = pypy.command(str(script))
    assert (run.out, run.err) == ("False\noff\n", "")


def test_handlers_that_start_and_stop_during_the_first_start(stock_pypy: PyPy) -> None:
    """The first start takes long, because the sampler examines PyPy's code.

    Handlers interrupt the start, and each other.  Some calls are refused, because the
    interrupted call has already started or stopped the sampling.
    """
    script = stock_pypy.script("""
        import os, signal, sys, threading, time
        import vmprof_allocation
        threads_here = lambda: os.listdir("/proc/self/task")
        problems = set()
        def toggle(*ignored):
            toggle.calls += 1
            # on a busy machine, each is interrupted by the next
            if toggle.depth == 20:
                return
            toggle.depth += 1
            try:
                if toggle.calls % 2:
                    vmprof_allocation.start("out.vmprof", "4k")
                else:
                    vmprof_allocation.stop()
            except vmprof_allocation.AllocationSamplingError as e:
                problems.add(str(e).partition(";")[0])
            finally:
                toggle.depth -= 1
        toggle.calls = toggle.depth = 0
        def sample(number):
            while toggle.calls < 500:
                try:
                    with vmprof_allocation.sample("%d.vmprof" % number, "4k"):
                        garbage = [[i] for i in range(100)]
                except vmprof_allocation.AllocationSamplingError as e:
                    problems.add(str(e).partition(";")[0])
        signal.signal(signal.SIGALRM, toggle)
        signal.setitimer(signal.ITIMER_REAL, 0.01, float(sys.argv[1]))
        threads = [threading.Thread(target=sample, args=(i,))
                   for i in range(int(sys.argv[2]))]
        for thread in threads:
            thread.start()
        while toggle.calls < 500:
            garbage = [str(i) for i in range(300)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        for thread in threads:
            thread.join()
        try:
            vmprof_allocation.stop()
        except vmprof_allocation.AllocationSamplingError:
            pass
        # a thread that was joined is there for a moment more
        end = time.monotonic() + 10
        while len(threads_here()) > 1 and time.monotonic() < end:
            time.sleep(0.01)
        print(len(threads_here()))
        with vmprof_allocation.sample("out.vmprof", "4k"):
            print(*sorted(problems), sep="\\n")
    """)
    for period, threads in ("0.0007", "0"), ("0.003", "0"), ("0.003", "2"):
        run = stock_pypy.command(str(script), period, threads)
        assert (run.code, run.err) == (0, "")
        left, *problems = run.out.splitlines()
        assert left == "1"
        assert set(problems) <= {
            "allocation sampling is not on",
            "allocation sampling is already on in this process"}
