"""Native code that makes other processes run code, and the search for their GIL."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from native_build import build
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry import gil, ticker
from vmprof_allocation.remote.entry.gil import Gil
from vmprof_allocation.remote.entry.maps import Mapping, base, holding, read


@pytest.mark.parametrize("case", [
    pytest.param("often", id="one that computes and one that sleeps, 50 times each"),
    pytest.param("no-syscall-info", id="a kernel that tells too little"),
    pytest.param("slow-mmap", id="a thread keeps its registers when mmap is slow",
                 marks=pytest.mark.slow),
    pytest.param("lock", id="another thread has the GIL"),
    pytest.param("stands-still", id="its memory stays while it stands still"),
    pytest.param("too-long", id="a program that is too long"),
    pytest.param("signals", id="signals come while it stands still"),
    pytest.param("dies", id="the tracer is killed at a system call"),
    pytest.param("code", id="a thread without system calls keeps all registers"),
    pytest.param("ticker", id="a word of the process is set while it runs"),
    pytest.param("code-dies", id="the tracer is killed at code")])
def test_a_process_is_made_to_run_a_program(case: str) -> None:
    """A sleep of the process is not cut short, and its memory does not change.

    If the process cannot run the program, the tracer leaves it unchanged.
    """
    harness = build("tracer_harness", "attach/tracer.c", "attach/safe_place.c",
                    "attach/x86_64/stub.c", "attach/x86_64/registers.c")
    done = subprocess.run([harness, case], text=True, capture_output=True)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_maps() -> None:
    maps = list(read([
        "1000-3000 r-xp 00000000 fe:01 7    /lib/lib with space.so\n",
        "3000-4000 rw-p 00002000 fe:01 7    /lib/lib with space.so (deleted)\n",
        "9000-a000 rw-p 00000000 00:00 0\n"]))
    assert maps[0] == Mapping(0x1000, 0x3000, "r-xp", 0, ("fe:01", 7),
                              "/lib/lib with space.so")
    assert maps[0].name == "lib with space.so"
    assert base(maps, ("fe:01", 7)) == 0x1000
    assert holding(maps, 0x3fff) == maps[1]
    with pytest.raises(AllocationSamplingError, match="0x4000"):
        holding(maps, 0x4000)
    with pytest.raises(AllocationSamplingError, match="not mapped from its beginning"):
        base(maps, ("fe:01", 8))


def relative(target: int, behind: int) -> bytes:
    return (target - behind).to_bytes(4, "little", signed=True)


#: Address of the word that RPyGilAllocate() checks.  In the test's file, the code
#: begins at 0 and the data at 0x1000, and the file is mapped at 0x10000.
WAITING = 0x1040


def function(at: int, waiting: int = WAITING, stored: int | None = None) -> bytes:
    """Return PyPy 7.3.11's RPyGilAllocate() at `at`, as gcc compiled it."""
    head = (b"\x48\x83\x3d" + relative(waiting, at + 8) + b"\x00\x78\x06\xc3"
            + b"\x90" * 5)
    make = (b"\x48\x83\xec\x08\x31\xf6\x48\x8d\x3d" + b"\1" * 4 + b"\xe8" + b"\2" * 4
            + b"\x85\xc0" + b"\x75\x4a" + b"\xcc" * 50)
    before = at + len(head + make)
    return head + make + b"\x48\xc7\x05" + relative(
        waiting if stored is None else stored, before + 11) + (
        bytes(4) + b"\x48\x8d\x15" + b"\3" * 4
        + b"\x31\xf6\x31\xff\x48\x83\xc4\x08\xe9" + b"\4" * 4)


#: The first instructions of RPyGilAllocate() for AArch64, as gcc compiled it for two
#: versions of PyPy.  The word that it checks is at WAITING.
AARCH64 = {
    "7.3.11": (0xa9be53f3, 0xb0000013, 0xf9402260, 0xf9000bfe, 0xb7f80080, 0xf9400bfe,
               0xa8c253f3, 0xd65f03c0),
    "7.3.19": (0xd503233f, 0xa9be4ffe, 0xb0000013, 0xf9402260, 0xb7f80080, 0xa8c24ffe,
               0xd50323bf, 0xd65f03c0)}


def bl(at: int, target: int) -> int:
    return 0x94000000 | (target - at) // 4 & 0x3ffffff


def aarch64(head: tuple[int, ...], at: int, *, condition: int = 0x800,
            stored: int = 0xf900227f, end: int = 0x14000100) -> bytes:
    """Return RPyGilAllocate() at `at`.

    It calls the function at 0x700 twice, and then the function at `condition`.
    """
    words = [*head]
    for target in 0x700, 0x700, condition:
        words += [0xaa1403e0, 0xd2800001, bl(at + 4 * len(words) + 8, target),
                  0x35000260]
    words += [stored, 0xa8c253f3, 0xf0ffffe2, 0xd2800001, 0x91340042, 0xd2800000, end]
    return b"".join(word.to_bytes(4, "little") for word in words)


