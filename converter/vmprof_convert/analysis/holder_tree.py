"""Who held what was alive, as stacks with numbers: for formats that hold these.

They add up to all bytes that were reached, each once.  What a holder alone keeps is
exact; of what that consists is estimated, and what no sample accounts for, as what was
allocated before there were any, stays with the holder.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from vmprof_convert.analysis.by_stack import Place, place_of, whole
from vmprof_convert.analysis.holders import MAX_PATH, Parts, Sums, text_of
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import Shown
from vmprof_convert.profile.held import ALONE, NO_PATH, TOGETHER, Held, Holder
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.sampling import probability
from vmprof_convert.text.escape import shortened

#: the root of what was reached, and that no holder of the answer keeps
OTHERWISE = "[held in other ways, by the interpreter or by a finalizer]"

#: for each holder, by its bit, the innermost that it is within; None: it is in none
_Within = dict[int, Optional[Holder]]


class HeldStack(NamedTuple):
    """Bytes that were alive, and who held them."""

    #: outermost first: holders, each behind the pieces of its path, which are paths,
    #: too; or several that hold it together; or OTHERWISE
    holders: tuple[str, ...]
    #: what these bytes are, and who allocated them; None: no sample tells
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

    #: together Held.bytes, if the profile is not damaged
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
    single = _by_size(held)
    groups = [holder for holder in held.holders if not holder.path]
    within = _within(held, single)
    own = {holder.set: holder.bytes for holder in held.holders}
    for holder in single:
        if (outer := within[holder.set]) is not None:
            own[outer.set] -= holder.bytes
    ways = _ways(single, within)
    for group in groups:
        ways[group.set] = ("%s, together" % " and ".join(
            text_of(holder) for holder in held.holders
            if holder.path and holder.set & group.set),)
    sums = {set_: Sums() for set_ in own}
    otherwise, no_path = Sums(), Sums()
    # of holders within each other, the innermost keeps it
    keeps = {set_: next((holder.set for holder in reversed(single)
                         if holder.set & set_), 0) for set_ in set(held.sets)}
    for stack, type_, size, interval, set_, how in zip(
            held.stacks, held.types, held.sizes, held.intervals, held.sets, held.hows):
        key = keeps[set_] if how == ALONE else set_ if how == TOGETHER else 0
        (no_path if how == NO_PATH else sums.get(key, otherwise)).add(
            stack, type_, size, probability(size, interval, profile.gaps))
    parts, origins = Parts(profile, group_storage), Origins(profile)

    def divided(way: tuple[str, ...], bytes_: int, of: Sums) -> Iterator[HeldStack]:
        # (in a damaged profile, those within a holder may have more than it)
        known = max(0.0, min(bytes_, of.all.value_bytes))
        found = parts.of(of)
        for part, number in zip(found, whole(part.share * known for part in found)):
            if number:
                bytes_ -= number
                yield HeldStack(
                    way, part.type, place_of(part.function, origins), number)
        if bytes_ > 0:
            yield HeldStack(way, None, None, bytes_)

    stacks = [stack for holder in (*single, *groups) for stack in divided(
        ways[holder.set], own[holder.set], sums[holder.set])]
    stacks += divided((OTHERWISE,), held.bytes - sum(own.values()), otherwise)
    return Reached(stacks, no_path.all.bytes(max(held.intervals, default=1)))


def _by_size(held: Held) -> list[Holder]:
    """Those with a name: who has more comes first, and so who is around others."""
    return sorted((holder for holder in held.holders if holder.path),
                  key=lambda holder: (-holder.bytes, holder.set))


def _within(held: Held, single: Sequence[Holder]) -> _Within:
    """A sampled object that each of two holders alone keeps says that one of them is
    within the other.  Where nothing of a holder was sampled, its path says which one it
    may be within: if it is not, that one keeps more by itself than it has then, but
    nothing counts twice."""
    within: _Within = {}
    for set_ in {set_ for set_, how in zip(held.sets, held.hows) if how == ALONE}:
        outer = None
        for holder in single:
            if holder.set & set_:
                within.setdefault(holder.set, outer)
                outer = holder
    room = {holder.set: holder.bytes for holder in single}
    for holder in single:
        if (outer := within.get(holder.set)) is not None:
            room[outer.set] -= holder.bytes
    for number, holder in enumerate(single):
        if holder.set in within:
            continue
        outer = within[holder.set] = max(
            (one for one in single[:number] if _leads_through(holder.path, one.path)
             and room[one.set] >= holder.bytes),
            key=lambda one: len(one.path), default=None)
        if outer is not None:
            room[outer.set] -= holder.bytes
    return within


def _leads_through(path: str, outer: str) -> bool:
    return path.startswith(outer) and path.startswith((".", "[", " -> "), len(outer))


def _ways(single: Sequence[Holder], within: _Within) -> dict[int, tuple[str, ...]]:
    """To each holder, which stands last."""
    ways: dict[int, tuple[str, ...]] = {}
    for holder in single:
        outer, begin = within[holder.set], 0
        above: tuple[str, ...] = ()
        if outer is not None:
            above = ways[outer.set]
            begin = len(outer.path if _leads_through(holder.path, outer.path)
                        else holder.path)
        ways[holder.set] = (*above, *(
            shortened(holder.path[:end], MAX_PATH) for end in _ends(holder.path)
            if end > begin), text_of(holder))
    return ways


#: nothing within a text, or within the name of a function that runs, is a step
_STEPS = re.compile(r'''
    "(?:[^"\\]|\\.)*" | ^in\ (?:(?!\ ->\ ).)*
    | (?P<step>\ ->\ (?:in\ (?:(?!\ ->\ ).)*)? | \.(?!\d) | \[)''', re.VERBOSE)


def _ends(path: str) -> list[int]:
    """Where its steps begin: what stands before one is a path, too."""
    return [match.start() for match in _STEPS.finditer(path)
            if match["step"] and match.start()]
