"""One request, and what became of it."""
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

#: who answers a byte at a time is slow, too: all of it takes so many steps at most
_STEPS = 3
#: of an answer so many bytes are read
_MAX_ANSWER = 4096
#: at most so long an engine may have us wait
MAX_RETRY_AFTER = 300.0
#: it may be other the next time; so may all from 500 on
_LATER = frozenset((408, 425, 429))


class Outcome(NamedTuple):
    is_sent: bool
    #: why not; or what the engine said although it took it
    problem: str = ""
    #: it makes no sense to send it again
    is_final: bool = False
    #: seconds that the engine asks for
    retry_after: float = 0.0


def send(target: Target, body: Body, secret: dict[str, str],
         seconds: float) -> Outcome:
    """`seconds`: what a step of it may take.

    No redirect is followed, and nothing that the engine answers is passed on:
    either could take `secret`, the headers of the user's, somewhere."""
    connection = _connection(target, seconds)
    try:
        with _alarm(_STEPS * seconds):
            connection.request("POST", target.path, body.data, {
                "User-Agent": "vmprof-allocation", **secret, **body.headers})
            response = connection.getresponse()
            data = response.read(_MAX_ANSWER)
            return _judge(response, data, target)
    except ssl.SSLCertVerificationError as error:
        return Outcome(False, "its certificate can't be trusted: %s (SSL_CERT_FILE "
                              "names a file of those that can)" % error.verify_message)
    except ssl.SSLError as error:
        return Outcome(False, "it does not speak TLS as we do (%s)"
                       % (error.reason or "the connection was cut"))
    except socket.gaierror:
        return Outcome(False, "its name is not known")
    except (TimeoutError, socket.timeout):      # two things before Python 3.10
        return Outcome(False, "it takes too long to answer")
    except OSError as error:
        return Outcome(False, error.strerror or "the connection was cut")
    except http.client.HTTPException:
        return Outcome(False, "the connection was cut, or what it answers is no HTTP")
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
    # not in the engine's own words, which may repeat what it was sent
    what = "it answers %d (%s)" % (
        status, http.client.responses.get(status, "not known"))
    if status in _LATER or status >= 500:
        return Outcome(False, what, retry_after=_retry_after(
            response.getheader("Retry-After")))
    if 300 <= status < 400:
        what += ", which is not followed: ask for the address that it leads to"
    return Outcome(False, what, is_final=True)


def _rejected(data: bytes) -> str:
    """What an ExportProfilesServiceResponse says of profiles that were not taken."""
    try:
        for field, value in protobuf.fields(data):
            if field == 1 and isinstance(value, bytes):
                count = dict(protobuf.fields(value)).get(1, 0)
                if isinstance(count, int) and count:
                    return "it rejected %d profiles of a window" % count
    except ValueError:
        pass                # it took it, whatever it says
    return ""


def _retry_after(text: str | None) -> float:
    """Seconds, or a date."""
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
    """TimeoutError after that time, whatever it waits for."""
    def handler(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
