"""Check a Firefox Profiler file, processed version 64, strictly.

The front end does not validate a file. It loads an invalid file, and then crashes in a
view or hides a thread. `violations(profile)` lists all faults of a profile, as
json.load returns it. The rules come from the format, and from experiments with the
front end.
"""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

VERSION = 64
#: the first threads, up to this number, must be visible when the file is opened
MAX_VISIBLE = 13
Json = dict[str, Any]

CATEGORY_COLORS = {"transparent", "purple", "green", "orange", "yellow",
                   "lightblue", "blue", "brown", "magenta", "red", "lightred",
                   "darkgrey", "grey"}
GRAPH_COLORS = {"blue", "green", "grey", "ink", "magenta", "orange", "purple",
                "red", "teal", "yellow"}
FORMATS = {"string", "integer", "bytes", "decimal", "duration", "time",
           "milliseconds", "percentage", "url", "file-path"}
TOOLTIP_SOURCES = {"count", "rate", "cpu-ratio", "accumulated", "count-range",
                   "selection-total", "selection-rate",
                   "committed-range-total", "sample-number"}
TOOLTIP_UNITS = {"bytes", "bytes-per-second", "percent", "number"}
WEIGHT_TYPES = {"samples", "tracing-ms", "bytes"}

SHARED_COLUMNS = {
    "sources": "id filename startLine startColumn sourceMapURL content",
    "sourceLocationTable": "source line column",
    "funcTable": "name isJS relevantForJS resource source lineNumber "
                 "columnNumber originalLocation",
    "frameTable": "address inlineDepth category subcategory func nativeSymbol "
                  "innerWindowID line column originalLocation",
    "stackTable": "frame prefix",
    "resourceTable": "name host type lib",
    "nativeSymbols": "libIndex address name functionSize",
}


def violations(profile: Json) -> list[str]:
    """Return a description of each fault of a file, or an empty list."""
    found: list[str] = []
    _check_values(profile, "profile", found)
    if found:
        return found        # the other checks need finite numbers
    try:
        for check in (_check_meta, _check_categories, _check_shared,
                      _check_functions, _check_frames, _check_stacks,
                      _check_threads, _check_visibility, _check_counters):
            check(profile, found.append)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        found.append("malformed: %r" % error)
    return found


Report = Callable[[str], None]


def _check_values(value: Any, where: str, found: list[str]) -> None:
    """Report the values that not every browser reads from the JSON unchanged."""
    todo = [(value, where)]
    while todo:
        value, where = todo.pop()
        if isinstance(value, dict):
            todo += [(v, "%s.%s" % (where, k)) for k, v in value.items()]
            todo += [(k, where) for k in value]
        elif isinstance(value, list):
            todo += [(v, where) for v in value]
        elif isinstance(value, float) and not math.isfinite(value):
            found.append("%s is %r" % (where, value))
        elif isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            found.append("%s has an unpaired surrogate" % where)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _index(value: Any, length: int) -> bool:
    return _integer(value) and 0 <= value < length


def _columns(table: Json, names: str, where: str, report: Report,
             also: Iterable[str] = ()) -> bool:
    """Return whether a table has the columns `names`, each with `length` items."""
    good = True
    expected = {*names.split(), *also, "length"}
    if set(table) != expected:
        report("%s: columns %s" % (where, sorted(set(table) ^ expected)))
        good = False
    for name in names.split():
        if name in table and len(table[name]) != table["length"]:
            report("%s.%s: its length is not %d" % (
                where, name, table["length"]))
            good = False
    return good


def _ascending(times: list[Any], where: str, end: float,
               report: Report) -> None:
    if not all(map(_number, times)):
        report("%s: a time is no number" % where)
        return
    if any(a > b for a, b in zip(times, times[1:])):
        report("%s: the times do not ascend" % where)
    if times and not 0 <= min(times) <= max(times) <= end:
        report("%s: a time is outside of the profile" % where)


