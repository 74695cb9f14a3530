"""Push as many segments as in a day, and account for every sample.

Meanwhile, the service and its pusher are killed, and the server is stopped for a while.
Each sample must arrive, or its segment must be counted as dropped. The test runs with a
plain server, and with the real OpenTelemetry collector in front of the server. A
*window* is a segment.
"""
from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import otlp_request
from collector import Collector, free_port
from conftest import PYPY, PyPy
from engine_stand_in import Answer, Request, StandIn, cut, status
from vmprof_push.folder import MAX_WINDOWS

pytestmark = pytest.mark.hard

#: number of segments of 15 seconds in 24 hours
WINDOWS = 24 * 3600 // 15
EVERY = 0.05
RUNS = 3
#: number of objects that work() allocates
THINGS = 50

SERVICE = """
    import sys, time, vmprof_allocation
    class Thing:
        pass
    def work(kept):
        for i in range(%d):
            kept.append(Thing())
    def until(number):
        # of each iteration, between which windows it ended
        while pushing.session.part < number:
            work([])
            journal.write("%%d\\n" %% pushing.session.part)
            time.sleep(0.005)
    journal = open(sys.argv[2], "w", buffering=1)
    # with lifetimes, each window would carry all that is alive, each object a sample
    pushing = vmprof_allocation.push(
        "otlp+http://127.0.0.1:" + sys.argv[1], 1, every=%r, service="shop",
        lifetimes=False)
    until(int(sys.argv[3]))
    pushing.stop()
""" % (THINGS, EVERY)


class Engine:
    """A server for pushed profiles, which can be stopped and started again."""

    is_collector = False

    def __init__(self) -> None:
        self._taken: list[list[Request]] = []
        self.port = 0
        self._begin()

    def _begin(self, *answers: Answer) -> None:
        self._stand_in = StandIn(*answers, port=self.port)
        self._stand_in.__enter__()
        self._taken.append(self._stand_in.taken)
        self.port = self._stand_in.port

    def cut_off(self) -> None:
        if not self._stand_in.closing.is_set():
            self._stand_in.__exit__()

    def come_again(self) -> None:
        self._begin(status(503), cut, status(429))

    def windows(self) -> dict[int, dict[int, int]]:
        """Return the number of things by process and segment, without duplicates."""
        found: dict[int, dict[int, int]] = {}
        seen: dict[bytes, int] = {}
        for request in itertools.chain(*self._taken):
            read = otlp_request.read(request.body, self.is_collector)
            one = read.types["alloc_objects"]
            pid, number = read.resource["process.pid"], one.attributes["vmprof.window"]
            assert isinstance(pid, int) and isinstance(number, int)
            things = sum(sample.value for sample in one.samples
                         if sample.attributes["type"] == "__main__.Thing")
            assert seen.setdefault(one.id, things) == things
            assert found.setdefault(pid, {}).setdefault(number, things) == things
        assert len(seen) == sum(map(len, found.values()))
        return found


class Collected(Engine):
    """A server that gets requests from the real collector; both stop and start
    together.
    """

    is_collector = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()
        self.port = free_port()
        self._collect()

    def _collect(self) -> None:
        self._collector = Collector(
            self._folder, self.port, self._stand_in.port, "proto").__enter__()

    def cut_off(self) -> None:
        self._collector.__exit__()
        super().cut_off()

    def come_again(self) -> None:
        port, self.port = self.port, 0
        super().come_again()
        self.port = port
        self._collect()


