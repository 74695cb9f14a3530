"""Test that the real OpenTelemetry collector receives and forwards pushed profiles."""
from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import Collector, free_port
from conftest import PyPy
from engine_stand_in import StandIn

pytestmark = pytest.mark.hard

THINGS = 300_000

PROGRAM = """
    import time
    class Thing:
        pass
    def work(kept):
        for i in range(%d):
            kept.append(Thing())
    for i in range(20):
        work([])
        time.sleep(0.1)
""" % (THINGS // 20)


@pytest.fixture
def behind() -> Iterator[StandIn]:
    """Start the server to which the collector forwards profiles."""
    with StandIn() as engine:
        yield engine


@pytest.fixture
def port(behind: StandIn, tmp_path: Path) -> Iterator[int]:
    """Start the collector, and return its port."""
    port = free_port()
    with Collector(tmp_path, port, behind.port, "json") as collector:
        yield port
        assert "error" not in collector.log()


def test_all_that_was_sampled_arrives(pypy: PyPy, behind: StandIn, port: int) -> None:
    spools = Path(tempfile.mkdtemp())
    pypy.environment["TMPDIR"] = str(spools)
    run = pypy.command(
        "-m", "vmprof", "--push", "otlp+http://127.0.0.1:%d" % port, "--push-every",
        "0.2", "--allocation-sampling", "1", str(pypy.script(PROGRAM, "shop.py")),
        OTEL_RESOURCE_ATTRIBUTES="service.version=3,team=a")
    assert (run.code, run.out, run.err) == (0, "", "")
    until = time.monotonic() + 120
    while list(spools.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.05)
    spools.rmdir()
    things = 0
    numbers = []
    for request in behind.requests:
        assert request.path == "/v1development/profiles"
        found = json.loads(request.body)
        dictionary = found["dictionary"]
        strings = dictionary["stringTable"]
        one, = found["resourceProfiles"]
        about = {strings[pair["keyStrindex"]]: _any(strings, pair["value"])
                 for pair in one["resource"]["attributes"]}
        assert (about["service.name"], about["service.version"], about["team"],
                about["process.runtime.name"]) == ("shop", "3", "a", "pypy")
        scope, = one["scopeProfiles"]
        for profile in scope["profiles"]:
            if strings[profile["sampleType"]["typeStrindex"]] != "alloc_objects":
                continue
            attributes = [_attribute(dictionary, number)
                          for number in profile["attributeIndices"]]
            numbers.append(int(dict(attributes)["vmprof.window"]))
            for sample in profile["samples"]:
                labels = dict(_attribute(dictionary, number)
                              for number in sample["attributeIndices"])
                if labels["type"] == "__main__.Thing":
                    things += int(sample["values"][0])
    assert sorted(numbers) == list(range(1, len(numbers) + 1)) and len(numbers) > 5
    assert things == THINGS


def _attribute(dictionary: Any, number: int) -> tuple[str, Any]:
    strings = dictionary["stringTable"]
    pair = dictionary["attributeTable"][number]
    return strings[pair["keyStrindex"]], _any(strings, pair["value"])


def _any(strings: list[str], value: Any) -> Any:
    if "stringValueStrindex" in value:
        return strings[value["stringValueStrindex"]]
    return next(iter(value.values()), "")