def _check_meta(profile: Json, report: Report) -> None:
    meta = profile["meta"]
    if meta["preprocessedProfileVersion"] != VERSION:
        report("meta.preprocessedProfileVersion is not %d" % VERSION)
    for key in ("version", "processType", "stackwalk"):
        if not _integer(meta[key]):
            report("meta.%s is no integer" % key)
    for key in ("interval", "startTime", "profilingStartTime",
                "profilingEndTime"):
        if not _number(meta.get(key)):
            report("meta.%s is no number" % key)
            return
    if not 0 < meta["interval"] < 60_000:
        report("meta.interval is not in milliseconds")
    if not 0 <= meta["startTime"] < 8.64e15:
        report("meta.startTime is no date")
    if not meta["profilingStartTime"] <= meta["profilingEndTime"]:
        report("meta.profilingEndTime is before the start")
    for key in ("product", "arguments", "importedFrom"):
        if not isinstance(meta.get(key), str):
            report("meta.%s is no string" % key)
    for key in ("symbolicated", "symbolicationNotSupported",
                "sourceCodeIsNotOnSearchfox"):
        if meta.get(key) is not True:
            report("meta.%s is not true" % key)
    if not isinstance(meta.get("markerSchema"), list):
        report("meta.markerSchema is no list")
    for section in meta.get("extra") or [{}]:
        if not isinstance(section.get("label"), str):
            report("meta.extra: a section has no label")
        for entry in section.get("entries", ()):
            number = entry.get("format") in ("bytes", "integer")
            if (set(entry) != {"label", "format", "value"}
                    or entry["format"] not in FORMATS
                    or not (_number if number else isinstance)(
                        entry["value"], *(() if number else (str,)))):
                report("meta.extra: a bad entry %r" % entry)
    units = meta.get("sampleUnits")
    if units is not None and units.get("time") not in ("ms", "bytes"):
        report("meta.sampleUnits.time is neither ms nor bytes")


def _check_categories(profile: Json, report: Report) -> None:
    categories = profile["meta"]["categories"]
    for category in categories:
        if category["color"] not in CATEGORY_COLORS:
            report("category %(name)s: unknown colour %(color)s" % category)
        if category["subcategories"][:1] != ["Other"]:
            report("category %(name)s: its first subcategory is not Other"
                   % category)
    if not any(c["color"] == "grey" for c in categories):
        report("no category is grey")


def _check_shared(profile: Json, report: Report) -> None:
    shared = profile["shared"]
    if set(shared) != {*SHARED_COLUMNS, "stringArray"}:
        report("shared: has %s" % sorted(shared))
    for name, columns in SHARED_COLUMNS.items():
        _columns(shared[name], columns, name, report)
    strings = shared["stringArray"]
    if not all(isinstance(text, str) for text in strings):
        report("stringArray: not all are strings")
    elif len(set(strings)) != len(strings):
        report("stringArray: a string is there twice")
    sources = shared["sources"]
    for key in ("filename",):
        if not all(_index(i, len(strings)) for i in sources[key]):
            report("sources.%s: an index is out of range" % key)
    for key in ("startLine", "startColumn"):
        if not all(_integer(n) and n >= 1 for n in sources[key]):
            report("sources.%s: not counted from 1" % key)
    if not all(text is None or isinstance(text, str)
               for text in sources["content"]):
        report("sources.content: neither text nor null")


