"""Measure the errors and the cost of `alive` and of `pypy-alloc leaks`.

`alive` and `pypy-alloc leaks` use heap snapshots. Programs keep objects in ten ways,
and print the number of bytes that they keep (liveness_worker.py). Half of the programs
leak. The others replace old objects.
"""
from __future__ import annotations

import bisect
import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import NURSERIES, ROOT, table
from vmprof_convert import readers
from vmprof_convert.meaning.visible_stacks import Program

NAME = "liveness"
WORKER = ROOT / "benchmarks" / "liveness_worker.py"
KINDS = ("module dict", "cache", "callbacks", "threads", "exceptions", "closures",
         "class attributes", "generators", "C memory", "nothing")
SITES = ("make_kept", "make_recent", "make_base")
INTERVAL = "32k"
MiB = 2**20
#: The number of programs of each kind, and the seconds of each program.
SEEDS, SECONDS = 5, 10.0
#: The runs of the program that leaks 20 kB per request, and the seconds of each run.
SERVICES, SERVICE_SECONDS = 3, 10.0
#: Thousands of objects on the heap, and the number of snapshots of each heap.
THOUSANDS, TIMES = (600, 3000, 7000), 7
#: The number of pairs of runs with --leaks and without, and the seconds of each run.
PAIRS, MINUTE = 2, 60.0


