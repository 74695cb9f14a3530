"""The lines of compiled code from PyPy's JIT log, with artificial logs (jit_lines.c and
jit_log.c)."""
from __future__ import annotations

import pathlib
import random
import struct
import subprocess
from collections.abc import Iterable
from typing import Union

import pytest

from native_build import build

#: names of the operations; the log refers to them by their index
OPERATIONS = ("label", "guard_true", "guard_value", "guard_always_fails", "call_r",
              "call_assembler_r", "new_with_vtable", "new_array", "copystrcontent",
              "call_malloc_nursery", "nursery_ptr_increment", "check_memory_error",
              "call_malloc_nursery_varsize_frame", "enter_portal_frame",
              "leave_portal_frame", "cond_call_gc_wb", "call_n", "finish",
              "call_may_force_r", "guard_exception")
#: address of the traces' code, and size of each operation in bytes
CODE, BYTES = 0x100000, 16

#: an item of a trace in the log, either an operation's name, alone or with a value, or
#: a line number
Step = Union[str, tuple[str, int], int]


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


class Log:
    def __init__(self, version: int = 4) -> None:
        self.data = bytearray(b"\x1e" + struct.pack("<HB", version, 0) + text("x86_64")
                              + b"\x12" + struct.pack("<H", len(OPERATIONS)))
        for number, name in enumerate(OPERATIONS):
            self.data += struct.pack("<H", number) + text(name)
        self._id = 0

    def trace(self, optimized: Iterable[Step], assembled: Iterable[Step], *,
              guard: int = 0, code: int = CODE, size: int = 1 << 16,
              patched: bool = True) -> int:
        """Append a trace, and return the address of its code.

        If `patched` is false, no guard jumps to the trace.  The interpreter enters it,
    although `guard` may be the number of a guard.
        """
        self._id += 1
        id_ = struct.pack("<Q", self._id)
        self.data += b"\x1b" + id_ + text("bridge" if guard else "loop") + struct.pack(
            "<Q", guard) + text("pypyjit")
        for mark, steps in ((b"\x17", optimized), (b"\x18", optimized),
                            (b"\x19", assembled)):
            self.data += mark + id_ + b"\x11" + text("p0,i1")
            if mark == b"\x19":
                self.data += b"\x15" + struct.pack("<QQ", code, code + size)
            self._stage(steps, mark == b"\x19")
        if guard and patched:
            self.data += b"\x1a" + struct.pack("<QQ", guard, code)
        self.data += b"\x1c" + struct.pack("<QBQ", 1, 0x6c, 7)
        return code

    def _stage(self, steps: Iterable[Step], has_code: bool) -> None:
        are_told, offset = False, BYTES         # other code precedes the operations
        needs = 0
        for step in steps:
            if isinstance(step, int):
                if not are_told:
                    self.data += b"\x1d\x03\x00\x01s\x02i\x08s"
                    are_told = True
                # a prefix of names; then the file's name in full, the line, and the
                # function's name as the number of the prefix and the rest
                self.data += b"\x20\x02" + text("fun")
                self.data += (b"\x1f\xff" + text("app.py") + b"\x00"
                              + struct.pack("<Q", step) + b"\x00" + text("ction"))
                continue
            name, value = (step, 0) if isinstance(step, str) else step
            is_told, name = not name.startswith("untold "), name.removeprefix("untold ")
            is_copied, name = name.startswith("copied "), name.removeprefix("copied ")
            if name.startswith("guard_") and not is_copied:
                needs = value
            name = name.removeprefix("replaced ")
            driver, name = 12 if name.startswith("other ") else 14, name.removeprefix(
                "other ")
            number = struct.pack("<H", OPERATIONS.index(name))
            if name.startswith("guard_"):
                self.data += b"\x14" + number + text(
                    "?,i1,<ResumeGuard%sDescr object at 0x1>" % (
                        "Copied" if is_copied else "")) + struct.pack(
                            "<Q", value) + text("p0,i%d" % needs)
            else:
                self.data += b"\x13" + number + text(
                    "?,%d,%d" % (driver, value)) + text("")
            if has_code:
                if is_told:
                    self.data += b"\x16" + struct.pack("<H", offset & 0xffff) + text(
                        "x" * BYTES)
                offset += BYTES


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("lines_harness", "hook/lines/jit_lines.c", "hook/lines/jit_log.c",
                 "hook/lines/frame_lines.c")


