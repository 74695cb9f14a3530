"""Stacks in a line each, as flamegraph.pl, inferno and speedscope read them:
`outer;inner;type 123`."""
from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from vmprof_convert import stack_values
from vmprof_convert.errors import ProfileError
from vmprof_convert.model import Profile
from vmprof_convert.stack_values import Places, Value, values
from vmprof_convert.type_names import TypeNames

#: what the number is
BYTES, OBJECTS, TIME = WEIGHTS = ("bytes", "objects", "time")


def write(profiles: Sequence[Profile], out: BinaryIO, weight: str = "") -> list[str]:
    """`weight`: one of WEIGHTS; empty: bytes, or time samples if there are no
    others.  Returns what is left out.  Raises ProfileError."""
    stack_values.check_samples(profiles)
    has_allocations = any(any(profile.samples.size) for profile in profiles)
    weight = weight or (BYTES if has_allocations else TIME)
    lines: dict[str, float] = {}
    for profile in profiles:
        root = [stack_values.process_name(profile)] if len(profiles) > 1 else []
        _add(profile, list(map(_escaped, root)), weight, lines)
    if not lines:
        raise ProfileError("has no %s samples: leave out --weight %s" % (
            "time" if weight == TIME else "allocation", weight))
    texts = sorted(lines)
    for text, number in zip(texts, stack_values.whole(
            lines[text] for text in texts)):
        if number:
            out.write(b"%s %d\n" % (text.encode("utf-8"), number))
    lacking = {stack_values.THREADS, stack_values.FATES}
    if weight != TIME:
        lacking.add(stack_values.TICKS)
    return stack_values.left_out(profiles, *lacking)


def _add(profile: Profile, root: list[str], weight: str,
         lines: dict[str, float]) -> None:
    places, type_names = Places(profile), TypeNames(profile)
    texts: dict[int, str] = {}
    for part, value in values(profile, types=profile.has_types).items():
        number = _weight(value, weight)
        if not number:
            continue
        text = texts.get(part.stack)
        if text is None:
            text = texts[part.stack] = ";".join(
                root + [_escaped(place.text) for place in places.of(part.stack)])
        if profile.has_types and part.type != stack_values.NONE:
            text += ";" + _escaped(type_names.shown(part.type).name)
        lines[text] = lines.get(text, 0.0) + number


def _weight(value: Value, weight: str) -> float:
    return {BYTES: value.bytes, OBJECTS: value.objects, TIME: value.ticks}[weight]


def _escaped(name: str) -> str:
    """What is between two semicolons; flamegraph.pl has no way to quote one."""
    return name.replace(";", ":").strip() or "?"
