"""true_stack.c: which functions run where compiled code has called from, also when the
JIT puts other code in the same place."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import build

#: more than true_stack.c remembers of a place
MANY = 40


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("true_stack_harness", *("hook/%s.c" % name for name in (
        "stacks/true_stack", "jit/codemap", "jit/inlined", "jit/python_call",
        "lines/jit_lines", "lines/jit_log", "lines/frame_lines")),
        "machines/guarded_read.c", "machines/x86_64/jit_call.c",
        "machines/x86_64/jit_stub.c")


def frames(harness: pathlib.Path, *lines: str) -> list[str]:
    """What each line "stack ..." prints."""
    done = subprocess.run([harness], input="\n".join(lines) + "\n", text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def piece(offset: int, *functions: int) -> str:
    """Each of these calls the next one, which is inlined: they begin 10 bytes behind
    each other, and all end where the code does."""
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
def test_where_a_signal_interrupts_compiled_code(harness: pathlib.Path,
                                                 how: str) -> None:
    """Not where its last call was: the node of its own."""
    assert frames(harness, piece(5000, 1, 2, 3), piece(7000, 4),
                  how + " 5015 j 5500 c 8 j 7500 c 9", how + " 5008 j 5500 c 8",
                  how + " 5020 c 8", how + " 4999 j 5500 c 8") == [
        "p5000 i2 i1 c8 p7000 i4 c9", "p5000 i1 c8", "p5000 i3 i2 i1 c8",
        "p5000 i3 i2 i1 c8"]


def test_no_return_address_is_taken_from_the_stack(harness: pathlib.Path) -> None:
    """Where others are found; what is further out than the last one is not known."""
    assert frames(harness, piece(5000, 1, 2), piece(7000, 4),
                  "unwound 4000 c 7 j 5500 c 8 j 7500 c 9",
                  "unwound 4000 c 7 j 5500 c 8 j 0 c 9",
                  "unwound 4000 c 7 j 0 c 8 j 5500 c 9") == [
        "c7 p5000 i2 i1 c8 p7000 i4 c9", "c7 p5000 i2 i1 c8 c9", "c7 c8 c9"]


def test_what_is_no_address_of_compiled_code(harness: pathlib.Path) -> None:
    assert frames(harness, piece(5000, 1), "stack c 9 j 4999 c 8", "stack j 6000",
                  "stack j 6000 j 5500") == ["c9 c8", "", "p5000 i1"]


def test_functions_that_the_table_does_not_tell(harness: pathlib.Path) -> None:
    assert frames(harness, piece(5000, 1, 0, 3), "stack j 5500") == ["p5000 i3 i1"]


def test_more_functions_than_are_remembered(harness: pathlib.Path) -> None:
    deep = ["p%d " % offset + " ".join(
        "i%d" % (least + i) for i in reversed(range(MANY)))
        for offset, least in ((5000, 1), (7000, 101))]
    assert frames(harness, piece(5000, *range(1, MANY + 1)),
                  piece(7000, *range(101, 101 + MANY)),
                  "stack j 5900 j 7900", "stack j 5900") == [" ".join(deep), deep[0]]


def test_other_code_in_the_same_place(harness: pathlib.Path) -> None:
    """It is told by the bytes around the call at once."""
    asked = "stack j 5500"
    for where in (5500 - 32, 5499, 5500, 5500 + 31):
        assert frames(harness, piece(5000, 1), asked, piece(5000, 2),
                      "code %d 90" % where, asked) == ["p5000 i1", "p5000 i2"]


def test_other_code_with_the_same_bytes(harness: pathlib.Path) -> None:
    """It is told as soon as the keys of stacks are forgotten, each second."""
    asked = "stack j 5500"
    found = frames(harness, piece(5000, 1), asked, piece(5000, 2), "forget", asked)
    assert found == ["p5000 i1", "p5000 i2"]


def test_code_that_was_freed(harness: pathlib.Path) -> None:
    asked = "stack j 5500 c 8"
    assert frames(harness, piece(5000, 1), asked, "piece 5000 0", "forget", asked,
                  piece(5000, 3), asked) == ["p5000 i1 c8", "c8", "p5000 i3 c8"]


#: a callee, and its caller, which has entered 1 and then 2, of which the callee is the
#: loop; 2 is left at this offset
CALLEE = "piece 20000 1000 2 0 1000 1"
CALL = "call 5100 20000 %d"
CALLER = "piece 5000 1000 1 0 1000 2 2 10 %d 2"


@pytest.mark.parametrize("raises", [0, 1])
@pytest.mark.parametrize("left", ["before the check for an exception", "behind it"])
def test_a_loop_is_called_by_its_own_function(harness: pathlib.Path, raises: int,
                                              left: str) -> None:
    """Whether this JIT leaves the function before that check, or, if there was none,
    behind it: the function that was entered for its loop is the loop's."""
    begin, between, end = map(int, frames(harness, CALL % raises)[0].split())
    if left == "before the check for an exception":
        stop = between
    else:           # what is left next counts as this one, if there was an exception
        stop = 900 + 5000 if raises else end
    _, during, after = frames(
        harness, CALLER % (stop - 5000), CALLEE, CALL % raises,
        "stack j 20500 j %d" % begin, "stack j %d" % (end + 20))
    assert during == "p20000 i2 p5000 i1"
    assert after == "p5000 i1"
