"""Sampling on AArch64: Debian's PyPy for arm64, run by an emulator.

`make hard MACHINE=arm64` runs the hook engine's own tests there, on three releases.
"""
from __future__ import annotations

import math
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import time_shares
from found import check_conservation, found
from truth import SIGMAS, innermost, sigma, string_size
from vmprof_convert import readers
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.meaning.visible_stacks import COMPILED, Program
from vmprof_convert.profile.model import ALIVE, FREED, Profile

ROOT = Path(__file__).parents[2]
PYPY = ROOT / ".build/arm64/bookworm/pypy3"
CACHE = ROOT / ".build/arm64/cache"
INTERVAL = 4096

# Strings have a size of their own, which says who made them; the JIT compiles `first`
# and `second` with `fill`.
PROGRAM = """
import gc, os
filler, kept, slot, order = "x" * 5000, [], [None], [2, 1]
def first(i):
    slot[0] = filler[i & 7:3000 + (i & 7)]
    order.sort()                # the string can't be made later than here
def second(i):
    slot[0] = filler[i & 7:4500 + (i & 7)]
    order.sort()
def fill(count):
    for i in range(count):
        first(i)
        second(i)
class Node:
    def __init__(self, number):
        self.number = number
def make(count):
    for i in range(count):
        slot[0] = node = Node(i)
        if i % 2:
            kept.append(node)
fill(20000)
make(100000)
child = os.fork()
if child == 0:
    fill(3000)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
gc.collect()
del kept[len(kept) // 2:]
slot[0] = None
for i in range(3):
    gc.collect()
kept.append(None)
"""

# What was compiled by the time the sampling begins, nothing tells.
WARM = PROGRAM[:PROGRAM.index("class Node")] + """
import vmprof_allocation
fill(20000)
with vmprof_allocation.sample("app.vmprof", 4096):
    fill(20000)
"""

RAW_INTERVAL = 16384
RAW_MEMORY = """
import cffi
ffi = cffi.FFI()
ffi.cdef("void *malloc(size_t); void free(void *);")
c = ffi.dlopen(None)
blocks = []
def asks():
    return c.malloc(5000)
def keeps():
    for _ in range(3000):
        blocks.append(asks())
def gives_back():
    for _ in range(5000):
        c.free(asks())
keeps()
gives_back()
"""


def run(folder: Path, program: str, *flags: str) -> Path:
    """`flags`: of vmprof; without any, the program begins the sampling itself."""
    (folder / "app.py").write_text(program)
    command = ["-m", "vmprof", *flags, "-o", "app.vmprof"] if flags else []
    done = subprocess.run(
        [PYPY, *command, "app.py"], cwd=folder,
        text=True, capture_output=True,
        env={**os.environ, "XDG_CACHE_HOME": str(CACHE), "PYPY_GC_NURSERY": "4M"})
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with app.vmprof, and the profile of a child."""
    if not PYPY.exists():
        pytest.skip("no Debian for arm64: debootstrap, qemu-user-static and "
                    "gcc-aarch64-linux-gnu are needed, as `make test` installs them")
    started = subprocess.run([PYPY, "-c", "print(40 + 2)"], text=True,
                             capture_output=True)
    if "can't be run here" in started.stderr:
        pytest.skip(started.stderr.strip())
    assert (started.stdout, started.stderr) == ("42\n", "")
    return run(tmp_path_factory.mktemp("arm64"), PROGRAM,
               "--allocation-sampling", str(INTERVAL))


@pytest.fixture(scope="session")
def profile(emulated: Path) -> Profile:
    return readers.read(emulated / "app.vmprof")


def strings(profile: Profile, length: int) -> list[int]:
    """Rows of those, with what the JIT makes with them at once."""
    size = string_size(length)
    return [row for row, at in enumerate(profile.samples.size)
            if size <= at < size + 64]


def makers(profile: Profile, rows: list[int]) -> Counter[str]:
    return Counter(innermost(profile, profile.samples.stack[row]) for row in rows)


@pytest.mark.long(4)
def test_as_many_are_sampled_as_have_to_be(profile: Profile) -> None:
    """An object is with a probability of 1 - exp(-size / interval): within four
    standard deviations."""
    check_conservation(profile)
    for length in 3000, 4500:
        likely = 1 - math.exp(-string_size(length) / INTERVAL)
        assert abs(len(strings(profile, length)) - 20000 * likely) < 4 * math.sqrt(
            20000 * likely * (1 - likely))


def test_who_made_them_is_in_the_stacks(profile: Profile) -> None:
    for length, function in (3000, "first"), (4500, "second"):
        names = makers(profile, strings(profile, length))
        assert names[function] >= 0.95 * names.total(), names


def test_types_and_what_became_of_them(profile: Profile) -> None:
    nodes = found(profile, "__main__.Node")
    nodes.total().check("all", 100000)
    nodes.check("alive", 25000)
    nodes.check("freed", 25000, also=2000)


def test_a_child_goes_on(emulated: Path) -> None:
    (path,) = emulated.glob("app.*.vmprof")
    child = readers.read(path)
    names = makers(child, strings(child, 3000))
    assert names["first"] >= 0.95 * names.total() > 500, names


def test_what_was_compiled_before_is_nobody_elses(
        emulated: Path, tmp_path: Path) -> None:
    profile = readers.read(run(tmp_path, WARM) / "app.vmprof")
    program = Program(profile)
    names = Counter(program.functions(profile.samples.stack[row])[-1].name
                    for row in strings(profile, 3000))
    assert names[COMPILED.name] > 0.9 * names.total() > 5000, names
    assert set(names) <= {"first", COMPILED.name}


@pytest.fixture(scope="session")
def of_c_and_time(emulated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of raw memory, and of time."""
    folder = run(tmp_path_factory.mktemp("arm64"), RAW_MEMORY + time_shares.program(5),
                 "--allocation-sampling", "1M", "--raw-memory", str(RAW_INTERVAL),
                 "--period", "0.005")
    return folder / "app.vmprof"


def test_time_in_compiled_code_goes_to_the_function_that_takes_it(
        of_c_and_time: Path) -> None:
    time_shares.check(readers.read(of_c_and_time))


def test_what_c_code_asks_for_is_of_the_function_that_has_called_it(
        of_c_and_time: Path) -> None:
    profile = readers.read(of_c_and_time, raw=True)
    samples = profile.samples
    for caller, count, fate in ("keeps", 3000, ALIVE), ("gives_back", 5000, FREED):
        rows = [row for row, size in enumerate(samples.size) if size == 5000 and [
            profile.function(frame.address).name
            for frame in profile.stacks[samples.stack[row]]][-2:] == [caller, "asks"]]
        estimate = sum(weight_bytes(5000, samples.interval[row], profile.gaps)
                       for row in rows)
        assert abs(estimate - count * 5000) < SIGMAS * sigma(count, 5000, RAW_INTERVAL)
        assert {samples.fate[row] for row in rows} == {fate}
        assert all("malloc" in profile.types[samples.type[row]].python for row in rows)
