"""A program in RPython with situations that are difficult for allocation samples.

The source is Python 2.7.  `make` translates the program.  test_rpython_rvmprof.py
runs it, and checks the result of each scenario:

    scenarios NAME PROFILE [PROFILE...]
"""
import os
import time

from rpython.rlib import rgc, rgil, rstacklet, rthread, rvmprof
from rpython.rtyper.lltypesystem import llmemory, lltype, rffi
from rpython.translator.tool.cbuild import ExternalCompilationInfo

from scenario_lives import heap_of_the_gc, starts_and_stops, threads_end
from scenario_nodes import (INTERVAL, Node, allocate, enable, new_code,
                            open_profile, state, thread, work)
from scenario_parts import (rotates, rotates_into_nothing, rotates_often,
                            rotates_without_lifetimes, says_what_is_alive)

eci = ExternalCompilationInfo(
    includes=['errno.h', 'signal.h', 'stddef.h'],
    post_include_bits=['''
#define scenarios_set_errno(n)  (errno = (n))
#define scenarios_get_errno()   (errno)
RPY_EXTERN long scenarios_sigprof(void);
'''],
    separate_module_sources=['''
/* 0: default, 1: ignored, 2: a handler */
long scenarios_sigprof(void)
{
    struct sigaction action;
    sigaction(SIGPROF, NULL, &action);
    return action.sa_handler == SIG_DFL ? 0 :
           action.sa_handler == SIG_IGN ? 1 : 2;
}
'''])
set_errno = rffi.llexternal('scenarios_set_errno', [rffi.INT], lltype.Void,
                            compilation_info=eci, _nowrapper=True)
get_errno = rffi.llexternal('scenarios_get_errno', [], rffi.INT,
                            compilation_info=eci, _nowrapper=True)
sigprof = rffi.llexternal('scenarios_sigprof', [], lltype.Signed,
                          compilation_info=eci, _nowrapper=True)


def attempt(what, number):
    try:
        if what == "enable":
            fd = open_profile("/dev/null")
            try:
                enable(fd, number)
            finally:
                os.close(fd)
        elif what == "change":
            rvmprof.set_allocation_interval(number)
        else:
            rvmprof.disable()
        print "%s %d: done" % (what, number)
    except rvmprof.VMProfError as e:
        print "%s %d: %s" % (what, number, e.msg)

# ____________________________________________________________


def plain(files):
    fd = open_profile(files[0])
    enable(fd)
    allocate(new_code("work"), 100000)
    rvmprof.disable()
    os.close(fd)


def marks(files):
    rvmprof.mark("before")
    fd = open_profile(files[0])
    enable(fd)
    rvmprof.mark("begun")
    allocate(new_code("work"), 100000)
    rvmprof.mark("\xc3\xa4\xff;:" + "x" * 5000)
    rvmprof.mark("")
    rvmprof.disable()
    rvmprof.mark("after")
    os.close(fd)


def keeps_errno(files):
    fd = open_profile(files[0])
    enable(fd, 64)
    lost = 0
    for i in range(20000):
        set_errno(rffi.cast(rffi.INT, 77))
        state.node = Node(None)
        if rffi.cast(lltype.Signed, get_errno()) != 77:
            lost += 1
    print "errno was lost %d times" % lost
    rvmprof.disable()
    os.close(fd)


def signals(files):
    """Take both kinds of samples, and print the action of SIGPROF before and after."""
    print "SIGPROF %d" % sigprof()
    fd = open_profile(files[0])
    enable(fd, 100000, 0.001)
    print "SIGPROF %d" % sigprof()
    for i in range(20):
        allocate(new_code("f%d" % i), 100000)
        work(new_code("g%d" % i), 5)
    rvmprof.disable()
    print "SIGPROF %d" % sigprof()
    os.close(fd)


def no_time_samples(files):
    fd = open_profile(files[0])
    enable(fd)
    print "SIGPROF %d" % sigprof()
    work(new_code("work"), 20)
    rvmprof.disable()
    os.close(fd)


def stops(files):
    fd = open_profile(files[0])
    enable(fd)
    allocate(new_code("before"), 100000)
    rvmprof.stop_sampling(None)
    allocate(new_code("between"), 100000)
    rvmprof.start_sampling(None)
    allocate(new_code("after"), 100000)
    rvmprof.disable()
    os.close(fd)
    # An additional start_sampling() must not revive the sampling.
    rvmprof.start_sampling(None)
    allocate(new_code("disabled"), 100000)
    fd = open_profile(files[1])
    enable(fd)
    rvmprof.start_sampling(None)
    allocate(new_code("again"), 100000)
    rvmprof.disable()
    os.close(fd)


def again(files):
    for i in range(len(files)):
        fd = open_profile(files[i])
        enable(fd)
        allocate(new_code("run%d" % i), 50000)
        rvmprof.set_allocation_interval(2 * INTERVAL)
        allocate(new_code("slower"), 50000)
        rvmprof.disable()
        os.close(fd)
        allocate(new_code("outside"), 50000)


def disabled_as_vmprof_does(files):
    """Stop the sampling and disable vmprof, but never call start_sampling().

    vmprof's package does this.
    """
    for i in range(len(files)):
        fd = open_profile(files[i])
        if i < 3:
            rvmprof.enable(fd, 0.001)
        else:
            enable(fd, INTERVAL, 0.001)
        work(new_code("run%d" % i), 50)
        rvmprof.stop_sampling(None)
        rvmprof.disable()
        os.close(fd)


