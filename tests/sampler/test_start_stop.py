"""Start and stop are atomic: each has happened or not, whatever interrupts it.

When sampling is off, memory and descriptors are the same as before.
"""
from __future__ import annotations

import pytest

from conftest import PyPy
from peek import PEEK

#: Replacement for the engine's native code that raises at one of its calls.
FAIL_AT = """
    class FailAt:
        "Raises at call number `at`, before or after it is made."
        def __init__(self, lib, at, after, error):
            self.lib, self.at, self.after, self.error = lib, at, after, error
            self.calls = 0
        def __getattr__(self, name):
            function = getattr(self.lib, name)
            def call(*arguments):
                self.calls += 1
                if self.calls != self.at:
                    return function(*arguments)
                if self.after:
                    function(*arguments)
                raise self.error
            return call

    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    def own_file_is_whole():
        "Its descriptor has the number of the profile's, or of vmprof's file."
        import fcntl
        for number in (3, 10, 512, 513):
            with open("own.txt", "wb") as file:
                high = fcntl.fcntl(file, fcntl.F_DUPFD, number)
                os.write(high, b"x" * 1000)
                os.close(high)
            if os.path.getsize("own.txt") != 1000:
                return False
        return True

    def is_as_before():
        return (memory() == before and pages() == pages_before
                and top_is_real() and descriptors() == descriptors_before
                and own_file_is_whole())

    # what is done on first use
    with vmprof_allocation.sample("out.vmprof", "64k"):
        pass
    before, pages_before = memory(), pages()
    descriptors_before = descriptors()
"""


def test_first_totals_belong_to_the_session(pypy: PyPy) -> None:
    run = pypy.run("""
        import vmprof_allocation
        for number in range(2):
            with vmprof_allocation.sample("out.vmprof", "64k"):
                for i in range(50 * (1 - number)):
                    bytearray(2**20)
    """)
    assert (run.code, run.err) == (0, "")
    allocated = [one.allocated for one in pypy.profile().moments]
    assert allocated == sorted(allocated) and allocated[-1] < 20 * 2**20


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "MemoryError",
                                   "RecursionError"])
def test_exception_at_any_step_of_start(stock_pypy: PyPy, error: str) -> None:
    """Sampling is off after the exception, and the next start works."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    lib = engine._lib
    steps = 0
    for after in False, True:
        for at in range(1, 100):
            engine._lib = failing = FailAt(lib, at, after, %s)
            try:
                vmprof_allocation.start("out.vmprof", "4k")
            except %s:
                pass
            finally:
                engine._lib = lib
            if failing.calls < at:
                vmprof_allocation.stop()
                break
            steps += 1
            assert is_as_before(), (at, after)
            garbage = [str(i) for i in range(10000)]
            with vmprof_allocation.sample("out.vmprof", "4k") as session:
                garbage = [str(i) for i in range(10000)]
                assert session.statistics().samples > 10
            assert is_as_before(), (at, after)
    print(steps >= 10)
    """ % (error, error))
    run = stock_pypy.command(str(script))
    assert run.out == "True\n", run.err


