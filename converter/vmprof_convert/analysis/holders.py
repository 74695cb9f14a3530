"""Attribute the live objects of a heap snapshot to their retainers.

A heap snapshot with reference paths (`Held`) contains the exact retained size of each
retainer (in the code, `Holder`). The sampled objects add the types of the retained
objects and the functions that allocated them. find() returns the rows of the command
retainers. by_place() and of_chosen() return the retainers of some objects, for the
report of leaks and for the pytest plugin.
"""
from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple, TypeVar

from vmprof_convert.analysis.leaks.sites import Place, Places
from vmprof_convert.meaning.estimator import Estimate, Sum
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import Shown, TypeNames
from vmprof_convert.meaning.user_code import has_own_code, only_own
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.held import (
    ALONE,
    CLASSES,
    FINALIZER,
    INTERPRETER,
    NO_PATH,
    OTHERWISE,
    TOGETHER,
    Held,
    Holder,
)
from vmprof_convert.profile.model import Function, Profile
from vmprof_convert.profile.probability import probability
from vmprof_convert.text.escape import printable, shortened_path

#: the number of samples below which the contents of a retainer are not reported
_FEW_SAMPLES = 10
#: the prefix of the labels of the interpreter's own roots (native/held/paths.c)
_INTERPRETERS = "PyPy's own"
#: the number of characters of a reference path that are shown
MAX_PATH = 400


def text_of(path: str, type_: str) -> str:
    """Return a path with its type, such as "shop._seen (dict)"."""
    return shortened_path(path, MAX_PATH) + (
        " (%s)" % printable(type_) if type_ else "")


class Part(NamedTuple):
    """The objects of one type that one function allocated and a retainer keeps."""

    #: the part's share of the estimated bytes that the retainer keeps
    share: float
    type: Shown
    function: Function
    #: the line in the source; 0 if it is unknown
    line: int


class Row(NamedTuple):
    """The objects that one retainer keeps, or several retainers together."""

    #: one retainer, or several that keep the objects only together
    holders: tuple[Holder, ...]
    #: the retained size in bytes, and the number of retained objects, both exact
    bytes: int
    objects: int
    #: the same bytes, estimated from the sampled objects
    estimate: Estimate
    #: the retained objects by type and function, with the largest part first
    parts: list[Part]


class Rest(NamedTuple):
    """The objects that no retainer keeps."""

    #: how the objects are reachable: OTHERWISE, INTERPRETER, FINALIZER or NO_PATH
    how: int
    estimate: Estimate
    #: the objects by type and function, with the largest part first
    parts: list[Part]
    #: for INTERPRETER, the purposes for which the interpreter keeps objects, and the
    #: exact bytes of each purpose, with the largest one first
    paths: list[tuple[str, int]]


class Found(NamedTuple):
    """The retainers of one heap snapshot, and the objects without a retainer."""

    held: Held
    rows: list[Row]
    rest: list[Rest]


class HeldObject(NamedTuple):
    """A sampled object that was alive in a heap snapshot."""

    #: the indices of the stack and of the type
    stack: int
    type: int
    #: the bytes that the object had at the time of the snapshot
    size: int
    #: the probability of the sample, from the bytes that were allocated
    probability: float
    #: the retainers, the kind of reachability, and the index of the reference path (see
    #: Held.sets, Held.hows and Held.paths)
    set: int
    how: int
    path: int

    @property
    def weight(self) -> float:
        """Return the estimated number of bytes that the object represents."""
        return self.size / self.probability


def objects(profile: Profile, held: Held) -> Iterator[HeldObject]:
    """Return the sampled objects that were alive in a heap snapshot."""
    for stack, type_, size, live_size, interval, set_, how, path in zip(
            held.stacks, held.types, held.sizes, held.live_sizes, held.intervals,
            held.sets, held.hows, held.paths):
        yield HeldObject(stack, type_, live_size,
                         probability(size, interval, profile.gaps), set_, how, path)


class Sums:
    """The estimated bytes of some objects, in total and by stack and type."""

    def __init__(self) -> None:
        """Start with no objects."""
        self.all = Sum()
        self.parts: dict[tuple[int, int], float] = {}

    def add(self, one: HeldObject) -> None:
        """Add an object."""
        self.all.add(one.size, one.probability)
        kind = one.stack, one.type
        self.parts[kind] = self.parts.get(kind, 0.0) + one.weight


def find(profile: Profile, held: Held, *, group_storage: bool = False) -> Found:
    """Return the retainers of one heap snapshot.

    Args:
        profile: the profile that contains the snapshot.
        held: the snapshot.
        group_storage: whether the storage of a list, dict etc. counts as that type.
    """
    sums: dict[int, Sums] = {holder.set: Sums() for holder in held.holders}
    single = [holder.set for holder in held.holders if holder.path]
    rest = {how: Sums() for how in (OTHERWISE, INTERPRETER, FINALIZER, NO_PATH)}
    for one in objects(profile, held):
        alone = one.set if one.how == ALONE else one.set & CLASSES
        bits = [bit for bit in single if alone & bit]
        if one.how == TOGETHER and one.set & ~CLASSES in sums:
            bits.append(one.set & ~CLASSES)
        for bit in bits:
            sums[bit].add(one)
        if not bits:
            # The snapshot does not list small groups of retainers, so the objects of
            # such a group count as the rest.
            rest[one.how if one.how in rest else OTHERWISE].add(one)
    interval = max(held.intervals, default=1)
    # the interpreter's own roots, from which objects were reached that the program does
    # not keep
    own = sorted(((step.label, step.bytes) for step in held.steps
                  if step.before < 0 and step.label.startswith(_INTERPRETERS)),
                 key=lambda pair: -pair[1])
    named = Parts(profile, group_storage)

    def if_enough(of: Sums) -> list[Part]:
        return named.of(of) if of.all.samples >= _FEW_SAMPLES else []

    by_bit = {holder.set: holder for holder in held.holders if holder.path}
    rows = [Row(tuple(by_bit[bit] for bit in by_bit if holder.set & bit),
                holder.bytes, holder.objects, sums[holder.set].all.bytes(interval),
                if_enough(sums[holder.set]))
            for holder in held.holders if holder.bytes]
    return Found(held, sorted(rows, key=lambda row: -row.bytes),
                 [Rest(how, of.all.bytes(interval), if_enough(of),
                       own if how == INTERPRETER else [])
                  for how, of in rest.items()
                  if of.all.samples or (how == INTERPRETER and own)])