def run(context: Context) -> Json:
    """Run the programs and services, and measure snapshots and pairs of runs."""
    seeds, seconds, services, service_seconds, times, pairs, minute = (
        (1, SECONDS, 1, SECONDS, 1, 1, 4.0) if context.quick
        else (SEEDS, SECONDS, SERVICES, SERVICE_SECONDS, TIMES, PAIRS, MINUTE))
    thousands = (10, 20) if context.quick else THOUSANDS
    found: Json = {"programs": [], "services": [], "snapshots": [], "pairs": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The programs sleep most of the time, so that three can run at once.
        with ThreadPoolExecutor(3) as pool:
            found["programs"] = list(pool.map(
                lambda planned: _program(context, folder, seconds, *planned),
                [(kind, (seed + number) % 2 == 0 and kind != "nothing", seed, nursery)
                 for seed in range(seeds) for number, kind in enumerate(KINDS)
                 for nursery in NURSERIES]))
        for seed in range(services):
            for nursery in NURSERIES:
                found["services"].append(
                    _service(context, folder, service_seconds, seed, nursery))
        for how in "marked", "held":
            for count in thousands:
                measuring.progress("%s: snapshots, %s %d" % (NAME, how, count))
                found["snapshots"].append({"how": how, **json.loads(measuring.run(
                    [context.pypy, WORKER, "snapshots", how, str(count),
                     str(times)]).out)})
        for pair in range(pairs):
            for nursery in NURSERIES:
                found["pairs"].append(_pair(context, folder, pair, minute, nursery))
    return found


def _sample(context: Context, folder: Path, nursery: str, arguments: Sequence[str],
            flags: Sequence[str] = ("--leaks",)) -> tuple[Json, measuring.Process]:
    """Run the worker under the sampler.

    Returns:
        The worker's output and the finished process.
    """
    process = measuring.run(
        [context.pypy, "-m", "vmprof", "--allocation-sampling", INTERVAL, *flags,
         "-o", folder / "out.vmprof", WORKER, *arguments],
        variables={"PYPY_GC_NURSERY": nursery})
    truth: Json = json.loads(process.out)
    return truth, process


def _report(context: Context, folder: Path, *options: str,
            command: str = "report") -> Json:
    """Return a report of the last profile, as JSON."""
    found: Json = json.loads(measuring.run(
        [context.pypy, "-m", "vmprof_allocation", command, folder / "out.vmprof",
         "--json", *options]).out)
    return found


def _program(context: Context, parent: Path, seconds: float, kind: str, is_leak: bool,
             seed: int, nursery: str) -> Json:
    """Run a program, and compare its report with the bytes that it keeps."""
    measuring.progress("%s: %s %d, nursery %s" % (NAME, kind, seed, nursery))
    folder = parent / ("%s %d %s" % (kind, seed, nursery))
    folder.mkdir()
    is_raw = kind == "C memory"
    truth, _ = _sample(
        context, folder, nursery,
        [kind, "leaks" if is_leak else "steady", str(seed), "%g" % seconds],
        ("--leaks", *(("--native-memory", INTERVAL) if is_raw else ())))
    alive = _alive(_report(context, folder, "--by", "function"))
    if is_raw:
        alive["make_kept"] = _alive(_report(
            context, folder, "--by", "function", "--user-code",
            "--native-memory")).get("make_buffer", NOTHING)
    leaks = _leaks(context, folder, *(["--native-memory"] if is_raw else []))
    kept = [leak for leak in leaks["leaks"] if _function(leak) in LEAKING]
    return {
        "kind": kind, "is_leak": is_leak, "seed": seed, "nursery": nursery,
        "sites": {site: [alive.get(site, NOTHING), truth["bytes"][site]]
                  for site in SITES},
        "garbage": alive.get("make_garbage", NOTHING)["value"],
        "leaks": [[_function(leak), leak["growth"], leak["stayed"]]
                  for leak in leaks["leaks"]],
        "refused": leaks.get("refused"),
        "rate": _rate(kept[0], leaks, truth, folder / "out.vmprof")
        if kept and _function(kept[0]) != "keep" and is_leak else None}


def _leaks(context: Context, folder: Path, *options: str) -> Json:
    """Return the leaks of the last profile, or the reason why the report has none."""
    try:
        return _report(context, folder, *options, command="leaks")
    except measuring.Failed as e:
        return {"leaks": [], "refused": str(e).partition("\n")[2]}


#: The functions that make a leaking object, or the object that refers to it.
LEAKING = ("make_kept", "make_buffer", "keep", "closure", "waiting", "exception",
           "generator")
NOTHING = {"value": 0.0, "low": 0.0, "high": 0.0}


def _alive(report: Json) -> dict[str, Json]:
    """Return the live bytes of each function of the worker."""
    return {row["function"]["name"]: row["self"]["alive"]["bytes"]
            for row in report["rows"] if row["function"]["file"] == str(WORKER)}


def _function(leak: Json) -> str:
    """Return the name of the function where a leak allocates."""
    name: str = leak["places"][0]["function"]["name"]
    return name


def _rate(leak: Json, leaks: Json, truth: Json, path: Path) -> list[object]:
    """Return a leak's growth in the report, and the true growth in the same period."""
    profile = readers.read(path)
    program = Program(profile)
    in_base = {number for number in range(len(profile.stacks))
               if [function.name for function in program.functions(number)][-1:]
               == ["make_base"]}
    # The worker's clock starts after make_base() has made its last object.
    begin = max(time for time, stack in zip(profile.samples.time, profile.samples.stack)
                if stack in in_base) / 1e9
    first, _, last = leaks["collections"]
    return [leak["growth"], sum(
        _kept_at(log, last - begin) - _kept_at(log, first - begin)
        for log in truth["logs"])]


def _kept_at(log: list[list[float]], moment: float) -> float:
    """Return the bytes that a worker had kept until a time of the worker's clock."""
    times = [time for time, _ in log]
    return log[max(bisect.bisect_right(times, moment) - 1, 0)][1]


def _service(context: Context, folder: Path, seconds: float, seed: int,
             nursery: str) -> Json:
    """Run the program that leaks 20 kB per request."""
    measuring.progress("%s: service, nursery %s" % (NAME, nursery))
    truth, _ = _sample(context, folder, nursery,
                       ["service", "leaks", str(seed), "%g" % seconds],
                       ("--leaks", "--allocation-seed", str(seed)))
    leaks = _leaks(context, folder)
    alive = _alive(_report(context, folder, "--by", "function"))
    text = leaks.get("refused") or measuring.run([
        context.pypy, "-m", "vmprof_allocation", "leaks", folder / "out.vmprof"]).out
    kept = [leak for leak in leaks["leaks"] if _function(leak) == "request"]
    retained = _retained(folder / "out.vmprof")
    return {
        "nursery": nursery, "first": text.partition("\n")[0],
        "rate": _grown(retained, kept[0], leaks) if kept else None,
        "retained": [retained[max(retained)], truth["retained"]],
        "listcomp": alive.get("<listcomp>", NOTHING)["value"]}


def _retained(path: Path) -> dict[int, int]:
    """Return the bytes that __main__.KEPT retains, by the time of the heap snapshot."""
    return {held.time: max((holder.bytes for holder in held.holders
                            if holder.path == "__main__.KEPT"), default=0)
            for held in readers.read_events(path).held}


def _grown(retained: dict[int, int], leak: Json, leaks: Json) -> list[object]:
    """Return a leak's estimated and exact growth between two heap snapshots."""
    begin, end = (min(retained, key=lambda time: abs(time - moment * 1e9))
                  for moment in leaks["collections"][::2])
    return [leak["growth"], retained[end] - retained[begin]]


def _pair(context: Context, folder: Path, pair: int, seconds: float,
          nursery: str) -> Json:
    """Run the same program with --leaks and without, in a random order."""
    row: Json = {"nursery": nursery}
    for how in random.Random(pair).sample(("leaks", "plain"), 2):
        measuring.progress("%s: pair %d, %s, nursery %s" % (NAME, pair, how, nursery))
        truth, process = _sample(
            context, folder, nursery, ["service", "leaks", str(pair), "%g" % seconds],
            ("--leaks",) if how == "leaks" else ())
        taken = _report(context, folder)["snapshots"]
        row[how] = {"cpu": process.cpu / len(truth["logs"][0]), "wall": process.wall,
                    "requests": len(truth["logs"][0]), "taken": taken,
                    "seconds": seconds}
    return row


# ____________________________________________________________
# tables and plots

def _side(interval: Json, true: float) -> int:
    """Return on which side of a confidence interval the true value is.

    The result is -1 below the interval, 1 above the interval, and 0 within it.
    """
    return int(true > interval["high"]) - int(true < interval["low"])


def _share(sides: Sequence[int]) -> str:
    """Return the share of confidence intervals that contain the truth, as text."""
    if not sides:
        return "-"
    return "%.1f %% (%d below, %d above) of %d" % (
        100 * sides.count(0) / len(sides), sides.count(-1), sides.count(1), len(sides))


def _is_false(row: Json) -> bool:
    """Return whether the report names a leak at a function that does not leak."""
    return any(not row["is_leak"] or name not in LEAKING
               for name, _, _ in row["leaks"])


def report(results: Json) -> str:
    """Return tables of the programs, the services, the snapshots, and the pairs."""
    lines = [["program", "nursery", "truth in the interval of `alive`",
              "garbage alive", "leak found", "leak of none", "refused",
              "rate in its interval"]]
    rows = results["programs"]
    groups = [(kind, None) for kind in KINDS] + [
        ("all", nursery) for nursery in NURSERIES]
    for kind, nursery in groups:
        own = [row for row in rows if kind in ("all", row["kind"])
               and nursery in (None, row["nursery"])]
        leaking = [row for row in own if row["is_leak"]]
        steady = [row for row in own if not row["is_leak"]]
        # Skip a site without live objects, because no confidence interval contains 0.
        sides = [_side(*row["sites"][site]) for row in own for site in SITES
                 if row["sites"][site][1]]
        lines.append([
            kind, nursery or "both", _share(sides),
            "%.2f MiB" % (max((row["garbage"] for row in own), default=0) / MiB),
            "%d of %d" % (sum(any(name in LEAKING for name, _, _ in row["leaks"])
                              for row in leaking),
                          len(leaking)),
            "%d of %d, %d of %d" % (sum(map(_is_false, steady)), len(steady),
                                    sum(map(_is_false, leaking)), len(leaking)),
            "%d" % sum(row["refused"] is not None for row in own),
            _share([_side(*row["rate"]) for row in leaking if row["rate"]])])
    return "\n\n".join((
        table(lines) + "\n\nleak of none: runs of programs that do not leak, and of "
        "programs that do, in which a leak\nis named at a function that does not leak",
        _report_services(results["services"]),
        _report_snapshots(results["snapshots"]), _report_pairs(results["pairs"])))


def _report_services(rows: list[Json]) -> str:
    lines = [["nursery", "the first line is the leak", "rate / truth",
              "retained / truth", "<listcomp> alive (MiB)"]]
    for row in rows:
        rate = row["rate"]
        lines.append([
            row["nursery"],
            "yes" if row["first"].startswith("leak") and "request" in row["first"]
            else "no: " + row["first"],
            "-" if rate is None else "%.3f (%.3f..%.3f)" % tuple(
                rate[0][key] / rate[1] for key in ("value", "low", "high")),
            "%.4f" % (row["retained"][0] / row["retained"][1]),
            "%.2f" % (row["listcomp"] / MiB)])
    return table(lines) + "\n\na program that makes 2 MB of garbage and keeps 20 kB " \
        "per request"


def _report_snapshots(rows: list[Json]) -> str:
    lines = [["snapshot", "objects (million)", "MB", "pause (ms)",
              "pause for 200 MB (ms)", "takes (s)", "for a million (s)",
              "processor, for a million (s)"]]
    for row in rows:
        lines.append([
            {"held": "with retainers", "marked": "objects alone"}[row["how"]],
            "%.2f" % (row["objects"] / 1e6), "%.0f" % (row["bytes"] / 1e6),
            "%.1f" % (row["pause"] / 1e6),
            "%.1f" % (row["pause"] / 1e6 / row["bytes"] * 200e6),
            "%.3f" % row["took"], "%.3f" % (row["took"] / row["objects"] * 1e6),
            "%.3f" % (row["processor_time"] / 1e9 / row["objects"] * 1e6)])
    return table(lines)


def _report_pairs(rows: list[Json]) -> str:
    lines = [["nursery", "processor time", "snapshots", "MB at the last one",
              "longest pause (ms)", "pauses / the time"]]
    for nursery in NURSERIES:
        own = [row for row in rows if row["nursery"] == nursery]
        taken = [row["leaks"]["taken"] for row in own]
        lines.append([
            nursery,
            " ".join("%.3f" % (row["leaks"]["cpu"] / row["plain"]["cpu"])
                     for row in own),
            " ".join("%d" % len(of_run) for of_run in taken),
            " ".join("%.0f" % (of_run[-1]["bytes"] / 1e6)
                     for of_run in taken if of_run),
            "%.1f" % (1e3 * max((one["pause"] for of_run in taken for one in of_run),
                                default=0)),
            "%.5f" % statistics.mean(
                sum(one["pause"] for one in row["leaks"]["taken"])
                / row["leaks"]["seconds"] for row in own)])
    return table(lines) + "\n\nthat program for longer: processor time of a request, " \
        "the snapshots' included, with --leaks /\nwithout, in each pair of runs"


def plot(results: Json, path: Path) -> None:
    """Plot the estimates of the live bytes, and the pauses of the snapshots."""
    figure, (alive, pause) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    points = [row["sites"][site] for row in results["programs"] for site in SITES
              if row["sites"][site][1]]
    alive.plot([true / MiB for _, true in points],
               [found["value"] / true for found, true in points], ".", alpha=0.4)
    alive.axhline(1, color="0.6", linewidth=0.8)
    alive.set_xscale("log")
    alive.set_xlabel("MiB alive")
    alive.set_ylabel("alive / truth")
    for how, label in (("marked", "objects alone"), ("held", "with retainers")):
        rows = [row for row in results["snapshots"] if row["how"] == how]
        pause.plot([row["bytes"] / 1e6 for row in rows],
                   [row["pause"] / 1e6 for row in rows], "o-", label=label)
    pause.set_ylim(bottom=0)
    pause.set_xlabel("MB on the heap")
    pause.set_ylabel("ms of pause")
    pause.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