def find(tmp_path: Path, code: bytes, initial: int = -42, filler: bytes = b"\xcc",
         machine: str = "x86_64") -> Gil:
    library = tmp_path / "libpypy3-c.so"
    data = bytearray(0x1000)
    data[WAITING - 0x1000:WAITING - 0x1000 + 8] = initial.to_bytes(
        8, "little", signed=True)
    library.write_bytes(code.ljust(0x1000, filler) + data)
    maps = [Mapping(0x10000, 0x11000, "r-xp", 0, ("fe:01", 7), str(library)),
            Mapping(0x11000, 0x12000, "rw-p", 0x1000, ("fe:01", 7), str(library))]
    return gil.find(maps, maps[0], machine)


def test_function_that_allocates_the_gil_is_found(tmp_path: Path) -> None:
    code = b"\xcc" * 48 + function(48)
    assert find(tmp_path, code) == Gil(0x10000 + WAITING, 0x10030)


def test_function_may_begin_with_endbr64(tmp_path: Path) -> None:
    code = b"\xcc" * 48 + b"\xf3\x0f\x1e\xfa" + function(52)
    assert find(tmp_path, code) == Gil(0x10000 + WAITING, 0x10030)


@pytest.mark.parametrize("code, initial", [
    (b"", -42), (function(0) + function(len(function(0))), -42), (function(0), 0),
    (function(0, stored=WAITING + 8), -42), (function(0, waiting=0x5000), -42),
], ids=["none", "two", "not -42", "another word", "out of the file"])
def test_function_is_not_found_in_doubt(
        tmp_path: Path, code: bytes, initial: int) -> None:
    with pytest.raises(AllocationSamplingError, match="build of PyPy is not known"):
        find(tmp_path, code, initial)


@pytest.mark.parametrize("head", AARCH64.values(), ids=AARCH64)
def test_function_is_found_on_aarch64(tmp_path: Path, head: tuple[int, ...]) -> None:
    code = bytes(64) + aarch64(head, 64)
    assert find(tmp_path, code, filler=b"\0", machine="aarch64") == Gil(
        0x10000 + WAITING, 0x10040)


@pytest.mark.parametrize("before, changes, initial", [
    (bytes(64), {}, 0), (bytes(60) + b"\x20\0\0\x8b", {}, -42),
    (bytes(64), {"condition": 0x700}, -42), (bytes(64), {"stored": 0xf900267f}, -42),
    (bytes(64), {"stored": 0xf900229f}, -42), (bytes(64), {"end": 0xd65f03c0}, -42),
], ids=["not -42", "not a function's beginning", "no condition", "another word",
        "another register", "not gone on with"])
def test_function_is_not_found_in_doubt_on_aarch64(
        tmp_path: Path, before: bytes, changes: dict[str, int], initial: int) -> None:
    code = before + aarch64(AARCH64["7.3.11"], 64, **changes)
    with pytest.raises(AllocationSamplingError, match="build of PyPy is not known"):
        find(tmp_path, code, initial, filler=b"\0", machine="aarch64")


def signal_handler(ticker: int, at: int, store: bytes = b"\x48\xc7\x05") -> bytes:
    """Return the beginning of PyPy's signal handler at `at`, as gcc compiles it.

    Its instruction `store` sets the word at `ticker` to -1.
    """
    head = b"\x41\x55\x53\x89\xfb\x48\x83\xec\x48"
    size = len(head + store) + 8
    return head + store + relative(ticker, at + size) + b"\xff" * 4 + b"\x83\xff\xff"


DATA = [Mapping(0x10000, 0x11000, "r-xp", 0, ("fe:01", 7), "libpypy3-c.so"),
        Mapping(0x11000, 0x12000, "rw-p", 0, ("00:00", 0), "")]


def test_ticker_is_the_word_that_the_signal_handler_sets() -> None:
    assert ticker.stored(signal_handler(0x11040, 0x10040), 0x10040, DATA) == 0x11040


@pytest.mark.parametrize("code", [
    b"", signal_handler(0x11040, 0x10040, b"\x48\xc7\x06"),
    signal_handler(0x11040, 0x10040) + signal_handler(0x11050, 0x10040),
    signal_handler(0x11044, 0x10040), signal_handler(0x10080, 0x10040),
    signal_handler(0x13000, 0x10040),
], ids=["none", "another instruction", "two", "not aligned", "code", "not mapped"])
def test_ticker_is_unknown_in_doubt(code: bytes) -> None:
    assert ticker.stored(code, 0x10040, DATA) is None


def test_compiler_checks_the_offsets_that_the_stub_uses() -> None:
    """The compiler checks each offset, because assembler code cannot use the struct."""
    from native_build import NATIVE
    text = (NATIVE / "attach" / "frame.h").read_text()
    used = {name for stub in (NATIVE / "attach").glob("*/stub.c")
            for name in re.findall(r"FRAME_[A-Z_]+", stub.read_text())}
    checked = set(re.findall(r"^FRAME_HAS\(\w+, (\w+)\)", text, re.MULTILINE))
    assert used and used <= checked