class Share(NamedTuple):
    """The part of some objects that one retainer keeps."""

    #: the part's share of the estimated bytes of all these objects
    share: float
    #: the estimated bytes of the part
    bytes: float
    #: the retainers; empty if no retainer keeps the objects (see Rest)
    holders: tuple[Holder, ...]
    #: without retainers, the named part of one reference path to the objects, or empty.
    #: Other paths may exist
    path: str
    #: without retainers, how the objects are reachable: OTHERWISE to NO_PATH
    how: int


_Key = TypeVar("_Key")


def by_place(profile: Profile, until: int) -> dict[Place, list[Share]]:
    """Return the retainers of the objects of each place (see leaks/sites.py).

    Args:
        profile: the profile of one process.
        until: the latest time of the heap snapshot, in nanoseconds. A snapshot after
            the end of the program would lack local variables.
    """
    origins = Origins(profile)
    places = Places(profile, only_own(profile, origins)
                    if has_own_code(profile, origins) else profile)
    return _shares(profile, lambda stack, type_: places.of(stack)[0],
                   last_until(profile, until))


def last_until(profile: Profile, until: int) -> Held | None:
    """Return the last successful snapshot until this time, or else Profile.last_held.

    Args:
        profile: the profile of one process.
        until: the time in nanoseconds.
    """
    answers = [held for held in profile.held if not held.problem and held.time <= until]
    return answers[-1] if answers else profile.last_held


def of_chosen(profile: Profile, chosen: Container[tuple[int, int]]) -> list[Share]:
    """Return the retainers of the objects whose stack and type are in `chosen`."""
    return _shares(profile, lambda stack, type_: (stack, type_) in chosen,
                   profile.last_held).get(True, [])


def _shares(profile: Profile, kind: Callable[[int, int], _Key], held: Held | None
            ) -> dict[_Key, list[Share]]:
    """Return the retainers of each kind of objects, with the largest share first.

    If a retainer is within another one, the objects belong to the inner one. They
    belong to a class only if no other retainer exists.

    Args:
        profile: the profile that contains the snapshot.
        kind: a function that returns the kind of the objects with a stack and a type.
        held: the heap snapshot, or None.
    """
    if held is None or held.problem:
        return {}
    single = sorted((holder for holder in held.holders if holder.path),
                    key=lambda holder: (holder.is_class, holder.bytes))
    sums: dict[_Key, dict[tuple[tuple[Holder, ...], int, int], float]] = {}
    # The objects that this snapshot did not reach have ended.
    ended = (NO_PATH, FINALIZER) if any(
        snapshot.time == held.time for snapshot in profile.snapshots) else ()
    for one in objects(profile, held):
        if one.how in ended:
            continue
        of_set = tuple(holder for holder in single if holder.set & one.set)
        several = tuple(holder for holder in of_set if not holder.is_class)
        key = ((several, -1, ALONE) if one.how == TOGETHER and several else
               (of_set[:1], -1, ALONE) if of_set else ((), one.path, one.how))
        of_kind = sums.setdefault(kind(one.stack, one.type), {})
        of_kind[key] = of_kind.get(key, 0.0) + one.weight
    return {of: sorted(
        (Share(weight / sum(of_kind.values()), weight, holders,
               held.path(path) if path >= 0 else "", how)
         for (holders, path, how), weight in of_kind.items()),
        key=lambda one: -one.share)
        for of, of_kind in sums.items()}


class Parts:
    """Divides a sum of objects into parts, by type, function and line."""

    def __init__(self, profile: Profile, group_storage: bool) -> None:
        """Prepare the names of types and functions.

        Args:
            profile: the profile whose objects are summed.
            group_storage: whether the storage of a list, dict etc. counts as that type.
        """
        origins = Origins(profile)
        own = only_own(profile, origins) if has_own_code(profile, origins) else profile
        self._program = Program(own)
        self._types = TypeNames(profile, group_storage=group_storage)

    def of(self, sums: Sums) -> list[Part]:
        """Return the parts of a sum, with the largest part first."""
        merged: dict[tuple[Shown, Function, int], float] = {}
        for (stack, type_), value in sums.parts.items():
            frame = self._program.stack(stack)[-1]
            key = (self._types.shown(type_), self._program.function(frame),
                   self._program.line(frame))
            merged[key] = merged.get(key, 0.0) + value
        return sorted((Part(value / sums.all.value_bytes, *key)
                       for key, value in merged.items()), key=lambda part: -part.share)
