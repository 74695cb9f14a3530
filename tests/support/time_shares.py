"""A program that spends its time in two functions that the JIT inlines into a loop."""
from __future__ import annotations

from collections import Counter

from vmprof_convert.profile.model import Profile


def _function(name: str, parts: int) -> str:
    # the steps have branches, because an emulator checks for signals only at branches
    steps = ("    a = a + table[(a ^ %d) & 15] & 0xffff\n"
             "    if a > limits[%d]: a -= i\n" % (7 * part, part)
             for part in range(parts))
    return "def %s(i, a):\n%s    return a\n" % (name, "".join(steps))


def program(seconds: float) -> str:
    """Return a program that runs for `seconds` of processor time.

    `heavy` has three times the work of `light`.
    """
    return """
import time
table, limits = list(range(3, 19)), list(range(70000, 70012))
%s%sdef loop(end):
    a = i = 0
    while time.process_time() < end:
        for _ in range(2000):
            i = i + 1 & 15
            a = light(i, a)
            a = heavy(i, a)
loop(time.process_time() + %g)
""" % (_function("light", 4), _function("heavy", 12), seconds)


def check(profile: Profile) -> None:
    """Check the two functions' shares of the CPU samples.

    A correct profile exceeds the bounds once in 10^6 runs.
    """
    samples = profile.samples
    found = Counter(
        profile.function(frames[-1].address).name
        for size, stack in zip(samples.size, samples.stack)
        if size == 0 and (frames := profile.stacks[stack])
        and "loop" in [profile.function(frame.address).name for frame in frames])
    both = found["light"] + found["heavy"]
    assert both > 0.75 * found.total() > 75, found
    sigma = (both * 3 / 16) ** 0.5
    assert abs(found["heavy"] - 0.75 * both) < 0.08 * both + 5 * sigma, found
