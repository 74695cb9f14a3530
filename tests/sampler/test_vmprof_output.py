"""vmprof's writes go to the recorder, and the program's writes to the program's files
(vmprof_output.c)."""
from __future__ import annotations

import pathlib
import struct
import subprocess

import pytest

from native_build import build

TRAILER = (b"\x03" + bytes(24)).hex()
HEAD = bytes(40).hex()
STACK = (b"\x01" + struct.pack("<5q", 1, 2, 1, 8, 0)).hex()
ENABLED = ["open", "control 1", "map", "control 0"]


def name(address: int, text: bytes = b"py:f:1:a") -> str:
    return (b"\x02" + struct.pack("<qq", address, len(text)) + text).hex()


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("output_harness", "hook/vmprof/vmprof_output.c",
                 "hook/vmprof/grace_period.c", "shared/code_names.c",
                 "shared/file_sink.c")


def run(harness: pathlib.Path, *lines: str) -> list[str]:
    done = subprocess.run([harness], input="\n".join(lines) + "\n", text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_stacks_and_names_go_to_the_recorder(harness: pathlib.Path) -> None:
    assert run(harness, *ENABLED, "fill 3 " + STACK, "flush 3",
               "fill 3 " + name(8), "flush 3", "fill 0 05", "flush 0") == [
        "stack " + STACK, "bytes " + name(8), "bytes 05"]


def test_head_and_trailer_do_not_come_from_a_buffer(harness: pathlib.Path) -> None:
    assert run(harness, "open", "control 1", "write " + HEAD, "map",
               "control 0", "control 1", "unmap", "write " + TRAILER,
               "control 0", "close") == ["bytes " + HEAD, "bytes " + TRAILER]


def test_names_are_taken_before_vmprof_writes_them(
        harness: pathlib.Path) -> None:
    """The recorder gets each name once."""
    assert run(harness, *ENABLED, "names", "fill 3 " + name(8), "names",
               "names", "fill 3 " + name(16) + name(24), "fill 5 " + name(32),
               "names", "fill 3 " + name(40), "flush 3", "names") == [
        "bytes " + name(number) for number in (8, 16, 24, 32, 40)]


TRUE_NAME = b"py:true:1:a.py"


@pytest.mark.parametrize("torn", [
    name(16, b"py:true:7:b.py"), name(16, b"py:old:1:aa.py"), name(8, TRUE_NAME),
    name(8, b"") + name(24, b"")[:-6]],
    ids=["file", "function", "number", "two-records"])
@pytest.mark.parametrize("then", [
    ["names"], ["names", "names"], ["flush 3"], ["fill 3 " + name(32), "names"],
    ["fill 3 " + name(32), "flush 3"]], ids=lambda then: "-".join(
        line.split()[0] for line in then))
def test_text_that_was_incomplete_is_replaced(
        harness: pathlib.Path, torn: str, then: list[str]) -> None:
    """vmprof counts a record before it writes the record into its buffer.

    So the sampler may read a part of a name.
    """
    whole = name(16, TRUE_NAME)
    torn = torn.ljust(len(whole), "0")
    lines = run(harness, *ENABLED, "fill 3 " + name(48), "names", "fill 3 " + torn,
                "names", "end 3 " + whole, *then)
    assert "bytes " + name(48) == lines[0]
    assert "bytes " + whole in lines[1:]
    assert lines.count("bytes " + whole) == 1
    assert [line for line in lines if line.startswith("bytes " + whole[:18])][-1] == (
        "bytes " + whole)


def test_text_that_was_incomplete_is_replaced_in_a_full_buffer(
        harness: pathlib.Path) -> None:
    """The sampler reads the longest names again, and names before an incomplete one."""
    many = [name(8 * i, b"py:f%d:1:a" % i) for i in range(1, 100)]
    for text in (b"py:f:1:" + b"x" * 1016, b"py:f:1:b"):
        whole, torn = name(8000, text), name(8000, text.replace(b"f", b"o"))
        lines = run(harness, *ENABLED, "fill 0 " + "".join(many), "names",
                    "fill 0 " + torn, "names", "names", "end 0 " + whole, "names",
                    "names")
        assert lines == ["bytes " + one for one in [*many, torn, whole]]


def test_buffer_that_is_used_again(harness: pathlib.Path) -> None:
    """The new content has as many bytes as the old content, or more, or fewer."""
    assert run(harness, *ENABLED, "fill 3 " + name(8), "names", "flush 3",
               "fill 3 " + name(16), "names", "flush 3",
               "fill 3 " + name(24) + name(32), "names", "flush 3",
               "fill 3 " + name(40), "names") == [
        "bytes " + name(number) for number in (8, 16, 24, 32, 40)]


@pytest.mark.parametrize("held", [
    STACK, "02", name(8)[:-2], name(8) + STACK, name(8) + "02",
    "02" + struct.pack("<qq", 8, -1).hex(),
    "02" + struct.pack("<qq", 8, 2**62).hex(),
    "02" + struct.pack("<qq", 8, 9000).hex()])
def test_buffer_that_holds_something_else(harness: pathlib.Path,
                                          held: str) -> None:
    """The sampler ignores such a buffer, and a buffer that is being written."""
    assert run(harness, *ENABLED, "fill 3 " + held, "names") == []


def test_full_buffer_of_names(harness: pathlib.Path) -> None:
    names = [*(name(8 * i, b"x" * 1006) for i in range(7)),
             name(64, b"y" * (8184 - 7 * 1023 - 17))]
    whole = "".join(names)
    assert len(whole) == 2 * 8184
    assert run(harness, *ENABLED, "fill 19 " + whole, "names", "flush 19",
               "names") == ["bytes " + one for one in names]


def test_sample_that_only_the_sampler_gets(harness: pathlib.Path) -> None:
    assert run(harness, *ENABLED, "probe 2 " + STACK, "fill 2 " + STACK,
               "flush 2") == ["probe " + STACK, "stack " + STACK]


def stack(*words: int) -> str:
    return (b"\x01" + struct.pack(
        "<%dq" % (len(words) + 3), 1, len(words), *words, 77)).hex()


@pytest.mark.parametrize("words", [(), (1, 8), tuple(range(1018))])
def test_words_in_front_of_a_stack(harness: pathlib.Path,
                                   words: tuple[int, ...]) -> None:
    """The data after the stack stays.  The words do not affect a later record."""
    before, mine = stack(1, 16), stack(*words)
    assert run(harness, *ENABLED, "front 4 " + mine, "front 0 " + mine,
               "front 64 %s %s" % (mine, before), "front 4 ", "fill 2 " + mine,
               "flush 2") == [
        "stack " + stack(1000, 1001, 1002, 1003, *words), "stack " + mine,
        "stack " + before, "stack " + stack(*range(1000, 1064), *words),
        "stack " + mine]


@pytest.mark.parametrize("words", [(), (1, 8), tuple(range(1018))])
def test_words_instead_of_a_stack(harness: pathlib.Path,
                                  words: tuple[int, ...]) -> None:
    """The thread's number after the stack stays.

    Without words, the record is unchanged.
    """
    mine = stack(*words)
    assert run(harness, *ENABLED, "instead 4 " + mine, "instead 0 " + mine) == [
        "stack " + stack(1000, 1001, 1002, 1003), "stack " + mine]


def test_other_records_get_no_words(harness: pathlib.Path) -> None:
    assert run(harness, *ENABLED, "front 2 " + name(8), "front 2 05") == [
        "bytes " + name(8), "bytes 05"]


def test_program_that_disables_vmprof(harness: pathlib.Path) -> None:
    assert run(harness, *ENABLED, "enabled", "unmap", "enabled",
               "write " + TRAILER, "close") == ["1", "0", "disabled " + TRAILER]


def test_other_files_of_the_program_are_untouched(harness: pathlib.Path) -> None:
    assert run(harness, "own 616263", *ENABLED, "own 616263", "own " + TRAILER,
               "close", "own 616263") == [
        "own 616263", "own 616263", "own " + TRAILER, "own 616263"]


def test_program_reuses_the_number_of_the_decoy(harness: pathlib.Path) -> None:
    """The program's file contains only the program's data.

    vmprof's trailer goes to the recorder.
    """
    assert run(harness, *ENABLED, "steal", "write 616263", "fill 1 " + STACK,
               "flush 1", "unmap", "write " + TRAILER, "close", "stolen") == [
        "stack " + STACK, "disabled " + TRAILER, "stolen 616263"]


@pytest.mark.parametrize("end", ["close", "forget"])
def test_end_leaves_the_programs_file_open(harness: pathlib.Path,
                                           end: str) -> None:
    assert run(harness, *ENABLED, "steal", end, "enabled", "write 616263",
               "stolen") == ["0", "stolen 616263"]


def test_second_run(harness: pathlib.Path) -> None:
    once = [*ENABLED, "fill 3 " + name(8), "names", "control 1", "unmap",
            "control 0", "close"]
    assert run(harness, *once, *once) == ["bytes " + name(8)] * 2


def test_mapping_of_the_program_does_not_enable_vmprof(harness: pathlib.Path) -> None:
    assert run(harness, "open", "map", "enabled", "unmap", "seek") == ["0"]
