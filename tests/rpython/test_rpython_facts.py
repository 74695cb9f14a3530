"""Test the types, numbers and outcomes of sampled objects in the guest interpreter.

The guest interpreter runs with the JIT and without. With the JIT, an object and its
fields are allocated in one batch, together with the loop's other objects. The samples
have the right number of objects of each kind only if the GC walks the batch.
"""
from __future__ import annotations

import collections
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fact_records import DIED, GCS, NOT_KNOWN, PROMOTED, PYTHON, YOUNG, FactRecords
from rpython_tree import built, parameters
from vmprof_convert import readers
from vmprof_convert.profile.probability import probability

pytestmark = pytest.mark.translated

INTERVAL = 1000
#: The type of an object.  The README of the examples describes its fields.
OBJECT = "GcStruct guest.objects.W_Object"
FIELDS = "GcArray of * GcStruct object"
OBJECT_SIZE, ARRAY_SIZE = 24, 16

#: A loop that makes objects of three classes.  The program keeps some objects.  The JIT
#: allocates the objects of an iteration in one batch.  In an iteration without a Wide
#: object, the program leaves the trace before the batch is filled.
KEEP = """
(class Cell one two)
(class Narrow one)
(class Wide a b c d e)
(func work (count rate every ring kept)
  (set i 0)
  (set left 1)
  (while (< i count)
    (set cell (new Cell kept ring))
    (put ring (% i 8) cell)
    (set left (- left 1))
    (if (== left 0)
      (do (put ring 8 (new Wide kept kept kept kept ring))
          (set left every)))
    (put ring (% i 8) (new Narrow ring))
    (if (< (% i 100) rate) (append kept cell))
    (set i (+ i 1))))
(func main (count rate every)
  (set kept (list))
  (work count rate every (array nil 9) kept)
  (print (len kept)))
"""

#: A program that keeps each object in a queue of fixed length.
CHURN = """
(class Cell one two)
(func main (size count)
  (set queue (array nil size))
  (set i 0)
  (while (< i count)
    (put queue (% i size) (new Cell queue))
    (set i (+ i 1)))
  (print (len queue)))
"""


class Facts(FactRecords):
    def objects_of(self, type_name: str, size: int) -> set[tuple[int, int]]:
        return {(key, which) for key, which, (_, type_, own) in self.objects()
                if self.type_name(type_) == type_name and own == size}

    def instances_of(self, class_name: str) -> set[tuple[int, int]]:
        found = {(key, which) for key, which, (_, type_, own) in self.objects()
                 if self.class_name(type_) == class_name}
        assert found <= self.objects_of(OBJECT, OBJECT_SIZE)
        return found

    def check_conservation(self) -> None:
        """Check that each object has exactly one outcome.

        A sampled object died young, was promoted, has an unknown outcome, or is in the
        nursery. A promoted object is dead or alive.
        """
        assert set(self.young) == set(range(1, len(self.young) + 1))
        young = {key for key, _, (outcome, _, _) in self.objects() if outcome == YOUNG}
        # Only the newest objects may be without an outcome.
        assert young == set(range(min(young, default=0), len(self.young) + 1)) or (
            not young)
        outcomes = collections.Counter(
            outcome for _, _, (outcome, _, _) in self.objects())
        assert sum(outcomes.values()) == sum(map(len, self.young.values()))
        assert outcomes[PROMOTED] == (len(self.freed) + len(self.lost)
                                      + len(self.alive()))
        assert self.lost == set()
        assert self.collections == sorted(self.collections)
        assert len(self.minors) == self.head[4]
        assert self.minors == sorted(self.minors)
        assert self.majors == list(range(1, len(self.majors) + 1))


def near(found: int, count: float, size: int, more: int = 0) -> bool:
    """Return whether the number of samples agrees with the number of objects.

    Args:
        found: The number of samples.
        count: The number of objects.
        size: The size of an object in bytes.
        more: The number of objects that may exist in addition.
    """
    p = probability(size, INTERVAL, "exponential")
    allowed = 4 * math.sqrt(count * p * (1 - p)) + 1
    return -allowed <= found - count * p <= allowed + more


