"""Test --memory, which reports the uses of resident memory at the end of a profile.

The test programs have known amounts of each kind of memory.
"""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import PyPy

MIB = 2**20
#: The largest difference between a row and the known amount in bytes.  It covers the
#: memory of the interpreter and the sampler.
NOISE = 8 * MIB
#: A program with 60 MiB of objects, 100 MiB of C memory, and 40 MiB that are mapped.
PLANT = """
    import ctypes, gc, mmap
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    def plant():
        global kept, blocks, mapped
        kept = [[i] * 123 for i in range(60000)]
        blocks = [libc.malloc(2**20) for i in range(100)]
        for block in blocks:
            ctypes.memset(block, 1, 2**20)
        mapped = mmap.mmap(-1, 40 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.write(b"x" * len(mapped))
        gc.collect()
        gc.collect()
"""


def told(pypy: PyPy, name: str = "out.vmprof") -> list[dict[str, Any]]:
    """Return the memory report of each process in a profile."""
    out = pypy.command("-m", "vmprof_allocation", "memory", name, "--json")
    assert out.code == 0, out.err
    found: list[dict[str, Any]] = json.loads(out.out)["processes"]
    for process in found:
        if "rows" in process:
            assert sum(row["bytes"] for row in process["rows"]) == process["resident"]
    return found


def rows(process: dict[str, Any]) -> dict[str, int]:
    return {row["row"]: row["bytes"] for row in process["rows"]}


def check(process: dict[str, Any], objects: int = 60, c: int = 100, mapped: int = 40
          ) -> None:
    """Check a process's rows against the known amounts, in MiB."""
    found = rows(process)
    # The GC may be sweeping, so that arenas are not yet counted as objects.
    heap = found.get("objects", 0) + found.get("gc_arenas", 0)
    for value, expected in ((heap, objects), (found["c"], c),
                            (found.get("mapped", 0), mapped)):
        assert abs(value - expected * MIB) < NOISE, found
    assert abs(found["not_explained"]) < MIB


@pytest.mark.parametrize("flags", [
    (), ("--held",), ("--raw-memory", "512k")], ids=lambda flags: " ".join(flags))
def test_at_the_end_of_a_program(pypy: PyPy, flags: tuple[str, ...]) -> None:
    run = pypy.sample(PLANT + """
    plant()
    status = open("/proc/self/status").read()
    print(status)
    """, "128k", "--memory", *flags)
    assert run.err == ""
    (process,) = told(pypy)
    check(process)
    # The memory is read before --held takes its snapshot, and before PyPy frees memory
    # at its end.
    resident = re.search(r"VmRSS:\s+(\d+) kB", run.out)
    assert resident is not None
    assert abs(process["resident"] - int(resident[1]) * 1024) < 4 * MIB
    profile = run.profile()
    assert 0 < process["time"] <= profile.end / 1e9


def test_without_the_flag_it_is_not_read(pypy: PyPy) -> None:
    pypy.sample(PLANT + "    plant()\n", "128k")
    out = pypy.command("-m", "vmprof_allocation", "memory", "out.vmprof")
    assert out.code == 2 and "start the program with --memory" in out.err


@pytest.mark.parametrize("end, code", [
    ("sys.exit(3)", 3), ("raise ValueError", 1), ("os.kill(os.getpid(), 2)", -2)])
def test_however_python_ends(pypy: PyPy, end: str, code: int) -> None:
    script = pypy.script(PLANT + """
    import os, sys
    plant()
    %s
    """ % end)
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "128k", "--memory",
                       "-o", "out.vmprof", str(script))
    assert run.code == code
    (process,) = told(pypy)
    check(process)


def test_children_have_their_own_reports(pypy: PyPy) -> None:
    """The memory of a child that ends by os._exit() is reported as unknown."""
    pypy.sample(PLANT + """
    import os, subprocess, sys
    def child():
        pid = os.fork()
        if pid == 0:
            plant()
        return pid
    if child() == 0:
        sys.exit()
    os.wait()
    if child() == 0:
        os._exit(0)
    os.wait()
    if len(sys.argv) < 2:
        subprocess.run([sys.executable, __file__, "again"])
    """, "128k", "--memory")
    first, *others = told(pypy)
    check(first, 0, 0, 0)
    assert len(others) == 5
    known = [other for other in others if "rows" in other]
    # Two forked children ended normally, and one process is the program's second start.
    assert len(known) == 3
    for process in known:
        if process["command"].endswith(" again") and process["resident"] < 150 * MIB:
            check(process, 0, 0, 0)
        else:
            check(process)
    assert all("is unknown" in other["error"]
               for other in others if other not in known)


def test_each_segment_has_its_report(pypy: PyPy) -> None:
    script = pypy.script(PLANT + """
    from vmprof_allocation.session.session import current
    plant()
    current().rotate("out.w2.vmprof")
    kept += [[i] * 123 for i in range(60000)]
    gc.collect()
    gc.collect()
    """)
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "128k", "--memory",
                       "--rotate", "1h", "-o", "out.vmprof", str(script))
    assert (run.code, run.err) == (0, "")
    (process,) = told(pypy)
    check(process, 120)
    alone = pypy.folder / "alone"
    alone.mkdir()
    (pypy.folder / "out.vmprof").rename(alone / "first.vmprof")
    (process,) = told(pypy, "alone/first.vmprof")
    check(process)


def test_a_profile_that_ctl_ends(pypy: PyPy) -> None:
    """The memory is read when ctl ends the profile, before the end of the program."""
    pypy.sample(PLANT + """
    import os, subprocess, sys
    plant()
    subprocess.run([sys.executable, "-m", "vmprof_allocation", "ctl", str(os.getpid()),
                    "stop"], check=True, stdout=subprocess.DEVNULL)
    more = [[i] * 123 for i in range(60000)]
    """, "128k", "--memory", "--control", "--no-follow")
    (process,) = told(pypy)
    check(process)


def test_a_program_that_may_take_no_more_memory(pypy: PyPy) -> None:
    run = pypy.sample("""
    import resource
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**19, now + 2**19))
    """, "64k", "--memory")
    first, *more = run.err.splitlines()
    assert first == (
        "vmprof: cannot read the uses of the resident memory: the limit of the "
        "program's address space (RLIMIT_AS) leaves 0 MiB, but this needs up to 32 MiB")
    # Reading the names of the threads may fail, too, with half a MiB of memory.
    assert all(line.endswith("(MemoryError())") for line in more), run.err
    assert run.profile().end_time is not None


def test_without_an_output_the_report_is_shown(pypy: PyPy) -> None:
    script = pypy.script(PLANT + "    plant()\n")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "128k", "--memory",
                       str(script))
    assert run.code == 0
    table = run.err.partition("\nprocess ")[2]
    assert re.search(r"^ +10\d MiB +3\d\.\d +asked for by C code", table, re.MULTILINE)


@pytest.mark.parametrize("flags, why", [
    (("--push", "otlp+http://localhost:1"),
     "--memory writes memory counts into a profile, but --push cannot send them"),
    ((), "need --allocation-sampling"),
    (("--control",), "--memory has no effect"),
])
def test_incompatible_flags_are_refused(pypy: PyPy, flags: tuple[str, ...],
                                        why: str) -> None:
    script: Path = pypy.script("")
    run = pypy.command("-m", "vmprof", "--memory", *flags, str(script))
    assert run.code == 2 and why in run.err