def test_exceptions_while_a_failed_start_is_undone(stock_pypy: PyPy) -> None:
    """The next start first completes the undo."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    lib = engine._lib
    steps = 0
    for at in range(1, 6):
        for again in range(1, 6):
            class FailTwice(FailAt):
                def __getattr__(self, name):
                    call = super().__getattr__(name)
                    def count(*arguments):
                        if self.calls == at + again - 1:
                            self.at = at + again
                        return call(*arguments)
                    return count
            engine._lib = FailTwice(lib, at, True, MemoryError)
            try:
                vmprof_allocation.start("out.vmprof", "4k")
            except MemoryError:
                steps += 1
            engine._lib = lib
            garbage = [str(i) for i in range(10000)]
            with vmprof_allocation.sample("out.vmprof", "4k") as session:
                garbage = [str(i) for i in range(10000)]
                assert session.statistics().samples > 10
            assert is_as_before(), (at, again)
    print(steps)
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "25\n", run.err


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "MemoryError"])
def test_exception_at_any_step_of_stop(stock_pypy: PyPy, error: str) -> None:
    """A second stop completes the work, and a third one is harmless."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    lib = engine._lib
    steps = 0
    for after in False, True:
        for at in range(1, 100):
            session = vmprof_allocation.sample("out.vmprof", "4k")
            session.start()
            garbage = [str(i) for i in range(1000)]
            engine._lib = failing = FailAt(lib, at, after, %s)
            try:
                session.stop()
            except %s:
                steps += 1
            engine._lib = lib
            garbage = [str(i) for i in range(10000)]
            session.stop()
            assert is_as_before(), (at, after)
            session.stop()
            if failing.calls < at:
                break
    print(steps > 5)
    """ % (error, error))
    run = stock_pypy.command(str(script))
    assert run.out == "True\n", run.err
    assert run.profile().end_time is not None


def test_exception_at_any_step_of_set_interval(stock_pypy: PyPy) -> None:
    script = stock_pypy.script(PEEK + FAIL_AT + """
    lib = engine._lib
    for after in False, True:
        for at in 1, 2:
            with vmprof_allocation.sample("out.vmprof", "4k") as session:
                engine._lib = FailAt(lib, at, after, KeyboardInterrupt)
                try:
                    session.set_interval(64)
                except KeyboardInterrupt:
                    print("raised")
                engine._lib = lib
                garbage = [str(i) for i in range(10000)]
                session.set_interval(128)
                garbage = [str(i) for i in range(10000)]
            assert is_as_before(), (at, after)
    """)
    run = stock_pypy.command(str(script))
    assert (run.out, run.err) == ("raised\n" * 4, "")


INTERRUPTS = """
    import random, signal
    class Interrupt(BaseException):
        pass
    def handler(number, frame):
        raise Interrupt
    signal.signal(signal.SIGALRM, handler)
    random = random.Random(%d)
    longest = 0.002
    came = 0
    for i in range(%d):
        session = vmprof_allocation.sample("out.vmprof", "4k")
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, longest))
            session.start()
            session.set_interval("8k")
            session.stop()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            came += 1
        session.stop()
        if %d or i %% 50 == 0:
            assert is_as_before(), i
    assert is_as_before()
    print(came > %d)
"""


def test_random_interrupts_leave_nothing_behind(stock_pypy: PyPy) -> None:
    """`make hard` runs this program with 10,000 interrupts."""
    script = stock_pypy.script(
        PEEK + FAIL_AT + INTERRUPTS % (1, 400, 0, 40))
    run = stock_pypy.command(str(script))
    assert run.out == "True\n", run.err


def test_file_of_the_program_after_an_interrupted_start(
        stock_pypy: PyPy) -> None:
    """A program's file that gets the number of the profile's descriptor keeps its data.

    After an interrupted start, this data was once lost.
    """
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import signal
    lib = engine._lib
    class Interrupting:
        "A signal arrives while the native function runs."
        def __getattr__(self, name):
            function = getattr(lib, name)
            def call(*arguments):
                result = function(*arguments)
                os.kill(os.getpid(), signal.SIGINT)
                return result
            return call if name == "hook_open" else function
    engine._lib = Interrupting()
    try:
        vmprof_allocation.start("out.vmprof", "64k")
    except KeyboardInterrupt:
        print("interrupted")
    engine._lib = lib
    with open("precious.txt", "w", buffering=1) as file:
        file.write("my data\\n" * 100)
    print(os.path.getsize("precious.txt"), is_as_before())
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "interrupted\n800 True\n", run.err


def test_handler_that_stops_during_set_interval(stock_pypy: PyPy) -> None:
    """Another thread has pinned an object, which lies at the end of the GC's nursery.

    The GC expects an object there, so the sampler must store nothing else.
    """
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import gc, signal, threading, time
    reader, writer = os.pipe()
    def write():
        for i in range(100000):
            young = (b"%d" % i) * 12000     # pinned while write() blocks
            try:
                os.write(writer, young)
            except OSError:
                return
    session = vmprof_allocation.start("out.vmprof", "64k")
    signal.signal(signal.SIGUSR1, lambda *a: vmprof_allocation.stop())
    lib = engine._lib
    class Interrupting:
        def __getattr__(self, name):
            function = getattr(lib, name)
            def call(*arguments):
                os.kill(os.getpid(), signal.SIGUSR1)
                return function(*arguments)
            return call if name == "hook_set_interval" else function
    threading.Thread(target=write, daemon=True).start()
    time.sleep(0.2)
    gc.collect()
    engine._lib = Interrupting()
    session.set_interval("4k")
    engine._lib = lib
    print(session.is_on, top_is_real())
    for i in range(5):
        garbage = [str(j) for j in range(100000)]
    print("end", flush=True)
    os._exit(0)
    """)
    run = stock_pypy.command(str(script))
    assert (run.code, run.out) == (0, "False True\nend\n"), run.err


