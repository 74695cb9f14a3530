"""Fork while other threads allocate, with a sample every 64 bytes. Runs on PyPy.

    forks.py COUNT

When the parent forks, each of its threads is in an allocation, a sample, or a write of
the profile. Each child allocates and collects, and every fourth child samples itself. A
child that fails has a nonzero exit code.
"""
from __future__ import annotations

import gc
import os
import sys
import threading

import vmprof_allocation

THREADS = 4


def main() -> int:
    count = int(sys.argv[1])
    going = [True]

    def allocate() -> None:
        while going[0]:
            [str(i) for i in range(1000)]

    threads = [threading.Thread(target=allocate) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    bad: list[int] = []
    with vmprof_allocation.sample("forks.vmprof", 64):
        for number in range(count):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    strings = [str(i) for i in range(3000)]
                    gc.collect(number % 2)
                    if number % 4 == 0:
                        name = "child%d.vmprof" % os.getpid()
                        with vmprof_allocation.sample(name, 256):
                            strings += [str(i) for i in range(1000)]
                        os.unlink(name)
                    code = int(strings[2999] != "2999")
                finally:
                    os._exit(code)
            status = os.waitpid(child, 0)[1]
            if status:
                bad.append(status)
    going[0] = False
    for thread in threads:
        thread.join()
    os.unlink("forks.vmprof")
    print("%d forks, %d problems" % (count, len(bad)), *set(bad), flush=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