@pytest.fixture(params=["stand-in", "collector"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    found = Engine() if request.param == "stand-in" else Collected(tmp_path)
    yield found
    found.cut_off()


def last_number(journal: Path) -> int:
    """Return the number of the last segment in the service's journal."""
    lines = journal.read_text().split("\n")[:-1] if journal.exists() else []
    return int(lines[-1]) if lines else 0


def wait_for(journal: Path, number: int) -> None:
    """Wait until the service writes the segment with this number."""
    until = time.monotonic() + 1200
    while last_number(journal) < number:
        assert time.monotonic() < until
        time.sleep(0.05)


class Service:
    """The sampled service. It is paused while its pusher is too slow (busy machines).
    """

    def __init__(self, process: subprocess.Popen[bytes], journal: Path,
                 spools: Path) -> None:
        self.process = process
        self.journal = journal
        self._spools = spools

    def go_on_to(self, number: int) -> None:
        """Let the service run until the segment with this number, or until its end."""
        until = time.monotonic() + 1200
        while last_number(self.journal) < number and self.process.poll() is None:
            assert time.monotonic() < until
            if self._waiting() > MAX_WINDOWS // 2:
                self.process.send_signal(signal.SIGSTOP)
                while self._waiting() > 5:
                    assert time.monotonic() < until
                    time.sleep(0.05)
                self.process.send_signal(signal.SIGCONT)
            time.sleep(0.05)

    def _waiting(self) -> int:
        """Return the number of segments that wait for the pusher."""
        return len(list(self._spools.glob("*/*.vmprof")))


def pusher_of(spools: Path) -> int:
    """Return the pid of the pusher whose folder is the only one in `spools`."""
    folder, = spools.iterdir()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if command[-2:-1] == [os.fsencode(folder)]:
                return int(name)
    raise AssertionError("no pusher of %s" % folder)


def test_segments_of_a_day_arrive_or_are_dropped(pypy: PyPy, engine: Engine) -> None:
    script = str(pypy.script(SERVICE, "shop.py"))
    spools = Path(tempfile.mkdtemp())
    pypy.environment["TMPDIR"] = str(spools)
    each = WINDOWS // RUNS
    journals, pids, errors, aways = [], [], [], []
    for run in range(RUNS):
        journal = pypy.folder / ("journal%d" % run)
        with (pypy.folder / ("errors%d" % run)).open("w+") as err:
            service = Service(subprocess.Popen(
                [PYPY, script, str(engine.port), str(journal), str(each + 1)],
                cwd=pypy.folder, env=pypy.environment, stderr=err), journal, spools)
            service.go_on_to(each // 4)
            begin = last_number(journal)
            engine.cut_off()
            # wait until there were more segments than the pusher keeps
            wait_for(journal, begin + MAX_WINDOWS * 3 // 2)
            engine.come_again()
            aways.append(range(begin, last_number(journal) + 1))
            service.go_on_to(each * 2 // 3)
            os.kill(pusher_of(spools), signal.SIGKILL)
            if run == RUNS - 1:
                service.go_on_to(each + 2)
                assert service.process.wait(600) == 0
            else:
                service.go_on_to(each * 9 // 10)
                service.process.kill()
                service.process.wait()
            until = time.monotonic() + 120
            while list(spools.iterdir()):
                assert time.monotonic() < until
                time.sleep(0.05)
            err.seek(0)
            errors.append(err.read())
        journals.append(journal)
        pids.append(service.process.pid)
    spools.rmdir()
    engine.cut_off()
    windows = engine.windows()
    assert windows.keys() == set(pids)
    for pid, journal, said, away in zip(pids, journals, errors, aways):
        check(windows[pid], [int(line) for line in journal.read_text().split()], said,
              away, was_killed=pid != pids[-1])


def check(arrived: dict[int, int], journal: list[int], said: str, away: range, *,
          was_killed: bool) -> None:
    """Compare the segments that arrived with the journal of a process.

    Args:
        arrived: Things in each segment that arrived.
        journal: For each iteration, the segment that was being written at its end.
        said: The messages of the pusher.
        away: The segments that were written while the server was stopped.
        was_killed: Whether the process was killed.
    """
    last = max(arrived)
    # the last segment may have no line in the journal; if the process was killed, the
    # segment of the last line may be missing
    assert journal[-1] - was_killed <= last <= journal[-1] + 1
    missing = set(range(1, last)) - arrived.keys()
    # the pusher's last message has the final number
    dropped = int(re.findall(r"; (\d+) segments were dropped\n", said)[-1])
    assert len(missing) == dropped > 0, said
    # the oldest segments are dropped, and only while the server is stopped
    assert len(missing) <= len(away)
    assert away.start - MAX_WINDOWS <= min(missing) <= max(missing) <= away.stop
    # An iteration during a rotation has things in two segments. All of them arrive if
    # both segments do.
    total = len(journal) * THINGS
    gone = sum(THINGS for number in journal if number in missing)
    # If one of both is missing, it is unknown how many of the things it had.
    edges = 2 * THINGS * sum(number - 1 not in missing for number in missing)
    if was_killed:
        # A killed process loses the samples of up to a second, in the last segments.
        lost = sum(THINGS for number in journal if number >= last - 1)
        assert total - gone - edges - lost <= sum(arrived.values()) <= (
            total - gone + edges + THINGS)
    else:
        assert abs(total - gone - sum(arrived.values())) <= edges
