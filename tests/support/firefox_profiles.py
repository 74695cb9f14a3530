"""Reads files of the Firefox writer, walking their tables as the front end does."""
from __future__ import annotations

import collections
import json
from typing import Any

import firefox_rules
import made_profiles
from made_profiles import Log, jit, native
from vmprof_convert import readers
from vmprof_convert.writers import firefox
from vmprof_convert.writers.firefox import TIME, convert
from vmprof_convert.writers.firefox.stacks import IDLE

Json = dict[str, Any]
OTHER_TID = 5555
MS = 1_000_000


def converted(log: Log | bytes, unit: str = TIME) -> Json:
    """Convert a profile for the Firefox Profiler; the result must pass all rules."""
    data = log if isinstance(log, bytes) else log.data()
    profile: Json = json.loads(
        firefox.encode(convert(readers.read_bytes(data), unit=unit)))
    assert firefox_rules.violations(profile) == []
    return profile


def rich_log() -> Log:
    """Return a profile with data of all kinds that the writer handles.

    The data are two threads, allocations, CPU samples, compiled code, native code,
    resident memory and a lost stack.
    """
    log = Log(flags=made_profiles.PYPY | made_profiles.MEMORY)
    main = log.function("main", 1, "app.py")
    work = log.function("work", 10, "lib.py")
    malloc = log.native_function("malloc")
    log.settings(period="0.01", run="r")
    log.allocation([main, work], size=24, time=1 * MS, memory=5000)
    log.allocation([main, jit(work)], size=48, time=2 * MS, memory=6000)
    log.tick([main, work], time=3 * MS)
    log.allocation([main, native(malloc)], size=5000, time=4 * MS, memory=5500)
    log.allocation([work], size=64, time=4 * MS, thread=OTHER_TID)
    log.allocation(None, size=32, time=5 * MS)
    log.allocated, log.collections = 12345, 7
    return log


def path_of(profile: Json, stack: int) -> tuple[str, ...]:
    """Return the names of the functions of a stack (its index), outermost first."""
    shared = profile["shared"]
    names: list[str] = []
    row: int | None = stack
    while row is not None:
        frame = shared["stackTable"]["frame"][row]
        func = shared["frameTable"]["func"][frame]
        names.append(shared["stringArray"][shared["funcTable"]["name"][func]])
        row = shared["stackTable"]["prefix"][row]
    return tuple(reversed(names))


def allocated(profile: Json, thread: int = 0) -> dict[tuple[str, ...], int]:
    """Return the bytes that each stack of a thread allocated."""
    table = profile["threads"][thread]["nativeAllocations"]
    result: dict[tuple[str, ...], int] = collections.defaultdict(int)
    for stack, weight in zip(table["stack"], table["weight"]):
        result[path_of(profile, stack)] += weight
    return dict(result)


def thread(profile: Json, name: str) -> Json:
    """Return the only thread with this name."""
    (found,) = [t for t in profile["threads"] if t["name"] == name]
    return found  # type: ignore[no-any-return]


def functions(profile: Json) -> list[tuple[str, str | None, int | None]]:
    """Return the name, file and line of each function's definition.

    The function IDLE, which represents the times without samples, is omitted.
    """
    shared = profile["shared"]
    strings, files = shared["stringArray"], shared["sources"]["filename"]
    table = shared["funcTable"]
    return [(strings[name], None if source is None else strings[files[source]],
             line)
            for name, source, line in zip(
                table["name"], table["source"], table["lineNumber"])
            if strings[name] != IDLE]


def frames(profile: Json) -> list[tuple[str, str, str, int | None]]:
    """Return the function, category, subcategory and executed line of each frame."""
    shared = profile["shared"]
    table, names = shared["frameTable"], [
        shared["stringArray"][name] for name in shared["funcTable"]["name"]]
    categories = profile["meta"]["categories"]
    return [(names[func], categories[category]["name"],
             categories[category]["subcategories"][sub], line)
            for func, category, sub, line in zip(
                table["func"], table["category"], table["subcategory"],
                table["line"])
            if names[func] != IDLE]


def remarks(profile: Json) -> list[str]:
    """Return the notes on missing data that a file contains."""
    return [entry["value"] for section in profile["meta"]["extra"]
            if section["label"] == "Notes"
            for entry in section["entries"]]


def extra(profile: Json) -> dict[str, Any]:
    return {entry["label"]: entry["value"]
            for section in profile["meta"]["extra"]
            for entry in section["entries"]}
