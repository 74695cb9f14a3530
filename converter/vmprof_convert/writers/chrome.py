"""The writer of .heapprofile files for the memory panel of Chrome's DevTools.

Such a file is a tree of functions with the allocated bytes of each (Profiler protocol,
HeapProfiler.SamplingHeapProfile).
"""
from __future__ import annotations

import json
from typing import BinaryIO

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import Place, Places, values, whole
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile


class _Node:
    """A node of the tree of calls."""

    __slots__ = ("bytes", "children", "number", "place")

    def __init__(self, number: int, place: Place) -> None:
        #: number of the node, from 1 on
        self.number = number
        self.place = place
        self.bytes = 0
        self.children: dict[Place, _Node] = {}


def write(profile: Profile, out: BinaryIO) -> list[str]:
    """Write the allocated bytes of a profile as a .heapprofile file.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: The profile has no allocation samples.
    """
    by_stack.check_samples(profile)
    if not any(profile.samples.size):
        raise ProfileError("has no allocation samples, and a .heapprofile contains "
                           "nothing else")
    root = _Node(1, Place("(root)"))
    count = 1
    places = Places(profile)
    all_ = values(profile)
    for part, bytes_ in zip(all_, whole(value.bytes for value in all_.values())):
        node = root
        for place in places.of(part.stack):
            child = node.children.get(place)
            if child is None:
                count += 1
                child = node.children[place] = _Node(count, place)
            node = child
        node.bytes += bytes_
    _write(root, out)
    return by_stack.left_out(
        profile, by_stack.THREADS, by_stack.PROCESSES, by_stack.TYPES,
        by_stack.OBJECTS, by_stack.FATES, by_stack.TICKS,
        by_stack.LINES, by_stack.LABELS)


def _write(root: _Node, out: BinaryIO) -> None:
    """Write the tree without recursion, because it may be too deep for json.dumps()."""
    out.write(b'{"head":')
    samples = []
    stack = [(root, True)]
    is_first = True
    while stack:
        node, is_new = stack.pop()
        if not is_new:
            out.write(b"]}")
            is_first = False
            continue
        samples += [node] if node.bytes else []
        head = json.dumps({
            "callFrame": {
                # DevTools counts lines and columns from 0 on
                "functionName": node.place.name, "scriptId": "0",
                "url": node.place.path, "lineNumber": node.place.line - 1,
                "columnNumber": -1},
            "selfSize": node.bytes, "id": node.number}, separators=(",", ":"))
        out.write(b"%s%s,\"children\":[" % (
            b"" if is_first else b",", head[:-1].encode("ascii")))
        is_first = True
        stack.append((node, False))
        stack += [(child, True) for child in reversed(node.children.values())]
    out.write(b',"samples":')
    out.write(json.dumps([
        {"size": node.bytes, "nodeId": node.number, "ordinal": ordinal}
        for ordinal, node in enumerate(samples, 1)],
        separators=(",", ":")).encode("ascii"))
    out.write(b"}")
