"""The writer of logs for the tools of stock vmprof.

These tools count samples. So the file contains samples that represent equal numbers of
bytes. The layout is vmprof 0.5's (PROFILE.rst, version 6), in which PyPy writes a pair
of kind and address for each frame.
"""
from __future__ import annotations

import struct
from typing import BinaryIO

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import Place, Places, values, whole
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import LABEL, Profile
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.text.units import format_bytes

_STACK, _NAME, _END, _HEAD, _TIME, _META = 1, 2, 3, 5, 6, 7
_VERSION, _PYPY, _INTERPRETED = 6, 4, 1
#: largest number of samples, because vmprof's tools read each one with its whole stack
MOST = 100_000
#: kinds of frames in PyPy's vmprof
_KINDS = {"jit": 3, "native": 7}


def write(profile: Profile, out: BinaryIO) -> list[str]:
    """Write a profile.

    Returns:
        A line that states the bytes per sample and lists the omitted data.

    Raises:
        ProfileError: The profile has no samples, or fewer bytes than one sample of the
            file represents.
    """
    by_stack.check_samples(profile)
    parts = values(profile, threads=True)
    total = sum(value.bytes for value in parts.values())
    unit = max(profile.interval, total / MOST, 1.0)
    weights = [value.bytes / unit if total else float(value.ticks)
               for value in parts.values()]
    counts = whole(weights)
    if not any(counts):
        raise ProfileError("has fewer bytes than one sample (%s), and vmprof's format "
                           "contains only whole samples" % format_bytes(unit))
    places = Places(profile)
    names: dict[Place, int] = {}
    seconds = by_stack.tick_seconds(profile) or 0.01
    out.write(struct.pack("<5q", 0, 3, 0, round(seconds * 1e6), 0))
    out.write(struct.pack("<B", _HEAD) + struct.pack(">hBB", _VERSION, _PYPY, 4))
    out.write(b"pypy")
    _write_time(out, _TIME, profile.start_time)
    for key, text in (("interpreter", "pypy"),
                      ("bytes per sample", "%d" % unit if total else ""),
                      ("thinned from", "%d of %d samples" % profile.thinned
                       if profile.thinned else "")):
        if text:
            out.write(struct.pack("<B", _META) + _string(key) + _string(text))
    records: dict[int, bytes] = {}
    for part, count in zip(parts, counts):
        if not count:
            continue
        stack = records.get(part.stack)
        if stack is None:
            stack = records[part.stack] = _stack(places, part.stack, names)
        out.write((struct.pack("<Bq", _STACK, 1) + stack
                   + struct.pack("<q", part.thread)) * count)
    for place, address in names.items():
        # the fields of a name are separated by colons
        out.write(struct.pack("<Bq", _NAME, address) + _string("py:%s:%d:%s" % (
            place.name.replace(":", ";"), place.line, place.file or "-")))
    _write_time(out, _END, profile.end_time or profile.start_time)
    lines = by_stack.left_out(
        profile, by_stack.PROCESSES, by_stack.TYPES, by_stack.OBJECTS,
        by_stack.FATES, by_stack.LINES, by_stack.LABELS,
        *[by_stack.TICKS] * bool(total))
    if not total:
        return lines
    return ["; ".join(["each sample of this file represents %s" % format_bytes(unit),
                       *lines])]


def _stack(places: Places, number: int, names: dict[Place, int]) -> bytes:
    """Encode a stack: the number of its words, then kind and address of each frame.

    The innermost frame comes first. `names` gets an address for each new function.
    """
    words: list[int] = []
    for frame in reversed(places.frames(number)):
        words += (_kind(frame), _address(names, places.place(frame)))
    if places.is_cut(number):
        # the frame that represents missing callers is written like a function
        words += (_INTERPRETED, _address(names, places.of(number)[0]))
    return struct.pack("<q%dq" % len(words), len(words), *words)


def _kind(frame: Frame) -> int:
    return _INTERPRETED if frame.kind == LABEL else _KINDS.get(frame.kind, _INTERPRETED)


def _address(names: dict[Place, int], place: Place) -> int:
    # even addresses, because odd ones mean native code
    return names.setdefault(place, 0x1000 + 8 * len(names))


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<q", len(data)) + data


def _write_time(out: BinaryIO, marker: int, seconds: float) -> None:
    out.write(struct.pack("<Bqq", marker, int(seconds), int(seconds % 1 * 1e6))
              + bytes(8))
