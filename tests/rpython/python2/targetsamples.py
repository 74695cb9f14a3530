"""A program in RPython that tests the first submission about allocations.

The source is Python 2.7.  `make` translates the program, with the patches up to
rvmprof-samples alone, and test_rpython_samples.py runs it:

    samples NAME PROFILE
"""
import os
import time

from rpython.rlib import rthread, rvmprof

from scenario_nodes import (INTERVAL, allocate, enable, keep, new_code,
                            open_profile, state, thread, work)


def both(fd):
    """Allocate with CPU samples in addition to allocation samples."""
    enable(fd, INTERVAL, 0.001)
    for i in range(10):
        allocate(new_code("f%d" % i), 100000)
        work(new_code("g%d" % i), 3)
    rvmprof.disable()


def types(fd):
    """Keep objects, and make lists, one of them large."""
    enable(fd)
    keep(new_code("keep"), 50000)
    lists = []
    for i in range(2000):
        lists.append([i] * 1000)
    lists.append([1] * 1000000)
    rvmprof.disable()
    print len(lists)


def deep(fd):
    """Allocate with stacks that fit into a record, and with larger stacks."""
    enable(fd)
    for depth in [10, 500, 600, 3000]:
        allocate(new_code("deep%d" % depth), 20000, depth)
    rvmprof.disable()


def stops(fd):
    enable(fd)
    allocate(new_code("before"), 100000)
    rvmprof.stop_sampling(None)
    allocate(new_code("between"), 100000)
    rvmprof.start_sampling(None)
    allocate(new_code("after"), 100000)
    rvmprof.disable()
    allocate(new_code("disabled"), 100000)


def threads(fd):
    enable(fd, INTERVAL, 0.001)
    state.threads = 3
    for i in range(state.threads):
        rthread.start_new_thread(thread, ())
    while state.threads > 0:
        time.sleep(0.01)
    rvmprof.disable()


def forks(fd):
    enable(fd)
    allocate(new_code("before"), 50000)
    pid = os.fork()
    if pid == 0:
        allocate(new_code("child"), 50000)
        os._exit(0)
    os.waitpid(pid, 0)
    allocate(new_code("after"), 50000)
    rvmprof.disable()


def refused(fd):
    for text in ["interval=0", "interval=x", "interval=4611686018427387905",
                 "seed=1", "interval=1000;color=red", "interval", ";", "seed=-1"]:
        try:
            rvmprof.enable(fd, 0.0, allocations=text)
            print "done"
        except rvmprof.VMProfError as e:
            print e.msg
    try:
        rvmprof.enable(fd, 0.0)
    except rvmprof.VMProfError as e:
        print e.msg
    enable(fd)
    allocate(new_code("work"), 100000)
    rvmprof.disable()


SCENARIOS = {"both": both, "types": types, "deep": deep,
             "stops": stops, "threads": threads, "forks": forks, "refused": refused}


def entry_point(argv):
    rthread.get_ident()
    if argv[1] not in SCENARIOS:
        return 2
    fd = open_profile(argv[2])
    SCENARIOS[argv[1]](fd)
    os.close(fd)
    return 0


def target(driver, args):
    driver.config.translation.thread = True
    return entry_point, None
