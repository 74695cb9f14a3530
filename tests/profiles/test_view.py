"""Tests of `vmprof-convert view`, and of the access to the served profile."""
from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import convert_runs
from convert_runs import names
from firefox_profiles import converted, rich_log
from made_profiles import Log
from vmprof_convert import cli
from vmprof_convert.cli import launch, serve
from vmprof_convert.cli.streams import OutputError

folder = convert_runs.folder


@pytest.fixture
def server() -> Iterator[serve.ProfileServer]:
    with serve.ProfileServer(b'{"meta":1}') as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Answer = tuple[int, dict[str, str], bytes]


def ask(server: serve.ProfileServer, path: str | None = None,
        method: str = "GET", host: str | None = None,
        **headers: str) -> Answer:
    """Send a request; `host` replaces the Host header, and "" omits it."""
    address, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(address), port, timeout=20)
    connection.putrequest(method, server.path if path is None else path,
                          skip_host=True)
    if host != "":
        connection.putheader("Host", host or "127.0.0.1:%d" % port)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    answer = (response.status, dict(response.getheaders()), response.read())
    connection.close()
    return answer


def test_the_profiler_gets_the_profile(server: serve.ProfileServer) -> None:
    assert not server.fetched.is_set()
    status, headers, body = ask(server, Origin=serve.PROFILER)
    assert (status, body) == (200, b'{"meta":1}')
    assert headers["Access-Control-Allow-Origin"] == (
        "https://profiler.firefox.com")
    assert headers["Content-Type"] == "application/json"
    assert server.fetched.wait(20)


def test_the_profiler_may_fetch_the_profile_several_times(
        server: serve.ProfileServer) -> None:
    """A user may reload the page, or open it in another tab."""
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(
        server, Origin=serve.PROFILER))) for _ in range(8)]
    for _ in range(2):
        answers.append(ask(server, Origin=serve.PROFILER))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(status, body) for status, _, body in answers] == [
        (200, b'{"meta":1}')] * 10


def test_server_uses_the_given_port() -> None:
    with serve.ProfileServer(b"") as first:
        port = first.server_address[1]
        with pytest.raises(OutputError, match="port %d: .* with --port" % port):
            serve.ProfileServer(b"", port)
    with serve.ProfileServer(b"", port) as second:
        assert second.server_address[1] == port


@pytest.mark.parametrize("text", ["0", "65536", "-1", "x", "\u0663", "8080x", ""])
def test_refuses_an_invalid_port(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["view", "app.vmprof", "--port", text]) == 2
    err = capsys.readouterr().err
    assert "invalid port" in err and err.count("\n") == 1


@pytest.mark.parametrize("environment, platform, there", [
    ({}, "linux", False), ({"DISPLAY": ":0"}, "linux", True),
    ({"WAYLAND_DISPLAY": "w"}, "linux", True), ({"BROWSER": "w3m"}, "linux", True),
    ({"DISPLAY": ""}, "linux", False), ({}, "darwin", True), ({}, "win32", True)])
def test_a_browser_needs_a_screen(environment: dict[str, str], platform: str,
                                  there: bool) -> None:
    assert launch.has_browser(environment, platform) == there


@pytest.mark.parametrize("status, request_", [
    (404, {"path": "/"}),
    (404, {"path": "/profile.json"}),
    (404, {"path": "/../../etc/passwd"}),
    (404, {"path": "//app.vmprof"}),
    (404, {"path": "/%ff"}),
    (403, {"Origin": "https://evil.example"}),
    (403, {"Origin": "null"}),
    (403, {"Origin": "https://profiler.firefox.com.evil.example"}),
    (403, {"Origin": "http://profiler.firefox.com"}),
    (403, {"host": "evil.example"}),
    (403, {"host": "localhost"}),
    (403, {"host": "127.0.0.1"}),
    (403, {"host": "127.0.0.1:1"}),
    (403, {"host": ""}),
    (403, {"method": "OPTIONS", "Origin": "https://evil.example"}),
    (403, {"method": "HEAD", "Origin": "https://evil.example"}),
    (501, {"method": "POST"}),
    (501, {"method": "PUT"}),
])
def test_other_requests_get_no_data(
        server: serve.ProfileServer, status: int, request_: dict[str, str]) -> None:
    got, headers, body = ask(server, **request_)
    assert got == status
    assert server.data not in body
    assert "Access-Control-Allow-Origin" not in headers
    # the Profiler can still fetch the profile
    assert not server.fetched.is_set()
    assert ask(server, Origin=serve.PROFILER)[0] == 200


def test_preflight_request_of_the_profiler_is_allowed(
        server: serve.ProfileServer) -> None:
    status, headers, _ = ask(server, method="OPTIONS", Origin=serve.PROFILER,
                             Access_Control_Request_Private_Network="true")
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == serve.PROFILER
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert ask(server, method="HEAD")[::2] == (200, b"")
    assert not server.fetched.is_set()


