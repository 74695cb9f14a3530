import os
import signal
import sys

import py
from rpython.rlib import rvmprof
from rpython.tool.udir import udir


def setup_module(mod):
    if not sys.platform.startswith('linux'):
        py.test.skip("/proc tells which signals are handled")
    class MyCode(object):
        pass
    try:
        rvmprof.register_code_object_class(MyCode, lambda code: 'py:f:1:x')
    except rvmprof.VMProfPlatformUnsupported as e:
        py.test.skip(str(e))


def actions():
    """Return the masks of the signals that this process ignores and handles."""
    with open('/proc/self/status') as f:
        lines = dict(line.split(':', 1) for line in f)
    return [int(lines[key], 16) for key in ('SigIgn', 'SigCgt')]

def are(signum):
    """Return whether a signal is ignored and whether it is handled, as 0 or 1."""
    return [mask >> (signum - 1) & 1 for mask in actions()]

IGNORED, HANDLED, DEFAULT = [1, 0], [0, 1], [0, 0]


class Profile(object):
    """A context manager in which vmprof is enabled"""
    def __init__(self, real_time=0):
        self.real_time = real_time

    def __enter__(self):
        self.fd = os.open(str(udir.join('test_signals')),
                          os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0666)
        rvmprof.enable(self.fd, 0.9, real_time=self.real_time)

    def __exit__(self, *args):
        rvmprof.disable()
        os.close(self.fd)


def in_a_child(function):
    """Call 'function' in a forked child, and check that it succeeds."""
    pid = os.fork()
    if pid == 0:
        result = 1
        try:
            function()
            result = 0
        finally:
            os._exit(result)
    assert os.waitpid(pid, 0)[1] == 0


def with_handler(signum, handler, function):
    """Call 'function' while 'handler' handles a signal."""
    before = signal.signal(signum, handler)
    try:
        function()
    finally:
        signal.signal(signum, before)


def test_signal_is_as_before():
    for handler, state in ((signal.SIG_DFL, DEFAULT),
                           (signal.SIG_IGN, IGNORED),
                           (lambda *args: None, HANDLED)):
        def check():
            for i in range(2):
                assert are(signal.SIGPROF) == state
                with Profile():
                    assert are(signal.SIGPROF) == HANDLED
            assert are(signal.SIGPROF) == state
        with_handler(signal.SIGPROF, handler, check)

def test_handler_that_the_program_sets_meanwhile_stays():
    def check():
        with Profile():
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
        assert are(signal.SIGPROF) == IGNORED
    with_handler(signal.SIGPROF, signal.SIG_DFL, check)

def test_sigalrm_does_not_end_the_program():
    # the signal stays ignored, because another thread may still be sending it
    for handler, state in ((signal.SIG_DFL, IGNORED),
                           (lambda *args: None, HANDLED)):
        def check():
            with Profile(real_time=1):
                pass
            assert are(signal.SIGALRM) == state
        with_handler(signal.SIGALRM, handler, check)

def test_forked_child():
    before = actions()
    def child():
        # the child has its parent's handler, but no profile
        rvmprof.rvmprof._get_vmprof().is_enabled = False
        with Profile():
            pass
        assert actions() == before
    with Profile():
        in_a_child(child)
    assert actions() == before