def _check_functions(profile: Json, report: Report) -> None:
    shared = profile["shared"]
    table = shared["funcTable"]
    strings, sources = shared["stringArray"], shared["sources"]["length"]
    if not all(_index(i, len(strings)) for i in table["name"]):
        report("funcTable.name: an index is out of range")
    if any(i != -1 for i in table["resource"]):
        report("funcTable.resource: not -1")
    if not all(i is None or _index(i, sources) for i in table["source"]):
        report("funcTable.source: an index is out of range")
    for key in ("lineNumber", "columnNumber"):
        if not all(n is None or (_integer(n) and n >= 1) for n in table[key]):
            report("funcTable.%s: neither null nor counted from 1" % key)
    for key in ("isJS", "relevantForJS"):
        if not all(isinstance(value, bool) for value in table[key]):
            report("funcTable.%s: not a boolean" % key)
    if any(value is not None for value in table["originalLocation"]):
        report("funcTable.originalLocation: not null")
    functions = list(zip(table["name"], table["source"], table["lineNumber"],
                         table["isJS"]))
    if len(set(functions)) != len(functions):
        report("funcTable: a function is there twice")


def _check_frames(profile: Json, report: Report) -> None:
    shared = profile["shared"]
    table = shared["frameTable"]
    categories = profile["meta"]["categories"]
    if not all(_index(i, shared["funcTable"]["length"])
               for i in table["func"]):
        report("frameTable.func: an index is out of range")
    if any(value != -1 for value in table["address"]):
        report("frameTable.address: not -1")
    if any(value is not None for value in table["nativeSymbol"]):
        report("frameTable.nativeSymbol: not null")
    if any(value != 0 for value in table["inlineDepth"]):
        report("frameTable.inlineDepth: not 0")
    if any(value is not None for value in table["originalLocation"]):
        report("frameTable.originalLocation: not null")
    for key in ("line", "column"):
        if not all(n is None or (_integer(n) and n >= 1) for n in table[key]):
            report("frameTable.%s: neither null nor counted from 1" % key)
    of_function: dict[Any, set[Any]] = {}
    for func, category, sub in zip(table["func"], table["category"],
                                   table["subcategory"]):
        of_function.setdefault(func, set()).add(category)
        if category is None:
            report("frameTable.category: null")
        elif not _index(category, len(categories)):
            report("frameTable.category: an index is out of range")
        elif sub is None:
            report("frameTable.subcategory: null, although category is set")
        elif not _index(sub, len(categories[category]["subcategories"])):
            report("frameTable.subcategory: an index is out of range")
    # the front end draws a node in grey if its frames have several categories
    if any(len(categories) > 1 for categories in of_function.values()):
        report("frameTable.category: a function has frames of two categories")
    frames = list(zip(*(table[key] for key in (
        "func", "category", "subcategory", "line", "column"))))
    if len(set(frames)) != len(frames):
        report("frameTable: a frame is there twice")


def _check_stacks(profile: Json, report: Report) -> None:
    table = profile["shared"]["stackTable"]
    frames = profile["shared"]["frameTable"]["length"]
    if not all(_index(i, frames) for i in table["frame"]):
        report("stackTable.frame: an index is out of range")
    if not all(prefix is None or _index(prefix, row)
               for row, prefix in enumerate(table["prefix"])):
        report("stackTable.prefix: not a smaller index")
    stacks = set(zip(table["prefix"], table["frame"]))
    if len(stacks) != table["length"]:
        report("stackTable: a stack is there twice")


