"""Tests of the checker of Firefox profiles, with a profile that breaks each rule."""
from __future__ import annotations

import copy
import math
import re
from pathlib import Path
from typing import Any, Union

import pytest

import firefox_rules
from firefox_profiles import OTHER_TID, Json, converted, rich_log
from made_profiles import PID

GOOD = converted(rich_log())
MARKER = {"type": "GC", "bytes": 5}
SCHEMA = {"name": "GC", "display": [], "fields": [
    {"key": "bytes", "label": "Bytes", "format": "bytes"}],
    "graphs": [{"key": "bytes", "type": "line-filled", "color": "red"}]}

#: a value that removes the key
DELETE = object()
#: a path of keys, and the new value or a function from the old value to the new one
Change = tuple[str, Any]


def changed(*changes: Change) -> Json:
    profile = copy.deepcopy(GOOD)
    for path, value in changes:
        keys: list[Union[str, int]] = [
            int(key) if key.lstrip("-").isdigit() else key
            for key in path.split(".")]
        where: Any = profile
        for key in keys[:-1]:
            where = where[key]
        if value is DELETE:
            del where[keys[-1]]
        else:
            where[keys[-1]] = value(where[keys[-1]]) if callable(value) else value
    return profile


def balanced(*weights: int, addresses: list[int]) -> Change:
    length = len(weights)
    return ("threads.0.nativeAllocations", {
        "length": length, "time": [1.0] * length, "stack": [0] * length,
        "weight": list(weights), "weightType": "bytes",
        "memoryAddress": addresses, "threadId": [1] * length})


def with_marker(data: Json, **columns: list[Any]) -> list[Change]:
    return [("meta.markerSchema", [SCHEMA]), ("threads.0.markers", {
        "length": 1, "data": [data], "name": [0], "startTime": [1],
        "endTime": [2], "phase": [1], "category": [0], **columns})]


def reverse(values: list[Any]) -> list[Any]:
    return values[::-1]


def repeat(values: list[Any]) -> list[Any]:
    return values + values[-1:]


NATIVE_ALLOCATIONS = "threads.0.nativeAllocations"
FRAMES, FUNCS = "shared.frameTable", "shared.funcTable"
STACKS = "shared.stackTable"

