"""The retained sizes of native/held on artificial heaps.

An oracle in Python finds the objects that are unreachable without each retainer.
"""
from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from native_build import HERE, build

#: values of enum held_how (native/held/question.h)
NO_PATH, ALONE, TOGETHER, OTHERWISE, INTERPRETER, FINALIZER = range(6)
#: number of the first bit that belongs to a class
CLASSES = 30
#: size of an empty list in bytes, number of its objects, and size of an item in bytes
LIST, PIECES, ITEM = 16 + 24 + 16, 3, 8


class Heap(NamedTuple):
    """An artificial heap of lists.  `items` has the numbers of each list's items."""

    items: list[list[int]]
    #: numbers of the lists that are names of a module
    names: list[int]
    #: numbers of the lists that are other roots
    roots: list[int]

    def text(self) -> str:
        numbers: list[int] = [len(self.items)]
        for items in (*self.items, self.names, self.roots):
            numbers += [len(items), *items]
        return " ".join(map(str, numbers))

    def reached(self, roots: list[int], without: frozenset[int]) -> set[int]:
        found: set[int] = set()
        todo = [root for root in roots if root not in without]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += [item for item in self.items[one] if item not in without]
        return found

    def size(self, one: int) -> int:
        return LIST + ITEM * len(self.items[one])


class Holder(NamedTuple):
    set: int
    bytes: int
    objects: int
    #: path, type and aliases; empty for a group
    names: list[str]


class Step(NamedTuple):
    before: int
    bytes: int
    label: str
    type: str


class Answer(NamedTuple):
    #: number of reachable objects, and number of visits of the second walk
    objects: int
    looks: int
    holders: list[Holder]
    #: value of enum held_how for each list
    how: list[int]
    sets: list[int]
    #: path to each list, as an index into `steps`; -1 if it has no path
    paths: list[int]
    steps: list[Step]

    def path(self, step: int) -> str:
        one = self.steps[step]
        return (self.path(one.before) if one.before >= 0 else "") + one.label


def harness() -> Path:
    return build("held_harness", str(HERE / "native/counted_holders.c"), *(
        "held/%s.c" % name for name in (
            "class_names", "classes", "gc_types", "heap_walk", "held", "literals",
            "mapped_memory", "marks", "paths", "question", "step_names", "text")))


