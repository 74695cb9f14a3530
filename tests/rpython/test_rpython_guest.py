"""Test the allocation profiles of the guest interpreter of rpython/examples.

The interpreter is translated with the JIT and without. The profiles are compared with
the allocations of the guest programs. An *exact* profile has a sampling interval of 1
with fixed gaps: every byte is sampled, so that each allocation has one sample.
"""
from __future__ import annotations

import collections
import dataclasses
import gzip
import json
import math
import re
import subprocess
from pathlib import Path

import pytest

import firefox_rules
from rpython_tree import built, parameters
from truth import SIGMAS, bytes_by_function, sigma, total_bytes
from vmprof_convert import readers
from vmprof_convert.cli.command import main as convert
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import Profile

pytestmark = pytest.mark.translated

PROGRAMS = Path(__file__).parents[2] / "rpython" / "examples" / "programs"
NURSERY = 2**22
EXACT = ("1", "--allocation-distribution", "fixed")


@dataclasses.dataclass
class Run:
    code: int
    out: str
    err: str
    path: Path

    def profile(self) -> Profile:
        return readers.read(self.path)


class Guest:
    def __init__(self, program: Path, folder: Path):
        self.program = program
        self.folder = folder
        self.environment = {"PYPY_GC_NURSERY": str(NURSERY)}

    def __call__(self, *arguments: str | Path) -> Run:
        done = subprocess.run(
            [self.program, *arguments], text=True, capture_output=True,
            timeout=300, cwd=self.folder, env=self.environment)
        return Run(done.returncode, done.stdout, done.stderr,
                   self.folder / "out.vmprof")

    def sample(self, interval: str, name: str, *arguments: str,
               flags: tuple[str, ...] = ()) -> Run:
        run = self("--allocation-sampling", interval, "--allocation-seed", "1",
                   *flags, PROGRAMS / name, *arguments)
        assert run.code == 0, run.err
        return run


@pytest.fixture(params=parameters("guest", "guest-jit"))
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Guest:
    return Guest(built(request.param), tmp_path)


@pytest.fixture
def interpreted(tmp_path: Path) -> Guest:
    return Guest(built("guest"), tmp_path)


def sizes_by_function(profile: Profile) -> dict[str, collections.Counter[int]]:
    """Return the number of allocations of each size, from an exact profile."""
    result: dict[str, collections.Counter[int]] = collections.defaultdict(
        collections.Counter)
    program = Program(profile)
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        result[program.functions(stack)[-1].name][size] += 1
    return result

# ____________________________________________________________


@pytest.mark.parametrize("program", ["gcbench", "queens", "sites"])
def test_program_prints_the_same_when_sampled(guest: Guest, program: str) -> None:
    plain = guest(PROGRAMS / (program + ".guest"), "1")
    assert (plain.code, plain.err) == (0, "")
    for interval in "64", "1000", "128k", "4M", "10M", str(2**62):
        for flags in ((), ("--allocation-distribution", "fixed")):
            run = guest.sample(interval, program + ".guest", "1", flags=flags)
            assert run.out == plain.out
            assert run.err == "guest: the profile is in 'out.vmprof'\n"


def test_all_queens_are_found(guest: Guest) -> None:
    assert guest(PROGRAMS / "queens.guest", "9").out == (
        "92 solutions in 9 of 9 rounds\n")


def test_exact_profile_counts_all_objects_of_the_program(interpreted: Guest) -> None:
    profile = interpreted.sample(EXACT[0], "sites.guest", "3000", "200",
                                 flags=EXACT[1:]).profile()
    sizes = sizes_by_function(profile)
    # The README of the examples explains the sizes in bytes: a Cell has 24 + 24, and an
    # int has 16.
    assert sizes["small"] == {16: 3000, 24: 6000}
    # A list has 16 + 24 + 984 bytes.
    assert sizes["big"] == {16: 400, 24: 200, 984: 200}
    assert sum(profile.samples.size) == profile.moments[-1].allocated


