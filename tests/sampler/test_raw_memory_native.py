"""Sampling of native memory with the C library's malloc(), without PyPy."""
from __future__ import annotations

import math
import pathlib
import subprocess

import pytest

from native_build import FLAGS, HERE, MEMORY, NATIVE, compiled

#: source files of the package that the harness contains
_SOURCES = [*(NATIVE / "malloc").glob("*.c"), NATIVE / "sampler" / "sampler.c"]
_FOLDERS = [flag for folder in ("malloc", "sampler", "shared")
            for flag in ("-I", str(NATIVE / folder))]


def build(name: str, *flags: str) -> pathlib.Path:
    return compiled(name, *FLAGS, *flags, "-pthread", *_FOLDERS,
                    str(HERE / "native" / "raw_memory_harness.c"),
                    *map(str, _SOURCES), "-lm", "-ldl")


@pytest.fixture(scope="module")
def user() -> pathlib.Path:
    """Return the library that allocates memory."""
    return compiled("raw_memory_user.so", "-shared", "-fPIC", "-O1", "-g", "-Wall",
                    "-Wextra", "-Werror",
                    str(HERE / "native" / "raw_memory_user.c"))


@pytest.fixture(scope="module")
def harness() -> pathlib.Path:
    """Return a harness without a sanitizer that replaces the C library's malloc()."""
    return build("raw_memory_harness-plain", "-fsanitize=undefined")


def run(harness: pathlib.Path, *arguments: object) -> list[str]:
    done = subprocess.run([harness, *map(str, arguments)], text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_table_of_blocks_agrees_with_a_plain_array() -> None:
    run(build("raw_memory_harness-memory", "-fsanitize=" + MEMORY), "blocks", "")


def test_patched_slots_and_pages_are_restored(
        harness: pathlib.Path, user: pathlib.Path) -> None:
    run(harness, "undone", user)


def test_every_kind_of_call_is_seen(harness: pathlib.Path, user: pathlib.Path) -> None:
    """The interval is 1.  For pvalloc(), the size is 100 requested bytes, not a page.

    A realloc() that fails is no sample, and its old block stays.
    """
    samples, bytes_, alive, kept = map(int, run(harness, "counts", user, 50))
    assert (samples, bytes_) == (50 * 11, 50 * 11 * 100)
    assert alive == kept == 0


def test_weights_sum_up_to_the_requested_bytes(
        harness: pathlib.Path, user: pathlib.Path) -> None:
    estimate, truth = map(int, run(harness, "means", user, 20000))
    # for blocks of s bytes, the variance of the sum of weights is s^2 (1 - p) / p for
    # each block, at most s times the interval
    assert abs(estimate - truth) < 4 * math.sqrt(10000 * truth)
    assert estimate != truth


def test_start_and_end_while_threads_load_libraries_and_fork(
        harness: pathlib.Path, user: pathlib.Path) -> None:
    run(harness, "threads", user, 1000)
