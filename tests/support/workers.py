"""A program of a master process with two worker processes, as targets of commands."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from conftest import PyPy
from controlled import prepared
from running import Running, running

#: A program of a master that waits for lines, as gunicorn's master does, and its
#: workers. Each worker ends when the master closes the pipe.
WORKERS = """
    import os, select, signal, subprocess, sys
    def allocate():
        return [bytes(i) for i in range(100)]
    def worker(ear):
        os.write(1, b"%%d\\n" %% os.getpid())
        while not select.select([ear], [], [], 0)[0]:
            for i in range(100):
                allocate()
        os._exit(0)
    print("ready")
    %s
    ear, mouth = os.pipe()
    for _ in range(2):
        if not os.fork():
            os.close(mouth)
            worker(ear)
    for line in sys.stdin:
        %s
    os.close(mouth)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
"""


@contextmanager
def workers(pypy: PyPy, before: str = "", told: str = "pass", *,
            are_prepared: bool = True) -> Iterator[tuple[Running, list[int]]]:
    """Start a master and its workers, and yield the master and the workers' pids.

    Args:
        pypy: The interpreter.
        before: A statement that the master runs before it forks the workers.
        told: A statement that the master runs for each line of its stdin.
        are_prepared: Whether the master is control-enabled.
    """
    with (prepared if are_prepared else running)(
            pypy, WORKERS % (before, told)) as master:
        yield master, sorted(int(master.read()) for _ in range(2))
        master.end()