@pytest.mark.parametrize("depth", [6, 9])
def test_exact_profile_counts_the_nodes_of_gcbench(interpreted: Guest,
                                                   depth: int) -> None:
    profile = interpreted.sample(EXACT[0], "gcbench.guest", "2", str(depth),
                                 flags=EXACT[1:]).profile()
    sizes = sizes_by_function(profile)

    def nodes(depth: int) -> int:
        return (1 << depth + 1) - 1

    trees = [(nodes(depth) // nodes(d) // 2, nodes(d))
             for d in range(4, depth - 1, 2)]
    # The slots of a Node have 32 bytes.  Other objects of this size are counted, too.
    assert sizes["bottom_up"][32] >= nodes(depth) + 2 * sum(
        count * size for count, size in trees)
    assert sizes["churn"][32] >= 2 * sum(count for count, _ in trees)
    assert sum(profile.samples.size) == profile.moments[-1].allocated


@pytest.mark.parametrize("interval, program, arguments", [
    ("64", "sites.guest", ("100000", "5000")),
    ("1000", "sites.guest", ()), ("1000", "queens.guest", ("10",)),
    ("128k", "gcbench.guest", ("20",)), ("128k", "queens.guest", ("100",)),
    ("4M", "sites.guest", ("20000000", "1000000")),
    ("10M", "sites.guest", ("20000000", "1000000"))])
def test_total_equals_the_gcs_count(guest: Guest, interval: str, program: str,
                                    arguments: tuple[str, ...]) -> None:
    profile = guest.sample(interval, program, *arguments).profile()
    allocated = profile.moments[-1].allocated
    mean = int(profile.settings["interval"])
    # Each byte is sampled with the probability 1/mean.
    deviation = math.sqrt(allocated * mean)
    total = sum(bytes_by_function(profile).values())
    assert allocated > 10 * mean
    assert abs(total - allocated) < SIGMAS * deviation
    # Samples without a stack are of objects that are made outside of the guest
    # program's frames.
    assert profile.lost_stacks < 10


def test_a_limit_is_kept_and_the_total_stays_right(guest: Guest) -> None:
    profile = guest.sample("auto:2000/s", "gcbench.guest", "10").profile()
    assert profile.settings["limit"] == "2000/s"
    samples = profile.samples
    assert len(set(samples.interval)) > 1
    last = profile.moments[-1]
    assert 100 < len(samples) <= 2000 * last.time / 1e9 + 200
    deviation = math.sqrt(sum(
        interval**2 for interval in samples.interval))
    assert abs(sum(bytes_by_function(profile).values())
               - last.allocated) < SIGMAS * deviation


def test_number_of_samples_agrees_with_theory(interpreted: Guest) -> None:
    truth = sizes_by_function(interpreted.sample(
        EXACT[0], "sites.guest", "30000", "2000", flags=EXACT[1:]).profile())
    counts = sum(truth.values(), collections.Counter())
    for interval in 64, 500, 4096, 100000:
        profile = interpreted.sample(str(interval), "sites.guest", "30000",
                                     "2000").profile()
        chances = [(count, -math.expm1(-size / interval))
                   for size, count in counts.items()]
        mean = sum(count * p for count, p in chances)
        deviation = math.sqrt(sum(count * p * (1 - p) for count, p in chances))
        assert abs(len(profile.samples) - mean) < SIGMAS * deviation


@pytest.mark.parametrize("interval", [64, 1000])
@pytest.mark.parametrize("program, arguments", [
    ("sites.guest", ("20000", "1000")), ("gcbench.guest", ("1", "9")),
    ("queens.guest", ("1",))])
def test_share_of_each_function(guest: Guest, program: str,
                                arguments: tuple[str, ...],
                                interval: int) -> None:
    exact = guest.sample(EXACT[0], program, *arguments, flags=EXACT[1:]).profile()
    profile = guest.sample(str(interval), program, *arguments).profile()
    found = bytes_by_function(profile)
    checked = 0
    for function, sizes in sizes_by_function(exact).items():
        truth = sum(size * count for size, count in sizes.items())
        if truth < 20 * interval:       # A few samples have no normal distribution.
            continue
        checked += 1
        deviation = math.sqrt(sum(sigma(count, size, interval)**2
                                  for size, count in sizes.items()))
        assert abs(found.get(function, 0.0) - truth) <= 4 * deviation, function
    assert checked >= 2


def test_time_samples_and_memory_with_allocations(guest: Guest) -> None:
    profile = guest.sample("128k", "gcbench.guest", "60",
                           flags=("--period", "0.001", "--memory")).profile()
    sizes = list(profile.samples.size)
    assert sizes.count(0) > 20
    assert len(sizes) - sizes.count(0) > 100
    assert min(profile.samples.memory) > 1000       # KiB
    # The profile has no lines, and the reader must not expect them.
    assert profile.function(profile.stacks[0][-1].address).name


def test_functions_in_the_firefox_profiler(guest: Guest) -> None:
    run = guest.sample("4k", "sites.guest", "100000", "5000")
    target = guest.folder / "profile.json.gz"
    assert convert(["export", str(run.path), "-o", str(target)]) == 0
    profile = json.loads(gzip.decompress(target.read_bytes()))
    assert firefox_rules.violations(profile) == []
    strings = profile["shared"]["stringArray"]
    assert {"small", "big", "main"} <= set(strings)


def guest_frames(profile: Profile) -> list[list[str]]:
    return [[profile.function(frame.address).name
             for frame in profile.stacks[stack] if frame.kind != "native"]
            for stack in profile.samples.stack]


@pytest.mark.hard
def test_a_known_stack_is_found_after_new_machine_code(tmp_path: Path) -> None:
    """The key of a stack (stack_nodes.h) changes when the JIT adds machine code.

    Each h compiles a loop between calls of g.
    """
    count = 100
    loops = "".join(
        "(func h%d () (set i 0) (while (< i 3000) (set i (+ i 1))))" % i
        for i in range(count))
    calls = "".join(
        "(h%d) (set i 0) (while (< i 60) (g) (set i (+ i 1)))" % i
        for i in range(count))
    (tmp_path / "p.guest").write_text(loops + """
        (func f () (array nil 1000))
        (func g () (array nil 1000))
        (func main () (f) """ + calls + ")")
    guest = Guest(built("guest-jit"), tmp_path)
    # The fixed gaps are half as large as an object, so that each object is sampled.
    run = guest("--allocation-sampling", "4000", "--allocation-distribution", "fixed",
                "p.guest")
    assert run.code == 0, run.err
    profile = run.profile()
    large = collections.Counter(
        frames[-1] for frames, size in zip(guest_frames(profile),
                                           profile.samples.size) if size > 8000)
    assert (large["f"], large["g"]) == (1, 60 * count)


@pytest.mark.hard
def test_slow_path_belongs_to_the_function_that_entered_it(tmp_path: Path) -> None:
    """The JIT makes the list of f at the start of h's loop, in a slow path.

    Slow paths are at the end of the machine code, which ends in main. Without their own
    entries in the codemap, 98 % of the bytes were attributed to main.
    """
    (tmp_path / "p.guest").write_text("""
        (func h () (set j 0) (while (< j 3) (set j (+ j 1))))
        (func f (keep i) (put keep 0 (list i i i i)) (h))
        (func main ()
          (set keep (list nil))
          (set i 0)
          (while (< i 100000) (f keep i) (set i (+ i 1))))
        """)
    guest = Guest(built("guest-jit"), tmp_path)
    run = guest("--allocation-sampling", "4000", "p.guest")
    assert run.code == 0, run.err
    found = collections.Counter(
        frames[-1] if frames else "" for frames in guest_frames(run.profile()))
    assert found["h"] > 0.9 * sum(found.values()) > 5000


# ____________________________________________________________
# native frames


def native_stacks(guest: Guest, profile: Profile) -> list[list[str]]:
    """Return the native frames of each allocation sample, innermost first.

    The names come from the program's symbol table. In each stack, the native frames
    must be the innermost ones.
    """
    symbols = subprocess.run(["nm", guest.program], text=True, check=True,
                             capture_output=True).stdout
    starts = {int(address, 16): name for address, name in re.findall(
        "^([0-9a-f]+) [tTW] (.*)$", symbols, re.MULTILINE)}
    found = []
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        if size:
            frames = profile.stacks[stack]
            native = [frame for frame in frames if frame.kind == "native"]
            assert list(frames[len(frames) - len(native):]) == native
            # vmprof marks native frames by the lowest bit.
            found.append([frame.address - 1 for frame in reversed(native)])
    addresses = set().union(*found)
    assert addresses
    # The kernel has chosen the address of the program, a multiple of the page size.
    # Find the only address at which all frames are functions.
    begin, = set.intersection(*(
        {address - start for start in starts if (address - start) % 4096 == 0}
        for address in addresses))
    return [[starts[address - begin] for address in native] for native in found]


GC = "pypy_g_IncrementalMiniMarkGC_"


@pytest.mark.parametrize("program, arguments", [
    ("sites.guest", ("100000", "5000")), ("queens.guest", ("20",)),
    ("gcbench.guest", ("2",))])
def test_native_frames_begin_with_the_gc_s_slow_path(
        guest: Guest, program: str, arguments: tuple[str, ...]) -> None:
    run = guest.sample("1k", program, *arguments, flags=("--native",))
    assert run.err == "guest: the profile is in 'out.vmprof'\n"
    profile = run.profile()
    assert len(profile.samples) > 1000 and profile.lost_stacks == 0
    for native in native_stacks(guest, profile):
        assert native[0] in (GC + "collect_and_reserve", GC + "external_malloc")
        # The frames do not include the sampler's functions.
        assert not [name for name in native if "SamplePoint" in name
                    or not name.startswith("pypy_g_")]


def test_native_frames_go_up_to_the_interpreter_s_loop(interpreted: Guest) -> None:
    profile = interpreted.sample("1k", "sites.guest", "100000", "5000",
                                 flags=("--native",)).profile()
    assert {native[-1] for native in native_stacks(interpreted, profile)} == {
        "pypy_g_dispatch"}
    assert all(guest_frames(profile))


@pytest.mark.hard
def test_native_frames_of_machine_code_are_those_that_it_called(
        tmp_path: Path) -> None:
    guest = Guest(built("guest-jit"), tmp_path)
    profile = guest.sample("4k", "sites.guest", "1000000", "100000",
                           flags=("--native",)).profile()
    in_machine_code = [native for native, stack in zip(
        native_stacks(guest, profile), profile.samples.stack)
        if any(frame.kind == "jit" for frame in profile.stacks[stack])]
    assert len(in_machine_code) > 1000
    # The innermost function is the GC, or a function of RPython that calls the GC.
    assert {native[1] for native in in_machine_code} > {GC + "malloc_fixedsize"}
    assert not any("portal" in name for native in in_machine_code
                   for name in native)


def test_native_frames_of_an_object_outside_the_nursery(guest: Guest) -> None:
    (guest.folder / "p.guest").write_text("""
        (func main ()
          (set i 0)
          (while (< i 50) (array nil 1000000) (set i (+ i 1))))
        """)
    # Each object is sampled, except with a probability of 1e-11.
    run = guest("--allocation-sampling", "256k", "--native", "p.guest")
    assert run.code == 0
    profile = run.profile()
    large = [native for native, size in zip(native_stacks(guest, profile),
                                            profile.samples.size)
             if size > 8000000]
    assert len(large) == 50
    assert {native[0] for native in large} == {GC + "external_malloc"}


@pytest.mark.parametrize("program, arguments", [
    ("sites.guest", ("100000", "5000")), ("queens.guest", ("5",)),
    ("sites.guest", ("0", "3000", "300"))])
def test_native_frames_do_not_change_the_other_frames(
        interpreted: Guest, program: str, arguments: tuple[str, ...]) -> None:
    def sample(*flags: str) -> Profile:
        return interpreted.sample(
            "1000", program, *arguments,
            flags=("--allocation-distribution", "fixed", *flags)).profile()

    plain, native = sample(), sample("--native")
    assert any(native_stacks(interpreted, native))
    assert not any(frame.kind == "native" for stack in plain.stacks
                   for frame in stack)
    # The order of the rows depends on the times of the outcomes.
    assert sorted(guest_frames(native)) == sorted(guest_frames(plain))
    assert sorted(native.samples.size) == sorted(plain.samples.size)
    assert native.moments[-1].allocated == plain.moments[-1].allocated
    assert total_bytes(native) == total_bytes(plain)


def test_native_frames_leave_room_for_a_deep_stack(interpreted: Guest) -> None:
    profile = interpreted.sample("1k", "sites.guest", "0", "3000", "1000",
                                 flags=("--native",)).profile()
    assert profile.cut_stacks > 1000
    deepest = max(profile.stacks, key=len)
    # A sample has room for 1019 words, and a frame consists of two words.
    assert len(deepest) == 509
    assert 3 <= sum(frame.kind == "native" for frame in deepest) < 10


def test_native_frames_of_time_samples_with_allocations(guest: Guest) -> None:
    plain = guest.sample("128k", "gcbench.guest", "10").profile()
    profile = guest.sample("128k", "gcbench.guest", "10",
                           flags=("--native", "--period", "0.001")).profile()
    sizes = list(profile.samples.size)
    assert sizes.count(0) > 20
    assert all(native_stacks(guest, profile))
    assert sum(map(bool, sizes)) == pytest.approx(len(plain.samples), rel=0.1)


def spoil(guest: Guest) -> Path:
    """Return the path of a file that the program will load as libunwind.

    The caller writes the file, or leaves it out.
    """
    folder = guest.folder / "libraries"
    folder.mkdir()
    guest.environment["LD_LIBRARY_PATH"] = str(folder)
    return folder / "libunwind.so"


@pytest.mark.parametrize("flags", [("--allocation-sampling", "1k"),
                                   ("--period", "0.001")])
def test_native_frames_without_libunwind_are_refused(
        guest: Guest, flags: tuple[str, ...]) -> None:
    spoil(guest).write_text("no library")
    run = guest("--native", *flags, PROGRAMS / "sites.guest", "10", "1")
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("guest: --native: libunwind can't be loaded: ")
    assert "libunwind.so" in run.err and "libunwind-dev" in run.err
    assert not run.path.exists()
    # Without native frames, the program does not need libunwind.
    assert guest(*flags, PROGRAMS / "sites.guest", "10", "1").code == 0


def test_another_library_of_libunwind_s_name_is_refused(guest: Guest) -> None:
    subprocess.run(["cc", "-shared", "-x", "c", "-o", spoil(guest), "/dev/null"],
                   check=True)
    run = guest("--native", "--allocation-sampling", "1k",
                PROGRAMS / "sites.guest", "10", "1")
    assert (run.code, run.out) == (2, "")
    assert "_ULx86_64_step" in run.err
    assert not run.path.exists()

# ____________________________________________________________
# the command line


@pytest.mark.parametrize("flags, said", [
    (("--allocation-sampling", "0"), "'0'"),
    (("--allocation-sampling", "-1"), "'-1'"),
    (("--allocation-sampling", "1.5k"), "'1.5k'"),
    (("--allocation-sampling", "4611686018427387905"), "4611686018427387905"),
    (("--allocation-sampling", "4294967297G"), "4294967297G"),
    (("--allocation-sampling", "1k", "--allocation-seed", "-1"), "'-1'"),
    (("--allocation-sampling", "1k", "--allocation-seed",
      "18446744073709551616"), "18446744073709551616"),
    (("--allocation-sampling", "1k", "--allocation-seed", "x"), "'x'"),
    (("--allocation-sampling", "1k", "--allocation-distribution", "foo"), "'foo'"),
    (("--allocation-sampling", "auto"), "'auto'"),
    (("--allocation-sampling", "auto:0/s"), "'auto:0/s'"),
    (("--allocation-sampling", "auto:1000001/s"), "1000001"),
    (("--allocation-sampling", "auto:" + "9" * 40 + "/s"), "9999999"),
    (("--allocation-sampling", "auto:x/s"), "'auto:x/s'"),
    (("--allocation-sampling", "auto:9/s", "--allocation-distribution", "fixed"),
     "can't follow"),
    (("--period", "nan"), "nan"), (("--period", "0"), "0"),
    (("--allocation-sampling", "1k", "-o", "/"), "Is a directory"),
    (("--native",), "--native needs"), (("--what",), "--what")])
def test_bad_flags_are_refused(guest: Guest, flags: tuple[str, ...],
                               said: str) -> None:
    run = guest(*flags, PROGRAMS / "sites.guest", "10", "1")
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert not run.path.exists()


@pytest.mark.parametrize("text, said", [
    ("(func main ()\n (print 1)", "p.guest:2: a form has no end"),
    ("(func f ()\n i)", "p.guest:2: 'i' has no value yet"),
    ("(func f () (g 1))", "p.guest:1: there is no function 'g'"),
    ("(func f () (f 1))", "p.guest:1: 'f' takes 0 values, and not 1"),
    ("(func f () (new C))", "p.guest:1: there is no class 'C' above"),
    ("(class C x) (func f () (new C 1 2))", "p.guest:1: 'C' has 1 fields, and not 2")])
def test_invalid_program_leaves_no_profile(guest: Guest, text: str, said: str) -> None:
    (guest.folder / "p.guest").write_text(text)
    run = guest("--allocation-sampling", "1k", "p.guest")
    assert (run.code, run.err) == (2, "guest: %s\n" % said)
    assert not run.path.exists()


@pytest.mark.parametrize("end, said", [
    ("(+ 1 nil)", "in main (p.guest:1): 'nil' is no integer"),
    ("(at (list 5) 1)", "in main (p.guest:1): there is no item 1 of 1"),
    ("(f)", "in f (p.guest:2): the calls are nested too deeply")])
def test_failing_program_leaves_a_complete_profile(guest: Guest, end: str,
                                                   said: str) -> None:
    (guest.folder / "p.guest").write_text(
        "(func main () (set i 0) (while (< i 100000) (set i (+ i 1))) %s)\n"
        "(func f () (+ 1 (f)))" % end)
    run = guest("--allocation-sampling", "64", "p.guest")
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines() == [
        "guest: " + said, "guest: the profile is in 'out.vmprof'"]
    assert run.profile().end_time is not None
