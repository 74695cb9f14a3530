"""The address to which a stub of the JIT jumps back after its call (jit_stub.c), and
the callee of a call in compiled code (jit_call.c).

For other addresses, the functions find nothing, and do no harm.
"""
from __future__ import annotations

import pathlib
import struct
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_build import build

SIZE = 16 * 4096
#: numbers of bytes that are examined after the call and before the target of the jump
#: back, and maximum distance from the beginning of the stub to the call
TAIL, BEFORE, STUB = 96, 40, 256
#: number of answers that may be outdated after the code has changed
USES = 10

#: instructions that the JIT writes between the call and the jump back
INSTRUCTIONS = [bytes.fromhex(text) for text in (
    "49bb0807060504030201", "41bb04030201", "49c7c304030201", "4d8d5b10",
    "4d8d9b00010000", "4889c1", "488b4510", "488b8500010000", "49833b00",
    "49837b1000", "4983bb0001000000", "48833c250001000000", "0f8504030201")]


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("jit_stub_harness", "machines/x86_64/jit_stub.c",
                 "machines/x86_64/jit_call.c", "machines/guarded_read.c")


def ask(harness: pathlib.Path, *lines: str) -> list[str]:
    done = subprocess.run([harness], input="\n".join(lines) + "\n",
                          text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def jump(opcode: str, at: int, target: int) -> str:
    """Return a line for a jump or call at the offset `at` to `target`."""
    code = bytes.fromhex(opcode)
    distance = target - (at + len(code) + 4)
    return "code %d %s" % (at, (code + struct.pack("<i", distance)).hex())


def stub(back: int = 1000, call: int = 5000, *, between: bytes = b"",
         before: int = 6, entered: int | None = None) -> list[str]:
    """Return the lines for a stub that calls at `call`, and jumps back to `back`.

    The jump into the stub begins `before` bytes before `back`, and leads to `entered`.
    """
    lines = [jump("0f87", back - before, call if entered is None else entered),
             jump("e8", call, 100)]
    if between:
        lines.append("code %d %s" % (call + 5, between.hex()))
    return [*lines, jump("e9", call + 5 + len(between), back)]


def test_stub(harness: pathlib.Path) -> None:
    assert ask(harness, *stub(), "back 5005") == ["1000"]


@pytest.mark.parametrize("between", [
    *INSTRUCTIONS, INSTRUCTIONS[5] * 20, b"".join(INSTRUCTIONS[:8])])
def test_instructions_between(harness: pathlib.Path, between: bytes) -> None:
    assert ask(harness, *stub(between=between), "back 5005") == ["1000"]


@pytest.mark.parametrize("lines", [
    stub(between=b"\x90"),                              # not an instruction of the JIT
    stub(between=INSTRUCTIONS[5] * (TAIL // 3)),        # too long
    stub(back=6000),                                    # jumps forward
    stub(before=BEFORE + 1),
    stub(before=5),                                     # `back` is within the jump
    stub(entered=5006), stub(entered=5005 - STUB - 1),
    stub()[1:],                                         # no jump into the stub
    stub()[:-1],                                        # no jump back
])
def test_invalid_stubs_are_not_found(harness: pathlib.Path, lines: list[str]) -> None:
    assert ask(harness, *lines, "back 5005") == ["none"]


@pytest.mark.parametrize("lines", [
    stub(before=BEFORE), stub(entered=5005 - STUB), stub(entered=5005)])
def test_stubs_at_the_limits_are_found(harness: pathlib.Path, lines: list[str]) -> None:
    assert ask(harness, *lines, "back 5005") == ["1000"]


@pytest.mark.parametrize("back, call, found", [
    (BEFORE, 5000, True), (BEFORE - 1, 5000, False),
    (1000, SIZE - TAIL - 5, True), (1000, SIZE - TAIL - 4, False),
    (4096, 8192 - 5, True), (4096 + 20, 3 * 4096 - 50, True)])
def test_stub_at_the_edge_of_memory(
        harness: pathlib.Path, back: int, call: int, found: bool) -> None:
    """The second query uses the addresses that are known as code."""
    again = [line for offset in (1, 2) for line in stub(20000, 25000 + offset)]
    assert ask(harness, *stub(back, call), "back %d" % (call + 5),
               *again, "back 25007", "back %d" % (call + 5)) == [
        str(back) if found else "none", "20000", str(back) if found else "none"]


def test_new_stub_at_the_address_of_an_old_stub(harness: pathlib.Path) -> None:
    answers = ask(harness, *stub(), "back 5005", *stub(back=2000),
                  *["back 5005"] * (2 * USES))
    assert answers == ["1000"] * USES + ["2000"] * (USES + 1)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=1, max_size=300), st.integers(0, SIZE - 300),
       st.lists(st.integers(0, SIZE - 1), max_size=20),
       st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5000)
                | st.integers(2**47 - 200, 2**47 + 200), max_size=20))
