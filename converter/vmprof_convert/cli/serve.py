"""Hand one profile to the Firefox Profiler's page, and to nobody else."""
from __future__ import annotations

import http.server
import os
import secrets
import sys
import threading
from typing import Any
from urllib.parse import quote

from vmprof_convert.cli import launch
from vmprof_convert.cli.output import OutputError

PROFILER = "https://profiler.firefox.com"
LOOPBACK = "127.0.0.1"
#: seconds after which something went wrong, if nothing was fetched
PATIENCE = 15.0
#: seconds: not everywhere Ctrl-C ends a wait, but everywhere it is seen after one
_A_WHILE = 1.0


class ProfileServer(http.server.ThreadingHTTPServer):
    """Serves `data` under `url`, as often as it is asked for: to a page that is
    loaded again, and to several.

    What another program or page of this machine could try: to guess the
    address (the path is random), to read the answer in a page of its own (it
    bears the Profiler's origin), to reach the server under a name of its own
    (the Host header must be ours).
    """

    daemon_threads = True
    # a connection that says nothing must not keep the server from ending
    block_on_close = False

    def __init__(self, data: bytes, port: int = 0):
        """`port` 0: any that is free.  Raises OutputError."""
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
        """The whole profile went out through this connection."""
        self._sent.add(connection)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        if request in self._sent:
            self._sent.remove(request)
            self.fetched.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # the other side went away: it may come again
        pass


#: bytes that are sent at once
_PIECE = 2**16


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ProfileServer
    server_version = "vmprof-convert"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        if self._allowed():
            self._answer(200, self.server.data)
            self.server.sent(self.connection)

    def do_HEAD(self) -> None:
        if self._allowed():
            self._answer(200, self.server.data, body=False)

    def do_OPTIONS(self) -> None:
        """Browsers ask before a page from the network may fetch from
        loopback."""
        if self._allowed():
            self._answer(204, b"", {
                "Access-Control-Allow-Methods": "GET",
                "Access-Control-Allow-Private-Network": "true"})

    def _allowed(self) -> bool:
        """Whether the request is for our file, by one who may have it; if
        not, it is answered."""
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
            # each piece has its own time: a large file may take long to a far browser
            for at in range(0, len(data), _PIECE):
                self.wfile.write(memoryview(data)[at:at + _PIECE])

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def profiler_url(url: str, query: str = "") -> str:
    """The Profiler's page that shows the profile at `url`; `query` says how."""
    return "%s/from-url/%s%s" % (PROFILER, quote(url, safe=""),
                                 "/?" + query if query else "")


def view(data: bytes, query: str = "", port: int = 0) -> None:
    """Open `data`, a profile as JSON, in the browser, and serve it until Ctrl-C.
    Raises OutputError if that can't be done at `port` (0: any)."""
    with ProfileServer(data, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.1],
                                  daemon=True)
        try:
            thread.start()
            _open(server, profiler_url(server.url, query))
            if not server.fetched.wait(PATIENCE):
                # to Chrome, too, the page says something about Safari then
                _say("Nothing came for the profile yet. If the page is open and says "
                     "that it can't load it (or that\nSafari can't), the browser did "
                     "not let it: allow profiler.firefox.com to reach this machine\n"
                     "(\"apps on this device\", \"local network\"), and load the page "
                     "again.")
            while not server.fetched.wait(_A_WHILE):
                pass
            _say("The page has the profile, and can be loaded again until Ctrl-C ends "
                 "this.")
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
