"""Measure the processor time of a Django service whose profiles are pushed at `auto`.

The experiment compares the service with and without profiles in two ways. In one
process, blocks of requests with and without profiles alternate, so that differences
between processes cancel out. In fresh processes, the cost includes the sampler's
objects on the heap.

A small HTTP server on loopback replaces the server that receives the profiles. This
server, the client and the pusher have separate processes, whose time is not counted.
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
#: The number of requests before the clock starts.
WARM = 15000
#: The number of processes, of turns in each process, and of requests in a block.  A
#: block is a segment of some seconds.
PROCESSES, TURNS, REQUESTS = 4, 15, 5000
#: The number of turns with fresh processes, and of requests that a process answers.
PAIRS, BEHIND = 12, 6000


class _Engine(http.server.BaseHTTPRequestHandler):
    """A server that accepts every profile and drops it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the profile and answer with the status 200."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def _engine() -> Iterator[str]:
    """Run the server, and yield its URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield "otlp+http://127.0.0.1:%d" % server.server_port
        server.shutdown()


def run(context: Context) -> Json:
    """Measure blocks in several processes, then fresh processes."""
    warm, processes, turns, requests, pairs, behind = (
        (100, 1, 3, 50, 1, 50) if context.quick else
        (WARM, PROCESSES, TURNS, REQUESTS, PAIRS, BEHIND))
    with _engine() as url:
        return {"requests": requests, "behind": behind,
                "turns": [_turns(context, (warm, requests, turns, seed), url)
                          for seed in range(processes)],
                "fresh": _fresh(context, pairs, (warm, behind), url)}


def _turns(context: Context, numbers: tuple[int, ...], url: str) -> list[Json]:
    """Return the blocks of one process."""
    measuring.progress("%s: process %d" % (NAME, numbers[-1] + 1))
    out = measuring.run([context.pypy, WORKER, "turns", *map(str, numbers), url]).out
    return [json.loads(line) for line in out.splitlines()]


def _fresh(context: Context, pairs: int, numbers: tuple[int, ...],
           url: str) -> list[Json]:
    """Return the times of fresh processes."""
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
# tables and plots

def _of_turns(results: Json) -> list[float]:
    """Return the time ratios of pushed to plain blocks."""
    found = []
    for process in results["turns"]:
        cpu = {(row["turn"], row["kind"]): row["cpu"] for row in process}
        found += [cpu[turn, "push"] / cpu[turn, "plain"]
                  for turn in range(len(process) // 2)]
    return found


def _of_fresh(results: Json, kind: str) -> list[float]:
    """Return the time ratios of fresh processes of a kind to plain processes."""
    cpu = {(row["pair"], row["kind"]): row["cpu"] for row in results["fresh"]}
    # A pushed process is compared with both plain processes of its turn, "plain" and
    # "again".  The process "again" is compared with the process "plain".
    return [cpu[pair, kind] / (
        cpu[pair, "plain"] if kind == "again" else statistics.fmean(
            (cpu[pair, "plain"], cpu[pair, "again"])))
        for pair, other in cpu if other == kind]


def _pushed(results: Json) -> list[Json]:
    return [row for process in results["turns"] for row in process
            if row["kind"] == "push"]


def report(results: Json) -> str:
    """Return the table of time ratios, and the cost and bytes of a request."""
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
    """Plot the time ratios of blocks and of fresh processes."""
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
