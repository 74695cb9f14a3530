"""Markers for the labels that the program gave to its work.

A marker lasts from the first to the last of successive samples of a thread that have
the same labels.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import shortened
from vmprof_convert.writers.firefox.format.markers import Marker

#: largest number of markers in a thread; more would be unreadable
MOST = 20_000


def find(profile: Profile, ticks: Sequence[int], allocations: Sequence[int],
         times: Sequence[float]) -> tuple[list[Marker], bool]:
    """Return the markers for the labels of a thread's samples.

    Args:
        profile: The profile.
        ticks: The rows of the thread's CPU samples, by time.
        allocations: The rows of the thread's allocations, by time.
        times: The time of each row of the profile in milliseconds.

    Returns:
        The markers, and whether there would be more than MOST, so that none is
        returned.
    """
    if len(profile.labels) < 2:
        return [], False
    stacks, of_stack = profile.samples.stack, profile.stack_labels
    texts = [", ".join(shortened("%s=%s" % pair) for pair in sorted(labels.items()))
             for labels in profile.labels]

    def labels(row: int) -> int:
        return of_stack[stacks[row]] if stacks[row] >= 0 else 0

    rows = (sorted([*ticks, *allocations], key=times.__getitem__)
            if ticks and allocations else ticks or allocations)
    markers: list[Marker] = []
    for number, alike in groupby(rows, labels):
        if number:
            found = list(alike)
            markers.append(Marker("Labels", "Labels", times[found[0]], times[found[-1]],
                                  {"text": texts[number]}))
            if len(markers) > MOST:
                return [], True
    return markers, False
