"""Hand one profile to the Firefox Profiler's page, and to nobody else."""
from __future__ import annotations

import http.server
import secrets
import threading
import webbrowser
from typing import Any
from urllib.parse import quote

PROFILER = "https://profiler.firefox.com"
LOOPBACK = "127.0.0.1"


class ProfileServer(http.server.ThreadingHTTPServer):
    """Serves `data` under `url` until it was fetched.

    What another program or page of this machine could try: to guess the
    address (the path is random), to read the answer in a page of its own (it
    bears the Profiler's origin), to reach the server under a name of its own
    (the Host header must be ours).
    """

    daemon_threads = True
    # a connection that says nothing must not keep the server from ending
    block_on_close = False

    def __init__(self, data: bytes):
        self.data = data
        self.path = "/%s/profile.json" % secrets.token_urlsafe(32)
        self.fetched = threading.Event()
        super().__init__((LOOPBACK, 0), _Handler)
        self.host = "%s:%d" % (LOOPBACK, self.server_address[1])
        self.url = "http://%s%s" % (self.host, self.path)
        self._sent: set[Any] = set()

    def sent(self, connection: Any) -> None:
        """The whole profile went out through this connection."""
        self._sent.add(connection)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        # only now: the process may end at once
        if request in self._sent:
            self.fetched.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # the other side went away: it may come again
        pass


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
            self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def profiler_url(url: str) -> str:
    """The Profiler's page that shows the profile at `url`."""
    return "%s/from-url/%s" % (PROFILER, quote(url, safe=""))


def view(data: bytes) -> None:
    """Open `data`, a profile as JSON, in the browser.  Returns when the page
    has fetched it, or on Ctrl-C."""
    with ProfileServer(data) as server:
        threading.Thread(target=server.serve_forever, args=[0.1],
                         daemon=True).start()
        try:
            address = profiler_url(server.url)
            print("Opening %s\nwaiting until the page has the profile; "
                  "Ctrl-C ends this" % address, flush=True)
            # a browser that can't be opened is no error: there is the address
            webbrowser.open(address)
            server.fetched.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.shutdown()
