"""Send one request, and return its outcome.

The pusher (__main__.py) calls `send()` with a segment's body, and decides by the
outcome whether to send the segment again.
"""
from __future__ import annotations

import contextlib
import email.utils
import http.client
import math
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

from vmprof_convert.writers import protobuf
from vmprof_push.protocols import Body
from vmprof_push.target import Target

#: longest time of a request, as a multiple of the time limit of one step.  Without this
#: limit, a server that answers in small pieces could prolong a request forever.
_STEPS = 3
#: largest number of bytes that are read from an answer
_MAX_ANSWER = 4096
#: longest time that a server's Retry-After can delay the next request, in seconds
MAX_RETRY_AFTER = 300.0
#: status codes below 500 after which the request is repeated; it is also repeated after
#: all status codes from 500 on
_LATER = frozenset((408, 425, 429))


class Outcome(NamedTuple):
    """The outcome of a request."""

    #: whether the server accepted the profile
    is_sent: bool
    #: the reason of the failure, or the server's complaint about an accepted request
    problem: str = ""
    #: whether the same request would fail again, and is not repeated
    is_final: bool = False
    #: the waiting time that the server requests, in seconds; 0 without such a request
    retry_after: float = 0.0


def send(target: Target, body: Body, secret: dict[str, str],
         seconds: float) -> Outcome:
    """Send the body to the target by POST.

    The function follows no redirect and passes on no text of the answer, because
    either could disclose `secret`.

    Args:
        target: The server's address.
        body: The request's body and the headers that describe it.
        secret: The user's headers (credentials.py).
        seconds: The time limit of each step of the request.

    Returns:
        The outcome.  A failed connection is an outcome, too, and raises nothing.
    """
    connection = _connection(target, seconds)
    try:
        with _alarm(_STEPS * seconds):
            connection.request("POST", target.path, body.data, {
                "User-Agent": "vmprof-allocation", **secret, **body.headers})
            response = connection.getresponse()
            data = response.read(_MAX_ANSWER)
            return _judge(response, data, target)
    except ssl.SSLCertVerificationError as error:
        return Outcome(False, "cannot verify its certificate: %s. Set SSL_CERT_FILE to "
                              "a file with trusted certificates" % error.verify_message)
    except ssl.SSLError as error:
        return Outcome(False, "the TLS connection failed (%s)"
                       % (error.reason or "the connection was closed"))
    except socket.gaierror:
        return Outcome(False, "its name is unknown")
    except (TimeoutError, socket.timeout):      # different classes before Python 3.10
        return Outcome(False, "it did not answer in time")
    except OSError as error:
        return Outcome(False, error.strerror or "the connection was closed")
    except http.client.HTTPException:
        return Outcome(False, "the connection was closed, or the answer is not HTTP")
    finally:
        connection.close()


def _connection(target: Target, seconds: float) -> http.client.HTTPConnection:
    if target.is_secure:
        return http.client.HTTPSConnection(
            target.host, target.port, timeout=seconds,
            context=ssl.create_default_context())
    return http.client.HTTPConnection(target.host, target.port, timeout=seconds)


def _judge(response: http.client.HTTPResponse, data: bytes,
           target: Target) -> Outcome:
    status = response.status
    if 200 <= status < 300:
        return Outcome(True, _rejected(data) if target.protocol == "otlp" else "")
    # the message omits the server's text, which may repeat the user's headers
    what = "it answered %d (%s)" % (
        status, http.client.responses.get(status, "unknown"))
    if status in _LATER or status >= 500:
        return Outcome(False, what, retry_after=_retry_after(
            response.getheader("Retry-After")))
    if 300 <= status < 400:
        what += (", but the profiler follows no redirects. Push to the address that "
                 "the redirect leads to")
    return Outcome(False, what, is_final=True)


def _rejected(data: bytes) -> str:
    """Return a message about the rejected profiles of an OTLP response, or "".

    `data` is an ExportProfilesServiceResponse.
    """
    try:
        for field, value in protobuf.fields(data):
            if field == 1 and isinstance(value, bytes):
                count = dict(protobuf.fields(value)).get(1, 0)
                if isinstance(count, int) and count:
                    return "it rejected %d profiles of a segment" % count
    except ValueError:
        pass                # the status says that the profile was accepted
    return ""


def _retry_after(text: str | None) -> float:
    """Return the seconds of a Retry-After header, which is a number or a date.

    The result is 0 if the header is missing or invalid.
    """
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
            seconds = date.timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if math.isfinite(seconds) else 0.0


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after the given time.

    The alarm interrupts any system call, in contrast to a socket's time limit.
    """
    def handler(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
