"""Estimates from a profile how many objects of a type had each outcome."""
from __future__ import annotations

import collections
import math
from typing import NamedTuple

from truth import SIGMAS
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.profile import model
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.probability import probability

FATES = {
    model.PENDING: "young", model.DIED: "died", model.FREED: "freed",
    model.ALIVE: "alive", model.LOST: "lost",
    model.UNKNOWN: "unknown", model.UNTOLD: "untold"}


class Found(NamedTuple):
    """Estimated numbers of objects, the estimates' variances, and numbers of samples.

    The keys are outcomes.
    """

    objects: dict[str, float]
    variances: dict[str, float]
    samples: dict[str, int]

    def check(self, fate: str, truth: float, also: float = 0.0) -> None:
        """Check the estimate of an outcome against the true number of objects.

        `also` is the uncertainty of `truth` itself, in objects.
        """
        estimate = self.objects.get(fate, 0.0)
        # the computed variance is 0 if no object was sampled
        sigma = math.sqrt(max(self.variances.get(fate, 0.0), 1.0))
        assert abs(estimate - truth) <= SIGMAS * sigma + also, (
            fate, estimate, truth, sigma, self)

    def total(self) -> Found:
        """Return the sums over all outcomes, under the outcome `all`."""
        return Found({"all": sum(self.objects.values())},
                     {"all": sum(self.variances.values())},
                     {"all": sum(self.samples.values())})


def found(profile: Profile, type_: str = "", size: int = 0) -> Found:
    """Estimate the objects of a type and size.

    Args:
        profile: The profile.
        type_: The type as reports show it, or "" for all types.
        size: The objects' size in bytes, or 0 for all sizes.
    """
    names = TypeNames(profile)
    objects: dict[str, float] = collections.defaultdict(float)
    variances: dict[str, float] = collections.defaultdict(float)
    samples: collections.Counter[str] = collections.Counter()
    columns = profile.samples
    for type_index, fate, found_size, interval in zip(
            columns.type, columns.fate, columns.size, columns.interval):
        if found_size and (
                not type_ or names.shown(type_index).name == type_) and (
                size in (0, found_size)):
            p = probability(found_size, interval, profile.gaps)
            objects[FATES[fate]] += 1 / p
            variances[FATES[fate]] += (1 - p) / p ** 2
            samples[FATES[fate]] += 1
    return Found(dict(objects), dict(variances), dict(samples))


def check_conservation(profile: Profile) -> None:
    """Check that every sample has exactly one outcome."""
    everything = found(profile)
    assert set(everything.samples) <= {
        "young", "died", "freed", "alive", "lost", "unknown"}
    assert profile.misfits == 0
