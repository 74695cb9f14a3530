"""malloc/ beside the C library's own malloc(), without PyPy."""
from __future__ import annotations

import math
import pathlib
import subprocess

import pytest

from native_build import FLAGS, HERE, MEMORY, NATIVE, compiled

#: what of the package the harness is made of
_SOURCES = [*(NATIVE / "malloc").glob("*.c"), NATIVE / "sampler" / "sampler.c"]
_FOLDERS = [flag for folder in ("malloc", "sampler", "shared")
            for flag in ("-I", str(NATIVE / folder))]


def build(name: str, *flags: str) -> pathlib.Path:
    return compiled(name, *FLAGS, *flags, "-pthread", *_FOLDERS,
                    str(HERE / "native" / "raw_memory_harness.c"),
                    *map(str, _SOURCES), "-lm", "-ldl")


@pytest.fixture(scope="module")
def user() -> pathlib.Path:
    """The library that asks for memory."""
    return compiled("raw_memory_user.so", "-shared", "-fPIC", "-O1", "-g", "-Wall",
                    "-Wextra", "-Werror",
                    str(HERE / "native" / "raw_memory_user.c"))


@pytest.fixture(scope="module")
def harness() -> pathlib.Path:
    """Sanitizers put their own malloc() into a process, in front of the C library's."""
    return build("raw_memory_harness-plain", "-fsanitize=undefined")


def run(harness: pathlib.Path, *arguments: object) -> list[str]:
    done = subprocess.run([harness, *map(str, arguments)], text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_blocks_are_found_as_in_an_array_of_all() -> None:
    run(build("raw_memory_harness-memory", "-fsanitize=" + MEMORY), "blocks", "")


def test_slots_symbols_and_pages_are_as_before(
        harness: pathlib.Path, user: pathlib.Path) -> None:
    run(harness, "undone", user)


def test_every_kind_of_call_is_seen(harness: pathlib.Path, user: pathlib.Path) -> None:
    """At interval 1.  pvalloc() is asked for 100 bytes, not for the page that it gives;
    a realloc() that fails gives nothing, and what it was to move stays."""
    samples, bytes_, alive, kept = map(int, run(harness, "counts", user, 50))
    assert (samples, bytes_) == (50 * 11, 50 * 11 * 100)
    assert alive == kept == 0


def test_weights_add_up_to_what_was_asked_for(
        harness: pathlib.Path, user: pathlib.Path) -> None:
    estimate, truth = map(int, run(harness, "means", user, 20000))
    # of blocks of s bytes, the variance of the sum of weights is s^2 (1 - p) / p each,
    # at most s times the interval
    assert abs(estimate - truth) < 4 * math.sqrt(10000 * truth)
    assert estimate != truth


def test_begins_and_ends_beside_threads_that_load_and_fork(
        harness: pathlib.Path, user: pathlib.Path) -> None:
    run(harness, "threads", user, 1000)
