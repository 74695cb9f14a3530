"""Decodes collapsed stacks, speedscope files and Chrome heap profiles.

The module shares no code with the writers. It also makes profiles for their tests.
"""
from __future__ import annotations

import collections
import io
import json
import random
import re
from typing import Any

from firefox_profiles import OTHER_TID
from made_heap import Heap
from made_profiles import FrameSpec, Log, jit
from vmprof_convert import readers
from vmprof_convert.profile.model import Function, Profile
from vmprof_convert.writers import chrome, collapsed, speedscope

Json = dict[str, Any]
Stack = tuple[str, ...]
Sums = dict[Stack, float]
MS = 1_000_000


def a_heap() -> Profile:
    """Return random samples with recursion, several types, garbage and live objects."""
    heap = Heap(interval=200, seed=5)
    rng = random.Random(5)
    for _ in range(800):
        names = "main " + " ".join(rng.choices(["f", "g", "h"], k=rng.randint(1, 5)))
        heap.allocate(names, (rng.choice(["list", "app.Node", "<frame>"]),
                              rng.choice([16, 64, 3000]), rng.choice([10, 1e5, 1e12])))
    heap.collect()
    return readers.read_bytes(heap.data())


def read_collapsed(profile: Profile, weight: str = "bytes") -> dict[Stack, int]:
    """Write a profile as collapsed stacks, and return the sum of each stack."""
    out = io.BytesIO()
    collapsed.write(profile, out, weight)
    result = {}
    for line in out.getvalue().decode("utf-8").split("\n")[:-1]:
        # the pattern with which flamegraph.pl reads a line
        match = re.fullmatch(r"(.*) (\d+)", line)
        assert match, line
        result[tuple(match[1].split(";"))] = int(match[2])
    return result


def text_of(frame: Json) -> str:
    """Return the text of a frame as collapsed stacks contain it."""
    line = ":%d" % frame["line"] if "line" in frame else ""
    return "%s (%s%s)" % (frame["name"], frame["file"], line) if (
        "file" in frame) else str(frame["name"])


def speedscope_json(profile: Profile) -> Json:
    out = io.BytesIO()
    speedscope.write(profile, out)
    found: Json = json.loads(out.getvalue())
    return found


def read_speedscope(name: str, profile: Profile) -> dict[Stack, int]:
    """Return the sum of each stack in one profile of a speedscope file."""
    found = speedscope_json(profile)
    shown, = (one for one in found["profiles"] if one["name"] == name)
    result: dict[Stack, int] = collections.Counter()
    for stack, weight in zip(shown["samples"], shown["weights"]):
        result[tuple(text_of(found["shared"]["frames"][frame])
                     for frame in stack)] += weight
    assert shown["endValue"] == sum(result.values())
    return dict(result)


def read_chrome(profile: Profile) -> dict[Stack, int]:
    """Write a profile as a Chrome heap profile, and return the sum of each stack."""
    out = io.BytesIO()
    chrome.write(profile, out)
    found = json.loads(out.getvalue())
    result: dict[Stack, int] = {}
    numbers = {}
    waiting: list[tuple[Json, Stack]] = [(found["head"], ())]
    while waiting:
        node, outer = waiting.pop()
        frame = node["callFrame"]
        assert set(frame) == {"functionName", "scriptId", "url", "lineNumber",
                              "columnNumber"}
        stack = (*outer, text_of({
            "name": frame["functionName"],
            **({"file": frame["url"]} if frame["url"] else {}),
            **({"line": frame["lineNumber"] + 1} if frame["lineNumber"] >= 0 else {})}))
        if node["selfSize"]:
            result[stack[1:]] = node["selfSize"]
        assert node["id"] not in numbers
        numbers[node["id"]] = node["selfSize"]
        waiting += [(child, stack) for child in node["children"]]
    assert {sample["nodeId"]: sample["size"] for sample in found["samples"]} == {
        number: size for number, size in numbers.items() if size}
    return result


def own(found: Sums | dict[Stack, int], depth: int = 1) -> dict[Stack, float]:
    """Return the sums of stacks by their innermost `depth` frames."""
    result: dict[Stack, float] = collections.defaultdict(float)
    for stack, number in found.items():
        result[stack[-depth:]] += number
    return result


def label(function: Function) -> str:
    """Return the text of a function in the files of stacks."""
    return "%s (%s:%d)" % (function.name, function.file, function.line) if (
        function.file) else function.name


def labelled_log() -> Log:
    """Return a profile with lines, compiled code, two threads and CPU samples."""
    log = Log(flags=4 | 2)
    main, work = (log.function(name, 10 * n + 1, "/srv/app/%s.py" % name)
                  for n, name in enumerate(("main", "work")))
    start = log.function("run_toplevel", 1, "<builtin>/app_main.py")
    log.settings(period="0.01")
    stack: list[FrameSpec] = [main, jit(work)]
    log.allocation(stack, size=40_000, time=1)
    log.allocation(stack, size=40_000, time=2, thread=OTHER_TID)
    log.allocation(None, size=50_000, time=3)
    log.allocation([start], size=60_000, time=4)
    log.tick([main, work], time=5)
    log.tick([main, work], time=6)
    log.thread(OTHER_TID, "worker;1")
    return log
