"""Exact sizes of a program's allocations, and bounds for the errors of estimates."""
from __future__ import annotations

import collections
import math

from vmprof_convert.meaning.estimator import weight_bytes, weight_objects
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.probability import probability

#: a correct estimate exceeds this many standard deviations once in 100 million runs
SIGMAS = 5.73


def string_size(length: int) -> int:
    """Return the bytes of PyPy's low-level string of `length` characters.

    The string has the GC header, the hash, the length, the characters and a final zero.
    The sum is rounded up to a multiple of 8.
    """
    return (8 + 8 + 8 + length + 1 + 7) // 8 * 8


def sigma(count: float, size: int, interval: int) -> float:
    """Return the standard deviation of the estimated bytes of `count` objects.

    Gaps are exponential. Each object of `size` bytes is sampled with probability p, and
    then adds size/p to the estimate.
    """
    p = probability(size, interval, "exponential")
    return size * math.sqrt(count * (1 - p) / p)


def bytes_by_function(profile: Profile) -> dict[str, float]:
    """Return the estimated bytes that each function allocated itself, by its name."""
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
    """Return the name of a stack's innermost function, which allocated."""
    return profile.function(profile.stacks[stack][-1].address).name


def objects_of(profile: Profile, function: str, size: int) -> float:
    """Estimate the number of objects of `size` bytes that `function` allocated itself.

    The JIT may allocate a string together with its wrapper, which has a header and one
    pointer. Such batches count, too.
    """
    samples = profile.samples
    result = 0.0
    for stack, found, interval in zip(
            samples.stack, samples.size, samples.interval):
        if (found in (size, size + 16)
                and innermost(profile, stack) == function):
            result += weight_objects(found, interval, profile.gaps)
    return result


def allowed(count: int, size: int, interval: int, sigmas: float = SIGMAS) -> float:
    """Return the largest error of an estimate of `count` objects of `size` bytes."""
    return sigmas * sigma(count, size, interval) / size


def total_sigma(profile: Profile) -> float:
    """Return the standard deviation of total_bytes(), computed from the samples."""
    variance = 0.0
    samples = profile.samples
    for size, interval in zip(samples.size, samples.interval):
        if size:
            p = probability(size, interval, profile.gaps)
            variance += (1 - p) * (size / p) ** 2
    return math.sqrt(variance)


def total_bytes(profile: Profile) -> float:
    """Return the estimated bytes of all allocations in a profile."""
    return sum(bytes_by_function(profile).values())


def sigmas(profile: Profile) -> float:
    """Return the difference of the estimated bytes from the GC's count.

    The unit is the standard deviation of the estimate.
    """
    bytes_ = variance = 0.0
    for size, interval in zip(profile.samples.size, profile.samples.interval):
        if size:
            p = probability(size, interval, profile.gaps)
            bytes_ += size / p
            variance += (size / p) ** 2 * (1 - p)
    return (bytes_ - profile.moments[-1].allocated) / math.sqrt(variance)