def _check_threads(profile: Json, report: Report) -> None:
    meta, threads = profile["meta"], profile["threads"]
    stacks = profile["shared"]["stackTable"]["length"]
    end = meta["profilingEndTime"]
    if not threads:
        report("threads: there are none")
    main_threads = [t["pid"] for t in threads if t["isMainThread"] is True]
    if sorted(main_threads) != sorted({t["pid"] for t in threads}):
        report("threads: not each process has one main thread")
    if len({(t["pid"], t["tid"]) for t in threads}) != len(threads):
        report("threads: one is there twice")
    allocating = timed = False
    for number, thread in enumerate(threads):
        where = "threads[%d]" % number
        if not isinstance(thread["pid"], str):
            report("%s.pid is no string" % where)
        if thread["registerTime"] != 0:
            report("%s.registerTime is not 0" % where)
        if not isinstance(thread["isMainThread"], bool):
            report("%s.isMainThread is no boolean" % where)
        if not isinstance(thread["name"], str):
            report("%s.name is no string" % where)
        for key in ("processType", "processStartupTime", "processShutdownTime",
                    "unregisterTime", "pausedRanges"):
            if key not in thread:
                report("%s.%s is missing" % (where, key))
        if "jsAllocations" in thread:
            report("%s.jsAllocations: opens on an empty panel" % where)
        samples = thread["samples"]
        timed |= samples["length"] > 0
        _check_samples(samples, "time stack", where + ".samples", stacks, end,
                       report, also=("weight", "weightType"))
        if samples["weightType"] not in WEIGHT_TYPES:
            report("%s.samples.weightType is unknown" % where)
        weight = samples["weight"]
        if weight is not None and len(weight) != samples["length"]:
            report("%s.samples.weight: its length is not %d" % (
                where, samples["length"]))
        if "nativeAllocations" in thread:
            allocating = True
            _check_allocations(thread["nativeAllocations"],
                               where + ".nativeAllocations", stacks, end,
                               report)
        _check_markers(thread["markers"], meta, where + ".markers",
                       len(profile["shared"]["stringArray"]), report)
    if allocating and not timed and not profile.get("counters"):
        report("allocations only, and no counter track shows when")


def _check_samples(table: Json, columns: str, where: str, stacks: int,
                   end: float, report: Report, also: Iterable[str]) -> None:
    if _columns(table, columns, where, report, also):
        _ascending(table["time"], where, end, report)
        # the front end reads a stack of null as "no stack", and omits the sample
        if not all(_index(stack, stacks) for stack in table["stack"]):
            report("%s.stack: an index is out of range" % where)


def _check_allocations(table: Json, where: str, stacks: int, end: float,
                       report: Report) -> None:
    if not table["length"]:
        report("%s: empty" % where)
    balanced = "memoryAddress" in table or "threadId" in table
    _check_samples(table, "time weight stack" + (
        " memoryAddress threadId" if balanced else ""), where, stacks, end,
        report, also=("weightType",))
    if table["weightType"] != "bytes":
        report("%s.weightType is not bytes" % where)
    if not all(map(_integer, table["weight"])):
        report("%s.weight: not all are integers" % where)
        return
    if not balanced:
        if any(weight < 0 for weight in table["weight"]):
            report("%s.weight: negative, without memoryAddress" % where)
        return
    alive: dict[int, int] = {}
    for address, weight in zip(table.get("memoryAddress", ()), table["weight"]):
        if not _index(address, 2**31):
            report("%s.memoryAddress: not a small integer" % where)
        elif weight >= 0:
            if address in alive:
                report("%s.memoryAddress: not unique" % where)
            alive[address] = weight
        elif alive.pop(address, None) != -weight:
            report("%s.memoryAddress: a death without its birth" % where)


def _check_markers(table: Json, meta: Json, where: str, strings: int,
                   report: Report) -> None:
    if not _columns(table, "data name startTime endTime phase category", where,
                    report):
        return
    schemas = {schema["name"]: schema for schema in meta["markerSchema"]}
    for schema in schemas.values():
        fields = {field["key"] for field in schema["fields"]}
        for graph in schema.get("graphs", ()):
            if (graph.get("key") not in fields
                    or graph.get("type") not in ("line-filled", "line", "bar")
                    or graph.get("color") not in GRAPH_COLORS):
                report("markerSchema %s: a bad graph" % schema["name"])
    for data in table["data"]:
        if data is not None and data.get("type") not in schemas:
            report("%s.data: its type is no schema's name" % where)
    if not all(_index(name, strings) for name in table["name"]):
        report("%s.name: an index is out of range" % where)
    if not all(_index(category, len(meta["categories"]))
               for category in table["category"]):
        report("%s.category: an index is out of range" % where)
    if not all(phase in (0, 1, 2, 3) for phase in table["phase"]):
        report("%s.phase: unknown" % where)


