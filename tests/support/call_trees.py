"""Random programs that record their own call path, to check sampled stacks.

A program is a tree of functions. Each function has one caller, and sets a label with
its number while it runs. So the label of a sample determines the functions of its
stack.
"""
from __future__ import annotations

import random
from collections.abc import Iterator

from vmprof_convert.profile.model import Profile

HEAD = """
import sys
from vmprof_allocation.session import labelling
from vmprof_allocation import labels
numbers = []
for i in range(%d):
    with labels(f=i):
        numbers.append(labelling._natives[labelling._numbers[(("f", str(i)),)]])
runs = labelling._engine.label      # nothing of it is inlined
kept = []
class Thing:
    def __init__(self, i):
        self.i = i
        self.items = [i]
"""
#: statements with an allocation, from the function's argument i
MAKES = ("x = [i] * (i %% 7 + 3)", "x = 'a%%d' %% i * (i %% 5 + 1)", "x = Thing(i)",
         "x = {'k': i, i: 'v'}", "x = [str(i), (i, i)]", "x = bytes(i %% 50 + 20)")
#: how a function calls another one: always, under a condition, in a loop, or with a
#: handler
CALLS = ("", "", "", "if i %% %d == 0:", "for j in range(i %% %d):", "try:")
MAIN = """
def main():
    for i in range(%d):
        try:
            f0(i)
        except KeyError:
            pass
        runs(0)
main()
"""


class Tree:
    """A program of `functions` functions, f0 to fN, whose source is in `text`.

    Each function except f0 is called by one function with a smaller number. main()
    calls f0 `times` times.
    """

    def __init__(self, seed: int, functions: int, times: int):
        self._random = random.Random(seed)
        #: number of the only caller of each function, by the function's number
        self.callers: dict[int, int | None] = {0: None}
        self._callees: dict[int, list[int]] = {0: []}
        for number in range(1, functions):
            caller = self._random.choice(
                [n for n, callees in self._callees.items() if len(callees) < 4])
            self.callers[number] = caller
            self._callees[caller].append(number)
            self._callees[number] = []
        self.text = HEAD % functions + "\n".join(
            line for number in reversed(range(functions))
            for line in self._function(number)) + MAIN % times

    def _make(self, indent: str = "    ") -> Iterator[str]:
        yield indent + self._random.choice(MAKES) % ()
        if self._random.random() < 0.15:
            yield indent + "if i % 997 == 3: kept.append(x)"

    def _function(self, number: int) -> Iterator[str]:
        choose = self._random.choice
        yield "def f%d(i):" % number
        yield "    runs(numbers[%d])" % number
        yield from self._make()
        for callee in self._callees[number]:
            how = choose(CALLS)
            inside = "    " * (1 + bool(how))
            if how:
                yield "    " + (how % choose((2, 3, 5, 7)) if "%" in how else how)
            yield "%sf%d(i + %d)" % (inside, callee, self._random.randrange(5))
            if how == "try:":
                yield "    except KeyError:"
                yield "        runs(numbers[%d])" % number
            yield from self._make(inside)
        if number and self._random.random() < 0.3:
            yield "    if i %% %d == 1:" % choose((3, 11, 101))
            # after raising, no function of the tree runs until a caller catches
            yield "        runs(0)"
            yield "        raise KeyError(i)"
        if self._random.random() < 0.4:
            yield "    for j in range(i %% %d):" % choose((3, 8, 30))
            yield from self._make("        ")
        # while a function returns, samples get the label of its caller
        caller = self.callers[number]
        yield "    runs(%s)" % ("0" if caller is None else "numbers[%d]" % caller)
        yield "    return x"

    def path(self, number: int | None) -> list[str]:
        """Return the names of the functions from f0 to the given function."""
        found: list[str] = []
        while number is not None:
            found.append("f%d" % number)
            number = self.callers[number]
        return found[::-1]

    def is_wrong(self, profile: Profile, stack: int) -> bool | None:
        """Return whether a stack differs from the functions that its label implies.

        Returns None if the stack has no label, or does not contain main().
        """
        names = {"f%d" % number: number for number in self.callers}
        label = profile.labels_of(stack).get("f")
        functions = [profile.function(frame.address).name
                     for frame in profile.stacks[stack]]
        if label is None or "main" not in functions:
            return None
        found = [name for name in functions if name in names]
        path = self.path(int(label))
        # a function sets its label after its entry, and its caller's label before its
        # return, so a stack may have one more function than the label says
        return found != path and (found[:-1] != path
                                  or self.callers[names[found[-1]]] != int(label))
