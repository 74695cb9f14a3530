"""heap.c and figures.c: what the GC counts of its heap, when it is believed, and what
of it is told."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import MEMORY, THREADS, build

#: kinds, as PROFILE.rst has them
HAS, USED, NURSERY = 2, 3, 9
#: incminimark's states
SCANNING, MARKING, SWEEPING, FINALIZING = range(4)
BEGIN = ("known 4", "arenas 50000", "large 300", "nursery 100", "blocks 10000")


def harness(sanitizer: str = MEMORY) -> pathlib.Path:
    return build("heap_harness", "hook/gc/heap.c", "shared/figures.c",
                 sanitizer=sanitizer)


def told(*commands: str) -> list[list[tuple[int, int]]]:
    """Kinds and values, for each command that reads."""
    done = subprocess.run([harness()], input="\n".join(commands), text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [[(int(kind), int(value)) for kind, _, value in
             (word.partition("=") for word in line.split())]
            for line in done.stdout.splitlines()]


def test_the_nursery_is_in_both() -> None:
    assert told(*BEGIN, "open", "always") == [
        [(HAS, 50400), (USED, 10400), (NURSERY, 100)]]


@pytest.mark.parametrize("known", range(4))
def test_words_that_are_not_known(known: int) -> None:
    """Of a build where one of them was not found, nothing is told."""
    assert told("known %d" % known, *BEGIN[1:], "seen", "open", "always", "read") == [
        [], []]


def test_what_hardly_changes_is_not_told_again() -> None:
    assert told(*BEGIN, "open", "always", "read", "blocks 10070", "read",
                "blocks 10200", "read", "arenas 60000", "read", "read")[1:] == [
        [], [], [(HAS, 50400), (USED, 10600)], [(HAS, 60400), (USED, 10600)], []]


def test_the_most_between_two_readings() -> None:
    """Before a minor collection large objects are there, behind it what it promoted;
    the most is told with its own time."""
    assert told(*BEGIN, "open", "always",
                "large 9300", "seen", "large 300", "blocks 12000", "seen",
                "blocks 10000", "read", "read")[1:] == [
        [(HAS, 59400), (USED, 19400), (HAS, 50400), (USED, 10400)], []]


def test_the_most_of_all_is_told_exactly() -> None:
    """However little more it is than what was told."""
    assert told(*BEGIN, "open", "always", "blocks 10001", "seen", "blocks 10000",
                "seen", "read", "read")[1:] == [
        [(HAS, 50400), (USED, 10401), (HAS, 50400), (USED, 10400)], []]


def test_the_most_of_an_earlier_profile() -> None:
    """The next one, or the next part, begins with what there is."""
    first, part, second = told(
        *BEGIN, "open", "always", "blocks 20000", "seen", "blocks 10000", "always",
        "blocks 20000", "seen", "blocks 10000", "open", "always")
    assert part == [(HAS, 50400), (USED, 20400), *first]
    assert second == first


def test_the_most_of_a_profile_that_ends_amidst_a_sweep() -> None:
    """It is told, and is not the next one's."""
    ends, begins, goes_on = told(
        *BEGIN, "open", "always", "blocks 20000", "seen", "blocks 0",
        "state %d" % SWEEPING, "always", "always", "blocks 10000",
        "state %d" % SCANNING, "read")[1:]
    assert ends == [(HAS, 50400), (USED, 20400)]
    assert begins == []
    assert goes_on == [(HAS, 50400), (USED, 10400), (NURSERY, 100)]


def test_while_it_sweeps_nobody_knows() -> None:
    sweeping = told(*BEGIN, "open", "always", "state %d" % MARKING, "blocks 12000",
                    "seen", "blocks 0", "state %d" % SWEEPING, "read", "seen", "seen",
                    "blocks 4000", "read", "state %d" % SCANNING, "read")
    assert sweeping[1:] == [[], [], [(HAS, 50400), (USED, 12400), (HAS, 50400),
                                     (USED, 4400)]]


def test_a_collector_that_counts_on() -> None:
    sweeping = told("known 5", *BEGIN[1:], "open", "always", "state %d" % MARKING,
                    "blocks 12000", "seen", "state %d" % SWEEPING, "read", "seen",
                    "blocks 4000", "read", "state %d" % SCANNING, "read")
    assert sweeping[1:] == [[(HAS, 50400), (USED, 12400)], [(HAS, 50400), (USED, 4400)],
                            []]


def test_a_count_that_is_forgotten_before_it_sweeps() -> None:
    """incminimark does that while it still says that it marks."""
    assert told(*BEGIN, "state %d" % MARKING, "open", "always", "seen", "always",
                "blocks 0", "read", "always", "blocks 10000", "always") == [
        [], [(HAS, 50400), (USED, 10400), (NURSERY, 100)], [], [],
        [(HAS, 50400), (USED, 10400), (NURSERY, 100)]]


def test_counts_that_do_not_fit() -> None:
    assert told(*BEGIN, "arenas 9999", "open", "always", "arenas 50000", "large -1",
                "always", "large 0", "nursery 0", "always") == [[], [], []]


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS])
def test_a_reader_beside_the_collector(sanitizer: str) -> None:
    """It sees nothing of a sweep, and the peak."""
    done = subprocess.run([harness(sanitizer), "stress"], text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "1 1000 2000 2000\n"