def _check_visibility(profile: Json, report: Report) -> None:
    meta, threads = profile["meta"], profile["threads"]
    # without this list, the front end hides each thread that has only allocations
    visible = meta.get("initialVisibleThreads")
    if visible is None or len(set(visible)) != len(visible) or (
            not all(_index(i, len(threads)) for i in visible)
            or len(visible) < min(len(threads), MAX_VISIBLE)):
        report("meta.initialVisibleThreads: not all threads")
        return
    selected = meta.get("initialSelectedThreads")
    if not set(selected or ()) <= set(visible):
        report("meta.initialSelectedThreads: one that is not visible")
    if not selected or not all(_index(i, len(threads)) for i in selected):
        report("meta.initialSelectedThreads: not a thread")
    if meta.get("keepProfileThreadOrder") is not True:
        report("meta.keepProfileThreadOrder is not true")


def _check_counters(profile: Json, report: Report) -> None:
    threads = profile["threads"]
    for number, counter in enumerate(profile.get("counters", ())):
        where = "counters[%d]" % number
        main = counter["mainThreadIndex"]
        if (not _index(main, len(threads))
                or threads[main]["isMainThread"] is not True
                or threads[main]["pid"] != counter["pid"]):
            report("%s.mainThreadIndex: not its process's main thread" % where)
        for key in ("name", "category", "description"):
            if not isinstance(counter.get(key), str):
                report("%s.%s is no string" % (where, key))
        samples, display = counter["samples"], counter["display"]
        _check_display(display, where, report)
        if not _columns(samples, "time count", where, report):
            continue
        if not samples["length"]:
            report("%s: empty" % where)
            continue
        times, counts = samples["time"], samples["count"]
        _ascending(times, where, profile["meta"]["profilingEndTime"], report)
        if not all(map(_integer, counts)):
            report("%s.count: not all are integers" % where)
        elif display["graphType"] == "line-rate":
            width = times[-1] / max(len(times) - 1, 1)
            if len(times) < 2 or any(
                    not math.isclose(b - a, width, rel_tol=1e-6)
                    for a, b in zip(times, times[1:])):
                report("%s: the rate's bins are not of one width" % where)
            if any(count < 0 for count in counts):
                report("%s.count: a negative rate" % where)
            if counts[0]:
                # the front end would divide these bytes by meta.interval
                report("%s.count: bytes before the first bin" % where)
        elif display["graphType"] == "line-accumulated":
            total = 0
            for count in counts:
                total += count
                if total < 0:
                    report("%s.count: the sum gets negative" % where)
                    break


def _check_display(display: Json, where: str, report: Report) -> None:
    if set(display) != {"graphType", "unit", "color", "markerSchemaLocation",
                        "sortWeight", "label", "tooltipRows"}:
        report("%s.display: has %s" % (where, sorted(display)))
        return
    if display["graphType"] not in ("line-rate", "line-accumulated"):
        report("%s.display.graphType is unknown" % where)
    if display["unit"] != "bytes":
        report("%s.display.unit is not bytes" % where)
    if display["color"] not in GRAPH_COLORS:
        report("%s.display.color is unknown" % where)
    if not display["label"] or not isinstance(display["label"], str):
        report("%s.display.label is missing" % where)
    if not _number(display["sortWeight"]):
        report("%s.display.sortWeight is no number" % where)
    if not display["tooltipRows"]:
        report("%s.display.tooltipRows: there are none" % where)
    for row in display["tooltipRows"]:
        if row["type"] != "separator" and (
                row["type"] != "value" or not row.get("label")
                or row.get("source") not in TOOLTIP_SOURCES
                or row.get("format", {}).get("unit") not in TOOLTIP_UNITS):
            report("%s.display.tooltipRows: a bad row %r" % (where, row))
