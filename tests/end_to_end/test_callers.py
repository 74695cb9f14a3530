"""Test the stacks of compiled code, on programs that record their own stacks."""
from __future__ import annotations

from collections import Counter

import pytest

from call_trees import Tree
from conftest import PyPy
from vmprof_convert.profile.model import Profile

#: The largest share of samples with a wrong stack.  Some stacks are wrong because the
#: JIT's table lacks the function at the beginning of a bridge: 0.3 to 1.7 % in these
#: programs.  If vmprof itself takes the stacks, 30 to 64 % are wrong.
WRONG = 0.06


@pytest.mark.parametrize("jit", ["off", ""])
@pytest.mark.parametrize("seed", [1, 2, 3, 6, 7])
def test_stacks_are_those_that_the_program_knows(
        stock_pypy: PyPy, seed: int, jit: str) -> None:
    """A random program sets its own stack as a label; the sampled stack must be equal.

    With the JIT, its code is interpreted, compiled, inlined, and in bridges. It has
    loops, branches and exceptions.
    """
    tree = Tree(seed, 30, 20000 if jit else 150000)
    profile = stock_pypy.sample(tree.text, "64k", jit=jit).profile()
    found = Counter(tree.is_wrong(profile, stack) for stack in profile.samples.stack
                    if stack >= 0)
    assert found[True] + found[False] > 5000
    assert found[True] <= (0 if jit else WRONG) * (found[True] + found[False]), found


def depths(profile: Profile, functions: set[str]) -> Counter[int]:
    """Count the differences between the number of frames and the depth in the label.

    Only frames of `functions` count.
    """
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
    """The functions call themselves, with and without a loop, or each other. One
    function is made three times. In vmprof's own stacks, such functions occur too
    often.
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
    # A called function sets its label shortly after its entry, so the label may be 1
    # too small.
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
    """PyPy's table has the wrong function after a call that raised an exception (see
    inlined.h). In werkzeug's servers, nearly all bytes were attributed to __next__.
    """
    profile = stock_pypy.sample(ENDS, "16k").profile()
    found: Counter[str] = Counter()
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        if stack >= 0 and 5000 <= size < 5100:
            found[profile.function(profile.stacks[stack][-1].address).name] += 1
    assert sum(found.values()) > 5000
    assert found["execute"] > 0.98 * sum(found.values()), found


def test_a_long_bridge_has_the_right_function(stock_pypy: PyPy) -> None:
    """A bridge that calls json's functions has 5,000 to 6,000 bytes of machine code."""
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
