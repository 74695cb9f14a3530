"""Select samples by time, thread, function, file, type, outcome or label.

All reports and formats use this module: the samples are selected before a writer gets
the profile. SelectedRows filters by time while a reader reads the profile. Selected
filters by names, which are known when the whole profile has been read.
"""
from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from vmprof_convert.errors import NotThere, ProfileError
from vmprof_convert.meaning.lifetimes import CARRIED, FATES, STILL_ALIVE, state
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import UNNAMED, TypeNames
from vmprof_convert.meaning.user_code import only_own
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.columns import chosen
from vmprof_convert.profile.model import (
    Carried,
    Columns,
    Function,
    Profile,
    Rows,
)
from vmprof_convert.profile.names import names
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.text.escape import shortened, similar

#: the number of threads that an error message lists
_LISTED = 10


class Selection(NamedTuple):
    """The conditions of a selection.

    A sample has to match each attribute that is not empty. If an attribute has several
    values, the sample has to match at least one value.
    """

    #: the selected time in nanoseconds since the start: its first nanosecond, and the
    #: first one after it; None for the end of the profile
    time: tuple[int, int | None] | None = None
    #: the kernel's numbers of threads, or their names
    threads: tuple[str, ...] = ()
    #: names of functions and files, of which the stack has to contain one
    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    #: outcomes, as in lifetimes.FATES
    fates: tuple[str, ...] = ()
    #: whether only the frames of user code are kept; this selects no samples
    mine: bool = False
    #: labels in the form "key=value", with * as a wildcard
    labels: tuple[str, ...] = ()
    #: names or numbers of processes, which are selected before the profiles of a run
    #: are merged (merging.py)
    processes: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Return whether all samples of the profile are selected."""
        return self._replace(mine=False, processes=()) == EVERYTHING

    def after(self, begin: int) -> Selection:
        """Return the selection for a profile that starts `begin` nanoseconds later."""
        if self.time is None:
            return self
        start, end = self.time
        return self._replace(time=(
            start - begin, None if end is None else end - begin))

    def __str__(self) -> str:
        """Return the selection for a report, in one line."""
        parts = []
        if self.time is not None:
            start, end = self.time
            parts.append("time %.9g..%s s" % (
                start / 1e9, "" if end is None else "%.9g" % (end / 1e9)))
        for name, values in (
                ("process", self.processes), ("thread", self.threads),
                ("function", self.functions), ("file", self.files),
                ("type", self.types), ("fate", self.fates),
                ("label", self.labels)):
            text = " or ".join(values)
            if text:
                parts.append("%s %s" % (name, shortened(text)))
                # Some objects have an unknown type, for example objects from the end of
                # the run.
                if name == "type" and not any(
                        _matches(UNNAMED.name, pattern) for pattern in values):
                    parts[-1] += " (where it is known)"
        return ", ".join(parts)


EVERYTHING = Selection()


class SelectedRows:
    """A receiver of samples that passes the samples of a time to another receiver.

    It implements model.Rows.
    """

    def __init__(self, rows: Rows, selection: Selection) -> None:
        """Create a filter that passes the selected rows to `rows`."""
        self._rows = rows
        self._matches = _time_filter(selection)
        self._is_all = selection.time is None
        #: the threads of all rows, selected or not
        self.threads: set[int] = set()

    def begin(self, settings: dict[str, str]) -> None:
        """Discard the threads, and begin the samples of the other receiver."""
        self._rows.begin(settings)
        self.threads.clear()

    def extend(self, rows: Columns) -> None:
        """Pass the rows of the selected time to the other receiver."""
        self.threads.update(rows.thread)
        if self._is_all:
            self._rows.extend(rows)
            return
        rows = rows.chosen(list(map(self._matches, rows.time)))
        if rows.time:
            self._rows.extend(rows)

    def carry(self, object_: Carried) -> None:
        """Pass an inherited object if the selected time contains the start."""
        # The object was allocated before the start, at an unknown time.
        if self._matches(0):
            self._rows.carry(object_)


def _time_filter(selection: Selection) -> Callable[[int], bool]:
    start, end = selection.time or (0, None)
    last = 2**63 if end is None else end
    first = start if selection.time else -1
    return lambda time: first <= time < last


def chosen_threads(profile: Profile, selection: Selection,
                   sampled: Set[int]) -> Set[int]:
    """Return the kernel's numbers of the selected threads.

    Args:
        profile: the profile with the names of threads.
        selection: the selection.
        sampled: the numbers of all sampled threads.

    Raises:
        NotThere: No thread matches one of the patterns, which may be misspelt.
    """
    if not selection.threads:
        return sampled
    named = names(profile)
    known = {number: named.get(number, "") for number in {*sampled, *profile.threads}}
    matching = set()
    for pattern in selection.threads:
        found = {number for number, name in known.items()
                 if str(number) == pattern or (name and _matches(name, pattern))}
        if not found:
            raise NotThere("no thread of this profile is called %s: write "
                           "--thread with the number or the name of one%s"
                           % (_quoted(pattern), _listed(known)))
        matching |= found
    return matching


def _listed(threads: dict[int, str]) -> str:
    found = ["%d%s" % (number, " (%s)" % shortened(name) if name else "")
             for number, name in sorted(threads.items()) if number]
    more = len(found) - _LISTED
    return "" if not found else ": " + ", ".join(found[:_LISTED]) + (
        ", and %d more" % more if more > 0 else "")


class Selected:
    """The stacks, types and outcomes of a profile that are selected."""

    def __init__(self, profile: Profile, selection: Selection,
                 origins: Origins) -> None:
        """Prepare the selection, and check that each pattern matches a name.

        Raises:
            ProfileError: The profile does not record the information that the selection
                needs.
            NotThere: No name matches one of the patterns, which may be misspelt.
        """
        check(profile, selection)
        self._profile = profile
        self._origins = origins
        self._program = Program(profile)
        self._selection = selection
        self._names = TypeNames(profile)
        self._states = {FATES[fate] for fate in selection.fates}
        self._stacks: dict[int, bool] = {}
        self._types: dict[int, bool] = {}
        found = [self._program.function(frame) for frame in _frames(
            profile, self._program)] if (
                selection.functions or selection.files) else []
        for pattern in selection.functions:
            if not any(is_called(function, pattern, origins) for function in found):
                raise NotThere("no function that was sampled is called %s: "
                               "write --function with the name of one, or with "
                               "*%s" % (_quoted(pattern), similar(
                                   pattern.rpartition(":")[2],
                                   (function.name for function in found))))
        for pattern in selection.files:
            if not any(is_in(function, pattern, origins) for function in found):
                raise NotThere("no function that was sampled is in %s: write "
                               "--file with a file, a folder, or *%s"
                               % (_quoted(pattern), similar(
                                   pattern, _ends(found, pattern))))
        for pattern in selection.labels:
            known = {"%s=%s" % pair
                     for labels in profile.labels for pair in labels.items()}
            if not any(_matches(text, pattern) for text in known):
                raise NotThere("no sample has the label %s: write --label "
                               "KEY=VALUE with an existing label, or with *%s"
                               % (_quoted(pattern), similar(pattern, known)))
        for pattern in selection.types:
            types = {self._names.shown(number).name
                     for number in range(-1, len(profile.types))}
            if not any(_matches(name, pattern) for name in types):
                raise NotThere("no type in this profile is called %s: write "
                               "--type with the name of one, or with *%s"
                               % (_quoted(pattern), similar(pattern, types)))

    def includes(self, stack: int, type_: int, then: str) -> bool:
        """Return whether samples with this stack, type and outcome are selected."""
        return (self._state(then) and self._has_type(type_)
                and self._has_stack(stack))

    def _state(self, then: str) -> bool:
        if then == CARRIED:
            then = STILL_ALIVE
        return not self._states or None in self._states or then in self._states

    def _has_type(self, number: int) -> bool:
        if not self._selection.types:
            return True
        found = self._types.get(number)
        if found is None:
            name = self._names.shown(number).name
            found = self._types[number] = any(
                _matches(name, pattern) for pattern in self._selection.types)
        return found

    def _has_stack(self, number: int) -> bool:
        asked = self._selection
        if not (asked.functions or asked.files or asked.labels):
            return True
        found = self._stacks.get(number)
        if found is None:
            functions = set(self._program.functions(number))
            found = self._stacks[number] = (
                (not asked.labels or self._has_label(number))
                and (not asked.functions or any(
                    is_called(function, pattern, self._origins)
                    for function in functions for pattern in asked.functions))
                and (not asked.files or any(
                    is_in(function, pattern, self._origins)
                    for function in functions for pattern in asked.files)))
        return found

    def _has_label(self, stack: int) -> bool:
        labels = self._profile.labels_of(stack)
        return any(_matches("%s=%s" % pair, pattern)
                   for pair in labels.items() for pattern in self._selection.labels)


def _ends(functions: Iterable[Function], pattern: str) -> set[str]:
    """Return the ends of the paths of functions' files, for proposals of file names.

    Each end has as many folders as `pattern`.
    """
    parts = pattern.count("/") + 1
    return {"/".join(function.file.split("/")[-parts:])
            for function in functions if function.file}


def _frames(profile: Profile, program: Program) -> set[Frame]:
    return {frame for number in range(-1, len(profile.stacks))
            for frame in program.stack(number)}


def select(profile: Profile, selection: Selection) -> Profile:
    """Return the profile with the selected samples and frames only.

    Raises:
        ProfileError: No sample is selected, or the profile does not record the
            information that the selection needs.
        NotThere: No name matches one of the patterns.
    """
    if not (selection.is_everything or not len(profile.samples)):
        matches = _time_filter(selection)
        selected = Selected(profile, selection, Origins(profile))
        old = profile.samples
        threads = chosen_threads(profile, selection, set(old.thread))
        which = [matches(time) and thread in threads and selected.includes(
            stack, type_ if size else -1, state(fate, collected, ended))
            for stack, time, thread, size, type_, fate, collected, ended in zip(
                old.stack, old.time, old.thread, old.size, old.type, old.fate,
                old.collected, old.ended)]
        samples = old.mapped(lambda column: chosen(column, which))
        for carried in old.carried:
            if matches(0) and not selection.threads and selected.includes(
                    carried.stack, carried.type, state(
                        carried.fate, carried.collected, carried.ended)):
                samples.carry(carried)
        if not (len(samples) or samples.carried):
            raise ProfileError("none of the %d samples matches the selection: %s"
                               % (len(old), selection))
        profile = _without_held(dataclasses.replace(profile, samples=samples))
    elif not selection.is_everything:
        check(profile, selection)
    if selection.mine:
        profile = only_own(profile, Origins(profile))
    return profile


def _without_held(profile: Profile) -> Profile:
    """Return the profile without retainers, which belong to all live objects."""
    return dataclasses.replace(profile, held=[], processes=[process._replace(
        profile=_without_held(process.profile)) for process in profile.processes])


def check(profile: Profile, selection: Selection) -> None:
    """Check that the profile records the information that a selection needs.

    Raises:
        ProfileError: The profile lacks this information, or ends before the selected
            time.
    """
    if selection.types and not profile.has_types:
        raise ProfileError("there are no types of objects in this profile, which "
                           "--type needs: it was taken without them")
    if selection.fates and not profile.has_lifetimes:
        raise ProfileError("this profile has no outcomes of objects, which --outcome "
                           "needs: it was taken without lifetimes")
    if selection.time is not None and selection.time[0] > profile.end:
        raise ProfileError(
            "there is no --time %.9g..: the profile ends after %.9g seconds"
            % (selection.time[0] / 1e9, profile.end / 1e9))


def is_called(function: Function, pattern: str, origins: Origins) -> bool:
    """Return whether a function matches a pattern.

    Args:
        function: the function.
        pattern: a name, or a file and a name such as `serving.py:execute`.
        origins: the origins of the profile's functions.
    """
    if _matches(function.name, pattern):
        return True
    file, _, name = pattern.rpartition(":")
    return bool(file) and _matches(function.name, name) and is_in(
        function, file, origins)


def is_in(function: Function, pattern: str, origins: Origins) -> bool:
    """Return whether `pattern` is the name, the path or a folder of a function's file.

    The short path and the recorded path of the file are compared.
    """
    if not function.file:
        return False
    return any(_is_path(path, pattern)
               for path in (origins.path(function.file), function.file))


def _is_path(path: str, pattern: str) -> bool:
    folder = pattern.rstrip("/") + "/"
    return (_matches(path, pattern) or path.endswith("/" + pattern)
            or path.startswith(folder) or "/" + folder in path)


def _matches(text: str, pattern: str) -> bool:
    # Names may contain brackets, which are wildcards for fnmatch.
    return text == pattern or fnmatch.fnmatchcase(text, pattern)


def _quoted(pattern: str) -> str:
    return "'%s'" % shortened(pattern)
