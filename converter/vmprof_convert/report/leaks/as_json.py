"""Write the result of the search for leaks as JSON."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional, TextIO

from vmprof_convert.analysis import holders
from vmprof_convert.analysis.leaks.search import Leak, Leaks, OfType
from vmprof_convert.analysis.leaks.sites import Place
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats
from vmprof_convert.report.held import REST_NAMES

#: name of the layout, which README.rst describes
SCHEMA = "vmprof-allocation-leaks-2"

_Json = dict[str, Any]
#: for each allocation site, the retainers of its objects; None if no heap snapshot
#: contains retainers
_Held = Optional[dict[Place, list[holders.Share]]]


def write_json(content: _Json, out: TextIO) -> None:
    """Write the content to a file as JSON."""
    json.dump(content, out, indent=1)
    out.write("\n")


def content_of_process(profile: Profile, leaks: Leaks,
                       limit: int | None = None) -> _Json:
    """Return the JSON content of a report about the leaks of one process.

    Args:
        profile: the profile of the process.
        leaks: the result of find_leaks().
        limit: maximum number of leaks of each kind; None for no limit.
    """
    windows, = leaks.windows
    return {
        "schema": SCHEMA,
        "collections": [windows.times[number] / 1e9 for number in (
            windows.first, windows.middle, windows.last)],
        "seconds": list(windows.seconds), "allocated": list(windows.allocated),
        **_content(leaks, limit, held=holders.by_place(
            profile, windows.times[windows.last]) or None),
        "remarks": [
            *caveats.of_run(profile), *caveats.of_labels(profile)],
    }


def _content(leaks: Leaks, limit: int | None, pids: Sequence[int] = (),
             held: _Held = None) -> _Json:
    def shown(all_: Sequence[Leak]) -> list[_Json]:
        return [_leak(leak, pids, held) for leak in all_[:limit]]

    return {
        "shows_leaks": not leaks.unsure,
        "growth": leaks.growth._asdict(), "windows": list(leaks.windows_growth),
        "leaks": shown(leaks.leaks), "slowing": shown(leaks.slowing),
        "rest": {"growth": leaks.rest.growth._asdict(),
                 "windows": list(leaks.rest.windows),
                 "places": shown(leaks.rest.places)},
        "apart": leaks.apart._asdict(),
        "places_tested": leaks.tested, "objects_lost": leaks.lost,
        "seen_from_bytes_per_second": leaks.limit, "unseen_bytes": leaks.unseen,
        "replaced_bytes": leaks.replaced,
        "memory": None if leaks.memory is None else {
            **leaks.memory._asdict(), "grown": leaks.memory.grown,
            "explained_by_heap": leaks.memory.explained,
            "outside_heap": leaks.memory.outside, "is_far": leaks.memory.is_far},
    }


def content_of_processes(found: Sequence[tuple[Profile, Leaks | str]],
                 together: Leaks | None, limit: int | None = None) -> _Json:
    """Return the JSON content of a report about the leaks of several processes.

    Args:
        found: the profile of each process, with its leaks or the reason why they are
            unknown.
        together: the leaks of all processes that have a result; None if no process has.
        limit: maximum number of leaks of each kind; None for no limit.
    """
    content = None if together is None else {
        "seconds": list(together.seconds), "allocated": together.allocated,
        **_content(together, limit, [
            profile.pid for profile, leaks in found if not isinstance(leaks, str)])}
    return {"schema": SCHEMA, "together": content, "processes": [{
        "pid": profile.pid or None, "command": profile.command,
        **({"error": leaks} if isinstance(leaks, str)
           else content_of_process(profile, leaks, limit))}
        for profile, leaks in found]}


def _leak(leak: Leak, pids: Sequence[int], held: _Held) -> _Json:
    return {"growth": leak.growth._asdict(), "windows": list(leak.windows),
            "p": leak.p, "stayed": leak.stayed,
            "places": list(map(_place, leak.places)),
            "callers": [{"place": _place(place), "share": share}
                        for place, share in leak.callers],
            "innermost": _place(leak.innermost),
            "types": list(map(_type, leak.types)),
            "held_by": None if held is None else [{
                "share": one.share, "bytes": one.bytes, "path": one.path or None,
                "how": REST_NAMES.get(one.how),
                "holders": [{"path": holder.path, "type": holder.type,
                             "address": holder.address,
                             "aliases": list(holder.aliases), "bytes": holder.bytes,
                             "objects": holder.objects} for holder in one.holders]}
                for one in held.get(leak.places[0], [])],
            "processes": [{"pid": pid or None, "growth": growth._asdict()}
                          for pid, growth in zip(pids, leak.processes)]}


def _type(of: OfType) -> _Json:
    return {"name": of.type.name, "kind": of.type.kind, "growth": of.growth._asdict(),
            "windows": list(of.windows), "p": of.p}


def _place(place: Place) -> _Json:
    function = place.function
    return {"function": {"name": function.name, "file": function.file or None,
                         "line": function.line or None, "kind": function.kind},
            "line": place.line if place.line > 0 else None}
