"""Test the pusher with servers that fail, and with damaged or too many segments.

A *window* is a segment of a profile.
"""
from __future__ import annotations

import base64
import contextlib
import fcntl
import gzip
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import otlp_request
import protobuf_messages
from engine_stand_in import (
    Answer,
    StandIn,
    cut,
    cut_later,
    drip,
    endless,
    hang,
    nonsense,
    status,
)
from made_profiles import Log
from vmprof_push.folder import LOCK, MAX_BYTES, MAX_WINDOWS, SETTINGS

SECRET = "Bearer s3cr3t-t0k3n"


def a_window(size: int = 5000, *, part: int = 1) -> bytes:
    log = Log()
    log.settings(pid=11, run="r", part=part)
    log.command("/srv/shop.py --password=hidden")
    # each byte is sampled, so sums are exact
    log.allocation([log.function("main"), log.function("work")], size=size, interval=1)
    return log.data()


class Pusher:
    """A pusher and its folder, in which the first segment is locked until finish().

    The locked segment represents a running program.
    """

    def __init__(self, folder: Path, url: str, environment: dict[str, str],
                 timeout: float) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / SETTINGS).write_text(json.dumps({
            "url": url, "every": 0.1, "service": "shop", "version": "1.2",
            "timeout": timeout, "quiet": 0.3, "drain": 3,
            "owner": os.getpid()}))
        self._held = os.open(folder / "1.vmprof", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._command = [sys.executable, "-m", "vmprof_push", str(folder)]
        self._environment = {**os.environ, **environment}
        self.said: list[str] = []
        self.count = 0

    def add(self, data: bytes) -> None:
        self.count += 1
        new = self.folder / "new"
        new.write_bytes(data)
        # each file gets its own time, because the pusher sorts segments by time
        os.utime(new, ns=(0, self.count * 1000))
        new.rename(self.folder / ("11.w%d.vmprof" % self.count))

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for(self, text: str) -> str:
        """Wait for a message of the pusher that contains `text`, and return the
        message.
        """
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if text in line:
                return line
        raise AssertionError("%r ended, and said %r" % (self._command, self.said))

    def wait_until_empty(self) -> None:
        until = time.monotonic() + 120
        while any(name.startswith("11.w") for name in os.listdir(self.folder)):
            assert time.monotonic() < until, os.listdir(self.folder)
            time.sleep(0.02)

    def finish(self) -> str:
        """Remove the locked segment, wait for the pusher's end, and return its
        messages.
        """
        os.unlink(self.folder / "1.vmprof")
        os.close(self._held)
        out, err = self.process.communicate(timeout=120)
        self.said += err.splitlines(True)
        assert (self.process.returncode, out) == (0, "")
        assert not self.folder.exists()
        text = "".join(self.said)
        assert all(line.startswith("vmprof: ") for line in self.said), text
        assert "s3cr3t" not in text and "Traceback" not in text
        return text

    def kill(self) -> None:
        process = getattr(self, "process", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.communicate()


class Pushers:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: list[Pusher] = []

    def __call__(self, where: StandIn | int, *windows: bytes,
                 protocol: str = "otlp+http", host: str = "127.0.0.1",
                 timeout: float = 20, **environment: str) -> Pusher:
        port = where.port if isinstance(where, StandIn) else where
        pusher = Pusher(self._folder / ("spool%d" % len(self.all)),
                        "%s://%s:%d" % (protocol, host, port), environment, timeout)
        self.all.append(pusher)
        for window in windows:
            pusher.add(window)
        pusher.start()
        return pusher


@pytest.fixture
def pushers(tmp_path: Path) -> Iterator[Pushers]:
    found = Pushers(tmp_path)
    yield found
    for pusher in found.all:
        pusher.kill()


def space(body: bytes) -> int:
    return otlp_request.read(body).types["alloc_space"].sum


def test_segments_arrive_in_order_and_are_removed(pushers: Pushers) -> None:
    with StandIn() as engine:
        pusher = pushers(engine, *[a_window(1000 * (4 + part), part=part)
                                   for part in (1, 2, 3)])
        engine.wait(3)
        pusher.wait_until_empty()
        pusher.add(a_window(8000, part=4))
        engine.wait()
        assert pusher.finish() == ""
    assert [space(request.body) for request in engine.requests] == [
        5000, 6000, 7000, 8000]
    for number, request in enumerate(engine.requests, 1):
        assert request.path == "/v1development/profiles"
        assert request.headers["content-type"] == "application/x-protobuf"
        found = otlp_request.read(request.body)
        assert found.resource == {
            "service.name": "shop", "service.version": "1.2", "process.pid": 11,
            "process.runtime.name": "pypy", "host.name": socket.gethostname()}
        assert {one.attributes["vmprof.window"] for one in found.types.values()} == {
            number}
        assert b"hidden" not in request.body


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_retries_until_the_server_listens(pushers: Pushers) -> None:
    port = free_port()
    pusher = pushers(port, a_window())
    assert pusher.wait_for("trying again") == (
        "vmprof: cannot push to http://127.0.0.1:%d: Connection refused; trying again\n"
        % port)
    with StandIn(port=port) as engine:
        engine.wait()
        pusher.wait_until_empty()
        assert "accepts profiles again\n" in pusher.finish()
    assert len(pusher.said) == 2            # attempts have no messages of their own


@pytest.mark.parametrize("answer, why", [
    (hang, "did not answer in time"), (drip, "did not answer in time"),
    (cut, "connection was closed"),
    (nonsense, "is not HTTP"),
    (status(500), "500 (Internal Server Error)"), (status(503), "503 (Serv"),
    (status(429), "429 (Too Many Requests)"), (status(408), "408 (Request Timeout)"),
], ids=["hanging", "dripping", "cut", "no_http", "500", "503",
        "429", "408"])
def test_sends_a_segment_again_after_this_answer(pushers: Pushers, answer: Answer,
                                                 why: str) -> None:
    with StandIn(answer, answer) as engine:
        pusher = pushers(engine, a_window(),
                         timeout=1 if answer in (hang, drip) else 20)
        first, *_, last = engine.wait(3)
        pusher.wait_until_empty()
        text = pusher.finish()
    # the server recognizes a repeated segment by the ids in the request
    assert first.body == last.body
    assert why in text and "accepts profiles again" in text


def test_waits_for_the_time_in_retry_after(pushers: Pushers) -> None:
    with StandIn(status(429, Retry_After="2")) as engine:
        pusher = pushers(engine, a_window())
        first, second = engine.wait(2)
        assert second.time - first.time >= 2
        pusher.wait_until_empty()
        pusher.finish()


@pytest.mark.parametrize("answer", [endless, cut_later])
def test_the_body_after_a_good_status_is_ignored(pushers: Pushers,
                                                 answer: Answer) -> None:
    with StandIn(answer) as engine:
        pusher = pushers(engine, a_window())
        engine.wait()
        pusher.wait_until_empty()
        assert pusher.finish() == ""


@pytest.mark.parametrize("number", [400, 401, 403, 404, 413])
def test_refused_segments_are_dropped_and_counted(
        pushers: Pushers, number: int) -> None:
    # the answer repeats the credentials, which must not get into a message
    refusal = status(number, SECRET.encode() * 10)
    with StandIn(refusal, refusal) as engine:
        pusher = pushers(engine, *map(a_window, (5000, 6000, 7000)),
                         VMPROF_PUSH_HEADERS="Authorization=" + SECRET)
        requests = engine.wait(3)
        pusher.wait_until_empty()
        text = pusher.finish()
    assert space(requests[2].body) == 7000
    assert text.count("it answered %d (" % number) == 1
    assert "accepts profiles again; 2 segments were dropped\n" in text
    assert text.endswith("; 2 segments were dropped\n")


def test_a_redirect_to_elsewhere_gets_no_credentials(pushers: Pushers) -> None:
    with StandIn() as elsewhere:
        answers = [status(number, Location="http://127.0.0.1:%d/x" % elsewhere.port)
                   for number in (301, 302, 307, 308)]
        with StandIn(*answers) as engine:
            pusher = pushers(engine, *[a_window()] * 5,
                             VMPROF_PUSH_HEADERS="Authorization=" + SECRET)
            engine.wait(5)
            pusher.wait_until_empty()
            text = pusher.finish()
        assert elsewhere.requests == []
    assert ("it answered 307 (Temporary Redirect), but the profiler follows no "
            "redirects") in text
    assert "4 segments were dropped" in text


def test_a_partial_rejection_is_reported(pushers: Pushers) -> None:
    # the answer in protobuf: partial_success { rejected_profiles: 3 error_message: "no"
    # }
    answer = status(200, bytes((0x0a, 6, 0x08, 3, 0x12, 2)) + b"no")
    with StandIn(answer) as engine:
        pusher = pushers(engine, a_window())
        engine.wait()
        pusher.wait_until_empty()
        assert "it rejected 3 profiles of a segment" in pusher.finish()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def secure(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_tls(pushers: Pushers, authority: trustme.CA, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with StandIn(secure=secure(authority, "localhost")) as engine:
        pusher = pushers(engine, a_window(), protocol="otlp+https", host="localhost",
                         SSL_CERT_FILE=str(trusted))
        assert space(engine.wait()[0].body) == 5000
        pusher.wait_until_empty()
        assert pusher.finish() == ""


@pytest.mark.parametrize("name, is_trusted", [
    ("localhost", False), ("elsewhere.example.org", True)],
    ids=["nobody_trusts_it", "of_another_host"])
def test_a_wrong_certificate_gets_nothing(
        pushers: Pushers, authority: trustme.CA, tmp_path: Path, name: str,
        is_trusted: bool) -> None:
    trusted = tmp_path / "ca.pem"
    (authority if is_trusted else trustme.CA()).cert_pem.write_to_path(str(trusted))
    with StandIn(secure=secure(authority, name)) as engine:
        pusher = pushers(engine, a_window(), protocol="otlp+https", host="localhost",
                         SSL_CERT_FILE=str(trusted),
                         VMPROF_PUSH_HEADERS="Authorization=" + SECRET)
        line = pusher.wait_for("trying again")
        assert "https://localhost:%d: cannot verify its certificate" % (
            engine.port) in line
        pusher.kill()
        assert engine.requests == []


def test_a_server_without_tls_gets_nothing(pushers: Pushers) -> None:
    with StandIn() as engine:
        pusher = pushers(engine, a_window(), protocol="otlp+https", host="localhost")
        assert "TLS" in pusher.wait_for("trying again")
        pusher.kill()
        assert engine.requests == []


def test_sends_headers_from_the_environment(pushers: Pushers) -> None:
    with StandIn() as engine:
        pusher = pushers(
            engine, a_window(),
            VMPROF_PUSH_HEADERS="X-Scope-OrgID=team%20a, Authorization=" + SECRET,
            OTEL_EXPORTER_OTLP_HEADERS="x-other=1,X-Scope-OrgID=b")
        request, = engine.wait()
        with open("/proc/%d/cmdline" % pusher.process.pid) as file:
            assert "s3cr3t" not in file.read()
        for name in os.listdir(pusher.folder):
            with contextlib.suppress(FileNotFoundError):
                assert b"s3cr3t" not in (pusher.folder / name).read_bytes()
        assert b"s3cr3t" not in request.body
        assert (request.headers["x-scope-orgid"], request.headers["x-other"],
                request.headers["authorization"]) == ("team a", "1", SECRET)
        pusher.wait_until_empty()
        pusher.finish()


def test_reads_headers_from_a_changed_file(pushers: Pushers, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Authorization: first\n\n")
    with StandIn() as engine:
        pusher = pushers(engine, a_window(), VMPROF_PUSH_HEADERS_FILE=str(secret))
        first, = engine.wait()
        pusher.wait_until_empty()
        secret.unlink()
        pusher.add(a_window())
        assert "VMPROF_PUSH_HEADERS_FILE: No such file" in pusher.wait_for("push")
        secret.write_text("Authorization: second\n")
        second, = engine.wait()
        pusher.wait_until_empty()
        pusher.finish()
    assert (first.headers["authorization"], second.headers["authorization"]) == (
        "first", "second")


def test_environment_adds_attributes_of_the_service(pushers: Pushers) -> None:
    with StandIn() as engine:
        pusher = pushers(
            engine, a_window(), OTEL_SERVICE_NAME="other", OTEL_RESOURCE_ATTRIBUTES=(
                "service.version=2,deployment.environment=test%20bed,host.name=h"))
        request, = engine.wait()
        pusher.wait_until_empty()
        pusher.finish()
    found = otlp_request.read(request.body).resource
    # the values from the program take precedence over the environment's
    assert (found["service.name"], found["service.version"]) == ("shop", "1.2")
    assert (found["deployment.environment"], found["host.name"]) == ("test bed", "h")


def test_damaged_segments_do_not_stop_the_pusher(pushers: Pushers) -> None:
    whole = a_window()
    empty = Log()
    empty.settings(pid=11)
    with StandIn() as engine:
        pusher = pushers(engine, b"no profile at all", whole[:-1], empty.data(), b"",
                         a_window(7000))
        requests = engine.wait(2)
        pusher.wait_for("cannot read a segment")
        pusher.finish()
    assert [space(request.body) for request in requests] == [5000, 7000]


def test_drops_the_oldest_of_too_many_segments(pushers: Pushers) -> None:
    port = free_port()
    pusher = pushers(port, *[a_window(5000 + n) for n in range(MAX_WINDOWS + 20)])
    pusher.wait_for("trying again")
    with StandIn(port=port) as engine:
        requests = engine.wait(MAX_WINDOWS)
        pusher.wait_until_empty()
        assert "; 20 segments were dropped\n" in pusher.finish()
    # the newest segments were kept, and arrive in their order
    assert [space(request.body) for request in requests] == [
        5020 + n for n in range(MAX_WINDOWS)]


def test_drops_segments_of_too_many_bytes(pushers: Pushers) -> None:
    """The test makes large segments of profiles with padding, which a reader ignores.
    """
    window = a_window().ljust(MAX_BYTES // 4, b"\0")
    port = free_port()
    pusher = pushers(port, *[window] * 6)
    pusher.wait_for("trying again")
    assert sum((pusher.folder / name).stat().st_size
               for name in os.listdir(pusher.folder)) <= MAX_BYTES + 1000
    with StandIn(port=port) as engine:
        engine.wait(4)
        pusher.wait_until_empty()
        assert "; 2 segments were dropped\n" in pusher.finish()


def test_the_pusher_ends_although_the_server_is_unavailable(pushers: Pushers) -> None:
    pusher = pushers(free_port(), *[a_window()] * 3)
    pusher.wait_for("trying again")
    assert pusher.finish().endswith("; 3 segments were dropped\n")


def test_there_is_one_pusher_of_a_folder(pushers: Pushers) -> None:
    with StandIn() as engine:
        pusher = pushers(engine, a_window())
        engine.wait()
        pusher.wait_until_empty()
        assert subprocess.run([sys.executable, "-m", "vmprof_push",
                               str(pusher.folder)], timeout=60).returncode == 0
        assert (pusher.folder / LOCK).exists()
        pusher.finish()


def test_no_link_leads_out_of_the_folder(pushers: Pushers, tmp_path: Path) -> None:
    other = tmp_path / "other.vmprof"
    other.write_bytes(a_window(9999))
    with StandIn() as engine:
        pusher = pushers(engine)
        (pusher.folder / "7.vmprof").symlink_to(other)
        pusher.add(a_window())
        request, = engine.wait()
        pusher.wait_until_empty()
        pusher.finish()
    assert [space(one.body) for one in engine.requests] == [5000]
    assert request and other.exists()


def test_pyroscope(pushers: Pushers) -> None:
    with StandIn(status(500)) as engine:
        pusher = pushers(engine, a_window(), protocol="pyroscope+http")
        again, request = engine.wait(2)
        pusher.wait_until_empty()
        pusher.finish()
    assert request.path == "/push.v1.PusherService/Push"
    assert request.headers["content-type"] == "application/proto"
    assert again.body == request.body
    series, = protobuf_messages.read("PushRequest", request.body)["series"]
    assert {label["name"]: label["value"] for label in series["labels"]} == {
        "__name__": "memory", "__delta__": "false", "process.runtime.name": "pypy",
        "service_name": "shop", "version": "1.2", "pid": "11",
        "host": socket.gethostname()}
    sample, = series["samples"]
    assert len(sample["id"]) == 36
    check_pprof(sample["raw_profile"], has_labels=False)


def test_parca(pushers: Pushers) -> None:
    with StandIn() as engine:
        pusher = pushers(engine, a_window(), protocol="parca+http")
        request, = engine.wait()
        pusher.wait_until_empty()
        pusher.finish()
    assert request.path == "/profiles/writeraw"
    assert request.headers["content-type"] == "application/json"
    found = json.loads(request.body)
    assert found.keys() == {"series", "normalized"} and found["normalized"] is True
    series, = found["series"]
    assert series.keys() == {"labels", "samples"}
    assert {label["name"]: label["value"] for label in series["labels"]["labels"]} == {
        "__name__": "memory", "process_runtime_name": "pypy", "service_name": "shop",
        "version": "1.2", "pid": "11", "host": socket.gethostname()}
    sample, = series["samples"]
    assert sample.keys() == {"rawProfile"}
    check_pprof(base64.b64decode(sample["rawProfile"], validate=True), has_labels=True)


def check_pprof(data: bytes, *, has_labels: bool) -> None:
    found = protobuf_messages.read("Pprof", gzip.decompress(data))
    strings = found["string_table"]
    assert [(strings[type_["type"]], strings[type_["unit"]])
            for type_ in found["sample_type"]] == [
                ("alloc_objects", "count"), ("alloc_space", "bytes")]
    assert [sample["value"] for sample in found["sample"]] == [[1, 5000]]
    assert all(bool(sample["label"]) == has_labels for sample in found["sample"])
    assert not any("hidden" in text for text in strings)
