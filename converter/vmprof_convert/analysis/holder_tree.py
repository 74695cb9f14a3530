"""The paths to what was alive, as stacks with numbers: for formats that hold these.

They add up to all bytes that were reached, each once: where several paths lead to an
object, it is at the end of a shortest one.  What was reached through a step is exact;
what stands below it says of what that consists, in shares that the samples tell.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vmprof_convert.analysis.by_stack import Place, place_of, whole
from vmprof_convert.analysis.holders import Parts, Sums, objects, text_of
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import Shown
from vmprof_convert.profile.held import NO_PATH, Held
from vmprof_convert.profile.model import Profile

#: the root of what was reached in another way than through a step
OTHERWISE = "[the interpreter, finalizers, and modules that hold little]"


class HeldStack(NamedTuple):
    """Bytes that were alive, and how they were reached."""

    #: outermost first: the steps of the path; or OTHERWISE
    holders: tuple[str, ...]
    #: what these bytes are, and who allocated them; None: it is not known
    type: Shown | None
    place: Place | None
    bytes: int

    @property
    def places(self) -> list[Place]:
        """All of it, for formats that know functions alone."""
        return [*map(Place, self.holders),
                *([] if self.type is None else [Place(self.type.name)]),
                *([] if self.place is None else [self.place])]


class Reached(NamedTuple):
    """What an answer to who holds what found."""

    #: together Held.bytes
    stacks: list[HeldStack]
    #: what nothing led to: it is in none of them
    no_path: Estimate


class Tree(NamedTuple):
    """What a writer of holders gets."""

    #: of the first process, which tells of the run
    profile: Profile
    #: of several processes, each below its name
    stacks: list[HeldStack]
    #: what is not among them, a line each
    left_out: list[str]


def reached(profile: Profile, held: Held, *, group_storage: bool = False) -> Reached:
    """`held`: an answer in which there is one."""
    # the last ones are of what has no step
    own = [step.bytes for step in held.steps] + [held.bytes]
    ways: list[tuple[str, ...]] = []
    for number, step in enumerate(held.steps):
        own[step.before] -= step.bytes
        ways.append((*(ways[step.before] if step.before >= 0 else ()),
                     text_of(held.path(number), step.type)))
    ways.append((OTHERWISE,))
    sums = [Sums() for _ in own]
    no_path = Sums()
    for one in objects(profile, held):
        (no_path if one.how == NO_PATH else sums[one.path]).add(one)
    parts, origins = Parts(profile, group_storage), Origins(profile)

    def divided(way: tuple[str, ...], bytes_: int, of: Sums) -> Iterator[HeldStack]:
        # (samples may account for more than there is, by chance)
        known = max(0.0, min(bytes_, of.all.value_bytes))
        found = parts.of(of)
        for part, number in zip(found, whole(part.share * known for part in found)):
            if number:
                bytes_ -= number
                yield HeldStack(
                    way, part.type, place_of(part.function, origins), number)
        if bytes_ > 0:
            yield HeldStack(way, None, None, bytes_)

    return Reached([stack for one in zip(ways, own, sums) for stack in divided(*one)],
                   no_path.all.bytes(max(held.intervals, default=1)))
