"""Test the callers in compiled code, on programs that record their own stacks."""
from __future__ import annotations

from collections import Counter

import pytest

from call_trees import Tree
from conftest import PyPy
from vmprof_convert.profile.model import Profile

#: The largest share of samples with a wrong stack.  The JIT's table does not contain
#: the function that runs at the beginning of each bridge.  These programs have 0.3 to
#: 1.7 % wrong stacks.  In the stacks that vmprof itself takes, 30 to 64 % are wrong.
WRONG = 0.06


@pytest.mark.parametrize("jit", ["off", ""])
@pytest.mark.parametrize("seed", [1, 2, 3, 6, 7])
def test_stacks_are_those_that_the_program_knows(
        stock_pypy: PyPy, seed: int, jit: str) -> None:
    """The code is interpreted, about to be compiled, compiled, inlined, or in bridges.

    It also returns from compiled code to the interpreter. It has loops, branches and
    exceptions.
    """
    tree = Tree(seed, 30, 20000 if jit else 150000)
    profile = stock_pypy.sample(tree.text, "64k", jit=jit).profile()
    found = Counter(tree.is_wrong(profile, stack) for stack in profile.samples.stack
                    if stack >= 0)
    assert found[True] + found[False] > 5000
    assert found[True] <= (0 if jit else WRONG) * (found[True] + found[False]), found


def depths(profile: Profile, functions: set[str]) -> Counter[int]:
    """Count by how much the number of these frames exceeds the label's depth."""
    found: Counter[int] = Counter()
    for stack in profile.samples.stack:
        label = profile.labels_of(stack).get("f")
        names = [profile.function(frame.address).name
                 for frame in profile.stacks[stack]]
        if label is not None and "main" in names:
            found[sum(name in functions for name in names) - int(label)] += 1
    return found


@pytest.mark.parametrize("jit", ["off", ""])
def test_a_recursion_has_the_right_depth(stock_pypy: PyPy, jit: str) -> None:
    """The program has functions that call themselves, with and without a loop, or each
    other.

    It also has a function that is made three times. In vmprof's stacks, such functions
    seem to occur twice.
    """
    profile = stock_pypy.sample("""
        from vmprof_allocation.session import labelling
        from vmprof_allocation import labels
        numbers = []
        for i in range(20):
            with labels(f=i):
                numbers.append(labelling._natives[labelling._numbers[
                    (("f", str(i)),)]])
        runs = labelling._engine.label
        def twice(n, depth):
            runs(numbers[depth])
            x = [n]
            if n > 1:
                twice(n - 1, depth + 1)
                x.append(str(n))
                twice(n - 2, depth + 1)
                x = [x, n]
            runs(numbers[depth - 1])
            return x
        def walk(n, depth):
            runs(numbers[depth])
            x = []
            for i in range(n):
                x.append(str(i))
                walk(i, depth + 1)
                x.append([i])
            runs(numbers[depth - 1])
            return x
        def odd(n, depth):
            runs(numbers[depth])
            x = [str(n)]
            if n:
                even(n - 1, depth + 1)
            for i in range(n % 3):
                x.append([i])
            runs(numbers[depth - 1])
            return x
        def even(n, depth):
            runs(numbers[depth])
            x = {n: str(n)}
            if n:
                odd(n - 1, depth + 1)
            runs(numbers[depth - 1])
            return x
        def around(function):
            def wrapper(n, depth):
                runs(numbers[depth])
                x = [str(n)]
                for i in range(2):
                    x.append([function(n, depth + 1)])
                    x.append(str(i))
                runs(numbers[depth - 1])
                return x
            return wrapper
        wrapped = around(around(around(walk)))
        def main():
            for k in range(3000):
                runs(numbers[0])
                twice(9, 1)
                walk(6, 1)
                odd(14, 1)
                wrapped(k % 3, 1)
        main()
    """, "16k", jit=jit).profile()
    found = depths(profile, {"twice", "walk", "odd", "even", "wrapper"})
    assert found[0] > 5000
    # The called function records its depth shortly afterwards.
    assert found[0] + found[1] >= (1 - (0 if jit else WRONG)) * sum(
        found.values()), found


ENDS = """
    from functools import partial
    class Items:
        def __init__(self, items):
            self.next = partial(next, iter(items))
        def __iter__(self):
            return self
        def __next__(self):
            return self.next()
    def encoded(items):
        for item in items:
            if isinstance(item, bytes):
                yield item
            else:
                yield item.encode()
    kept = [None]
    def execute(items):
        total = 0
        for item in Items(encoded(items)):
            total += len(item)
        kept[0] = bytearray(5000)
        return total
    for i in range(50_000):
        execute(["abc"])
"""


def test_code_after_a_generators_end_has_the_right_function(stock_pypy: PyPy) -> None:
    """PyPy's table is wrong after a call of compiled code that raised (inlined.h).

    In werkzeug's servers, nearly all bytes were attributed to __next__.
    """
    profile = stock_pypy.sample(ENDS, "16k").profile()
    found: Counter[str] = Counter()
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        if stack >= 0 and 5000 <= size < 5100:
            found[profile.function(profile.stacks[stack][-1].address).name] += 1
    assert sum(found.values()) > 5000
    assert found["execute"] > 0.98 * sum(found.values()), found


def test_a_long_bridge_has_the_right_function(stock_pypy: PyPy) -> None:
    """The code of a bridge that calls json's functions has five to six thousand bytes.
    """
    profile = stock_pypy.sample("""
        import json
        flat = {"name": 0, "yes": True, "other": "value", "more": "foo"}
        deep = {"name": 0, "flat": flat, "other": "value", "more": flat,
                "last": flat, "k": "foo"}
        cases = [({}, range(2000)), (flat, range(1000)), (deep, range(1000)),
                 ([deep] * 1000, range(1))]
        def dump_all(cases):
            for thing, count in cases:
                for _ in count:
                    json.dumps(thing)
        for i in range(40):
            dump_all(cases)
    """, "256k").profile()
    found = Counter(
        [profile.function(frame.address).name for frame in profile.stacks[stack]]
        .count("dumps") for stack in profile.samples.stack if stack >= 0)
    assert found[1] > 1000
    assert not [times for times in found if times > 1], found