Run = Callable[..., Facts]


@pytest.fixture(params=parameters("guest", "guest-jit", "guest-jit off"))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    name, *off = request.param.split()

    def run(text: str, *arguments: int, expected: int,
            nursery: str = "1M") -> Facts:
        (tmp_path / "p.guest").write_text(text)
        done = subprocess.run(
            [built(name), "--allocation-sampling", str(INTERVAL),
             "--allocation-seed", "5", *(("--jit", "off") if off else ()),
             "-o", "p.vmprof", "p.guest", *map(str, arguments)],
            text=True, capture_output=True, cwd=tmp_path,
            env={"PYPY_GC_NURSERY": nursery})
        assert (done.returncode, done.stdout) == (0, "%d\n" % expected), \
            done.stderr
        return Facts(tmp_path / "p.vmprof")

    return run


def seen(facts: Facts) -> float:
    """Return the share of allocated bytes from before the last minor collection.

    Objects that were allocated later are in the nursery, and have no outcome.
    """
    return facts.minors[-1] / facts.head[1]


@pytest.mark.parametrize("rate", [0, 2, 10, 50, 100])
def test_keep_rates(run: Run, rate: int) -> None:
    count = 400000
    facts = run(KEEP, count, rate, 3, expected=count * rate // 100)
    facts.check_conservation()
    cells = facts.objects_of(FIELDS, ARRAY_SIZE + 16)
    kept = count * rate / 100 * seen(facts)
    # Further objects are promoted: those in a variable during a collection.
    assert near(len(facts.alive() & cells), kept, ARRAY_SIZE + 16,
                more=len(facts.collections))


@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_classes_in_one_trace(run: Run, every: int) -> None:
    count = 400000
    facts = run(KEEP, count, 0, every, expected=0)
    facts.check_conservation()
    wide = (count + every - 1) // every
    for type_, size, number in [
            (FIELDS, ARRAY_SIZE + 16, count), (FIELDS, ARRAY_SIZE + 8, count),
            (FIELDS, ARRAY_SIZE + 40, wide),
            (OBJECT, OBJECT_SIZE, 2 * count + wide)]:
        assert near(len(facts.objects_of(type_, size)), number * seen(facts),
                    size), (type_, size)
    for class_, number in [("Cell", count), ("Narrow", count), ("Wide", wide)]:
        assert near(len(facts.instances_of(class_)), number * seen(facts),
                    OBJECT_SIZE), class_


def test_churn(run: Run) -> None:
    """Objects that are replaced after a while become old, and then die."""
    facts = run(CHURN, 20000, 1000000, expected=20000, nursery="256k")
    facts.check_conservation()
    cells = facts.objects_of(FIELDS, ARRAY_SIZE + 16)
    assert len(facts.freed & cells) > 10 * len(facts.alive() & cells)
    # 20,000 objects are in the queue.  Objects that died since the last major
    # collection count as alive, too.
    assert len(facts.alive() & cells) > 0.9 * 20000 * probability(
        ARRAY_SIZE + 16, INTERVAL, "exponential")


def test_all_types_are_named(run: Run) -> None:
    facts = run(KEEP, 100000, 50, 2, expected=50000)
    known = [type_ for _, _, (outcome, type_, _) in facts.objects()
             if outcome not in (NOT_KNOWN, YOUNG)]
    assert 0 not in known
    names = {facts.type_name(type_) for type_ in known}
    assert {OBJECT, FIELDS} <= names
    for kinds in facts.types.values():
        assert kinds[GCS][0] > 0
    assert len({str(kinds) for kinds in facts.types.values()}) \
        == len(facts.types)


def test_instances_have_their_class(run: Run) -> None:
    """All instances have a class, and no other object has one."""
    facts = run(KEEP, 100000, 50, 2, expected=50000)
    assert {facts.class_name(type_) for _, _, (_, type_, _) in facts.objects()
            if facts.type_name(type_) == OBJECT} == {"Cell", "Narrow", "Wide"}
    for number, kinds in facts.types.items():
        if PYTHON in kinds:
            assert facts.type_name(number) == OBJECT


def test_thousands_of_classes(run: Run) -> None:
    facts = run("\n".join(
        ["(class C%d a)" % i for i in range(3000)] +
        ["(func f%d (kept) (set i 0) (while (< i 10) (append kept (new C%d)) "
         "(set i (+ i 1))))" % (i, i) for i in range(3000)] +
        ["(func main () (set kept (list))"] +
        ["(f%d kept)" % i for i in range(3000)] +
        ["(print (len kept)))"]), expected=30000)
    met = {facts.class_name(type_) for _, _, (_, type_, _) in facts.objects()}
    assert len(met) > 300


def test_unknown_objects_were_never_made(run: Run,
                                         request: pytest.FixtureRequest) -> None:
    """Outcomes are unknown only for the rest of a batch whose trace was left."""
    facts = run(KEEP, 400000, 0, 3, expected=0)
    outcomes = collections.Counter(
        outcome for _, _, (outcome, _, _) in facts.objects())
    for _, _, (outcome, type_, _) in facts.objects():
        assert (outcome in (NOT_KNOWN, YOUNG)) == (type_ == 0)
    assert outcomes[DIED] > 10000
    if request.node.callspec.params["run"] == "guest-jit":
        assert outcomes[NOT_KNOWN] > 1000
    else:
        assert outcomes[NOT_KNOWN] == 0
        assert {len(objects) for objects in facts.young.values()} == {1}


def test_a_killed_program_leaves_complete_outcomes(tmp_path: Path) -> None:
    (tmp_path / "p.guest").write_text(CHURN)
    with subprocess.Popen(
            [built("guest"), "--allocation-sampling", "1000", "-o", "p.vmprof",
             "p.guest", "20000", "1000000000"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=tmp_path,
            # The default size depends on the processor's cache.  With this size, there
            # are collections before the profile has 200 kB.
            env={**os.environ, "PYPY_GC_NURSERY": "1M"}) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "p.vmprof").exists() or (
                tmp_path / "p.vmprof").stat().st_size < 200000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    facts = Facts(tmp_path / "p.vmprof", was_killed=True)
    assert len(facts.young) > 1000
    assert {OBJECT, FIELDS} <= {facts.type_name(number)
                                for number in facts.types}


def test_out_of_memory_is_the_programs_own(tmp_path: Path) -> None:
    """The program gets its MemoryError at the same point as without sampling."""
    (tmp_path / "p.guest").write_text("""
        (func main ()
          (set kept (list))
          (while 1 (append kept (array nil 1000))))
        """)
    for flags in ((), ("--allocation-sampling", "1000")):
        done = subprocess.run(
            [built("guest"), *flags, "p.guest"], capture_output=True, text=True,
            cwd=tmp_path, env={"PYPY_GC_MAX": "64M"})
        assert done.returncode not in (0, -signal.SIGSEGV), done.stderr


def test_the_settings_name_the_recorded_outcomes(tmp_path: Path) -> None:
    (tmp_path / "p.guest").write_text(CHURN)
    subprocess.run([built("guest"), "--allocation-sampling", "1000", "-o",
                    "p.vmprof", "p.guest", "10", "1000"], cwd=tmp_path,
                   check=True, capture_output=True)
    settings = readers.read(tmp_path / "p.vmprof").settings
    assert settings["facts"] == "types,lifetimes"


def test_without_lifetimes_there_are_types(tmp_path: Path) -> None:
    (tmp_path / "p.guest").write_text(CHURN)
    subprocess.run([built("guest"), "--allocation-sampling", "1000",
                    "--no-lifetimes", "-o", "p.vmprof", "p.guest", "1000",
                    "300000"], cwd=tmp_path, check=True, capture_output=True,
                   env={"PYPY_GC_NURSERY": "256k"})
    facts = Facts(tmp_path / "p.vmprof")
    assert {outcome for _, _, (outcome, _, _) in facts.objects()} == {NOT_KNOWN}
    assert facts.freed == facts.lost == set()
    assert len(facts.instances_of("Cell")) > 1000
    settings = readers.read(tmp_path / "p.vmprof").settings
    assert settings["facts"] == "types"