def test_handler_that_toggles_the_sampling(stock_pypy: PyPy) -> None:
    """Each start and stop by the handler has its effect, while threads allocate."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import signal, threading, time
    sessions = []
    problems = set()
    def toggle(*ignored):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)   # it uses `sessions`
        try:
            if sessions:
                sessions.pop().stop()
            else:
                session = vmprof_allocation.sample("out.vmprof", "4k")
                session.start()
                sessions.append(session)
        except Exception as e:
            problems.add(repr(e))
        signal.signal(signal.SIGUSR1, toggle)
    signal.signal(signal.SIGUSR1, toggle)
    going = [True]
    def work():
        while going[0]:
            garbage = [str(i) for i in range(300)]
    threads = [threading.Thread(target=work) for i in range(2)]
    for thread in threads:
        thread.start()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        for i in range(300):
            os.kill(parent, signal.SIGUSR1)
            time.sleep(0.003)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        garbage = [str(i) for i in range(300)]
    going[0] = False
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if sessions:
        sessions.pop().stop()
    print(problems, is_as_before())
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "set() True\n", run.err


def test_fork_during_start_and_stop(stock_pypy: PyPy) -> None:
    """Another thread forks before each call of the engine's native code.

    In the child, everything is restored at the first use, and the child can sample
    itself.
    """
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import threading
    from vmprof_allocation.critical import forks
    # who forks while we wait for it would wait so long at each call
    forks.PATIENCE = 0.1
    codes = []
    def fork_and_check():
        child = os.fork()
        if child == 0:
            code = 1
            engine._lib = lib
            own = descriptors()
            assert not [fd for fd in own if int(fd) > 500]
            try:
                for i in range(20):
                    garbage = [str(j) for j in range(20000)]
                # the pointer to write() stays: see vmprof_output_forget()
                engine_as_it_was = (memory()[0] == before[0] and top_is_real()
                                     and descriptors() == own)
                with vmprof_allocation.sample("child.vmprof", "4k") as session:
                    garbage = [str(i) for i in range(10000)]
                    samples = session.statistics().samples
                code = 0 if (engine_as_it_was and samples > 10 and
                             memory() == before and pages() == pages_before
                             and own_file_is_whole()) else 2
            finally:
                os._exit(code)
        codes.append(os.waitpid(child, 0)[1])
    lib = engine._lib
    class Forking:
        def __getattr__(self, name):
            function = getattr(lib, name)
            def call(*arguments):
                if (name in ("hook_open", "hook_is_sampled_child")
                        or not name.startswith("hook_")):
                    return function(*arguments)
                thread = threading.Thread(target=fork_and_check)
                thread.start()
                thread.join()
                return function(*arguments)
            return call
    engine._lib = Forking()
    session = vmprof_allocation.sample("out.vmprof", "4k", follow=False)
    session.start()
    session.set_interval("8k")
    session.stop()
    engine._lib = lib
    print(len(codes) > 8, set(codes), memory() == before)
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "True {0} True\n", run.err


def test_finalizer_that_stops_during_a_start(stock_pypy: PyPy) -> None:
    """The finalizer cannot wait for the code that it interrupts, and gets an error."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import sys
    lib = engine._lib
    class Reentering:
        def __getattr__(self, name):
            if name == "hook_hook":
                for action in (engine.stop, engine.prepare):
                    try:
                        action()
                    except vmprof_allocation.AllocationSamplingError as e:
                        print("just being started" in str(e))
            return getattr(lib, name)
    engine._lib = Reentering()
    with vmprof_allocation.sample("out.vmprof", "4k"):
        pass
    engine._lib = lib
    print(is_as_before())
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "True\nTrue\nTrue\n", run.err


