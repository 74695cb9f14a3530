"""The functions that run at a return address of compiled code (true_stack.c).

The JIT may have put other code at this address since an earlier sample.
"""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import build

#: more functions than true_stack.c remembers for a return address
MANY = 40


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("true_stack_harness", *("hook/%s.c" % name for name in (
        "stacks/true_stack", "jit/codemap", "jit/inlined", "jit/python_call",
        "lines/jit_lines", "lines/jit_log", "lines/frame_lines")),
        "machines/guarded_read.c", "machines/x86_64/jit_call.c",
        "machines/x86_64/jit_stub.c")


def frames(harness: pathlib.Path, *lines: str) -> list[str]:
    """Return the output of each line "stack ..."."""
    done = subprocess.run([harness], input="\n".join(lines) + "\n", text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def piece(offset: int, *functions: int) -> str:
    """Return a line for compiled code whose functions are inlined into each other.

    Each function begins 10 bytes after its caller, and all end where the code ends.
    """
    return "piece %d 1000 " % offset + " ".join(
        "%d %d 1000 %d" % (function, 10 * i, len(functions))
        for i, function in enumerate(functions))


def test_interpreted_frames(harness: pathlib.Path) -> None:
    assert frames(harness, "stack c 7 c 8 c 7") == ["c7 c8 c7"]


def test_compiled_code_between_interpreted_frames(harness: pathlib.Path) -> None:
    assert frames(harness, piece(5000, 1, 2, 3), "stack c 9 j 5015 c 8",
                  "stack j 5500 c 8", "stack j 5000") == [
        "c9 p5000 i2 i1 c8", "p5000 i3 i2 i1 c8", "p5000 i1"]


@pytest.mark.parametrize("how", ["interrupted", "unwound"])
def test_functions_at_the_interrupted_address(harness: pathlib.Path, how: str) -> None:
    """The interrupted address is used, not the node's last call."""
    assert frames(harness, piece(5000, 1, 2, 3), piece(7000, 4),
                  how + " 5015 j 5500 c 8 j 7500 c 9", how + " 5008 j 5500 c 8",
                  how + " 5020 c 8", how + " 4999 j 5500 c 8") == [
        "p5000 i2 i1 c8 p7000 i4 c9", "p5000 i1 c8", "p5000 i3 i2 i1 c8",
        "p5000 i3 i2 i1 c8"]


def test_no_return_address_is_taken_from_the_stack(harness: pathlib.Path) -> None:
    """Unwinding gives the return addresses, and the harness's stack has wrong ones.

    From the first compiled code without a return address on, compiled code is unknown.
    """
    assert frames(harness, piece(5000, 1, 2), piece(7000, 4),
                  "unwound 4000 c 7 j 5500 c 8 j 7500 c 9",
                  "unwound 4000 c 7 j 5500 c 8 j 0 c 9",
                  "unwound 4000 c 7 j 0 c 8 j 5500 c 9") == [
        "c7 p5000 i2 i1 c8 p7000 i4 c9", "c7 p5000 i2 i1 c8 c9", "c7 c8 c9"]


def test_addresses_outside_of_compiled_code(harness: pathlib.Path) -> None:
    assert frames(harness, piece(5000, 1), "stack c 9 j 4999 c 8", "stack j 6000",
                  "stack j 6000 j 5500") == ["c9 c8", "", "p5000 i1"]


def test_functions_that_the_table_lacks(harness: pathlib.Path) -> None:
    assert frames(harness, piece(5000, 1, 0, 3), "stack j 5500") == ["p5000 i3 i1"]


def test_more_functions_than_are_remembered(harness: pathlib.Path) -> None:
    deep = ["p%d " % offset + " ".join(
        "i%d" % (least + i) for i in reversed(range(MANY)))
        for offset, least in ((5000, 1), (7000, 101))]
    assert frames(harness, piece(5000, *range(1, MANY + 1)),
                  piece(7000, *range(101, 101 + MANY)),
                  "stack j 5900 j 7900", "stack j 5900") == [" ".join(deep), deep[0]]


def test_new_code_at_the_same_address(harness: pathlib.Path) -> None:
    """If the bytes around the call differ, the change is noticed at once."""
    asked = "stack j 5500"
    for where in (5500 - 32, 5499, 5500, 5500 + 31):
        assert frames(harness, piece(5000, 1), asked, piece(5000, 2),
                      "code %d 90" % where, asked) == ["p5000 i1", "p5000 i2"]


def test_new_code_with_the_same_bytes(harness: pathlib.Path) -> None:
    """The change is noticed when the keys of stacks are forgotten, each second."""
    asked = "stack j 5500"
    found = frames(harness, piece(5000, 1), asked, piece(5000, 2), "forget", asked)
    assert found == ["p5000 i1", "p5000 i2"]


def test_code_that_was_freed(harness: pathlib.Path) -> None:
    asked = "stack j 5500 c 8"
    assert frames(harness, piece(5000, 1), asked, "piece 5000 0", "forget", asked,
                  piece(5000, 3), asked) == ["p5000 i1 c8", "c8", "p5000 i3 c8"]


#: A callee, and its caller.  The caller has entered the functions 1 and 2, and calls
#: the loop of 2.  It leaves 2 at the offset in CALLER.
CALLEE = "piece 20000 1000 2 0 1000 1"
CALL = "call 5100 20000 %d"
CALLER = "piece 5000 1000 1 0 1000 2 2 10 %d 2"


@pytest.mark.parametrize("raises", [0, 1])
@pytest.mark.parametrize("left", ["before the check for an exception", "behind it"])
def test_a_loop_is_called_by_its_own_function(harness: pathlib.Path, raises: int,
                                              left: str) -> None:
    """The trace enters a function for its loop, and the loop belongs to this function.

    The JIT leaves this function before the check for an exception, or after it.
    """
    begin, between, end = map(int, frames(harness, CALL % raises)[0].split())
    if left == "before the check for an exception":
        stop = between
    else:           # after an exception, the next function that ends counts as this one
        stop = 900 + 5000 if raises else end
    _, during, after = frames(
        harness, CALLER % (stop - 5000), CALLEE, CALL % raises,
        "stack j 20500 j %d" % begin, "stack j %d" % (end + 20))
    assert during == "p20000 i2 p5000 i1"
    assert after == "p5000 i1"