BROKEN: list[tuple[str, list[Change]]] = [
    # values
    ("is nan", [("meta.interval", math.nan)]),
    ("is inf", [(NATIVE_ALLOCATIONS + ".weight.0", math.inf)]),
    ("unpaired surrogate", [("shared.stringArray.0", "\ud800")]),
    # version and meta
    ("preprocessedProfileVersion", [("meta.preprocessedProfileVersion", 47)]),
    ("malformed", [("meta", DELETE)]),
    ("meta.version", [("meta.version", "36")]),
    ("not in milliseconds", [("meta.interval", 0)]),
    ("not in milliseconds", [("meta.interval", 990_000)]),
    ("meta.interval is no number", [("meta.interval", DELETE)]),
    ("meta.startTime", [("meta.startTime", 9e18)]),
    ("profilingStartTime", [("meta.profilingStartTime", DELETE)]),
    ("profilingEndTime", [("meta.profilingEndTime", DELETE)]),
    ("before the start", [("meta.profilingEndTime", -1)]),
    ("meta.product", [("meta.product", DELETE)]),
    ("meta.arguments", [("meta.arguments", DELETE)]),
    ("meta.importedFrom", [("meta.importedFrom", None)]),
    ("meta.symbolicated", [("meta.symbolicated", False)]),
    ("symbolicationNotSupported", [("meta.symbolicationNotSupported", DELETE)]),
    ("OnSearchfox", [("meta.sourceCodeIsNotOnSearchfox", DELETE)]),
    ("meta.markerSchema", [("meta.markerSchema", DELETE)]),
    ("meta.extra: a section", [("meta.extra", DELETE)]),
    ("meta.extra: a section", [("meta.extra.0.label", DELETE)]),
    ("meta.extra: a bad entry", [("meta.extra.0.entries.0.format", "apples")]),
    ("meta.extra: a bad entry", [("meta.extra.0.entries.0.value", 5)]),
    ("sampleUnits", [("meta.sampleUnits", {"time": "s"})]),
    # categories
    ("no category is grey", [("meta.categories.0.color", "yellow")]),
    ("unknown colour", [("meta.categories.1.color", "snake")]),
    ("not Other", [("meta.categories.1.subcategories", reverse)]),
    # shared tables
    ("columns ['prefix', 'prefixOffset']", [
        (STACKS + ".prefixOffset", [0] * GOOD["shared"]["stackTable"]["length"]),
        (STACKS + ".prefix", DELETE)]),
    ("frameTable.line: its length", [(FRAMES + ".line", repeat)]),
    ("shared: has", [("shared.nativeSymbols", DELETE)]),
    ("stringArray: a string is there twice", [("shared.stringArray", repeat)]),
    ("stringArray: not all", [("shared.stringArray.0", None)]),
    ("sources.filename", [("shared.sources.filename.0", 99)]),
    ("sources.startLine", [("shared.sources.startLine.0", 0)]),
    ("sources.content", [("shared.sources.content.0", 1)]),
    # functions
    ("funcTable.name", [(FUNCS + ".name.0", 99)]),
    ("funcTable.name", [(FUNCS + ".name.0", True)]),
    ("funcTable.resource", [(FUNCS + ".resource.0", 0)]),
    ("funcTable.source", [(FUNCS + ".source.0", -1)]),
    ("funcTable.lineNumber", [(FUNCS + ".lineNumber.0", 0)]),
    ("funcTable.columnNumber", [(FUNCS + ".columnNumber.0", -1)]),
    ("funcTable.isJS", [(FUNCS + ".isJS.0", 1)]),
    ("funcTable.originalLocation", [(FUNCS + ".originalLocation.0", 0)]),
    ("a function is there twice", [
        (FUNCS + "." + key + ".1", GOOD["shared"]["funcTable"][key][0])
        for key in ("name", "source", "lineNumber", "isJS")]),
    # frames
    ("frameTable.func", [(FRAMES + ".func.0", 99)]),
    ("frameTable.address", [(FRAMES + ".address.0", 0)]),
    ("frameTable.nativeSymbol", [(FRAMES + ".nativeSymbol.0", -1)]),
    ("frameTable.inlineDepth", [(FRAMES + ".inlineDepth.0", None)]),
    ("frameTable.originalLocation", [(FRAMES + ".originalLocation.0", 0)]),
    ("frameTable.line", [(FRAMES + ".line.0", 0)]),
    ("frameTable.column", [(FRAMES + ".column.0", -1)]),
    ("frameTable.category: null", [(FRAMES + ".category.0", None)]),
    ("frameTable.category: an index", [(FRAMES + ".category.0", 9)]),
    ("frameTable.subcategory: null", [(FRAMES + ".subcategory.0", None)]),
    ("frameTable.subcategory: an index", [(FRAMES + ".subcategory.0", 9)]),
    ("frames of two categories", [
        (FRAMES + ".category.1", 2), (FRAMES + ".subcategory.1", 0)]),
    ("a frame is there twice", [
        (FRAMES + ".subcategory.2", 1)]),
    # stacks
    ("stackTable.frame", [(STACKS + ".frame.0", 99)]),
    ("not a smaller index", [(STACKS + ".prefix.0", 0)]),
    ("not a smaller index", [(STACKS + ".prefix.0", -1)]),
    ("not a smaller index", [(STACKS + ".prefix.1", 2)]),
    ("a stack is there twice", [
        (STACKS + ".frame.2", GOOD["shared"]["stackTable"]["frame"][1]),
        (STACKS + ".prefix.2", GOOD["shared"]["stackTable"]["prefix"][1])]),
    # threads
    ("threads: there are none", [("threads", [])]),
    ("one main thread", [("threads.0.isMainThread", False)]),
    ("one main thread", [("threads.1.isMainThread", True)]),
    ("one main thread", [("threads.1.pid", "77")]),
    ("threads: one is there twice", [("threads.1.tid", OTHER_TID)]),
    ("pid is no string", [
        ("threads.%d.pid" % i, PID) for i in range(len(GOOD["threads"]))]),
    ("registerTime", [("threads.0.registerTime", 5)]),
    ("isMainThread is no boolean", [("threads.1.isMainThread", 0)]),
    ("name is no string", [("threads.0.name", None)]),
    ("pausedRanges is missing", [("threads.0.pausedRanges", DELETE)]),
    ("jsAllocations", [("threads.0.jsAllocations", {})]),
    ("not all threads", [("meta.initialVisibleThreads", [0])]),
    ("not all threads", [("meta.initialVisibleThreads", DELETE)]),
    ("one that is not visible", [("meta.initialSelectedThreads", [9])]),
    ("initialSelectedThreads", [("meta.initialSelectedThreads", [])]),
    ("initialSelectedThreads", [("meta.initialSelectedThreads", [9])]),
    ("keepProfileThreadOrder", [("meta.keepProfileThreadOrder", DELETE)]),
    # samples
    ("samples: columns", [("threads.0.samples.weight", DELETE)]),
    ("samples.weightType", [("threads.0.samples.weightType", "objects")]),
    ("samples.weight: its length", [("threads.0.samples.weight", [1, 1])]),
    ("samples.stack", [("threads.0.samples.stack.0", None)]),
    ("a time is outside", [("threads.0.samples.time.0", 1e6)]),
    ("a time is outside", [("threads.0.samples.time.0", -1)]),
    ("a time is no number", [("threads.0.samples.time.0", None)]),
    # allocations
    ("nativeAllocations: empty", [("threads.0.nativeAllocations", {
        "length": 0, "time": [], "stack": [], "weight": [],
        "weightType": "bytes"})]),
    ("do not ascend", [(NATIVE_ALLOCATIONS + ".time", reverse)]),
    ("nativeAllocations.stack: its length", [
        (NATIVE_ALLOCATIONS + ".stack", repeat)]),
    ("nativeAllocations.stack", [(NATIVE_ALLOCATIONS + ".stack.0", 99)]),
    ("weightType is not bytes", [(NATIVE_ALLOCATIONS + ".weightType", "samples")]),
    ("not all are integers", [(NATIVE_ALLOCATIONS + ".weight.0", 1.5)]),
    ("without memoryAddress", [(NATIVE_ALLOCATIONS + ".weight.0", -1)]),
    ("nativeAllocations: columns", [
        (NATIVE_ALLOCATIONS + ".threadId", [1] * 4)]),
    ("not a small integer", [balanced(5, addresses=[2**40])]),
    ("not unique", [balanced(5, 5, addresses=[1, 1])]),
    ("a death without its birth", [balanced(-5, addresses=[1])]),
    ("a death without its birth", [balanced(5, -6, addresses=[1, 1])]),
    ("no counter track", [("counters", []), *(
        ("threads.%d.samples" % i, {
            "length": 0, "time": [], "stack": [], "weight": None,
            "weightType": "samples"}) for i in range(len(GOOD["threads"])))]),
    # markers
    ("markers: columns", [("threads.0.markers.phase", DELETE)]),
    ("no schema's name", with_marker({**MARKER, "type": "gc"})),
    ("markers.name", with_marker(MARKER, name=[99])),
    ("markers.category", with_marker(MARKER, category=[None])),
    ("markers.phase", with_marker(MARKER, phase=[4])),
    ("a bad graph", [*with_marker(MARKER), (
        "meta.markerSchema.0", lambda s: {**s, "graphs": [{
            "key": "heap", "type": "line-filled", "color": "red"}]})]),
    ("a bad graph", [*with_marker(MARKER), (
        "meta.markerSchema.0", lambda s: {**s, "graphs": [{
            "key": "bytes", "type": "line-filled"}]})]),
    # counters
    ("main thread", [("counters.0.mainThreadIndex", 1)]),
    ("main thread", [("counters.0.pid", "1")]),
    ("description is no string", [("counters.0.description", DELETE)]),
    ("columns ['number']", [("counters.0.samples.number", [])]),
    ("counters[1]: empty", [("counters.1.samples", {
        "length": 0, "time": [], "count": []})]),
    ("do not ascend", [("counters.1.samples.time", reverse)]),
    ("bins are not of one width", [("counters.0.samples.time.1", 0.0)]),
    ("bins are not of one width", [("counters.0.samples", {
        "length": 1, "time": [0], "count": [0]})]),
    ("a negative rate", [("counters.0.samples.count.1", -1)]),
    ("before the first bin", [("counters.0.samples.count.0", 1)]),
    ("the sum gets negative", [
        ("counters.1.samples.count.%d" % i, 5) for i in (1, 2)]),
    ("count: not all are integers", [("counters.0.samples.count.0", 0.5)]),
    ("graphType is unknown", [("counters.0.display.graphType", "bars")]),
    ("unit is not bytes", [("counters.0.display.unit", "B")]),
    ("color is unknown", [("counters.0.display.color", "black")]),
    ("label is missing", [("counters.0.display.label", "")]),
    ("sortWeight", [("counters.0.display.sortWeight", None)]),
    ("tooltipRows: there are none", [("counters.0.display.tooltipRows", [])]),
    ("a bad row", [("counters.0.display.tooltipRows.0.source", "sum")]),
    ("a bad row", [("counters.0.display.tooltipRows.0.format.unit", "MB")]),
    ("display: has", [("counters.0.display.tooltipRows", DELETE)]),
]


@pytest.mark.parametrize("message, changes", BROKEN, ids=[
    "%s: %s" % (message, " ".join(path for path, _ in changes))
    for message, changes in BROKEN])
def test_the_checker_reports_each_broken_rule(message: str,
                                              changes: list[Change]) -> None:
    found = firefox_rules.violations(changed(*changes))
    assert any(message in text for text in found), found


def test_the_checker_accepts_valid_profiles() -> None:
    for profile in (GOOD, changed(*with_marker(MARKER)),
                    changed(balanced(5, 7, -5, addresses=[1, 2, 1]))):
        assert firefox_rules.violations(profile) == []


def test_every_message_of_the_checker_is_tested() -> None:
    source = Path(firefox_rules.__file__).read_text()
    messages = re.findall(r'(?:report|found\.append)\(\s*"([^"]*)"', source)
    assert len(messages) > 70
    found = [text for _, changes in BROKEN
             for text in firefox_rules.violations(changed(*changes))]
    for message in messages:
        parts = re.split(r"%(?:\(\w+\))?[sdr]", message)
        pattern = ".*".join(map(re.escape, parts))
        assert any(re.search(pattern, text) for text in found), message
