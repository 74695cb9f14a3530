"""Which of the GC's counts of its heap are valid, and recorded (heap.c, figures.c)."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import MEMORY, THREADS, build

#: kinds of metrics, with the numbers of PROFILE.rst
HAS, USED, NURSERY = 2, 3, 9
#: incminimark's states (gc_state)
SCANNING, MARKING, SWEEPING, FINALIZING = range(4)
BEGIN = ("known 4", "arenas 50000", "large 300", "nursery 100", "blocks 10000")


def harness(sanitizer: str = MEMORY) -> pathlib.Path:
    return build("heap_harness", "hook/gc/heap.c", "shared/figures.c",
                 sanitizer=sanitizer)


def told(*commands: str) -> list[list[tuple[int, int]]]:
    """Run the harness, and return the kinds and values that each reading prints."""
    done = subprocess.run([harness()], input="\n".join(commands), text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [[(int(kind), int(value)) for kind, _, value in
             (word.partition("=") for word in line.split())]
            for line in done.stdout.splitlines()]


def test_both_counts_include_the_nursery() -> None:
    assert told(*BEGIN, "open", "always") == [
        [(HAS, 50400), (USED, 10400), (NURSERY, 100)]]


@pytest.mark.parametrize("known", range(4))
def test_unknown_addresses_give_no_counts(known: int) -> None:
    """The addresses of all four counts must be known."""
    assert told("known %d" % known, *BEGIN[1:], "seen", "open", "always", "read") == [
        [], []]


def test_values_that_hardly_changed_are_not_recorded_again() -> None:
    assert told(*BEGIN, "open", "always", "read", "blocks 10070", "read",
                "blocks 10200", "read", "arenas 60000", "read", "read")[1:] == [
        [], [], [(HAS, 50400), (USED, 10600)], [(HAS, 60400), (USED, 10600)], []]


def test_maximum_between_two_readings_is_recorded() -> None:
    """The heap is largest just before or just after a minor collection.

    Before the collection, it contains large objects; after it, the promoted objects.
    The maximum is recorded with its own time.
    """
    assert told(*BEGIN, "open", "always",
                "large 9300", "seen", "large 300", "blocks 12000", "seen",
                "blocks 10000", "read", "read")[1:] == [
        [(HAS, 59400), (USED, 19400), (HAS, 50400), (USED, 10400)], []]


def test_overall_maximum_is_recorded_exactly() -> None:
    """The overall maximum is recorded even if it differs little from the last value."""
    assert told(*BEGIN, "open", "always", "blocks 10001", "seen", "blocks 10000",
                "seen", "read", "read")[1:] == [
        [(HAS, 50400), (USED, 10401), (HAS, 50400), (USED, 10400)], []]


def test_maximum_of_an_earlier_profile_is_not_recorded_again() -> None:
    """The next profile or segment begins with the present values."""
    first, part, second = told(
        *BEGIN, "open", "always", "blocks 20000", "seen", "blocks 10000", "always",
        "blocks 20000", "seen", "blocks 10000", "open", "always")
    assert part == [(HAS, 50400), (USED, 20400), *first]
    assert second == first


def test_maximum_of_a_profile_that_ends_during_a_sweep() -> None:
    """The maximum belongs to the profile that ends, not to the next profile."""
    ends, begins, goes_on = told(
        *BEGIN, "open", "always", "blocks 20000", "seen", "blocks 0",
        "state %d" % SWEEPING, "always", "always", "blocks 10000",
        "state %d" % SCANNING, "read")[1:]
    assert ends == [(HAS, 50400), (USED, 20400)]
    assert begins == []
    assert goes_on == [(HAS, 50400), (USED, 10400), (NURSERY, 100)]


def test_counts_are_unknown_during_a_sweep() -> None:
    sweeping = told(*BEGIN, "open", "always", "state %d" % MARKING, "blocks 12000",
                    "seen", "blocks 0", "state %d" % SWEEPING, "read", "seen", "seen",
                    "blocks 4000", "read", "state %d" % SCANNING, "read")
    assert sweeping[1:] == [[], [], [(HAS, 50400), (USED, 12400), (HAS, 50400),
                                     (USED, 4400)]]


def test_collector_that_keeps_its_count_during_a_sweep() -> None:
    sweeping = told("known 5", *BEGIN[1:], "open", "always", "state %d" % MARKING,
                    "blocks 12000", "seen", "state %d" % SWEEPING, "read", "seen",
                    "blocks 4000", "read", "state %d" % SCANNING, "read")
    assert sweeping[1:] == [[(HAS, 50400), (USED, 12400)], [(HAS, 50400), (USED, 4400)],
                            []]


def test_count_that_is_reset_before_the_sweep() -> None:
    """incminimark resets the count while gc_state still says that it marks."""
    assert told(*BEGIN, "state %d" % MARKING, "open", "always", "seen", "always",
                "blocks 0", "read", "always", "blocks 10000", "always") == [
        [], [(HAS, 50400), (USED, 10400), (NURSERY, 100)], [], [],
        [(HAS, 50400), (USED, 10400), (NURSERY, 100)]]


def test_contradictory_counts_are_not_recorded() -> None:
    assert told(*BEGIN, "arenas 9999", "open", "always", "arenas 50000", "large -1",
                "always", "large 0", "nursery 0", "always") == [[], [], []]


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS])
def test_reader_in_another_thread(sanitizer: str) -> None:
    """The reader sees the maximum, but no value during a sweep."""
    done = subprocess.run([harness(sanitizer), "stress"], text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "1 1000 2000 2000\n"