def test_any_address_in_any_memory(harness: pathlib.Path, code: bytes, at: int,
                                   offsets: list[int], wild: list[int]) -> None:
    """The memory may contain half a stub, and bytes that look like another stub."""
    mixed = code + stub_bytes(code[0]) + code
    assert len(ask(harness, "code %d %s" % (min(at, SIZE - len(mixed)),
                                            mixed.hex()),
                   *("back %d" % offset for offset in offsets),
                   *("back %d" % (at + i) for i in range(0, len(code), 3)),
                   *("wild %x" % address for address in wild))) == (
        len(offsets) + len(wild) + len(range(0, len(code), 3)))


def stub_bytes(number: int) -> bytes:
    """Return an instruction that the JIT writes, and a jump to a near address."""
    return (INSTRUCTIONS[number % len(INSTRUCTIONS)] + b"\xe9"
            + struct.pack("<i", -8 * number))


# ________________________________________
# calls of compiled code by compiled code


def constant(value: int) -> bytes:
    """Return `mov r11, imm64`."""
    return bytes.fromhex("49bb") + struct.pack("<Q", value)


#: instructions after each call; the write barrier may test any byte
RELOADS = constant(0x1000) + bytes.fromhex(
    "498b0b488b69f8" "f6450400" "0f8500010000" "48c7452000000000")
HELPER = 0x7f0000001234
CALLEE = 20000


class Call:
    """Code at the offset 5000 that calls the code at CALLEE.

    `second` is its second guard.
    """

    def __init__(self, second: str = "49833b00" "0f8500010000") -> None:
        save, call = bytes.fromhex("4c895d20"), bytes.fromhex("41ffd3")
        # lea r11, [r11+x]
        first = constant(0) + save + bytes.fromhex("4d8d9b") + struct.pack(
            "<i", CALLEE) + call
        helper = (bytes.fromhex("4889c7") + constant(0x3000) + save + constant(HELPER)
                  + call)
        fast = bytes.fromhex("488b4048")
        jump = b"\xeb" + bytes([len(fast)])
        test = RELOADS + constant(0x4000) + bytes.fromhex("4c395810")
        over = b"\x74" + bytes([len(helper + RELOADS + jump)])
        guards = bytes.fromhex("48837d10000f8500010000") + constant(0x5000)
        self.first = 5000 + len(first)
        self.helped = self.first + len(test + over + helper)
        code = (first + test + over + helper + RELOADS + jump + fast + guards
                + bytes.fromhex(second))
        self.end = 5000 + len(code)
        self.lines = ["code 5000 " + code.hex(),
                      "pointer 5002 0"]

    @property
    def questions(self) -> list[str]:
        return ["call %d" % at for at in (self.first, self.helped)]


@pytest.mark.parametrize("second, raises", [
    ("49833b00" "0f8500010000", 0), ("48833c251122334400" "0f8500010000", 0),
    ("4d8b1b" "4d39d8" "0f8500010000", 1)])
def test_calls_of_compiled_code(
        harness: pathlib.Path, second: str, raises: int) -> None:
    call = Call(second)
    said = "%d,%d,%x,%d" % (CALLEE, call.end, HELPER, raises)
    assert ask(harness, *call.lines, *call.questions) == [
        "called," + said, "helped," + said]
    assert ask(harness, *call.lines, "call %d" % (call.first + 1),
               "call %d" % (call.helped - 1), "call %d" % call.end) == ["none"] * 3


def test_callee_that_was_compiled_again(harness: pathlib.Path) -> None:
    """The old code of the callee begins with a jump to the new code."""
    call = Call()
    found = ask(harness, *call.lines, jump("e9", CALLEE, 30000),
                "code 30000 " + bytes.fromhex("49bb").hex() + "00" * 8 + "41ffe3",
                "pointer 30002 40000", *call.questions)
    assert [line.split(",")[1] for line in found] == ["40000", "40000"]
    # a jump to itself
    assert ask(harness, *call.lines, jump("e9", CALLEE, CALLEE), *call.questions) == [
        "none", "none"]


@settings(max_examples=300, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_calls_are_not_found(
        harness: pathlib.Path, data: st.DataObject) -> None:
    """The sanitizers check that the search reads no invalid memory."""
    call = Call()
    size = call.end - 5000
    at = data.draw(st.integers(0, size - 1))
    bytes_ = data.draw(st.binary(min_size=1, max_size=8))
    found = ask(harness, *call.lines, "code %d %s" % (5000 + at, bytes_.hex()),
                *call.questions)
    assert len(found) == 2 and all(
        line == "none" or line.split(",")[0] in ("called", "helped") for line in found)
