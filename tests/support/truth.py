"""What a program's allocations are, worked out by hand, and how far an
estimate may be from it."""
from __future__ import annotations

import collections
import math

from vmprof_convert.meaning.estimator import weight_bytes, weight_objects
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.probability import probability

#: in a right program, one run in 100 million is further away
SIGMAS = 5.73


def string_size(length: int) -> int:
    """Bytes of PyPy's low-level string of `length` characters: GC header,
    hash, length, the characters and a final zero, rounded up to 8."""
    return (8 + 8 + 8 + length + 1 + 7) // 8 * 8


def sigma(count: float, size: int, interval: int) -> float:
    """Standard deviation of the estimated bytes of `count` objects of `size`
    bytes, exponential gaps: each is a coin of probability p that counts
    size/p."""
    p = probability(size, interval, "exponential")
    return size * math.sqrt(count * (1 - p) / p)


def bytes_by_function(profile: Profile) -> dict[str, float]:
    """Estimated bytes that each function allocated itself, by its name."""
    result: dict[str, float] = collections.defaultdict(float)
    samples = profile.samples
    program = Program(profile)
    for stack, size, interval in zip(
            samples.stack, samples.size, samples.interval):
        if size:
            name = program.functions(stack)[-1].name
            result[name] += weight_bytes(size, interval, profile.gaps)
    return dict(result)


def innermost(profile: Profile, stack: int) -> str:
    """The name of the function that allocated, of profile.stacks[stack]."""
    return profile.function(profile.stacks[stack][-1].address).name


def objects_of(profile: Profile, function: str, size: int) -> float:
    """Estimated number of objects of `size` bytes that `function` allocated
    itself.  The JIT allocates a string and its wrapper, a header and one
    pointer, in one piece: such pieces count too."""
    samples = profile.samples
    result = 0.0
    for stack, found, interval in zip(
            samples.stack, samples.size, samples.interval):
        if (found in (size, size + 16)
                and innermost(profile, stack) == function):
            result += weight_objects(found, interval, profile.gaps)
    return result


def allowed(count: int, size: int, interval: int, sigmas: float = SIGMAS) -> float:
    """How far the estimate of `count` objects of `size` bytes may be off."""
    return sigmas * sigma(count, size, interval) / size


def total_sigma(profile: Profile) -> float:
    """Standard deviation of the estimated total, from the samples."""
    variance = 0.0
    samples = profile.samples
    for size, interval in zip(samples.size, samples.interval):
        if size:
            p = probability(size, interval, profile.gaps)
            variance += (1 - p) * (size / p) ** 2
    return math.sqrt(variance)


def total_bytes(profile: Profile) -> float:
    return sum(bytes_by_function(profile).values())


def sigmas(profile: Profile) -> float:
    """How many standard deviations the estimate of all bytes is above what the
    GC counted."""
    bytes_ = variance = 0.0
    for size, interval in zip(profile.samples.size, profile.samples.interval):
        if size:
            p = probability(size, interval, profile.gaps)
            bytes_ += size / p
            variance += (size / p) ** 2 * (1 - p)
    return (bytes_ - profile.moments[-1].allocated) / math.sqrt(variance)