def run(heap: Heap, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([harness(), *arguments], input=heap.text(), text=True,
                          capture_output=True)


def answer(heap: Heap, *arguments: str) -> Answer:
    done = run(heap, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    holders, how, sets, paths, steps = [], [], [], [], []
    first, *lines = done.stdout.splitlines()
    objects, looks = (int(first.split()[at]) for at in (1, 5))
    for line in lines:
        kind, *words = line.split()
        if kind == "holder":
            set_, size, count = map(int, words[:3])
            words = line.replace("all instances of ", "*").split()[1:]
            holders.append(Holder(set_, size, count, words[3:]))
        elif kind == "list":
            how.append(int(words[0]))
            sets.append(int(words[1]))
            paths.append(int(words[2]) - 1)
        elif kind == "step":
            # the harness prints no type for a dict
            label, _, type_ = line.split(" ", 3)[3].rpartition(" ")
            steps.append(Step(int(words[0]) - 1, int(words[1]), label, type_))
    return Answer(objects, looks, holders, how, sets, paths, steps)


def object_of(heap: Heap, path: str) -> int:
    """Return the list at a path such as m.x3[1][0]."""
    name, *indices = path.replace("]", "").split("[")
    found = heap.names[int(name.removeprefix("m.x"))]
    for index in indices:
        found = heap.items[found][int(index)]
    return found


def check_paths(heap: Heap, found: Answer) -> None:
    """Check that each path leads to its list, and that no named list is nearer."""
    objects = [None if step.before < 0 else object_of(heap, found.path(number))
               for number, step in enumerate(found.steps)]
    every = heap.reached(heap.names, frozenset())
    behind = [every if one is None else heap.reached([one], frozenset())
              for one in objects]
    named = set(objects)
    for one, path in enumerate(found.paths):
        if path >= 0 and found.path(path) == "waits for its finalizer":
            assert found.how[one] == FINALIZER
            continue
        assert path < 0 or one in behind[path]
        assert one not in named or objects[path] == one
    for number, step in enumerate(found.steps):
        assert step.type == ("" if step.before < 0 else "list")
        within = sum(other.bytes for other in found.steps if other.before == number)
        # a step has at least the bytes of its lists and of the steps after it
        assert step.bytes >= within + sum(
            heap.size(one) for one, path in enumerate(found.paths) if path == number)


def check(heap: Heap) -> int:
    """Compare the retainers that native/held finds with an oracle.

    A retainer must retain the lists that are unreachable without the retainer.

    Returns:
        The number of retainers.
    """
    found = answer(heap)
    check_paths(heap, found)
    single = {holder.set: object_of(heap, holder.names[0])
              for holder in found.holders if holder.names}
    assert len(set(single.values())) == len(single)
    every = heap.reached(heap.names, frozenset())
    lost = {bit: every - heap.reached(heap.names, frozenset([holder]))
            for bit, holder in single.items()}
    free = heap.reached(heap.names, frozenset(single.values()))
    others = heap.reached(heap.roots, frozenset()) - every
    for holder in found.holders:
        if holder.names:
            kept = lost[holder.set]
            assert holder.names[1] == "list"
            for alias in holder.names[2:]:
                assert object_of(heap, alias) == single[holder.set]
        else:
            kept = {one for one, how, set_ in zip(
                range(len(found.how)), found.how, found.sets)
                if (how, set_) == (TOGETHER, holder.set)}
            of = {single[bit] for bit in single if bit & holder.set}
            assert not kept & heap.reached(heap.names, frozenset(of)), "not without"
            for one in of:
                assert kept <= heap.reached(
                    [one], frozenset(single.values()) - {one}), "and by each of them"
        assert (holder.bytes, holder.objects) == (
            sum(map(heap.size, kept)), PIECES * len(kept))
    for one, how, set_ in zip(range(len(found.how)), found.how, found.sets):
        without = sum(bit for bit, kept in lost.items() if one in kept)
        if one not in every:
            assert how == (FINALIZER if one in others else NO_PATH)
        elif one in free:
            assert (how, set_) == (OTHERWISE, 0)
        elif without:
            assert (how, set_) == (ALONE, without)
        else:
            assert how == TOGETHER
    return len(single)


def leaves(count: int, first: int) -> list[int]:
    return list(range(first, first + count))


def test_retained_size_of_a_single_name() -> None:
    """The retainer is the inner list, which has nearly all of the outer list's size."""
    heap = Heap([[1], [*leaves(200, 2)], *[[] for _ in range(200)]], [0], [])
    (holder,) = answer(heap).holders
    assert holder.names == ["m.x0[0]", "list"]
    assert (holder.bytes, holder.objects) == (201 * LIST + 200 * ITEM, 201 * PIECES)
    assert check(heap) == 1


def test_retained_size_of_two_names_together() -> None:
    shared = leaves(100, 2)
    heap = Heap([[*shared, *leaves(50, 102)], [*shared, *leaves(50, 152)],
                 *[[] for _ in range(200)]], [0, 1], [])
    holders = answer(heap).holders
    assert [holder.names for holder in holders] == [
        ["m.x0", "list"], ["m.x1", "list"], []]
    assert holders[2].set == holders[0].set | holders[1].set
    assert holders[2].bytes == 100 * LIST
    assert check(heap) == 2


def test_all_names_of_a_retainer_are_listed() -> None:
    heap = Heap([leaves(100, 1), *[[] for _ in range(100)]], [0, 0, 0], [])
    (holder,) = answer(heap).holders
    assert holder.names == ["m.x0", "list", "m.x1", "m.x2"]


def test_objects_that_wait_for_their_finalizer_and_garbage() -> None:
    heap = Heap([[], leaves(5, 3), [8], *[[] for _ in range(6)]], [0], [1])
    found = answer(heap)
    assert found.how == [OTHERWISE, FINALIZER, NO_PATH, *[FINALIZER] * 5, NO_PATH]
    assert [found.path(path) if path >= 0 else "" for path in found.paths] == [
        "m" if how == OTHERWISE else "waits for its finalizer" if how == FINALIZER
        else "" for how in found.how]


def test_reference_paths_of_the_queried_objects() -> None:
    """A path ends at the last list with a name.  Small lists have no name."""
    heap = Heap([[1, 2], leaves(200, 3), [], *[[] for _ in range(200)]], [0], [])
    found = answer(heap)
    assert [found.path(path) for path in found.paths] == [
        "m.x0", "m.x0[0]", "m.x0", *["m.x0[0]"] * 200]
    # the first step belongs to the dict of modules
    assert [step.before for step in found.steps] == [-1, -1, 1, 2]
    assert found.steps[3].bytes == 201 * LIST + 200 * ITEM


def test_objects_that_only_the_interpreter_refers_to() -> None:
    """The path names the first object on the way that belongs to the interpreter."""
    heap = Heap([leaves(3, 4), leaves(5, 7), leaves(6, 12), leaves(7, 18),
                 *[[] for _ in range(21)]], [0], [1, 2, 3])
    found = answer(heap, "own")
    assert found.how == [OTHERWISE, *[INTERPRETER] * 3, *[OTHERWISE] * 3,
                         *[INTERPRETER] * 18]
    own = "PyPy's own"
    jit, compiled = own + ": JIT compiler", own + ": compiled code"
    assert [found.path(path) for path in found.paths] == [
        "m", own, jit, compiled, *["m"] * 3, *[own] * 5, *[jit] * 6, *[compiled] * 7]
    bytes_ = {step.label: step.bytes for step in found.steps}
    assert bytes_[jit] == 16 + 7 * LIST + 6 * ITEM
    assert bytes_[compiled] == 2 * 16 + 8 * LIST + 7 * ITEM


def test_free_objects_are_visited_once() -> None:
    """An object that is reachable without any retainer is visited once.

    The number of retainers that lead to the object does not matter.
    """
    shared = leaves(500, 30)
    heap = Heap([*([*leaves(9, 530 + 9 * one), *shared] for one in range(CLASSES)),
                 *[[] for _ in range(800)]], [*range(CLASSES)], [])
    by_many = answer(heap)
    assert by_many.looks > by_many.objects
    free = answer(heap._replace(names=[*heap.names, *shared]))
    assert len([holder for holder in free.holders if holder.names]) == CLASSES
    assert free.looks <= free.objects


def test_a_long_chain() -> None:
    """A step that exists already does not make the path longer."""
    count = 30000
    heap = Heap([*([[number + 1] for number in range(count)]), []], [0], [])
    assert check(heap) == 1
    assert len(answer(heap).holders[0].names[0]) < 20


def test_cycles() -> None:
    """Objects that refer back to their retainer are retained nevertheless."""
    heap = Heap([[*leaves(100, 1)], *[[0, 1 + (one + 1) % 100] for one in range(100)]],
                [0], [])
    assert check(heap) == 1


@pytest.mark.parametrize("seed", range(10))
def test_items_of_deques_have_their_numbers(seed: int) -> None:
    """The first item of a deque may be at any place of its block."""
    chance = random.Random(seed)
    deques, first = 20, 40
    items = [[deques + chance.randrange(20) for _ in range(chance.randrange(9))]
             for _ in range(deques)]
    items += [leaves(chance.randrange(50, 100), first + 100 * one) for one in range(20)]
    heap = Heap([*items, *[[] for _ in range(2000)]], list(range(deques)), [])
    found = answer(heap, "deques")
    named = [holder for holder in found.holders if holder.names]
    assert any("[" in holder.names[0] for holder in named)
    for holder in named:
        one = object_of(heap, holder.names[0])
        assert holder.names[1] == "deque"
        assert (found.how[one], found.sets[one] & holder.set) == (ALONE, holder.set)
        count = len(heap.items[one])
        if one >= deques:       # empty deques have three objects each, in blocks of two
            assert holder.objects == 1 + 2 * -(-(count % 3 + count) // 3) + 3 * count


@pytest.mark.parametrize("seed", range(40))
def test_random_heaps(seed: int) -> None:
    """The lists are shared and nested, and have cycles."""
    chance = random.Random(seed)
    count = chance.choice((30, 300, 3000))
    items = [[chance.randrange(count) if chance.random() < 0.2 else
              min(count - 1, one + chance.randrange(1, 40))
              for _ in range(int(chance.expovariate(0.5)))] for one in range(count)]
    for _ in range(chance.randrange(8)):
        items[chance.randrange(count)] += [
            chance.randrange(count) for _ in range(chance.randrange(200))]
    check(Heap(items, [chance.randrange(count) for _ in range(chance.randrange(1, 60))],
               [chance.randrange(count) for _ in range(chance.randrange(3))]))


def check_classes(heap: Heap) -> set[str]:
    """Compare the classes that native/held finds as retainers with an oracle.

    A class must retain the lists that are unreachable without all its instances.

    Returns:
        The names of the classes that are retainers.
    """
    found = answer(heap, "classes")
    every = heap.reached(heap.names, frozenset())
    rows = {holder.names[1]: holder for holder in found.holders
            if holder.names and holder.names[0].startswith("*")}
    for name, holder in rows.items():
        of_class = frozenset(one for one in range(len(heap.items))
                             if one % 3 == ord(name) - ord("A"))
        assert holder.names == ["*" + name, name] and holder.set >> CLASSES
        kept = every - heap.reached(heap.names, of_class)
        # an instance has a map in addition
        assert (holder.bytes, holder.objects) == (
            sum(heap.size(one) + 8 * (one % 3 > 0) for one in kept), PIECES * len(kept))
        assert {one for one, set_ in enumerate(found.sets) if set_ & holder.set} == kept
    return set(rows)


def test_all_instances_of_a_class_are_a_holder() -> None:
    """A class is no retainer if a single path retains most of its instances."""
    sessions = range(1, 1200, 3)
    items: list[list[int]] = [[] for _ in range(1200 + 36 * len(sessions))]
    for number, one in enumerate(sessions):
        items[one] = leaves(36, 1200 + 36 * number)[::3]
    items[0] = list(sessions)
    one_path = Heap(items, [0], [])
    assert check_classes(one_path) == set()
    # thirty lists with a seventh of the sessions each, and one list with all of them
    many = [list(sessions) if one == 0 else [
        session for session in sessions if session % 7 == one % 7] if one % 3 == 0
        and one < 90 else item for one, item in enumerate(items)]
    assert check_classes(Heap(many, list(range(0, 90, 3)), [])) == {"B"}


@pytest.mark.parametrize("seed", range(40))
def test_random_heaps_of_instances(seed: int) -> None:
    """The heaps have instances of two classes, and lists."""
    chance = random.Random(seed)
    count = chance.choice((900, 3000))
    items = [[chance.randrange(count) if chance.random() < 0.2 else
              min(count - 1, one + chance.randrange(1, 40))
              for _ in range(int(chance.expovariate(0.5)))] for one in range(count)]
    check_classes(Heap(items, [
        chance.randrange(count) for _ in range(chance.randrange(1, 60))], [
        chance.randrange(count) for _ in range(chance.randrange(3))]))


def test_keys_of_all_kinds() -> None:
    """Paths contain keys that are literals, classes, or attributes of classes.

    For other keys, a path contains "an item".  They are too long or too deep, or have
    a class without a name.
    """
    count = 19
    heap = Heap([leaves(100, count + 100 * one) for one in range(count)]
                + [[] for _ in range(100 * count)], [], [])
    found = answer(heap, "keys")
    item = " -> an item"
    assert [found.path(path) for path in found.paths[:count]] == [
        "m.k" + key for key in (
            "[-1]", "[True]", "[None]", '[b"b\\""]', "[()]", '[(b"b\\"",)]',
            "[(%s)]" % ", ".join(["-1"] * 8), item, '[(None, (b"b\\"",))]', item,
            "[(7, -8)]", "[m.A]", item, "[m.A.RED]", item, item, item, item,
            '[(m.A.RED, "\u00e4")]')]


@pytest.mark.parametrize("how", ["damaged", "traced"])
def test_heap_that_cannot_be_walked_is_reported(how: str) -> None:
    """The walk ends at an object that is invalid or whose references are unknown.

    Only the walking process ends.
    """
    done = run(Heap([[1], []], [0], []), how)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_walk_agrees_with_the_dump_of_the_gc() -> None:
    """The probe uses this comparison of the walk with the GC's dump."""
    done = run(Heap([[1, 2], [2], [0, 1, 2]], [0], []), "compare")
    assert done.stdout == "0 1 1\n"
