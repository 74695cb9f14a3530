"""The writer of files for speedscope.

Bytes, objects, live bytes and CPU samples are separate profiles of one file. The layout
is file-format-schema.json of npm's package speedscope.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from vmprof_convert.analysis import by_stack, diff
from vmprof_convert.analysis.by_stack import Place, Places, Value, values, whole
from vmprof_convert.analysis.holder_tree import Tree
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.lifetimes import alive_word, is_alive_exact
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import shortened

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


#: indices of the frames of a stack, outermost first
_Stack = tuple[int, ...]


class _Kind(NamedTuple):
    """A number of each stack, for which a file contains a separate profile."""

    name: str
    unit: str
    of: Callable[[Value], float]


_KINDS = (
    _Kind("allocated bytes", "bytes", lambda value: value.bytes),
    _Kind("allocated objects", "none", lambda value: value.objects),
    # the format's argument is lifetimes.alive_word()
    _Kind("bytes %s", "bytes", lambda value: value.alive_bytes),
    _Kind("CPU samples", "none", lambda value: value.ticks))


def write(profile: Profile, out: BinaryIO) -> list[str]:
    """Write a profile.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: The profile has no samples.
    """
    by_stack.check_samples(profile)
    frames = _Frames()
    sums = _sums(profile, frames)
    _write(profile, frames, [
        _profile(kind.unit, _name(kind, alive_word(is_alive_exact(profile))), {
            stack: kind.of(value) for stack, value in sums.items()})
        for kind in _KINDS if any(map(kind.of, sums.values()))], out)
    return by_stack.left_out(profile, by_stack.THREADS, by_stack.PROCESSES,
                                 by_stack.LINES, by_stack.LABELS)


def write_diff(before: Profile, after: Profile, out: BinaryIO) -> list[str]:
    """Write the increases and decreases between two profiles as separate profiles.

    The format has no negative numbers.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: There is no difference.
    """
    frames = _Frames()
    old, new = _sums(before, frames), _sums(after, frames)
    word = diff.of_runs([before], [after]).alive
    nothing = Value()
    shown = []
    for kind in _KINDS:
        changes = {stack: kind.of(new.get(stack, nothing))
                   - kind.of(old.get(stack, nothing)) for stack in {**old, **new}}
        for sign, name in ((1, "more: "), (-1, "less: ")):
            part = {stack: sign * change for stack, change in changes.items()
                    if sign * change > 0}
            if part:
                shown.append(_profile(kind.unit, name + _name(kind, word), part))
    if not shown:
        raise ProfileError("there is no difference to write")
    _write(after, frames, shown, out)
    return by_stack.left_out(after, by_stack.THREADS, by_stack.PROCESSES,
                                 by_stack.LINES, by_stack.LABELS)


def write_held(tree: Tree, out: BinaryIO) -> list[str]:
    """Write the live bytes below their retainers; return notes on omitted data."""
    frames = _Frames()
    sums: dict[_Stack, float] = {}
    for stack in tree.stacks:
        key = tuple(map(frames.number, stack.places))
        sums[key] = sums.get(key, 0.0) + stack.bytes
    _write(tree.profile, frames, [_profile("bytes", "held bytes", sums)], out)
    return tree.left_out


def _write(profile: Profile, frames: _Frames, shown: list[dict[str, Any]],
           out: BinaryIO) -> None:
    out.write(json.dumps({
        "$schema": SCHEMA, "exporter": "vmprof-convert", "activeProfileIndex": 0,
        "name": (shortened(profile.command) or "allocations") + (
            " (%d of %d samples)" % profile.thinned if profile.thinned else ""),
        "shared": {"frames": frames.json}, "profiles": shown,
    }, separators=(",", ":")).encode("ascii"))


def _name(kind: _Kind, alive: str) -> str:
    return kind.name.replace("%s", alive)


class _Frames:
    """The table of frames in a file."""

    def __init__(self) -> None:
        self.json: list[dict[str, Any]] = []
        self._numbers: dict[Place, int] = {}

    def number(self, place: Place) -> int:
        """Return the index of a frame; add it if needed."""
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self.json)
            frame: dict[str, Any] = {"name": place.name}
            if place.path:
                frame["file"] = place.path
            if place.line:
                frame["line"] = place.line
            self.json.append(frame)
        return found


def _sums(profile: Profile, frames: _Frames) -> dict[_Stack, Value]:
    """Return the sums of the samples of each stack.

    If the profile has types, a stack ends with a frame for the type of the objects.
    """
    places, type_names = Places(profile), TypeNames(profile)
    known: dict[int, _Stack] = {}
    result: dict[_Stack, Value] = {}
    for part, value in values(profile, types=profile.has_types).items():
        stack = known.get(part.stack)
        if stack is None:
            stack = known[part.stack] = tuple(
                map(frames.number, places.of(part.stack)))
        if profile.has_types and part.type != by_stack.NONE:
            stack = (*stack, frames.number(Place(type_names.shown(part.type).name)))
        found = result.get(stack)
        if found is None:
            result[stack] = value
        else:
            found.add(value)
    return result


def _profile(unit: str, name: str, sums: dict[_Stack, float]) -> dict[str, Any]:
    weights = whole(sums.values())
    chosen = [(stack, weight) for stack, weight in zip(sums, weights) if weight]
    return {"type": "sampled", "name": name, "unit": unit,
            "startValue": 0, "endValue": sum(weights),
            "samples": [stack for stack, _ in chosen],
            "weights": [weight for _, weight in chosen]}
