"""Stacks in a line each, as flamegraph.pl, inferno and speedscope read them:
`outer;inner;type 123`."""
from __future__ import annotations

from typing import BinaryIO

from vmprof_convert import stack_values
from vmprof_convert.errors import ProfileError
from vmprof_convert.model import Profile
from vmprof_convert.stack_values import Places, Value, values
from vmprof_convert.type_names import TypeNames

#: what the number is
BYTES, OBJECTS, TIME = WEIGHTS = ("bytes", "objects", "time")


def write(profile: Profile, out: BinaryIO, weight: str = "") -> list[str]:
    """`weight`: one of WEIGHTS; empty: bytes, or time samples if there are no
    others.  Returns what is left out.  Raises ProfileError."""
    stack_values.check_samples(profile)
    weight = weight or (BYTES if any(profile.samples.size) else TIME)
    lines = _lines(profile, weight)
    if not lines:
        raise ProfileError("has no %s samples: leave out --weight %s" % (
            "time" if weight == TIME else "allocation", weight))
    ordered = sorted(lines)
    for line, count in zip(ordered, stack_values.whole(
            lines[line] for line in ordered)):
        if count:
            out.write(b"%s %d\n" % (line.encode("utf-8"), count))
    lacking = {stack_values.THREADS, stack_values.PROCESSES, stack_values.FATES}
    if weight != TIME:
        lacking.add(stack_values.TICKS)
    return stack_values.left_out(profile, *lacking)


def write_diff(before: Profile, after: Profile, out: BinaryIO,
               weight: str = BYTES) -> list[str]:
    """Two numbers a line, as difffolded.pl writes them: flamegraph.pl colours what
    grew, and what shrank.  Returns what is left out."""
    old, new = _lines(before, weight), _lines(after, weight)
    ordered = sorted({*old, *new})
    for line, *counts in zip(ordered, *(stack_values.whole(
            side.get(line, 0.0) for line in ordered) for side in (old, new))):
        if any(counts):
            out.write(b"%s %d %d\n" % (line.encode("utf-8"), *counts))
    return stack_values.left_out(
        after, stack_values.THREADS, stack_values.PROCESSES, stack_values.FATES,
        stack_values.TICKS)


def _lines(profile: Profile, weight: str) -> dict[str, float]:
    """The number of each line."""
    lines: dict[str, float] = {}
    places, type_names = Places(profile), TypeNames(profile)
    texts: dict[int, str] = {}
    for part, value in values(profile, types=profile.has_types).items():
        number = _weight(value, weight)
        if not number:
            continue
        text = texts.get(part.stack)
        if text is None:
            text = texts[part.stack] = ";".join(
                _escaped(place.text) for place in places.of(part.stack))
        if profile.has_types and part.type != stack_values.NONE:
            text += ";" + _escaped(type_names.shown(part.type).name)
        lines[text] = lines.get(text, 0.0) + number
    return lines


def _weight(value: Value, weight: str) -> float:
    return {BYTES: value.bytes, OBJECTS: value.objects, TIME: value.ticks}[weight]


def _escaped(name: str) -> str:
    """What is between two semicolons; flamegraph.pl has no way to quote one."""
    return name.replace(";", ":").strip() or "?"
