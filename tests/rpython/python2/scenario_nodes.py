"""Functions that allocate nodes, for the scenarios of targetscenarios.py.

A caller chooses the name of the allocating function in the profile.
"""
import os

from rpython.rlib import rthread, rvmprof

INTERVAL = 1000         # bytes
SETTINGS = "interval=%d;seed=1" % INTERVAL


class Code(object):
    def __init__(self, name):
        self.name = name


def code_name(code):
    return "py:%s:1:scenarios" % code.name


rvmprof.register_code_object_class(Code, code_name)


class Node(object):
    def __init__(self, next):
        self.next = next


class State(object):
    node = None         # the last node, so that the JIT allocates it
    threads = 0         # the number of threads that still work
    started = 0


state = State()


def new_code(name):
    code = Code(name)
    rvmprof.register_code(code, code_name)
    return code


@rvmprof.vmprof_execute_code("scenarios", lambda code, count, rounds, depth: code)
def execute(code, count, rounds, depth):
    if depth > 0:
        return execute(code, count, rounds, depth - 1)
    number = 1
    while count > 0:
        state.node = Node(state.node if rounds < 0 else None)
        count -= 1
        for i in range(rounds):
            number = (number * 1103515245 + 12345) & 0x7fffffff
    return number


def allocate(code, count, depth=0):
    """Make 'count' nodes in the function 'code', below 'depth' calls of itself."""
    return execute(code, count, 0, depth)


def keep(code, count):
    """Make a list of 'count' nodes, which live as long as the last node."""
    return execute(code, count, -1, 0)


def work(code, count):
    """Compute for a while, and allocate 'count' nodes."""
    return execute(code, count, 5000000, 0)


def open_profile(filename):
    return os.open(filename, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0644)


def enable(fd, interval=INTERVAL, period=0.0):
    rvmprof.enable(fd, period, allocations="interval=%d;seed=1" % interval)


def thread():
    rthread.gc_thread_start()
    # Take the number before the calls that may release the GIL.
    number = state.started
    state.started += 1
    allocate(new_code("thread%d" % number), 300000)
    state.threads -= 1
    rthread.gc_thread_die()
