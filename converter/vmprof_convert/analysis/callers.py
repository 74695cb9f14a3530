"""Find the callers and callees of one function, for the command callers."""
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

#: the label in place of a caller if the function is outermost in a stack, and the label
#: in place of a callee for the function's own allocations
NO_CALLER = Function("[no caller]", 0, "", LABEL)
ITSELF = Function("[itself]", 0, "", LABEL)

#: the sums by the subject of a row
_Rows = dict[Subject, Figures]


class Focus(NamedTuple):
    """The sums of all functions with one name, divided by callers and by callees."""

    #: the name that the user gave
    name: str
    #: the functions with this name, ordered by their allocations
    functions: list[Row]
    #: the sums of all functions with this name
    row: Row
    #: the callers and callees: in each row, both `own` and `total` are the allocations
    #: through this caller or callee. The callers add up to `row.total`, and so do the
    #: callees, with ITSELF
    callers: list[Row]
    callees: list[Row]
    #: the executed lines of the function, with the allocations of the functions that
    #: they call; empty if lines are unknown
    lines: list[Row]
    #: the types of the objects that the function and its callees allocated; empty if
    #: types are unknown
    types: list[Row]


def focus(profile: Profile, tally: Tally, name: str, choice: Choice,
          origins: Origins) -> Focus:
    """Return the callers, callees, lines and types of a function.

    If a stack contains the function several times, the caller of the outermost
    occurrence and the callee of the innermost one count.

    Args:
        profile: the profile.
        tally: the sums of its samples.
        name: the name of the function, or a pattern with its file (see
            selection.is_called()).
        choice: the order of the rows.
        origins: the origins of the profile's functions.

    Raises:
        ProfileError: No function has this name, or there are no allocation samples.
    """
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
        raise ProfileError("there are no allocation samples here, which the "
                           "command callers needs")
    if not total:
        raise ProfileError(
            "no function that was sampled is called '%s': write its name, its "
            "file and name (app.py:main), or a pattern with *%s" % (
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
    """Return similar names for the error message, or the reason why no name matches.

    Args:
        profile: the profile.
        name: the name that the user gave.
        met: the names of all sampled functions.
        origins: the origins of the profile's functions.
    """
    if isinstance(profile.stacks, OwnStacks) and any(
            is_called(function, name, origins) and origins.of(function) != PROGRAM
            for function in profile.functions.values()):
        return "; --user-code hides this function, because it is not user code"
    return similar(name, met)
