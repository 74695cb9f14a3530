"""Test sampling on AArch64 with Debian's PyPy for arm64, which an emulator runs.

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
from truth import innermost, string_size
from vmprof_convert import readers
from vmprof_convert.meaning.visible_stacks import COMPILED, Program
from vmprof_convert.profile.model import Profile

ROOT = Path(__file__).parents[2]
PYPY = ROOT / ".build/arm64/bookworm/pypy3"
CACHE = ROOT / ".build/arm64/cache"
INTERVAL = 4096

# The size of a string identifies the function that allocates it. The JIT compiles the
# functions `first` and `second` together with their caller `fill`.
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

# A program whose functions are compiled before the start of sampling, so that the
# functions in compiled code are unknown.
WARM = PROGRAM[:PROGRAM.index("class Node")] + """
import vmprof_allocation
fill(20000)
with vmprof_allocation.sample("app.vmprof", 4096):
    fill(20000)
"""


def start(folder: Path, program: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends.

    `flags` are options of vmprof. Without flags, the program has to start sampling
    itself.
    """
    (folder / "app.py").write_text(program)
    command = ["-m", "vmprof", *flags, "-o", "app.vmprof"] if flags else []
    return subprocess.run(
        [PYPY, *command, "app.py"], cwd=folder,
        text=True, capture_output=True,
        env={**os.environ, "XDG_CACHE_HOME": str(CACHE), "PYPY_GC_NURSERY": "4M"})


def run(folder: Path, program: str, *flags: str) -> Path:
    """Run a program, which must succeed, and return the folder with its profile."""
    done = start(folder, program, *flags)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run PROGRAM, and return the folder with app.vmprof and the profile of a child."""
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
    """Return the rows of samples of strings with `length` characters.

    The strings may be in batches with small objects.
    """
    size = string_size(length)
    return [row for row, at in enumerate(profile.samples.size)
            if size <= at < size + 64]


def makers(profile: Profile, rows: list[int]) -> Counter[str]:
    """Return the number of samples in these rows by the function that allocated."""
    return Counter(innermost(profile, profile.samples.stack[row]) for row in rows)


@pytest.mark.long(4)
def test_number_of_samples_matches_their_probability(profile: Profile) -> None:
    """An object is sampled with the probability 1 - exp(-size / interval). The
    tolerance is four standard deviations.
    """
    check_conservation(profile)
    for length in 3000, 4500:
        likely = 1 - math.exp(-string_size(length) / INTERVAL)
        assert abs(len(strings(profile, length)) - 20000 * likely) < 4 * math.sqrt(
            20000 * likely * (1 - likely))


def test_stacks_contain_the_allocating_function(profile: Profile) -> None:
    for length, function in (3000, "first"), (4500, "second"):
        names = makers(profile, strings(profile, length))
        assert names[function] >= 0.95 * names.total(), names


def test_types_and_outcomes_are_right(profile: Profile) -> None:
    nodes = found(profile, "__main__.Node")
    nodes.total().check("all", 100000)
    nodes.check("alive", 25000)
    nodes.check("freed", 25000, also=2000)


def test_a_child_process_is_sampled(emulated: Path) -> None:
    (path,) = emulated.glob("app.*.vmprof")
    child = readers.read(path)
    names = makers(child, strings(child, 3000))
    assert names["first"] >= 0.95 * names.total() > 500, names


def test_code_compiled_before_the_start_has_no_wrong_function(
        emulated: Path, tmp_path: Path) -> None:
    profile = readers.read(run(tmp_path, WARM) / "app.vmprof")
    program = Program(profile)
    names = Counter(program.functions(profile.samples.stack[row])[-1].name
                    for row in strings(profile, 3000))
    assert names[COMPILED.name] > 0.9 * names.total() > 5000, names
    assert set(names) <= {"first", COMPILED.name}


def test_time_in_compiled_code_goes_to_the_function_that_takes_it(
        emulated: Path, tmp_path: Path) -> None:
    folder = run(tmp_path, time_shares.program(5), "--allocation-sampling", "1M",
                 "--period", "0.005")
    time_shares.check(readers.read(folder / "app.vmprof"))


def test_raw_memory_is_refused(emulated: Path, tmp_path: Path) -> None:
    """On AArch64, taking a stack changes words of the stack, which a thread without the
    GIL must not do. So native memory cannot be sampled.
    """
    done = start(tmp_path, "print('runs')", "--allocation-sampling", "1M",
                 "--native-memory", "16k")
    assert (done.returncode, done.stdout) == (2, "")
    assert "only the hook engine on x86-64 does. Omit --native-memory" in done.stderr
    assert not (tmp_path / "app.vmprof").exists()