def bad_values(files):
    attempt("change", 1000)
    attempt("disable", 0)
    attempt("enable", -1)
    attempt("enable", (1 << 62) + 1)
    fd = open_profile(files[0])
    enable(fd)
    attempt("enable", 1000)
    attempt("change", 0)
    attempt("change", -5)
    attempt("change", (1 << 62) + 1)
    allocate(new_code("work"), 100000)
    attempt("change", 1 << 62)
    rvmprof.disable()
    os.close(fd)
    attempt("change", 1000)


def forks(files):
    fd = open_profile(files[0])
    enable(fd)
    allocate(new_code("before"), 100000)
    pid = os.fork()
    if pid == 0:
        allocate(new_code("child"), 1000000)
        rvmprof.disable()
        other = open_profile(files[1])
        enable(other)
        allocate(new_code("child"), 100000)
        rvmprof.disable()
        os.close(other)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print "child %d" % status
    allocate(new_code("after"), 100000)
    rvmprof.disable()
    os.close(fd)


def child_takes_time_samples(files):
    """Fork a child that takes CPU samples, although its parent took none."""
    fd = open_profile(files[0])
    enable(fd)
    pid = os.fork()
    if pid == 0:
        rvmprof.disable()
        other = open_profile(files[1])
        rvmprof.enable(other, 0.001)
        work(new_code("child"), 50)
        rvmprof.disable()
        os.close(other)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print "child %d" % status
    rvmprof.disable()
    os.close(fd)


def child_forks(files):
    """Fork a child during CPU samples, which forks another child."""
    fd = open_profile(files[0])
    enable(fd, INTERVAL, 0.001)
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os._exit(0)
        work(new_code("child"), 50)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print "child %d" % status
    rvmprof.disable()
    os.close(fd)


def threads(files):
    rgil.allocate()
    fd = open_profile(files[0])
    enable(fd)
    state.threads = 3
    for i in range(3):
        rthread.start_new_thread(thread, ())
    # The main thread may run before or after the other threads.
    allocate(new_code("main"), 100000)
    while state.threads > 0:
        allocate(new_code("main"), 1000)
        rgil.yield_thread()
    rvmprof.disable()
    os.close(fd)


class Stacklets(object):
    pass


stacklets = Stacklets()


def in_stacklet(handle, arg):
    for i in range(100):
        allocate(stacklets.code, 1000)
        handle = stacklets.thread.switch(handle)
    return handle


def switches(files):
    """Switch between two machine stacks during a profile."""
    stacklets.thread = rstacklet.StackletThread()
    stacklets.code = new_code("inside")
    outside = new_code("outside")
    fd = open_profile(files[0])
    enable(fd)
    handle = stacklets.thread.new(in_stacklet, llmemory.NULL)
    rounds = 0
    while not stacklets.thread.is_empty_handle(handle):
        allocate(outside, 1000)
        if rounds >= 50:
            rvmprof.stop_sampling(None)
        handle = stacklets.thread.switch(handle)
        if rounds >= 50:
            rvmprof.start_sampling(None)
        rounds += 1
    rvmprof.disable()
    os.close(fd)


def pinned(files):
    """Pin three texts during ten collections, and check that they did not move."""
    fd = open_profile(files[0])
    enable(fd)
    around = new_code("around")
    texts = [chr(ord("a") + i) * 50000 for i in range(3)]
    allocate(around, 1000)
    with rffi.scoped_nonmovingbuffer(texts[0]) as a:
        with rffi.scoped_nonmovingbuffer(texts[1]) as b:
            with rffi.scoped_nonmovingbuffer(texts[2]) as c:
                for i in range(10):
                    rgc.collect(0)
                    allocate(around, 50000)
                buffers = [a, b, c]
                for i in range(3):
                    there = "".join([buffers[i][j] for j in range(50000)])
                    print "%d as it was" % (there == texts[i])
    rgc.collect()
    print "%d characters" % len("".join(texts))
    rvmprof.disable()
    os.close(fd)


def ends_without_disable(files):
    fd = open_profile(files[0])
    enable(fd)
    allocate(new_code("work"), 300000)
    # Without further samples, the last samples are written within a second.
    time.sleep(1.5)
    os._exit(3)


def closed_file(files):
    """Close the profile, and reuse its descriptor's number."""
    fd = open_profile(files[0])
    enable(fd)
    allocate(new_code("work"), 100000)
    os.close(fd)
    other = open_profile(files[1])
    os.write(other, "mine")
    print "same number" if other == fd else "another number"
    allocate(new_code("work"), 100000)
    attempt("disable", 0)
    os.close(other)

# ____________________________________________________________


SCENARIOS = {
    "plain": plain,
    "marks": marks,
    "keeps_errno": keeps_errno,
    "signals": signals,
    "no_time_samples": no_time_samples,
    "stops": stops,
    "again": again,
    "disabled_as_vmprof_does": disabled_as_vmprof_does,
    "bad_values": bad_values,
    "forks": forks,
    "child_takes_time_samples": child_takes_time_samples,
    "child_forks": child_forks,
    "threads": threads,
    "switches": switches,
    "pinned": pinned,
    "ends_without_disable": ends_without_disable,
    "closed_file": closed_file,
    "rotates": rotates,
    "rotates_without_lifetimes": rotates_without_lifetimes,
    "rotates_often": rotates_often,
    "rotates_into_nothing": rotates_into_nothing,
    "threads_end": threads_end,
    "heap_of_the_gc": heap_of_the_gc,
    "starts_and_stops": starts_and_stops,
    "says_what_is_alive": says_what_is_alive,
}


def entry_point(argv):
    rthread.get_ident()
    if argv[1] not in SCENARIOS:
        return 2
    SCENARIOS[argv[1]](argv[2:])
    return 0


def target(driver, args):
    driver.exe_name = "scenarios"
    driver.config.translation.continuation = True
    driver.config.translation.thread = True
    return entry_point, None
