"""One function: who calls it, what it calls, and what of it is allocated where."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.analysis.selection import is_called
from vmprof_convert.analysis.summary import (
    FUNCTION,
    LINE,
    Choice,
    Figures,
    Places,
    Row,
    Subject,
    Tally,
    figures_of,
    interval_of,
    sort,
)
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Sum
from vmprof_convert.meaning.origins import PROGRAM, Origins
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.meaning.user_code import OwnStacks
from vmprof_convert.meaning.visible_stacks import has_lines
from vmprof_convert.profile.model import LABEL, Function, Profile
from vmprof_convert.text.escape import shortened, similar

#: in the place of a caller, and of a callee
NO_CALLER = Function("[no caller]", 0, "", LABEL)
ITSELF = Function("[itself]", 0, "", LABEL)

#: figures of each subject
_Rows = dict[Subject, Figures]


class Focus(NamedTuple):
    #: what was asked for
    name: str
    #: those of this name, by what they allocate; each with its figures
    functions: list[Row]
    #: of all of them together
    row: Row
    #: in each, `own` and `total` are both what passes that way: the callers' add
    #: up to the total, and so do the callees', with ITSELF
    callers: list[Row]
    callees: list[Row]
    #: its executed lines, with what they call, if lines are known
    lines: list[Row]
    #: what is allocated below it, if types are known
    types: list[Row]


def focus(profile: Profile, tally: Tally, name: str, choice: Choice,
          origins: Origins) -> Focus:
    """A function that is in a stack several times is called by who calls the
    outermost one, and calls what the innermost one does.  Raises ProfileError if
    none is called `name`."""
    places = Places(profile, (FUNCTION,), origins)
    names = TypeNames(profile, group_storage=choice.group_storage)
    interval = interval_of(profile, tally)
    knows_lines = has_lines(profile)
    by_line = Places(profile, (LINE,), origins)
    known: dict[Function, bool] = {}
    met: set[str] = set()
    own: _Rows = {}
    total: _Rows = {}
    callers: _Rows = {}
    callees: _Rows = {}
    lines: _Rows = {}
    types: _Rows = {}
    itself, everything = Figures(interval), Figures(interval)

    def is_meant(function: Function) -> bool:
        found = known.get(function)
        if found is None:
            found = known[function] = is_called(function, name, origins)
            met.add(function.name)
        return found

    for (stack, type_, then), sum_ in tally.sums().items():
        path = places.of(stack)
        at = [i for i, place in enumerate(path)
              if place.function and is_meant(place.function)]
        if not at:
            continue
        first, last = at[0], at[-1]

        def add(rows: _Rows, subject: Subject,
                then: str = then, sum_: Sum = sum_) -> None:
            figures_of(rows, subject, interval).add(then, sum_)

        for place in {path[i] for i in at}:
            add(total, place)
        everything.add(then, sum_)
        add(callers, path[first - 1] if first else Subject(NO_CALLER, 0))
        if last == len(path) - 1:
            add(own, path[last])
            itself.add(then, sum_)
            add(callees, Subject(ITSELF, 0))
        else:
            add(callees, path[last + 1])
        if knows_lines:
            add(lines, by_line.of(stack)[last])
        if profile.has_types:
            add(types, Subject(None, 0, names.shown(type_)))
    if not tally.sums():
        raise ProfileError("there are no allocation samples here, which --focus "
                           "needs")
    if not total:
        raise ProfileError(
            "no function that was sampled is called '%s': write --focus with its "
            "name, with its file's (app.py:main), or with *%s" % (
                shortened(name), _similar(profile, name, met, origins)))
    nothing = Figures(interval)
    functions = [Row(subject, own.get(subject, nothing), figures)
                 for subject, figures in total.items()]
    sort(functions, choice.sort)
    return Focus(name, functions, Row(functions[0].subject, itself, everything),
                 *(_rows(rows, choice) for rows in (callers, callees, lines, types)))


def _rows(all_: _Rows, choice: Choice) -> list[Row]:
    rows = [Row(subject, figures, figures) for subject, figures in all_.items()]
    sort(rows, choice.sort)
    return rows


def _similar(profile: Profile, name: str, met: set[str], origins: Origins) -> str:
    """What may have been meant, in words; `met`: the names of those that were
    looked at."""
    if isinstance(profile.stacks, OwnStacks) and any(
            is_called(function, name, origins) and origins.of(function) != PROGRAM
            for function in profile.functions.values()):
        return "; --mine hides one that is not of the program's own code"
    return similar(name, met)
