"""Compare the retained sizes and reference paths with the truth, in PyPy.

    held_truth.py sums RUNS
    held_truth.py paths TURNS

The experiment `held` runs this script, which prints JSON. "sums" plants seven retainers
of random sizes in each of RUNS processes. It prints two values for each retainer: the z
score of its retained size as estimated from samples against the exact size, and whether
the 95 % confidence interval contains the exact size.

"paths" makes random modules TURNS times, with nested lists, dicts, sets, classes, slots
and instances. It evaluates the reference path of each retainer, if the path is an
expression. It prints the number of paths that lead to the retainer, and the number that
lead to another object.
"""
from __future__ import annotations

import builtins
import collections
import enum
import gc
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import types
from typing import Any, ClassVar, NamedTuple

import vmprof_allocation
from vmprof_convert import readers
from vmprof_convert.analysis import holders
from vmprof_convert.profile.held import ALONE, Held, Holder
from vmprof_convert.profile.model import Profile

INTERVAL = "32k"
MODULES = 3


class Instance:
    """An object with attributes."""


class Color(enum.Enum):
    """An enumeration, whose member serves as a key."""

    RED = 1


class Pair(NamedTuple):
    """A named tuple."""

    number: int
    items: list[Any]


class OtherPair(Pair):
    """A named tuple whose first name leads to a property."""

    @property
    def number(self) -> str:        # type: ignore[override]
        """Return a value that is not the tuple's first item."""
        return "another"


KEYS: list[Any] = ["name", "with space", "quo'te", 'dou"ble', "\u00fc", "", 5, -3,
                   2**40, b"byt\x00es", None, True, (1, "a"), 3.5, (7, 8), (), (5,),
                   ("a", (None, b"x\xff")), (2.5, 3.5), (1, (2, (3, 4))), Color.RED,
                   (Color.RED, 1, "a"), int, Instance, ("a", Instance), range(3)]


class Slots:
    """An object with slots."""

    __slots__ = ("one", "three", "two")
    one: Any


class OwnDict(dict[Any, Any]):
    """A subclass of dict."""


class OwnList(list[Any]):
    """A subclass of list."""


class Planted:
    """A class whose attributes are the seven planted retainers."""

    instances: ClassVar[list[Any]] = []
    texts: ClassVar[dict[str, Any]] = {}
    names: ClassVar[set[str]] = set()
    buffers: ClassVar[list[bytearray]] = []
    slots: ClassVar[dict[int, Slots]] = {}
    lengths: ClassVar[dict[int, str]] = {}
    empty: ClassVar[list[object]] = []


