"""Random programs whose object events in objects.c are compared with an oracle.

tests/rpython/test_rpython_gc.py does this for the builtin engine.
"""
from __future__ import annotations

import collections
import pathlib
import random
import subprocess
from collections.abc import Iterator

import pytest

from native_build import build
from oracle_fates import (
    DIED,
    NOT_KNOWN,
    PINNED,
    PROMOTED,
    Birth,
    Drop,
    Made,
    MarkingEnds,
    Minor,
    Rate,
    Shrink,
    Start,
    Step,
    Stop,
    Unpin,
    told,
)

INTERVALS = (1, 8, 64, 100, 500, 1000, 10_000, 2**62)
SCANNING, MARKING, SWEEPING, FINALIZING = range(4)
LETTERS = {DIED: "d", PROMOTED: "p", PINNED: "n"}
TEXTS = {DIED: "t", PROMOTED: "T", PINNED: "N"}


@pytest.fixture(scope="module")
def harness() -> pathlib.Path:
    return build("objects_harness", "hook/gc/objects.c", "sampler/sampler.c")


def written(made: Made) -> str:
    if made.fate == NOT_KNOWN:
        return "%d%s" % (made.size, "x" if made.is_junk else "-")
    letter = LETTERS[made.fate]
    if made.is_text:
        letter = TEXTS[made.fate]
    return "%d%s:%d" % (made.size, letter, made.type)


