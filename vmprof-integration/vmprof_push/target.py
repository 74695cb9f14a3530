"""Parse the address of the server that receives profiles.

The scheme of the address names the protocol and the transport, for example otlp+http.
start.py checks the user's address with `Target`, and the pusher sends to the target.
"""
from __future__ import annotations

from vmprof_allocation.errors import WrongType, WrongValue
from vmprof_allocation.settings.parsing import parse_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from urllib.parse import SplitResult

#: path of each protocol's requests on the server
PATHS = {"otlp": "/v1development/profiles",
         "pyroscope": "/push.v1.PusherService/Push",
         "parca": "/profiles/writeraw"}
_FORMS = ("write for example otlp+http://localhost:4318, "
          "pyroscope+https://pyroscope.example.org or parca+http://localhost:7070")
#: limits of the time between two segments, in seconds
MIN_EVERY, MAX_EVERY = 0.05, 86400.0
#: default time between two segments, in seconds, as in Pyroscope's own clients; its
#: graphs have a point for each 15 seconds
DEFAULT_EVERY = 15.0


class Target:
    """A parsed address: protocol, transport, host, port, and path."""

    __slots__ = ("host", "is_secure", "path", "port", "protocol")

    def __init__(self, url: object) -> None:
        """Parse the address.

        No message repeats the whole address, because the address may contain a
        password, which would then be in a log.

        Raises:
            AllocationSamplingError: The address is invalid.
        """
        if not isinstance(url, str):
            raise WrongType("invalid address to push to: it is not text; %s" % _FORMS)
        from urllib.parse import urlsplit
        try:
            parts = urlsplit(url)
            self.port = parts.port
        except ValueError:
            raise WrongValue(
                "invalid address to push to: %s" % _FORMS) from None
        protocol, _, transport = parts.scheme.partition("+")
        if protocol not in PATHS or transport not in ("http", "https"):
            raise WrongValue("invalid address to push to: it begins with %r, which is "
                             "not a known protocol; %s" % (parts.scheme[:40], _FORMS))
        self.protocol = protocol
        self.is_secure = transport == "https"
        self._check(parts)
        self.host = parts.hostname or ""
        path = parts.path.rstrip("/")
        self.path = path if path.endswith(PATHS[protocol]) else path + PATHS[protocol]

    def _check(self, parts: SplitResult) -> None:
        if parts.username is not None or parts.password is not None:
            raise WrongValue(
                "invalid address to push to: it contains a user or a password, which "
                'each list of processes would show. Write "Authorization: ..." into a '
                "file, and set VMPROF_PUSH_HEADERS_FILE to its name")
        if parts.query or parts.fragment:
            raise WrongValue(
                "invalid address to push to: it has a query or a fragment after its "
                "path, which no engine reads (and which is not safe for a secret); "
                "%s" % _FORMS)
        if not parts.hostname or not (parts.hostname + parts.path).isascii() or any(
                not c.isprintable() or c == " " for c in parts.netloc + parts.path):
            raise WrongValue(
                "invalid address to push to: its host is invalid; %s" % _FORMS)

    def __str__(self) -> str:
        """Return the address for messages, without the path.

        The path may contain the name of a tenant.
        """
        port = "" if self.port is None else ":%d" % self.port
        host = "[%s]" % self.host if ":" in self.host else self.host
        return "http%s://%s%s" % ("s" * self.is_secure, host, port)


def parse_every(value: object) -> float:
    """Return the time between two segments in seconds.

    Raises:
        AllocationSamplingError: The value is not a time within the limits.
    """
    return parse_seconds(value, "time between two pushes", MIN_EVERY, MAX_EVERY,
                         "Write for example 15, or omit it")