def test_server_listens_on_loopback_with_a_random_path() -> None:
    paths = set()
    for _ in range(2):
        with serve.ProfileServer(b"") as server:
            assert server.server_address[0] == "127.0.0.1"
            assert server.url.startswith(
                "http://127.0.0.1:%d/" % server.server_address[1])
            # the path has 256 random bits
            assert re.fullmatch(r"/[\w-]{43}/profile\.json", server.path)
            paths.add(server.path)
    assert len(paths) == 2


def test_an_aborted_fetch_does_not_end_the_server(
        capsys: pytest.CaptureFixture[str]) -> None:
    with serve.ProfileServer(bytes(2**26)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(
                ("127.0.0.1", server.server_port)) as half:
            half.sendall(("GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" % (
                server.path, server.host)).encode())
            assert half.recv(1) == b"H"
        assert ask(server, path="/")[0] == 404
        assert not server.fetched.is_set()
        assert len(ask(server)[2]) == 2**26
        assert server.fetched.wait(20)
        server.shutdown()
    assert capsys.readouterr() == ("", "")      # no traceback


class Browser:
    """A replacement for webbrowser.

    It opens the Profiler's page, which fetches the profile. Then it interrupts the
    command, as a user does with Ctrl-C.
    """

    def __init__(self, *, fetches: int = 1):
        self.fetches = fetches
        self.url = self.query = ""
        self.bodies: list[bytes] = []
        #: set when the command has reported that the page has the profile
        self.has_it = threading.Event()

    def open(self, address: str) -> bool:
        prefix = "https://profiler.firefox.com/from-url/"
        assert address.startswith(prefix)
        url, _, self.query = address[len(prefix):].partition("/?")
        assert "/" not in url
        self.url = unquote(url)
        threading.Thread(target=self._use).start()
        return True

    def _use(self) -> None:
        host, path = self.url[len("http://"):].split("/", 1)
        for _ in range(self.fetches):
            connection = http.client.HTTPConnection(host, timeout=20)
            connection.request("GET", "/" + path, headers={
                "Origin": "https://profiler.firefox.com"})
            self.bodies.append(connection.getresponse().read())
            connection.close()
        # a user presses Ctrl-C after the message that the page has the profile
        assert self.has_it.wait(20)
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGINT)


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    browser = Browser(fetches=3)
    monkeypatch.setattr("webbrowser.open", browser.open)
    say = serve._say

    def listen(text: str) -> None:
        say(text)
        if "The page has the profile" in text:
            browser.has_it.set()

    monkeypatch.setattr(serve, "_say", listen)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    return browser


@pytest.mark.parametrize("arguments, left", [
    ([], ["app.vmprof"]), (["-o", "a.json"], ["a.json", "app.vmprof"])])
def test_view_serves_until_ctrl_c(
        arguments: list[str], left: list[str], folder: Path,
        capsys: pytest.CaptureFixture[str], browser: Browser) -> None:
    assert cli.main(["view", "app.vmprof", *arguments]) == 0
    assert [json.loads(body) for body in browser.bodies] == [
        converted(rich_log())] * 3
    # the profile has both kinds of samples, and the Profiler would show time first
    assert browser.query == "ctSummary=native-allocations"
    assert names(folder) == left
    out, err = capsys.readouterr()
    assert "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1" in out
    assert "The page has the profile" in out and "ssh" not in out
    assert err == ""
    port = int(browser.url.split(":")[2].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_profile_of_time_opens_with_time(folder: Path, browser: Browser) -> None:
    log = Log()
    log.raw_stack(log.words([log.function("f")]), 0)
    (folder / "time.vmprof").write_bytes(log.data())
    assert cli.main(["view", "time.vmprof"]) == 0
    assert browser.query == ""


def test_message_without_a_browser_has_the_address_and_the_port(
        folder: Path, capsys: pytest.CaptureFixture[str], browser: Browser,
        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "DISPLAY", "WAYLAND_DISPLAY", "BROWSER":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(serve, "PATIENCE", 0.0)
    say = serve._say

    def say_and_go(text: str) -> None:
        say(text)
        if text.startswith("The browser has not requested"):
            raise KeyboardInterrupt
    monkeypatch.setattr(serve, "_say", say_and_go)
    monkeypatch.setattr(sys, "platform", "linux")
    with serve.ProfileServer(b"") as server:
        port = server.server_address[1]
    assert cli.main(["view", "app.vmprof", "--port", str(port)]) == 0
    out, err = capsys.readouterr()
    assert "Open this in a browser:\n\n    https://profiler.firefox.com/" in out
    assert "\n    ssh -L %d:127.0.0.1:%d HOST\n" % (port, port) in out
    assert "The browser has not requested the profile yet" in out
    assert "it (or Safari) cannot load" in out
    assert (browser.url, err) == ("", "")