def cards(size: int) -> int:
    """Return the size of the GC's cards before an array of this size, both in bytes.

    A card is a bit for 128 pointers, and cards are whole words.
    """
    return (size // 8 // 128 + 63) // 64 * 8


def line(step: Step) -> str:
    """Return the step as a line for the harness."""
    if isinstance(step, Start):
        return "sampling %d %d %d %d" % step
    if isinstance(step, Rate):
        return "rate %d" % step.interval
    if isinstance(step, Drop):
        return "drop %d %d" % step
    if isinstance(step, Unpin):
        return "unpin %d %d %s" % (step.key, step.part, LETTERS[step.fate])
    if isinstance(step, Shrink):
        return "shrink %d %d" % step
    if isinstance(step, MarkingEnds):
        return "mark"
    if isinstance(step, Minor):
        return "minor" if step.is_seen else "unseen"
    if isinstance(step, Stop):
        return "end"
    made = step.parts[0]
    if step.place == "old":
        return "allocate-old %d %d %d" % (step.key, made.size, made.type)
    if step.place:
        return "allocate-large %d %d %d %s %d" % (
            step.key, made.size, made.type, LETTERS[made.fate],
            step.key % 2 * cards(made.size))
    return "allocate %d %s" % (step.key, " ".join(map(written, step.parts)))


class Program:
    """A random program.  `steps` are for the oracle, `lines` for the harness."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.steps: list[Step] = []
        self.lines: list[str] = []
        self._key = 0
        self._state = SCANNING
        #: whether the engine has seen a minor collection in this state of the GC
        self._was_seen = False
        self._running = False
        self._young: list[tuple[int, int]] = []         # objects that will be promoted
        self._pinned: list[tuple[int, int]] = []
        self._texts: dict[int, int] = {}                # sizes of shrinkable strings
        self._old: list[tuple[int, int]] = []
        choose = self.choose
        self._does(self._start())
        for _ in range(choose.randrange(50, 600)):
            for step in choose.choices(
                    (self._births, self._minor, self._drops, self._unpins,
                     self._shrinks, self._others), (60, 20, 15, 10, 10, 2))[0]():
                self._does(step)

    def _does(self, step: Step) -> None:
        self.steps.append(step)
        self.lines.append(line(step))

    def _start(self) -> Start:
        self._running = True
        return Start(self.choose.choice(INTERVALS), self.choose.getrandbits(63),
                     self.choose.random() < 0.3, self.choose.random() < 0.9)

    def _made(self, **more: bool) -> Made:
        choose = self.choose
        size = choose.choice((16, 24, 40, 8 * choose.randrange(2, 30)))
        if choose.random() < 0.02:
            size = 5000
        fate = choose.choices((DIED, PROMOTED, PINNED), (5, 4, 1))[0]
        return Made(size, choose.randrange(1, 500), fate, **more)

    def _births(self) -> Iterator[Step]:
        choose = self.choose
        for _ in range(choose.randrange(1, 9)):
            self._key += 1
            place = choose.choices(("", "large", "old"), (60, 3, 1))[0]
            parts = tuple(self._made() for _ in range(choose.choice((1, 1, 2, 3, 8))))
            if place:
                fate = PROMOTED if place == "old" else choose.choice((DIED, PROMOTED))
                parts = (Made(8 * choose.randrange(2 * 10**3, 10**4),
                              parts[0].type, fate),)
            elif choose.random() < 0.2:
                if choose.random() < 0.5:
                    parts = (self._made(is_text=True),)
                parts += (Made(8 * choose.randrange(2, 9), 0, NOT_KNOWN,
                               is_junk=choose.random() < 0.3),)
            if parts[0].is_text and not any(part.is_junk for part in parts):
                self._texts[self._key] = parts[0].size
            self._pinned += [(self._key, number) for number, part in enumerate(parts)
                             if part.fate == PINNED]
            self._young += [(self._key, number) for number, part in enumerate(parts)
                            if part.fate == PROMOTED]
            yield Birth(self._key, parts, place)

    def _minor(self) -> Iterator[Step]:
        choose = self.choose
        # the GC advances by at most one state between two minor collections, so that
        # the engine sees each state
        if self._was_seen and choose.random() < 0.7:
            self._state = (self._state + 1) % 4
            self._was_seen = False
            if self._state == SWEEPING:
                yield MarkingEnds()
            self.lines.append("state %d" % self._state)
        is_seen = not self._running or choose.random() < 0.97
        self._was_seen |= is_seen
        self._old += self._young
        self._young = []
        pinned = {key for key, _ in self._pinned}
        self._texts = {key: size for key, size in self._texts.items() if key in pinned}
        yield Minor(is_seen)
        if self._state == SWEEPING and choose.random() < 0.7:
            self.lines.append("sweep")

    def _unpins(self) -> Iterator[Step]:
        for _ in range(len(self._pinned) // 4):
            key, part = self._pinned.pop(self.choose.randrange(len(self._pinned)))
            fate = self.choose.choice((DIED, PROMOTED))
            if fate == PROMOTED:
                self._young.append((key, part))
            yield Unpin(key, part, fate)

    def _shrinks(self) -> Iterator[Step]:
        for key, size in self._texts.items():
            if size > 16 and self.choose.random() < 0.5:
                self._texts[key] = 8 * self.choose.randrange(2, size // 8)
                yield Shrink(key, self._texts[key])

    def _drops(self) -> Iterator[Step]:
        for _ in range(len(self._old) // 4):
            yield Drop(*self._old.pop(self.choose.randrange(len(self._old))))

    def _others(self) -> Iterator[Step]:
        if self._running and self.choose.random() < 0.6:
            yield Rate(self.choose.choice(INTERVALS))
        elif self._running:
            self._running = False
            yield Stop()
        else:
            yield self._start()


def run(harness: pathlib.Path, lines: list[str]) -> list[str]:
    done = subprocess.run([harness], input="".join(x + "\n" for x in lines),
                          text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


#: traces of each group
TRACES = 25


@pytest.mark.slow
@pytest.mark.parametrize("group", range(5))
def test_object_events_of_random_programs_match_the_oracle(
        harness: pathlib.Path, group: int) -> None:
    """Compare the sampled objects, their types, outcomes and collections, in order."""
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(group * TRACES, (group + 1) * TRACES):
        program = Program(seed)
        expected = told(program.steps)
        assert run(harness, program.lines) == expected, seed
        for fact in expected:
            name, *numbers = fact.split()
            counts[name if name != "young" else "outcome " + numbers[1]] += 1
            counts["shrunk"] += name == "young" and len(numbers) > 4
            counts["of pieces"] += name == "young" and numbers[3] != "0"
            counts["behind a holder"] += name == "freed" and numbers[1] != "0"
        pinned = {step.key for step in program.steps if isinstance(step, Unpin)
                  and step.fate == PROMOTED}
        counts["pinned"] += sum(int(fact.split()[1]) in pinned for fact in expected
                                if fact.startswith("young") and fact.split()[2] == "1")
    # all kinds of events are frequent
    assert counts["sample"] > 3000
    for what in ("minor", "freed", "lost", "outcome 0", "outcome 1", "outcome 3",
                 "outcome 4", "of pieces", "behind a holder", "shrunk", "pinned"):
        assert counts[what] > 50, what


def test_the_oracle_of_a_piece_that_is_freed_in_parts() -> None:
    """The expected events were found by hand.  Each byte is a sample point."""
    piece = Birth(1, (Made(16, 7, PROMOTED), Made(24, 8, DIED),
                      Made(16, 7, PROMOTED), Made(32, 0, NOT_KNOWN)))
    assert told([Start(1, 5, True, True), piece, Minor(True), Drop(1, 2),
                 MarkingEnds(), Minor(True), Birth(2, (Made(40, 9, PINNED),)),
                 Drop(1, 0), Stop()]) == [
        "sample 1 88 1", "young 1 1 7 16", "young 1 0 8 24", "young 1 1 7 16",
        "young 1 3 0 32", "minor", "freed 1 2", "minor", "sample 2 40 1",
        "young 2 4 9 0"]


def test_oracle_of_objects_that_are_promoted_after_the_marking() -> None:
    """Only the next major collection finds that the object is unreachable."""
    assert told([Start(1, 5, True, True), MarkingEnds(),
                 Birth(1, (Made(16, 7, PROMOTED),)), Minor(True), Drop(1, 0),
                 Minor(True), MarkingEnds(), Minor(True)]) == [
        "sample 1 16 1", "young 1 1 7 0", "minor", "minor", "freed 1 0", "minor"]
