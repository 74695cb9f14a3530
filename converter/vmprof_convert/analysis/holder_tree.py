"""Convert a heap snapshot into stacks of reference paths, for formats with stacks.

The stacks add up to all reachable bytes, each counted once. If several paths lead to an
object, it belongs to a shortest path. The bytes that were reached through a step of a
path are exact. The samples divide them among types and allocating functions.
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

#: the root of the objects that were not reached through a step
OTHERWISE = "[the interpreter, finalizers, and modules that hold little]"


class HeldStack(NamedTuple):
    """The live bytes of some objects, and the reference path to these objects."""

    #: the steps of the path, outermost first; or OTHERWISE
    holders: tuple[str, ...]
    #: the type of the objects and the function that allocated them; None if they are
    #: unknown
    type: Shown | None
    place: Place | None
    bytes: int

    @property
    def places(self) -> list[Place]:
        """Return the path, the type and the function in the form of one stack."""
        return [*map(Place, self.holders),
                *([] if self.type is None else [Place(self.type.name)]),
                *([] if self.place is None else [self.place])]


class Reached(NamedTuple):
    """The stacks of one heap snapshot."""

    #: the stacks, whose bytes add up to Held.bytes
    stacks: list[HeldStack]
    #: the estimated bytes of the objects that no path reaches; they are in none of the
    #: stacks
    no_path: Estimate


class Tree(NamedTuple):
    """The input of a writer of reference paths."""

    #: the profile of the first process, which describes the run
    profile: Profile
    #: the stacks; with several processes, the process's name is the root of each stack
    stacks: list[HeldStack]
    #: one line of text for each kind of objects that the stacks lack
    left_out: list[str]


def reached(profile: Profile, held: Held, *, group_storage: bool = False) -> Reached:
    """Return the stacks of a successful heap snapshot.

    Args:
        profile: the profile that contains the snapshot.
        held: the snapshot, without a problem.
        group_storage: whether the storage of a list, dict etc. counts as that type.
    """
    # the bytes of each step without its successors; the last element belongs to the
    # objects without a step
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
        """Divide the exact bytes of a path among types and functions."""
        # The estimate may exceed the exact number by chance.
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
