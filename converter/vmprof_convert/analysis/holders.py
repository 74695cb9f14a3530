"""Who held what was alive: for each holder what it alone kept, which is exact, and,
from the samples, of what that consists and where it was allocated."""
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

#: of a holder with less, nothing is said of what it consists of
_FEW_SAMPLES = 10
#: how native/held/paths.c begins what it says of the interpreter
_INTERPRETERS = "PyPy's own"
#: of a path so many characters are shown
MAX_PATH = 400


def text_of(path: str, type_: str) -> str:
    """shop._seen (dict)"""
    return shortened_path(path, MAX_PATH) + (
        " (%s)" % printable(type_) if type_ else "")


class Part(NamedTuple):
    """Of what a holder keeps: objects of a type, that one function allocated."""

    #: of the estimated bytes
    share: float
    type: Shown
    function: Function
    #: 0: not known
    line: int


class Row(NamedTuple):
    #: one; or several that hold it together
    holders: tuple[Holder, ...]
    #: exact, of all objects
    bytes: int
    objects: int
    #: of the sampled objects
    estimate: Estimate
    #: the largest first
    parts: list[Part]


class Rest(NamedTuple):
    """What no holder keeps."""

    #: OTHERWISE, INTERPRETER, FINALIZER or NO_PATH
    how: int
    estimate: Estimate
    #: the largest first
    parts: list[Part]
    #: of what the interpreter holds: what it has that for, and its bytes, which are
    #: exact: the largest first
    paths: list[tuple[str, int]]


class Found(NamedTuple):
    held: Held
    rows: list[Row]
    rest: list[Rest]


class HeldObject(NamedTuple):
    """A sampled one that was alive."""

    #: indexes, as in Held
    stack: int
    type: int
    #: bytes that it took then
    size: int
    #: that it was sampled, by what was allocated for it
    probability: float
    set: int
    how: int
    path: int

    @property
    def weight(self) -> float:
        """Bytes that it stands for."""
        return self.size / self.probability


def objects(profile: Profile, held: Held) -> Iterator[HeldObject]:
    for stack, type_, size, live_size, interval, set_, how, path in zip(
            held.stacks, held.types, held.sizes, held.live_sizes, held.intervals,
            held.sets, held.hows, held.paths):
        yield HeldObject(stack, type_, live_size,
                         probability(size, interval, profile.gaps), set_, how, path)


class Sums:
    """Of sampled objects, by what they are and where they were allocated."""

    def __init__(self) -> None:
        self.all = Sum()
        self.parts: dict[tuple[int, int], float] = {}

    def add(self, one: HeldObject) -> None:
        self.all.add(one.size, one.probability)
        kind = one.stack, one.type
        self.parts[kind] = self.parts.get(kind, 0.0) + one.weight


def find(profile: Profile, held: Held, *, group_storage: bool = False) -> Found:
    """Of one answer."""
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
            # smaller groups are not told
            rest[one.how if one.how in rest else OTHERWISE].add(one)
    interval = max(held.intervals, default=1)
    # what nothing of the program's leads to was reached through these
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
    """Of some objects, what these hold."""

    #: of the estimated bytes
    share: float
    #: estimated
    bytes: float
    #: none: see Rest
    holders: tuple[Holder, ...]
    #: where there are none: the path to it, as far as it has names; others may lead
    #: there, too; empty: none
    path: str
    #: OTHERWISE to NO_PATH, where there are no holders
    how: int


_Key = TypeVar("_Key")


def by_place(profile: Profile, until: int) -> dict[Place, list[Share]]:
    """Return the retainers of the objects of each place of leaks.

    Args:
        profile: of one process.
        until: the last moment, in nanoseconds; a heap snapshot after the end of the
            program lacks local variables.
    """
    origins = Origins(profile)
    places = Places(profile, only_own(profile, origins)
                    if has_own_code(profile, origins) else profile)
    return _shares(profile, lambda stack, type_: places.of(stack)[0],
                   last_until(profile, until))


def last_until(profile: Profile, until: int) -> Held | None:
    """Return the last answer until this time, or else the last one of all."""
    answers = [held for held in profile.held if not held.problem and held.time <= until]
    return answers[-1] if answers else profile.last_held


def of_chosen(profile: Profile, chosen: Container[tuple[int, int]]) -> list[Share]:
    """Of the objects with these stacks and types."""
    return _shares(profile, lambda stack, type_: (stack, type_) in chosen,
                   profile.last_held).get(True, [])


def _shares(profile: Profile, kind: Callable[[int, int], _Key], held: Held | None
            ) -> dict[_Key, list[Share]]:
    """Return the retainers of each kind of stack and type, the largest share first.

    Of holders within each other, the innermost counts.  A class counts where no other
    holder exists.
    """
    if held is None or held.problem:
        return {}
    single = sorted((holder for holder in held.holders if holder.path),
                    key=lambda holder: (holder.is_class, holder.bytes))
    sums: dict[_Key, dict[tuple[tuple[Holder, ...], int, int], float]] = {}
    # the sampled objects that a snapshot did not reach have ended
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
    """Of what that consists."""

    def __init__(self, profile: Profile, group_storage: bool) -> None:
        origins = Origins(profile)
        own = only_own(profile, origins) if has_own_code(profile, origins) else profile
        self._program = Program(own)
        self._types = TypeNames(profile, group_storage=group_storage)

    def of(self, sums: Sums) -> list[Part]:
        """The largest first."""
        merged: dict[tuple[Shown, Function, int], float] = {}
        for (stack, type_), value in sums.parts.items():
            frame = self._program.stack(stack)[-1]
            key = (self._types.shown(type_), self._program.function(frame),
                   self._program.line(frame))
            merged[key] = merged.get(key, 0.0) + value
        return sorted((Part(value / sums.all.value_bytes, *key)
                       for key, value in merged.items()), key=lambda part: -part.share)
