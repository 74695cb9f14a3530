"""Scenarios of targetscenarios.py about ended threads, many profiles, and the heap."""
import os
import time

from rpython.rlib import rgc, rgil, rthread, rvmprof

from scenario_nodes import enable, keep, new_code, open_profile, state

#: The number of nodes that each thread makes.
COUNT = 30000


def chain(code, count):
    # This function never releases the GIL, so no other thread changes state.node.
    state.node = None
    keep(code, count)
    node = state.node
    state.node = None
    return node


class Threads(object):
    chains = [None] * 3
    started = 0
    running = 0


threads = Threads()


def thread_that_keeps():
    rthread.gc_thread_start()
    number = threads.started
    threads.started += 1
    code = new_code("thread%d" % number)
    rgil.yield_thread()
    threads.chains[number] = chain(code, COUNT)
    rgil.yield_thread()
    threads.running -= 1
    rthread.gc_thread_die()


def collect():
    # If a major collection is in progress, the first call only finishes it.
    rgc.collect()
    rgc.collect()


def heap_of_the_gc(files):
    """Let the heap grow and shrink, with small objects and with large objects.

    In each state, wait until the flusher has read the size of the heap.
    """
    collect()
    fd = open_profile(files[0])
    enable(fd)
    time.sleep(0.3)
    rvmprof.mark("begun")
    keep(new_code("kept"), 1000000)
    collect()
    time.sleep(0.3)
    rvmprof.mark("kept")
    large = [chr(65 + i) * 10000000 for i in range(3)]
    collect()
    time.sleep(0.3)
    rvmprof.mark("%d MB more" % (len(large) * len(large[0]) // 1000000))
    large = None
    state.node = None
    collect()
    time.sleep(0.3)
    rvmprof.mark("dropped")
    rvmprof.disable()
    os.close(fd)


def threads_end(files):
    """Keep the objects of ended threads, and drop the objects of one thread later."""
    rgil.allocate()
    fd = open_profile(files[0])
    enable(fd)
    threads.running = len(threads.chains)
    for i in range(len(threads.chains)):
        rthread.start_new_thread(thread_that_keeps, ())
    while threads.running > 0:
        rgil.yield_thread()
    collect()
    rvmprof.mark("all are there")
    threads.chains[1] = None
    collect()
    rvmprof.disable()
    os.close(fd)


def print_size(what):
    """Print the open files, the threads, and the data pages of this process."""
    fd = os.open("/proc/self/statm", os.O_RDONLY, 0)
    words = os.read(fd, 1000).split(" ")
    os.close(fd)
    print "%s: %d files, %d threads, %s pages" % (
        what, len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")), words[5])


def starts_and_stops(files):
    """Record 10,000 profiles with tracked objects, and collections during each."""
    code = new_code("work")
    for i in range(10000):
        fd = open_profile(files[0])
        enable(fd, 100)
        threads.chains[0] = chain(code, 100)
        if i % 10 == 0:
            collect()
        rvmprof.disable()
        os.close(fd)
        if i == 999:
            collect()
            print_size("first")
    collect()
    print_size("last")