def test_signals_during_a_start_are_delivered(stock_pypy: PyPy) -> None:
    """A signal during start() is delivered at its end, not with the next signal."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import signal
    lib = engine._lib
    came = []
    class Interrupting:
        def __getattr__(self, name):
            if name == "hook_open":
                os.kill(os.getpid(), signal.SIGUSR1)
            return getattr(lib, name)
    signal.signal(signal.SIGUSR1, lambda *a: came.append(engine._lock.is_busy))
    engine._lib = Interrupting()
    session = vmprof_allocation.sample("out.vmprof", "4k")
    session.start()
    print(came)
    session.stop()
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "[False]\n", run.err


def test_tracing_function_that_stops_during_a_start(stock_pypy: PyPy) -> None:
    """The call is refused, and sampling that is on can be stopped afterwards."""
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import sys
    refused = []
    def trace(frame, event, argument):
        if frame.f_code.co_name in ("hook_hook", "_hook", "_undo"):
            sys.settrace(None)
            try:
                session.stop()
            except vmprof_allocation.AllocationSamplingError as e:
                refused.append("just being started" in str(e))
        return trace
    for action in "start", "stop":
        session = vmprof_allocation.sample("out.vmprof", "4k")
        if action == "stop":
            session.start()
        sys.settrace(trace)
        getattr(session, action)()
        sys.settrace(None)
        print(session.is_on, engine._lib.hook_is_sampling())
        session.stop()
    print(refused, is_as_before())
    """)
    run = stock_pypy.command(str(script))
    assert run.out == "True 1\nFalse 0\n[True, True] True\n", run.err


def test_threads_that_start_and_stop_at_the_same_time(
        stock_pypy: PyPy) -> None:
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import threading
    problems = set()
    going = [True]
    def work(action):
        while going[0]:
            try:
                action()
            except vmprof_allocation.AllocationSamplingError as e:
                if "already on" not in str(e) and "is not on" not in str(e):
                    problems.add(repr(e))
            except BaseException as e:
                problems.add(repr(e))
    threads = [threading.Thread(target=work, args=(action,)) for action in (
        lambda: vmprof_allocation.start("out.vmprof", "64k"),
        lambda: vmprof_allocation.start("other.vmprof", "64k"),
        vmprof_allocation.stop, vmprof_allocation.stop)]
    for thread in threads:
        thread.start()
    for i in range(300):
        garbage = [str(j) for j in range(1000)]
    going[0] = False
    for thread in threads:
        thread.join()
    try:
        vmprof_allocation.stop()
    except vmprof_allocation.AllocationSamplingError:
        pass
    print(problems, is_as_before())
    """)
    run = stock_pypy.command(str(script), timeout=60)
    assert run.out == "set() True\n", run.err


def test_thread_that_disables_vmprof_while_another_stops(
        stock_pypy: PyPy) -> None:
    script = stock_pypy.script(PEEK + FAIL_AT + """
    import threading, _vmprof
    # not while vmprof is being enabled: it does not stand that without us
    on = [False]
    going = [True]
    def disable():
        while going[0]:
            try:
                if on[0]:
                    on[0] = False
                    _vmprof.disable()
            except _vmprof.VMProfError:
                pass
    thread = threading.Thread(target=disable)
    thread.start()
    for i in range(200):
        try:
            with vmprof_allocation.sample("out.vmprof", "4k"):
                on[0] = True
                garbage = [str(j) for j in range(i * 20)]
                on[0] = False
        except vmprof_allocation.AllocationSamplingError:
            pass
    going[0] = False
    thread.join()
    print(is_as_before())
    """)
    run = stock_pypy.command(str(script), timeout=60)
    assert (run.code, run.out) == (0, "True\n"), run.err


def test_handler_that_starts_during_the_first_start(stock_pypy: PyPy) -> None:
    """The entry patches are built once, from functions that have no entry patch."""
    script = stock_pypy.script("""
        import os, signal, vmprof_allocation
        from vmprof_allocation.engines.hook.discovery import process
        check = process.Process._check_memory
        def check_and_signal(self):
            check(self)
            process.Process._check_memory = check
            os.kill(os.getpid(), signal.SIGUSR1)
        process.Process._check_memory = check_and_signal
        session = vmprof_allocation.sample("first.vmprof", "4k")
        signal.signal(signal.SIGUSR1, lambda *a: session.start())
        try:
            vmprof_allocation.start("out.vmprof", "4k")
        except vmprof_allocation.AllocationSamplingError as e:
            print("already on" in str(e))
        garbage = [str(i) for i in range(100000)]
        print(session.statistics().samples > 100)
        session.stop()
        garbage = [str(i) for i in range(100000)]
    """)
    run = stock_pypy.command(str(script))
    assert (run.code, run.out) == (0, "True\nTrue\n"), run.err
