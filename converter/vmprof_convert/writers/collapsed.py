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
    has_allocations = any(profile.samples.size)
    weight = weight or (BYTES if has_allocations else TIME)
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
    if not lines:
        raise ProfileError("has no %s samples: leave out --weight %s" % (
            "time" if weight == TIME else "allocation", weight))
    ordered = sorted(lines)
    for line, count in zip(ordered, stack_values.whole(
            lines[line] for line in ordered)):
        if count:
            out.write(b"%s %d\n" % (line.encode("utf-8"), count))
    lacking = {stack_values.THREADS, stack_values.FATES}
    if weight != TIME:
        lacking.add(stack_values.TICKS)
    return stack_values.left_out(profile, *lacking)


def _weight(value: Value, weight: str) -> float:
    return {BYTES: value.bytes, OBJECTS: value.objects, TIME: value.ticks}[weight]


def _escaped(name: str) -> str:
    """What is between two semicolons; flamegraph.pl has no way to quote one."""
    return name.replace(";", ":").strip() or "?"
