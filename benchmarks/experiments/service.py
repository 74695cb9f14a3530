"""A Django service under load whose profiles are pushed, at `auto`: processor time of
its process, against none.  In one process, block by block, where what differs from
process to process cancels out; and in fresh ones, with what stays of ours on the heap.

The engine is a stand-in on loopback.  It, the client and the pusher are processes of
their own, and not counted.
"""
from __future__ import annotations

import http.server
import json
import random
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import ROOT, estimate, table

NAME = "service"
WORKER = ROOT / "benchmarks" / "service_worker.py"
#: requests before the clock starts
WARM = 15000
#: processes; turns of each, requests of a block, which is a window of some seconds
PROCESSES, TURNS, REQUESTS = 4, 15, 5000
#: of fresh processes: turns, requests
PAIRS, BEHIND = 12, 6000


class _Engine(http.server.BaseHTTPRequestHandler):
    """Takes what it gets."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _engine() -> Iterator[str]:
    """Its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield "otlp+http://127.0.0.1:%d" % server.server_port
        server.shutdown()


def run(context: Context) -> Json:
    warm, processes, turns, requests, pairs, behind = (
        (100, 1, 3, 50, 1, 50) if context.quick else
        (WARM, PROCESSES, TURNS, REQUESTS, PAIRS, BEHIND))
    with _engine() as url:
        return {"requests": requests, "behind": behind,
                "turns": [_turns(context, (warm, requests, turns, seed), url)
                          for seed in range(processes)],
                "fresh": _fresh(context, pairs, (warm, behind), url)}


def _turns(context: Context, numbers: tuple[int, ...], url: str) -> list[Json]:
    measuring.progress("%s: process %d" % (NAME, numbers[-1] + 1))
    out = measuring.run([context.pypy, WORKER, "turns", *map(str, numbers), url]).out
    return [json.loads(line) for line in out.splitlines()]


def _fresh(context: Context, pairs: int, numbers: tuple[int, ...],
           url: str) -> list[Json]:
    rng = random.Random(1)
    found = []
    for pair in range(pairs):
        measuring.progress("%s: pair %d of %d" % (NAME, pair + 1, pairs))
        for kind in rng.sample(("plain", "push", "again"), 3):
            flags = ("-m", "vmprof", "--push", url) if kind == "push" else ()
            out = measuring.run([context.pypy, *flags, WORKER, "once",
                                 *map(str, numbers)]).out
            found.append({"pair": pair, "kind": kind, **json.loads(out)})
    return found


# ____________________________________________________________

def _of_turns(results: Json) -> list[float]:
    found = []
    for process in results["turns"]:
        cpu = {(row["turn"], row["kind"]): row["cpu"] for row in process}
        found += [cpu[turn, "push"] / cpu[turn, "plain"]
                  for turn in range(len(process) // 2)]
    return found


def _of_fresh(results: Json, kind: str) -> list[float]:
    cpu = {(row["pair"], row["kind"]): row["cpu"] for row in results["fresh"]}
    # what is no plain run taken for another one is compared with both
    return [cpu[pair, kind] / (
        cpu[pair, "plain"] if kind == "again" else statistics.fmean(
            (cpu[pair, "plain"], cpu[pair, "again"])))
        for pair, other in cpu if other == kind]


def _pushed(results: Json) -> list[Json]:
    return [row for process in results["turns"] for row in process
            if row["kind"] == "push"]


def report(results: Json) -> str:
    pushed = _pushed(results)
    plain = [row["cpu"] for process in results["turns"] for row in process
             if row["kind"] == "plain"]
    requests = results["requests"]
    lines = [["processor time", "ratio", "turns"]]
    for name, found in (
            ("push, in one process", _of_turns(results)),
            ("push, fresh processes", _of_fresh(results, "push")),
            ("none, fresh processes", _of_fresh(results, "again"))):
        lines.append([name, estimate(found).format(4), "%d" % len(found)])
    return (
        "%s\n\nA request takes %.2f ms and allocates %.0f kB; one sample in %.1f MiB; "
        "in one process a window has %d requests." % (
            table(lines), 1e3 * statistics.median(plain) / requests,
            statistics.median(row["allocated"] for row in pushed) / requests / 1000,
            sum(row["allocated"] for row in pushed) / 2**20
            / max(1, sum(row["samples"] for row in pushed)), requests))


def plot(results: Json, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    found = {"push, in one process": _of_turns(results),
             "push, fresh": _of_fresh(results, "push"),
             "none, fresh": _of_fresh(results, "again")}
    for y, ratios in enumerate(found.values()):
        axes.plot(ratios, [y] * len(ratios), "|", color="#1f77b4", alpha=0.4)
        axes.plot(statistics.median(ratios), y, "d", color="#d95f02")
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xlabel("processor time of a request, pushed / plain")
    axes.grid(axis="x", color="0.92")
    figure.savefig(path, dpi=110)
    plt.close(figure)
