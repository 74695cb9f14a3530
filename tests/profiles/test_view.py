"""vmprof-convert --view: who may fetch what it serves."""
from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import convert_runs
from convert_runs import names
from firefox_profiles import converted, rich_log
from vmprof_convert import cli
from vmprof_convert.view import serve

folder = convert_runs.folder


@pytest.fixture
def server() -> Iterator[serve.ProfileServer]:
    with serve.ProfileServer(b'{"meta":1}') as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Answer = tuple[int, dict[str, str], bytes]


def ask(server: serve.ProfileServer, path: str | None = None,
        method: str = "GET", host: str | None = None,
        **headers: str) -> Answer:
    """One request; `host` replaces the Host header, "" leaves it out."""
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


def test_the_profiler_gets_the_profile_and_that_ends_it(
        server: serve.ProfileServer) -> None:
    assert not server.fetched.is_set()
    status, headers, body = ask(server, Origin=serve.PROFILER)
    assert (status, body) == (200, b'{"meta":1}')
    assert headers["Access-Control-Allow-Origin"] == (
        "https://profiler.firefox.com")
    assert headers["Content-Type"] == "application/json"
    assert server.fetched.wait(20)


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
def test_nobody_else_gets_anything(
        server: serve.ProfileServer, status: int,
        request_: dict[str, str]) -> None:
    got, headers, body = ask(server, **request_)
    assert got == status
    assert server.data not in body
    assert "Access-Control-Allow-Origin" not in headers
    # the Profiler still can
    assert not server.fetched.is_set()
    assert ask(server, Origin=serve.PROFILER)[0] == 200


def test_a_browser_that_asks_first_may_fetch(
        server: serve.ProfileServer) -> None:
    status, headers, _ = ask(server, method="OPTIONS", Origin=serve.PROFILER,
                             Access_Control_Request_Private_Network="true")
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == serve.PROFILER
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert ask(server, method="HEAD")[::2] == (200, b"")
    assert not server.fetched.is_set()


def test_it_listens_on_loopback_under_a_random_path() -> None:
    paths = set()
    for _ in range(2):
        with serve.ProfileServer(b"") as server:
            assert server.server_address[0] == "127.0.0.1"
            assert server.url.startswith(
                "http://127.0.0.1:%d/" % server.server_address[1])
            # 256 bits
            assert re.fullmatch(r"/[\w-]{43}/profile\.json", server.path)
            paths.add(server.path)
    assert len(paths) == 2


def test_a_fetch_that_breaks_off_does_not_end_it(
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
    """Stands in for webbrowser: opens the Profiler's page, which fetches."""

    def __init__(self, then: Exception | type[BaseException] | None = None):
        self.then = then
        self.url = ""
        self.body = b""

    def open(self, address: str) -> bool:
        prefix = "https://profiler.firefox.com/from-url/"
        assert address.startswith(prefix)
        assert "/" not in address[len(prefix):]
        self.url = unquote(address[len(prefix):])
        if self.then is not None:
            raise self.then
        host, path = self.url[len("http://"):].split("/", 1)
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request("GET", "/" + path,
                           headers={"Origin": "https://profiler.firefox.com"})
        self.body = connection.getresponse().read()
        return True


@pytest.mark.parametrize("arguments, left", [
    ([], ["app.vmprof"]), (["-o", "a.json"], ["a.json", "app.vmprof"])])
def test_view(arguments: list[str], left: list[str], folder: Path,
              capsys: pytest.CaptureFixture[str],
              monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser()
    monkeypatch.setattr("webbrowser.open", browser.open)
    assert cli.main(["app.vmprof", "--view", *arguments]) == 0
    assert json.loads(browser.body) == converted(rich_log())
    assert names(folder) == left
    out, err = capsys.readouterr()
    assert "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1" in out
    assert err == ""


def test_view_ends_on_ctrl_c(folder: Path,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(KeyboardInterrupt)
    monkeypatch.setattr("webbrowser.open", browser.open)
    assert cli.main(["app.vmprof", "--view"]) == 0
    assert names(folder) == ["app.vmprof"]
    port = int(browser.url.split(":")[2].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
