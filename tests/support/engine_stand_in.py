"""A server on the loopback address that receives pushed profiles in tests.

A test chooses the server's answers, among them errors, broken answers and no answer.
"""
from __future__ import annotations

import gzip
import http.server
import queue
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A request that the server received."""

    path: str
    #: values of the HTTP headers, by lower-case name
    headers: dict[str, str]
    #: the decompressed body
    body: bytes
    #: time of arrival, by time.monotonic()
    time: float


class Handler(http.server.BaseHTTPRequestHandler):
    """A request handler that records a request and gives the next answer."""

    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        size = len(body)
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        stand_in = self.server.stand_in
        request = Request(self.path, headers, body, time.monotonic())
        stand_in.sizes.append(size)
        answer = stand_in.next_answer()
        if answer is OK:
            stand_in.taken.append(request)
        # this ends the wait of a test, which may then read `sizes` and `taken`
        stand_in.requests.append(request)
        stand_in.arrived.put(request)
        try:
            answer(self)
        except (OSError, ValueError):
            pass                # the client has closed the connection

    def log_message(self, *_: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    stand_in: StandIn

    def handle_error(self, *_: Any) -> None:
        pass                    # a client that rejects the certificate disconnects


Answer = Callable[[Handler], None]


def status(number: int, body: bytes = b"", **headers: str) -> Answer:
    """Return a function that answers with this status, body and headers."""
    def answer(handler: Handler) -> None:
        handler.send_response(number)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
    return answer


OK = status(200)


def cut(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.connection.close()


def cut_later(handler: Handler) -> None:
    """Close the connection in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"only this")
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """Give no answer until the server ends."""
    handler.server.stand_in.closing.wait()


def drip(handler: Handler) -> None:
    """Send an endless answer, one byte every 50 ms."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not handler.server.stand_in.closing.wait(0.05):
        handler.wfile.write(b"x")
        handler.wfile.flush()


def nonsense(handler: Handler) -> None:
    """Answer in a protocol other than HTTP."""
    handler.wfile.write(b"220 mail.example.org ESMTP\r\n" * 10)


def endless(handler: Handler) -> None:
    """Send an answer that never ends, as fast as possible."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not handler.server.stand_in.closing.is_set():
        handler.wfile.write(bytes(65536))


class StandIn:
    """A context manager that runs the server.

    The first requests get `answers`, and all later ones get status 200.
    """

    def __init__(self, *answers: Answer, port: int = 0,
                 secure: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        #: the requests that got the answer OK
        self.taken: list[Request] = []
        #: sizes in bytes of the bodies before decompression
        self.sizes: list[int] = []
        self.arrived: queue.Queue[Request] = queue.Queue()
        self.closing = threading.Event()
        self._answers = list(answers)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), Handler)
        self._server.stand_in = self
        if secure is not None:
            self._server.socket = secure.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True)

    def next_answer(self) -> Answer:
        with self._lock:
            return self._answers.pop(0) if self._answers else OK

    def then(self, answers: Iterable[Answer]) -> None:
        """Add answers for later requests."""
        with self._lock:
            self._answers += answers

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def wait(self, count: int = 1, seconds: float = 120) -> list[Request]:
        """Return the next `count` requests, or fail after `seconds` without one."""
        return [self.arrived.get(timeout=seconds) for _ in range(count)]

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
