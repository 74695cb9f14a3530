"""Serve one profile to the Firefox Profiler's page, and only to this page.

`view()` runs an HTTP server on the loopback interface until Ctrl-C, and opens the
Profiler with the address of the profile.
"""
from __future__ import annotations

import http.server
import os
import secrets
import sys
import threading
from typing import Any
from urllib.parse import quote

from vmprof_convert.cli import launch
from vmprof_convert.cli.streams import OutputError

PROFILER = "https://profiler.firefox.com"
LOOPBACK = "127.0.0.1"
#: seconds without a request after which the user gets advice
PATIENCE = 15.0
#: Seconds of one wait. On some systems, Ctrl-C is noticed only when a wait ends.
_A_WHILE = 1.0


class ProfileServer(http.server.ThreadingHTTPServer):
    """An HTTP server for one profile, which may be fetched several times.

    Three checks keep other programs and pages on this machine out. The path is random,
    so its address cannot be guessed. The answer allows only the Profiler's origin, so
    other pages cannot read it. The Host header must be the server's, so the server
    cannot be reached under another host name.
    """

    daemon_threads = True
    # an idle connection must not delay the end of the server
    block_on_close = False

    def __init__(self, data: bytes, port: int = 0):
        """Bind the server to a port.

        Args:
            data: the profile.
            port: the port; 0 for any free port.

        Raises:
            OutputError: the port is not available.
        """
        self.data = data
        self.path = "/%s/profile.json" % secrets.token_urlsafe(32)
        self.fetched = threading.Event()
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise OutputError("port %d: %s; choose another one with --port" % (
                port, error.strerror)) from None
        self.host = "%s:%d" % (LOOPBACK, self.server_address[1])
        self.url = "http://%s%s" % (self.host, self.path)
        self._sent: set[Any] = set()

    def sent(self, connection: Any) -> None:
        """Record that this connection has sent the whole profile."""
        self._sent.add(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; set `fetched` if it has sent the whole profile."""
        super().shutdown_request(request)
        if request in self._sent:
            self._sent.remove(request)
            self.fetched.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a connection, for example if the browser closed it."""


#: bytes per write to the connection
_PIECE = 2**16


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ProfileServer
    server_version = "vmprof-convert"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        """Send the profile."""
        if self._allowed():
            self._answer(200, self.server.data)
            self.server.sent(self.connection)

    def do_HEAD(self) -> None:
        """Send the headers of the profile."""
        if self._allowed():
            self._answer(200, self.server.data, body=False)

    def do_OPTIONS(self) -> None:
        """Allow the preflight request of a browser.

        Browsers send such a request before a page from the network may fetch from
        loopback.
        """
        if self._allowed():
            self._answer(204, b"", {
                "Access-Control-Allow-Methods": "GET",
                "Access-Control-Allow-Private-Network": "true"})

    def _allowed(self) -> bool:
        """Return whether the request is for the profile and comes from the Profiler.

        If not, this method sends an error.
        """
        if self.headers.get_all("Host") != [self.server.host]:
            self._answer(403, b"unknown host\n")
        elif self.headers.get_all("Origin", [PROFILER]) != [PROFILER]:
            self._answer(403, b"foreign origin\n")
        elif not secrets.compare_digest(self.path.encode(),
                                        self.server.path.encode()):
            self._answer(404, b"no such file\n")
        else:
            return True
        return False

    def _answer(self, status: int, data: bytes,
                headers: dict[str, str] | None = None, *,
                body: bool = True) -> None:
        self.send_response(status)
        if status < 300:
            self.send_header("Access-Control-Allow-Origin", PROFILER)
            self.send_header("Content-Type", "application/json")
        else:
            self.send_header("Content-Type", "text/plain")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            # the timeout applies to each write, so a slow connection gets enough time
            for at in range(0, len(data), _PIECE):
                self.wfile.write(memoryview(data)[at:at + _PIECE])

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do not log requests."""


def profiler_url(url: str, query: str = "") -> str:
    """Return the address of the Profiler's page that shows the profile.

    Args:
        url: address of the profile.
        query: settings of the page.
    """
    return "%s/from-url/%s%s" % (PROFILER, quote(url, safe=""),
                                 "/?" + query if query else "")


def view(data: bytes, query: str = "", port: int = 0) -> None:
    """Open a profile in the browser, and serve it until Ctrl-C.

    Args:
        data: the profile as JSON.
        query: settings of the Profiler's page.
        port: the port; 0 for any free port.

    Raises:
        OutputError: the port is not available.
    """
    with ProfileServer(data, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.1],
                                  daemon=True)
        try:
            thread.start()
            _open(server, profiler_url(server.url, query))
            if not server.fetched.wait(PATIENCE):
                # if the browser blocks the request, the page shows an error about
                # Safari, even in Chrome
                _say("The browser has not requested the profile yet. If the page says "
                     "that it (or Safari) cannot load\nthe profile, the browser blocks "
                     "the request: allow profiler.firefox.com to reach this "
                     "machine\n(\"apps on this device\", \"local network\"), and load "
                     "the page again.")
            while not server.fetched.wait(_A_WHILE):
                pass
            _say("The page has the profile, and can be loaded again until you press "
                 "Ctrl-C.")
            while thread.is_alive():
                thread.join(_A_WHILE)
        except KeyboardInterrupt:
            pass
        finally:
            server.shutdown()


def _open(server: ProfileServer, address: str) -> None:
    opened = False
    if launch.has_browser(os.environ, sys.platform):
        _say("Opening %s" % address)
        opened = launch.open_address(address)
    if not opened:
        _say("Open this in a browser:\n\n    %s\n" % address)
    if not opened or "SSH_CONNECTION" in os.environ:
        port = server.server_address[1]
        _say("If the browser is on another machine, forward the port from there "
             "first:\n\n    ssh -L %d:%s:%d HOST\n" % (port, LOOPBACK, port))


def _say(text: str) -> None:
    print(text, flush=True)
