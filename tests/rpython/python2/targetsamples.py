"""What the first submission about allocations does, as a program in RPython.

Runs on Python 2.7: it is translated (`make` does that), with the patches up to
rvmprof-samples alone, and run by test_rpython_samples.py:

    samples NAME PROFILE
"""
import os
import time

from rpython.rlib import rthread, rvmprof

from scenario_nodes import (INTERVAL, allocate, enable, keep, new_code,
                            open_profile, state, thread, work)


def both(path):
    """Time samples, too."""
    fd = open_profile(path)
    enable(fd, INTERVAL, 0.001)
    for i in range(10):
        allocate(new_code("f%d" % i), 100000)
        work(new_code("g%d" % i), 3)
    rvmprof.disable()
    os.close(fd)


def types(path):
    """Objects that live, and lists of them, some of which are large."""
    fd = open_profile(path)
    enable(fd)
    keep(new_code("keep"), 50000)
    lists = []
    for i in range(2000):
        lists.append([i] * 1000)
    lists.append([1] * 1000000)
    rvmprof.disable()
    os.close(fd)
    print len(lists)


def deep(path):
    """Stacks that fit into a record, and one that does not."""
    fd = open_profile(path)
    enable(fd)
    for depth in [10, 500, 600, 3000]:
        allocate(new_code("deep%d" % depth), 20000, depth)
    rvmprof.disable()
    os.close(fd)


def stops(path):
    fd = open_profile(path)
    enable(fd)
    allocate(new_code("before"), 100000)
    rvmprof.stop_sampling(None)
    allocate(new_code("between"), 100000)
    rvmprof.start_sampling(None)
    allocate(new_code("after"), 100000)
    rvmprof.disable()
    allocate(new_code("disabled"), 100000)
    os.close(fd)


def threads(path):
    fd = open_profile(path)
    enable(fd, INTERVAL, 0.001)
    state.threads = 3
    for i in range(state.threads):
        rthread.start_new_thread(thread, ())
    while state.threads > 0:
        time.sleep(0.01)
    rvmprof.disable()
    os.close(fd)


def forks(path):
    fd = open_profile(path)
    enable(fd)
    allocate(new_code("before"), 50000)
    pid = os.fork()
    if pid == 0:
        allocate(new_code("child"), 50000)
        os._exit(0)
    os.waitpid(pid, 0)
    allocate(new_code("after"), 50000)
    rvmprof.disable()
    os.close(fd)


def refused(path):
    fd = open_profile(path)
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
    os.close(fd)


def entry_point(argv):
    rthread.get_ident()
    name, path = argv[1], argv[2]
    if name == "both":
        both(path)
    elif name == "types":
        types(path)
    elif name == "deep":
        deep(path)
    elif name == "stops":
        stops(path)
    elif name == "threads":
        threads(path)
    elif name == "forks":
        forks(path)
    elif name == "refused":
        refused(path)
    else:
        return 2
    return 0


def target(driver, args):
    driver.config.translation.thread = True
    return entry_point, None
