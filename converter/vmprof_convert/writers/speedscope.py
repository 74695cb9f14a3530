"""A file for speedscope, which shows bytes, objects, what is alive, and time as
separate profiles of one file.  Its layout is file-format-schema.json of npm's
package speedscope."""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from vmprof_convert import stack_values
from vmprof_convert.model import Profile
from vmprof_convert.printable import shortened
from vmprof_convert.stack_values import Place, Places, Value, values, whole
from vmprof_convert.type_names import TypeNames

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class _Kind(NamedTuple):
    name: str
    unit: str
    of: Callable[[Value], float]


_KINDS = (
    _Kind("allocated bytes", "bytes", lambda value: value.bytes),
    _Kind("allocated objects", "none", lambda value: value.objects),
    _Kind("bytes alive", "bytes", lambda value: value.alive_bytes),
    _Kind("time samples", "none", lambda value: value.ticks))


def write(profile: Profile, out: BinaryIO) -> list[str]:
    """Returns what is left out.  Raises ProfileError."""
    stack_values.check_samples(profile)
    frames = _Frames()
    stacks: list[list[int]] = []
    rows: list[Value] = []
    _add(profile, frames, stacks, rows)
    shown = [_profile(kind, stacks, rows) for kind in _KINDS
             if any(map(kind.of, rows))]
    out.write(json.dumps({
        "$schema": SCHEMA, "exporter": "vmprof-convert", "activeProfileIndex": 0,
        "name": shortened(profile.command) or "allocations",
        "shared": {"frames": frames.json}, "profiles": shown,
    }, separators=(",", ":")).encode("ascii"))
    return stack_values.left_out(profile, stack_values.THREADS)


class _Frames:
    def __init__(self) -> None:
        self.json: list[dict[str, Any]] = []
        self._numbers: dict[Place, int] = {}

    def number(self, place: Place) -> int:
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


def _add(profile: Profile, frames: _Frames, stacks: list[list[int]],
         rows: list[Value]) -> None:
    places, type_names = Places(profile), TypeNames(profile)
    known: dict[int, list[int]] = {}
    for part, value in values(profile, types=profile.has_types).items():
        stack = known.get(part.stack)
        if stack is None:
            stack = known[part.stack] = list(
                map(frames.number, places.of(part.stack)))
        if profile.has_types and part.type != stack_values.NONE:
            stack = [*stack, frames.number(
                Place(type_names.shown(part.type).name))]
        stacks.append(stack)
        rows.append(value)


def _profile(kind: _Kind, stacks: list[list[int]],
             rows: list[Value]) -> dict[str, Any]:
    weights = whole(map(kind.of, rows))
    chosen = [number for number, weight in enumerate(weights) if weight]
    return {"type": "sampled", "name": kind.name, "unit": kind.unit,
            "startValue": 0, "endValue": sum(weights),
            "samples": [stacks[number] for number in chosen],
            "weights": [weights[number] for number in chosen]}
