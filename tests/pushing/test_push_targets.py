"""Test the addresses, intervals and headers that --push and push() accept."""
from __future__ import annotations

import random

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_push import credentials
from vmprof_push.backoff import FIRST, LONGEST, Backoff
from vmprof_push.target import Target, parse_every


@pytest.mark.parametrize("url, path, shown", [
    ("otlp+http://localhost:4318", "/v1development/profiles", "http://localhost:4318"),
    ("otlp+https://example.org/tenant/", "/tenant/v1development/profiles",
     "https://example.org"),
    ("otlp+http://example.org/v1development/profiles", "/v1development/profiles",
     "http://example.org"),
    ("pyroscope+http://[::1]:4040", "/push.v1.PusherService/Push", "http://[::1]:4040"),
    ("parca+https://example.org:7070/api", "/api/profiles/writeraw",
     "https://example.org:7070"),
])
def test_valid_addresses_are_accepted(url: str, path: str, shown: str) -> None:
    target = Target(url)
    assert (target.path, str(target)) == (path, shown)
    assert url.startswith(target.protocol)
    assert target.is_secure == ("https" in url)


@pytest.mark.parametrize("url, said", [
    ("http://localhost", "'http', which is not a known protocol"),
    ("otlp://localhost", "'otlp', which"), ("otlp+ftp://localhost", "'otlp+ftp'"),
    ("jaeger+http://localhost", "'jaeger+http'"), ("", "''"), ("localhost:80", "'loc"),
    ("otlp+http://", "its host is invalid"), ("otlp+http://a b", "its host is invalid"),
    ("otlp+http://h\u00e4", "its host is invalid"),
    ("otlp+http://localhost:port", "invalid address to push to: write for"),
    ("otlp+http://localhost:99999", "invalid address to push to: write for"),
    ("otlp+http://me:s3cr3t@localhost", "a user or a password"),
    ("otlp+http://s3cr3t@localhost", "a user or a password"),
    ("otlp+http://localhost?key=s3cr3t", "after its path"),
    ("otlp+http://localhost/#s3cr3t", "after its path"), (None, "is not text"),
])
def test_invalid_addresses_are_refused(url: object, said: str) -> None:
    with pytest.raises(AllocationSamplingError) as error:
        Target(url)
    assert said in str(error.value) and "s3cr3t" not in str(error.value)


def test_valid_seconds_are_accepted() -> None:
    assert [parse_every(value) for value in (15, "0.05", "86400")] == [15, 0.05, 86400]


@pytest.mark.parametrize("value", [
    "", "soon", "0", "-1", "nan", "inf", "1e9", None, []])
def test_invalid_seconds_are_refused(value: object) -> None:
    with pytest.raises(AllocationSamplingError,
                       match=r"must be 0\.05 to 86400 seconds"):
        parse_every(value)


@pytest.mark.parametrize("text, said", [
    ("s3cr3t", "invalid header"), ("a b=s3cr3t", "invalid header"),
    ("=s3cr3t", "invalid header"), ("x=s3cr3t%0d%0aHost: other", "characters"),
    ("Host=s3cr3t", "the profiler sets the header Host"),
    ("content-length=s3cr3t", "the profiler sets the header content-length"),
])
def test_invalid_headers_are_refused(text: str, said: str) -> None:
    with pytest.raises(AllocationSamplingError) as error:
        credentials.read("otlp", {credentials.VARIABLE: text})
    assert "s3cr3t" not in str(error.value)
    assert said in str(error.value)


def test_opentelemetry_s_headers_are_for_its_protocol() -> None:
    environment = {credentials.OTLP_VARIABLE: "a=1"}
    assert credentials.read("otlp", environment) == {"a": "1"}
    assert credentials.read("parca", environment) == {}


def test_waiting_time_is_random_up_to_a_growing_bound() -> None:
    def waits(seed: int) -> list[float]:
        backoff = Backoff(15, random.Random(seed))
        return [backoff.failed() for _ in range(12)]
    runs = [waits(seed) for seed in range(500)]
    for failures in range(12):
        bound = min(LONGEST, FIRST * 2**failures)
        seen = [run[failures] for run in runs]
        assert min(seen) >= 0 and max(seen) <= bound
        # 500 uniform values miss the lowest or highest tenth of the range once in
        # 10**22 runs
        assert min(seen) < bound / 10 and max(seen) > 9 * bound / 10


def test_waiting_time_restarts_after_a_success() -> None:
    backoff = Backoff(15)
    for _ in range(100):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= FIRST
    assert backoff.failed(7) >= 7