def ask(interval: str) -> tuple[Profile, Held]:
    """Record a profile with a heap snapshot, and return the profile and the snapshot.

    Args:
        interval: The sampling interval. If it is INTERVAL, plant() is called first.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "held.vmprof")
        with vmprof_allocation.sample(path, interval) as session:
            if interval == INTERVAL:
                plant()
            gc.collect()
            gc.collect()
            session.retainers()
        profile = readers.read_events(path)
    answer = profile.held[-1]
    assert not answer.problem, answer.problem
    return profile, answer


# ________________________________________
# retained sizes


def plant() -> None:
    """Fill the seven retainers with random numbers of objects."""
    rng = random.Random(int(sys.argv[2]))

    def number() -> int:
        return rng.randrange(8000, 40000)

    for i in range(number()):
        instance = Instance()
        instance.__dict__["items"] = ["%d.%d" % (i, j) for j in range(i % 7)]
        Planted.instances.append(instance)
    Planted.texts.update(("k%d" % i, (i, str(i), float(i))) for i in range(number()))
    Planted.names.update("name%d" % i for i in range(number()))
    Planted.buffers += [bytearray(rng.randrange(10, 20000)) for _ in range(
        number() // 50)]
    for i in range(number()):
        slots = Planted.slots[i] = Slots()
        slots.one = {i: [i]}
    # An old object() takes half of its bytes in the nursery.
    Planted.empty += [object() for _ in range(10 * number())]
    Planted.lengths.update((i, "x" * rng.randrange(1, 500)) for i in range(number()))


def z_of(profile: Profile, answer: Held, row: holders.Row) -> float:
    """Return the z score of the retained size that samples estimate for a retainer."""
    value = variance = 0.0
    for one in holders.objects(profile, answer):
        if one.how == ALONE and one.set & row.holders[0].set:
            value += one.weight
            variance += (1.0 - one.probability) * one.weight ** 2
    return (value - row.bytes) / math.sqrt(variance)


def one_run() -> None:
    """Plant the retainers, and print a line of JSON for each retainer."""
    profile, answer = ask(INTERVAL)
    for row in holders.find(profile, answer).rows:
        if len(row.holders) == 1 and ".Planted." in row.holders[0].path:
            low, high = row.estimate.low, row.estimate.high
            print(json.dumps([z_of(profile, answer, row), low <= row.bytes <= high]))


def sums(runs: int) -> None:
    """Run several processes with planted retainers, and print all their lines."""
    rows = [json.loads(line) for seed in range(runs) for line in subprocess.run(
        [sys.executable, __file__, "run", str(seed)], check=True,
        stdout=subprocess.PIPE, encoding="ascii").stdout.splitlines()]
    assert len(rows) == 7 * runs, len(rows)
    print(json.dumps(rows))


# ________________________________________
# reference paths


def large(rng: random.Random) -> Any:
    """Return a random container of many strings."""
    count = rng.randrange(300, 1500)
    texts = ["x%d" % i for i in range(count)]
    return rng.choice((
        list, tuple, set, collections.deque, OwnList, dict.fromkeys,
        lambda texts: dict(enumerate(texts))))(texts)


def small(rng: random.Random) -> Any:
    """Return a random object that can refer to others."""
    return rng.choice((Instance, Slots, dict, OwnDict, list, OwnList,
                       lambda: Pair(1, []), lambda: OtherPair(2, []),
                       lambda: time.struct_time(([], *range(8))),
                       lambda: type("Made%d" % rng.randrange(1000), (), {})))()


def put(rng: random.Random, into: Any, value: object) -> None:
    """Store a value in an object, in the way that suits the object."""
    if type(into) is time.struct_time:
        into = into[0]          # The list that small() has put into the tuple.
    if isinstance(into, dict):
        into[rng.choice(KEYS)] = value
    elif isinstance(into, Pair):
        into.items.append(value)
    elif isinstance(into, list):
        into += [None] * rng.randrange(3) + [value]
    elif isinstance(into, Slots):
        setattr(into, rng.choice(Slots.__slots__), value)
    else:
        setattr(into, "a%d" % rng.randrange(10**6), value)


def make(rng: random.Random) -> list[str]:
    """Make modules with random contents, and return their names."""
    modules = [types.ModuleType(rng.choice(("mod%d", "package.mod%d")) % number)
               for number in range(MODULES)]
    nodes: list[Any] = list(modules)
    for _ in range(rng.randrange(10, 60)):
        into = rng.choice(nodes)
        if rng.random() < 0.5:
            nodes.append(small(rng))
            put(rng, into, nodes[-1])
        else:
            put(rng, into, large(rng))
    sys.modules.update((module.__name__, module) for module in modules)
    return [module.__name__ for module in modules]


def is_right(holder: Holder) -> bool | None:
    """Return whether a retainer's path leads to the retainer.

    The result is None if the path is not an expression, or if the path leads to an
    object whose id() is not its address.
    """
    if " -> " in holder.path or holder.path.startswith("in ") or holder.is_class:
        return None
    found = []
    # the path x.y.z may be z of the module x.y, or y.z of the module x
    for name, module in list(sys.modules.items()):
        if holder.path.startswith((name + ".", name + "[")):
            try:
                found.append(eval("m" + holder.path[len(name):],
                                  {**vars(builtins), **sys.modules, "m": module}))
            except (AttributeError, LookupError, TypeError):
                pass
    if any(isinstance(one, (str, bytes, int, float)) for one in found):
        return None
    return holder.address in map(id, found)


def paths(turns: int) -> None:
    """Check the paths of several random structures, and print the numbers."""
    counts: collections.Counter[bool | None] = collections.Counter()
    for turn in range(turns):
        names = make(random.Random(turn))
        for holder in ask("64k")[1].holders:
            if holder.path:
                counts[is_right(holder)] += 1
                if is_right(holder) is False:
                    print("wrong:", holder.path, holder.type, file=sys.stderr)
        for name in names:
            del sys.modules[name]
    print(json.dumps({"right": counts[True], "wrong": counts[False],
                      "no expression": counts[None]}))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        one_run()
    else:
        {"sums": sums, "paths": paths}[sys.argv[1]](int(sys.argv[2]))