class Told:
    def __init__(self, harness: pathlib.Path, path: pathlib.Path) -> None:
        self._harness, self._path = harness, path

    def __call__(self, log: Log | bytearray, *commands: str,
                 cuts: Iterable[int] = (), is_table_whole: bool = True) -> list[str]:
        """Return the output of the commands after the log was read.

        The harness reads the log in several parts, which end at `cuts`.
        """
        data = log.data if isinstance(log, Log) else log
        self._path.write_bytes(data)
        ends = [0, *sorted(cuts), len(data)]
        lines = ["log %d %d" % pair for pair in zip(ends, ends[1:])]
        done = subprocess.run(
            [self._harness, self._path, *([] if is_table_whole else ["partial"])],
            input="\n".join([*lines, *commands]) + "\n", text=True,
            capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()


@pytest.fixture
def told(harness: pathlib.Path, tmp_path: pathlib.Path) -> Told:
    return Told(harness, tmp_path / "log")


def at(operation: int, *functions: int, code: int = CODE) -> str:
    """Return a command for the return address of a call, by the operation's index."""
    return "at %d %s" % (code + BYTES * (operation + 1) + 9,
                         " ".join(map(str, functions)))


INLINED: list[Step] = [
    7, "new_with_vtable", ("enter_portal_frame", 20), 2, 3, "new_with_vtable", "call_r",
    ("guard_true", 50), 4, "new_array", "leave_portal_frame", 8, "call_r"]
ASSEMBLED: list[Step] = [
    "call_malloc_nursery", ("enter_portal_frame", 20), "nursery_ptr_increment",
    "call_r", ("guard_true", 50), "call_r", "check_memory_error", "leave_portal_frame",
    "call_r"]


def test_lines_of_functions_that_are_inlined(told: Told) -> None:
    log = Log()
    log.trace(INLINED, ASSEMBLED)
    assert told(log, at(0, 10), at(2, 10, 20), at(3, 10, 20), at(5, 10, 20),
                at(8, 10)) == ["7", "7 3", "7 3", "7 4", "8"]


UNTOLD = "untold call_r", ("untold guard_true", 50)


@pytest.mark.parametrize("assembled, first, second", [
    # an operation without an offset lies between two operations with offsets
    (["call_r", ("guard_true", 49), *UNTOLD, "call_n"], "8", "9"),
    (["call_r", ("untold guard_true", 49), *UNTOLD, "call_n"], "8", "9"),
    # the border between two operations without offsets is unknown
    (["untold call_r", ("untold guard_true", 49), *UNTOLD, "call_n"], "-", "9"),
    # without a later offset, the end of the operation is unknown
    (["call_r", ("guard_true", 49), *UNTOLD, "untold call_n"], "-", "-")])
def test_operation_that_is_assembled_together_with_its_guard(
        told: Told, assembled: list[Step], first: str, second: str) -> None:
    """Calls on AArch64 are assembled together with their guards."""
    log = Log()
    log.trace([7, "call_r", ("guard_true", 49), 8, "call_r", ("guard_true", 50), 9,
               "call_n"], assembled)
    assert told(log, at(2, 10), at(4, 10)) == [first, second]


def test_operation_before_a_copied_string(told: Told) -> None:
    log = Log()
    log.trace([7, "call_r", ("guard_true", 50), 8, "copystrcontent", 9, "call_r"],
              ["call_r", ("untold guard_true", 50), "copystrcontent", "call_r"])
    assert told(log, at(0, 10), at(1, 10), at(3, 10)) == ["7", "-", "9"]


def test_log_with_an_incomplete_record_is_unknown(told: Told) -> None:
    """PyPy writes whole records, so a log with an incomplete record is unknown."""
    log = Log()
    head = len(log.data)
    log.trace(INLINED, ASSEMBLED)
    asked = "known", at(0, 10)
    assert told(log, *asked, cuts=[head]) == ["1", "7"]
    assert told(log, *asked, cuts=[head + 3]) == ["0", "-"]


def test_result_that_is_allocated_after_the_function_was_left(told: Told) -> None:
    log = Log()
    guarded = ("guard_true", 50)
    log.trace([7, guarded, "call_r", ("enter_portal_frame", 20), 2,
               "leave_portal_frame", "leave_portal_frame", "new_with_vtable", "finish"],
              [guarded, "call_r", "call_malloc_nursery", "finish"])
    bridge = log.trace([8, ("enter_portal_frame", 20), "leave_portal_frame",
                        "leave_portal_frame", "call_r", 9, "call_n"],
                       ["call_r", "call_n"], guard=50, code=CODE + (1 << 20))
    assert told(
        log, returning(1), returning(2), at(2, 10), at(2), returning(0, bridge),
        returning(1, bridge)) == ["0 0", "0 7", "-", "", "0 8", "0 0"]


def test_function_that_continues_in_its_own_loop(told: Told) -> None:
    """The called loop runs the rest of the function, whose frame has the line.

    A bridge after the call begins when the function has ended, also for a copied guard.
    """
    for call in "call_may_force_r", "call_assembler_r":
        log = Log()
        log.trace(
            [7, ("enter_portal_frame", 20), 2, call, 3, call, ("guard_true", 50),
             "leave_portal_frame", 8, ("copied guard_true", 51), call, 9],
            [call, call, ("guard_true", 50), ("copied guard_true", 51), call])
        assert told(log, at(0, 10, 20), at(1, 10, 20), at(4, 10), functions(0),
                    functions(1)) == ["7 2", "7 frame", "8", "10 20", "10 20 loop"]
        for guard in 50, 51:
            bridge = log.trace(["call_n", 10, "call_n"], ["call_n", "call_n"],
                               guard=guard, code=CODE + (1 << 20) * guard)
            assert told(log, at(0, 10, code=bridge), at(1, 10, code=bridge),
                        functions(0, 2, bridge)) == ["7", "10", "10"]


def test_a_generator_that_ends(told: Told) -> None:
    """PyPy's log and its codemap do not contain the end of a generator."""
    log = Log()
    log.trace([7, "other enter_portal_frame", "call_assembler_r", ("guard_true", 50),
               "other leave_portal_frame", 8, "other enter_portal_frame",
               "call_assembler_r", ("guard_true", 51), 9, ("enter_portal_frame", 20), 2,
               "call_r", "leave_portal_frame", 10, "call_r"],
              ["call_assembler_r", ("guard_true", 50), "call_assembler_r",
               ("guard_true", 51), "call_r", "call_r"])
    assert told(log, at(0, 10, 0), at(2, 10, 0), at(4, 10, 0, 20), at(4, 10, 20),
                at(5, 10, 0), at(5, 10, 0, 20)) == [
        "7 -", "8 -", "9 - 2", "9 2", "10 -", "- - -"]


def functions(operation: int, begins_in: int = 1, code: int = CODE) -> str:
    """Return a command for the functions at the return address of a call.

    By PyPy's table, the trace begins in `begins_in` functions, and the outermost is 10.
    """
    return "functions %s 10 %d" % (at(operation, code=code).split()[1], begins_in)


def test_table_that_has_more_functions_than_run(told: Told) -> None:
    """A bridge gets its guard's functions, not the functions where the program would
    continue without the bridge.
    A trace that the interpreter enters may have the number of an earlier guard.
    """
    log = Log()
    log.trace([7, ("guard_true", 50), ("enter_portal_frame", 20), 2,
               ("copied guard_true", 51), ("enter_portal_frame", 20), 2,
               ("copied guard_true", 52), "call_r", "leave_portal_frame",
               "leave_portal_frame", "leave_portal_frame", "call_n"],
              [("guard_true", 50), ("copied guard_true", 51), ("copied guard_true", 52),
               "call_r", "call_n"])
    assert told(log, functions(3), functions(4), functions(1)) == [
        "10 20 20", "0", "-1"]
    bridge = log.trace(["call_r", ("enter_portal_frame", 30), 3, ("guard_true", 53),
                        "call_r"], ["call_r", ("guard_true", 53), "call_r"], guard=52,
                       code=1 << 21)
    next_one = log.trace(["leave_portal_frame", 8, "call_r"], ["call_r"], guard=53,
                         code=1 << 22)
    no_bridge = log.trace([5, "call_r"], ["call_r"], guard=53, code=1 << 23,
                          patched=False)
    assert told(log, functions(0, 3, bridge), functions(2, 3, bridge),
                functions(0, 4, next_one), functions(0, 1, no_bridge)) == [
        "10", "10 30", "10", "-1"]


def test_a_guard_that_has_replaced_a_copied_one(told: Told) -> None:
    """The log has no functions for such a guard, so a bridge's are uncertain."""
    log = Log()
    log.trace([7, ("guard_true", 50), ("enter_portal_frame", 20), 2,
               ("replaced guard_value", 51), "call_r"],
              [("guard_true", 50), ("replaced guard_value", 51), "call_r"])
    bridge = log.trace(["call_r", 3, "call_r"], ["call_r", "call_r"], guard=51,
                       code=1 << 21)
    assert told(log, functions(2), at(0, 10, 20, code=bridge),
                at(1, 10, 20, code=bridge), functions(1, 2, bridge)) == [
        "10 20", "7 -", "7 3", "-1"]


def test_a_call_that_raises(told: Told) -> None:
    """The log does not record whether the exception ended the function in its loop."""
    log = Log()
    log.trace([7, "call_r", ("enter_portal_frame", 20), 2, "call_assembler_r",
               ("guard_exception", 50), 8, "call_r", "leave_portal_frame", "call_r"],
              ["call_r", "call_assembler_r", ("guard_exception", 50), "call_r",
               "call_r"])
    assert told(log, functions(0), functions(1), functions(3), functions(4)) == [
        "10", "-1", "-1", "-1"]


def test_bridge_of_an_unknown_trace(told: Told) -> None:
    """Functions that the bridge enters have lines, but not the functions before."""
    log = Log()
    bridge = log.trace(["call_r", 3, "call_r", ("enter_portal_frame", 20), 2, "call_r"],
                       ["call_r", "call_r", "call_r"], guard=50)
    assert told(log, at(1, 10, code=bridge), at(2, 10, 20, code=bridge),
                at(2, 10, 11, 20, code=bridge), at(2, 10, 11, code=bridge),
                functions(2, 1, bridge)) == ["-", "- 2", "- - 2", "- -", "-1"]


def inside(operation: int, *, byte: int = 0, code: int = CODE) -> str:
    """Return a command for a signal that interrupts an operation after `byte` bytes."""
    return "functions %d 10 0" % (code + BYTES * (operation + 1) + byte + 1)


def test_functions_at_any_place_with_an_incomplete_table(told: Told) -> None:
    """On AArch64, the functions change at the operations that enter and leave them."""
    log = Log()
    log.trace([7, ("enter_portal_frame", 20), 2, ("guard_true", 50),
               ("enter_portal_frame", 30), 3, "leave_portal_frame",
               "leave_portal_frame", 8, ("guard_true", 51), "leave_portal_frame",
               "call_n"],
              ["label", ("enter_portal_frame", 20), "label", ("guard_true", 50),
               ("enter_portal_frame", 30), "label", "leave_portal_frame", "label",
               "leave_portal_frame", ("guard_true", 51), "leave_portal_frame",
               "finish"])
    bridge = log.trace([("enter_portal_frame", 40), ("guard_true", 52)],
                       ["label", ("enter_portal_frame", 40), ("guard_true", 52)],
                       guard=50, code=1 << 21)
    places = (inside(0), inside(0, byte=BYTES - 1), inside(1), inside(3), inside(5),
              inside(7), inside(9), inside(11), inside(0, code=bridge),
              inside(2, code=bridge))
    assert told(log, *places, is_table_whole=False) == [
        "10", "10", "10 20", "10 20", "10 20 30", "10 20", "10", "-1", "10 20",
        "10 20 40"]
    assert set(told(log, *places)) == {"-1"}


@pytest.mark.parametrize("optimized, assembled", [
    # the offset at which a function begins is not in the log
    (["call_r", ("enter_portal_frame", 20), ("guard_true", 50)],
     ["call_r", ("untold enter_portal_frame", 20), ("guard_true", 50)]),
    # the log does not contain whether the call has ended the function that continues
    # in its own loop
    (["call_r", ("enter_portal_frame", 20), 2, "call_assembler_r",
      ("guard_exception", 50)],
     ["call_r", ("enter_portal_frame", 20), "call_assembler_r",
      ("guard_exception", 50)]),
])
def test_uncertain_functions_are_unknown_with_an_incomplete_table(
        told: Told, optimized: list[Step], assembled: list[Step]) -> None:
    log = Log()
    log.trace([7, *optimized], assembled)
    assert told(log, inside(len(assembled) - 1), is_table_whole=False) == ["-1"]


def returning(operation: int, code: int = CODE) -> str:
    return "returning " + at(operation, code=code).split()[1]


def test_addresses_after_no_call_have_no_line(told: Told) -> None:
    """The addresses are not after a call, or not in the code of a known trace."""
    log = Log()
    log.trace(INLINED, ASSEMBLED)
    assert told(log, at(1, 10, 20), at(4, 10, 20), at(99, 10), "at 5 10",
                "at %d 10" % CODE) == ["- -", "- -", "-", "-", "-"]


def test_functions_that_differ_from_the_log_have_no_line(told: Told) -> None:
    """With other functions in the table, the lines would be wrong."""
    log = Log()
    log.trace(INLINED, ASSEMBLED)
    assert told(log, at(3, 10, 21), at(3, 10, 20, 20), at(3, 20), at(8, 10, 20)) == [
        "- -", "- - -", "-", "- -"]


def test_bridges(told: Told) -> None:
    """A bridge begins with the functions and lines of its guard.

    A copied guard has the functions and lines of the guard from which it was copied.
    A trace that the interpreter enters is no bridge.
    """
    log = Log()
    log.trace([*INLINED[:8], 5, ("copied guard_true", 51), *INLINED[8:]],
              [*ASSEMBLED[:5], ("copied guard_true", 51), *ASSEMBLED[5:]])
    log.trace(["call_r", 9, "call_r"], ["call_r", "call_r"], guard=50, code=1 << 21)
    log.trace(["call_r"], ["call_r"], guard=51, code=1 << 22)
    log.trace([30, "call_r"], ["call_r"], guard=77, code=1 << 23, patched=False)
    assert told(log, at(0, 10, 20, code=1 << 21), at(1, 10, 20, code=1 << 21),
                at(0, 10, 20, code=1 << 22), at(0, 40, code=1 << 23),
                at(0, 10, 40, code=1 << 23)) == ["7 3", "7 9", "7 3", "30", "- -"]


def test_operations_that_the_assembler_adds_and_renames(told: Told) -> None:
    log = Log()
    log.trace([7, "call_assembler_r", 8, "guard_always_fails", 9, "copystrcontent",
               "call_r"],
              ["call_malloc_nursery_varsize_frame", "label", "call_assembler_r",
               "guard_value", "cond_call_gc_wb", "call_n", "call_r"])
    assert told(log, at(0, 10), at(2, 10), at(5, 10), at(6, 10)) == ["7", "7", "9", "9"]


def test_operations_without_a_match_have_no_line(told: Told) -> None:
    """Optimized and assembled operations differ in a guard, or between two guards."""
    log = Log()
    log.trace([7, "new_array", ("guard_true", 50), 8, "call_r"],
              ["call_malloc_nursery", "call_malloc_nursery", ("guard_true", 50),
               "call_r"])
    log.trace([7, "call_r", ("guard_true", 51), 8, "call_r"],
              ["call_r", ("guard_value", 51), "call_r"], code=1 << 21)
    assert told(log, at(0, 10), at(1, 10), at(3, 10), at(0, 10, code=1 << 21),
                at(2, 10, code=1 << 21)) == ["-", "-", "8", "-", "-"]


def test_new_code_at_the_same_address(told: Told) -> None:
    """The new code may have no lines, or another size."""
    log = Log()
    log.trace([7, "call_r"], ["call_r"], size=2 * BYTES)
    log.trace([8, "call_r"], ["call_r"], code=CODE + 64, size=2 * BYTES)
    first = log.data[:]
    log.trace([], ["call_r"], size=2 * BYTES)
    both = log.data[:]
    log.trace([9, "call_r"], ["call_r"], size=128)
    asked = at(0, 10), at(0, 10, code=CODE + 64)
    assert told(first, *asked) == ["7", "8"]
    assert told(both, *asked) == ["-", "8"]
    assert told(log, *asked) == ["9", "-"]


def test_large_code(told: Told) -> None:
    """Offsets in the log have 16 bits."""
    log = Log()
    count = 3 << 12
    log.trace([7, *["call_r"] * count, 8, "call_r"], ["call_r"] * (count + 1),
              size=1 << 20)
    assert told(log, at(0, 10), at(count - 1, 10), at(count, 10)) == ["7", "7", "8"]


def test_log_can_be_read_again_from_the_beginning(told: Told) -> None:
    log = Log()
    log.trace(INLINED, ASSEMBLED)
    assert told(log, "end", "begin", at(0, 10), "log 0 %d" % len(log.data),
                at(0, 10)) == ["-", "7"]


def test_log_of_another_version_is_unknown(told: Told) -> None:
    log = Log(version=5)
    log.trace(INLINED, ASSEMBLED)
    assert told(log, "known", at(0, 10)) == ["0", "-"]
    assert told(Log(), "known") == ["1"]
    assert told(bytearray(), "known") == ["0"]


def test_damaged_logs(told: Told) -> None:
    """No byte outside of the log is read."""
    log = Log()
    log.trace(INLINED, ASSEMBLED)
    log.trace(["call_r"], ["call_r"], guard=50, code=1 << 21)
    head = len(Log().data)
    chance = random.Random(3)
    for seed in range(60):
        data = log.data[:]
        for _ in range(chance.choice((1, 1, 3))):
            data[chance.randrange(head * (seed % 2), len(data))] = chance.choice(
                (0, 0xff, chance.randrange(256)))
        told(data, at(0, 10), at(3, 10, 20), at(0, 10, 20, code=1 << 21),
             cuts=chance.choice(((), (), (chance.randrange(len(data)),))))
