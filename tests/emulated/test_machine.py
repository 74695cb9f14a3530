"""Test attach on AArch64 in a whole system, because the program emulator has no ptrace.

`make hard MACHINE=arm64` runs these tests, in two to four minutes.
"""
from __future__ import annotations

import re
import shutil
from pathlib import Path

import arm64
import machine
import pytest

from native_build import AARCH64, COMPILERS, build

pytestmark = pytest.mark.hard

CASES = ("often", "no-syscall-info", "lock", "stands-still", "too-long", "signals",
         "dies", "registers")
#: a program whose main thread waits for stdin, while one thread runs compiled code, and
#: one waits for a lock
THREADS = """
import sys, threading
class Node:
    def __init__(self, i):
        self.text = "x" * (200 + i % 7)
def allocate():
    while not ended.is_set():
        for i in range(1000):
            Node(i)
ended = threading.Event()
threads = [threading.Thread(target=work) for work in (allocate, ended.wait)]
for thread in threads:
    thread.start()
sys.stdin.readline()
ended.set()
for thread in threads:
    thread.join()
print("ended", len(threads))
"""
#: a program that makes no thread, so that PyPy has not created the GIL
ALONE = """
import select, sys
count = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    count += len([bytes(1000 + i) for i in range(1000)])
print("ended", count % 1000)
"""
#: a program that sleeps in a system call, which must restart and sleep the requested
#: time
ASLEEP = """
import ctypes, time
begun = time.monotonic()
print("ended", ctypes.CDLL(None).usleep(60000000), int(time.monotonic() - begun) // 10)
"""
COMMAND = r"""
trap "" PIPE
for case in %s; do
    # into a file: what a case that fails leaves behind keeps a pipe open
    ./tracer_harness $case >harness.out
    echo "$case: $(cat harness.out)"
done
for name in threads alone asleep; do
    mkfifo $name.in
    pypy3 $name.py <$name.in >$name.out 2>&1 & program=$!
    exec 5>$name.in
    sleep 10
    pypy3 -m vmprof_allocation attach $program -d 3 --allocation-sampling 128k \
        --timeout 60 -o $name.vmprof >$name.report 2>&1
    echo "$name attach: $?"
    echo "$name threads: $(ls /proc/$program/task | wc -l)"
    echo >&5
    exec 5>&-
    wait $program
    echo "$name code: $?"
    echo "$name says: $(cat $name.out)"
    cat $name.report
done
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the tracer's cases and the programs in the system, and return the output."""
    if not (arm64.PROJECT / ".build/arm64/bookworm/pypy3").exists():
        pytest.skip("no Debian for arm64: `make hard MACHINE=arm64` makes it")
    if not (shutil.which(machine.EMULATOR) and shutil.which(COMPILERS[AARCH64])):
        pytest.skip("no %s, or no %s: Debian's qemu-system-arm and "
                    "gcc-aarch64-linux-gnu" % (machine.EMULATOR, COMPILERS[AARCH64]))
    folder = tmp_path_factory.mktemp("tried")
    harness = build("tracer_harness", "attach/tracer.c", "attach/safe_place.c",
                    "attach/aarch64/stub.c", "attach/aarch64/registers.c",
                    machine=AARCH64)
    shutil.copy(harness, folder / "tracer_harness")
    for name, source in ("threads", THREADS), ("alone", ALONE), ("asleep", ASLEEP):
        Path(folder, name + ".py").write_text(source)
    Path(folder, "command").write_text(COMMAND % " ".join(CASES))
    output, code = machine.run("bookworm", folder, 1800)
    assert code == 0, output
    return output


@pytest.mark.parametrize("case", CASES)
def test_a_process_is_made_to_run_a_program(said: str, case: str) -> None:
    assert "\n%s: ok\n" % case in "\n" + said, said


@pytest.mark.parametrize("name, threads, end", [
    ("threads", 3, "ended 2"), ("alone", 1, "ended 0"), ("asleep", 1, "ended 0 6")])
def test_a_program_is_attached_to(said: str, name: str, threads: int, end: str) -> None:
    """Each program is sampled, and has the same output and exit code as without attach.
    """
    found = dict(re.findall(r"^%s (\w+): (.*)$" % name, said, re.MULTILINE))
    assert found == {"attach": "0", "threads": str(threads), "code": "0",
                     "says": end}, said


def test_report_names_the_allocating_function(said: str) -> None:
    assert said.count("estimated total: ") == 3, said
    assert re.search(r"iB .* allocate +\S*threads\.py:", said), said
