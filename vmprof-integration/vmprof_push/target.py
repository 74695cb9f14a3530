"""Where profiles go: an address, of which the scheme says how."""
from __future__ import annotations

from vmprof_allocation.errors import WrongType, WrongValue
from vmprof_allocation.settings.parsing import parse_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from urllib.parse import SplitResult

#: where each protocol's engine takes profiles
PATHS = {"otlp": "/v1development/profiles",
         "pyroscope": "/push.v1.PusherService/Push",
         "parca": "/profiles/writeraw"}
_FORMS = ("write for example otlp+http://localhost:4318, "
          "pyroscope+https://pyroscope.example.org or parca+http://localhost:7070")
#: seconds between two of them
MIN_EVERY, MAX_EVERY = 0.05, 86400.0
#: As Pyroscope's own clients: its graphs have a point for each 15 seconds
DEFAULT_EVERY = 15.0


class Target:
    __slots__ = ("host", "is_secure", "path", "port", "protocol")

    def __init__(self, url: object) -> None:
        """Raises AllocationSamplingError.  No message has the address as it is:
        who writes a password into it would find that in a log."""
        if not isinstance(url, str):
            raise WrongType("the address to push to is no text; %s" % _FORMS)
        from urllib.parse import urlsplit
        try:
            parts = urlsplit(url)
            self.port = parts.port
        except ValueError:
            raise WrongValue(
                "the address to push to is not understood; %s" % _FORMS) from None
        protocol, _, transport = parts.scheme.partition("+")
        if protocol not in PATHS or transport not in ("http", "https"):
            raise WrongValue("the address to push to begins with %r, which says no "
                             "known protocol; %s" % (parts.scheme[:40], _FORMS))
        self.protocol = protocol
        self.is_secure = transport == "https"
        self._check(parts)
        self.host = parts.hostname or ""
        path = parts.path.rstrip("/")
        self.path = path if path.endswith(PATHS[protocol]) else path + PATHS[protocol]

    def _check(self, parts: SplitResult) -> None:
        if parts.username is not None or parts.password is not None:
            raise WrongValue(
                "the address to push to holds a user or a password, which would be "
                "seen by all who list processes; put \"Authorization: ...\" into a "
                "file, and its name into VMPROF_PUSH_HEADERS_FILE")
        if parts.query or parts.fragment:
            raise WrongValue(
                "the address to push to has something behind its path, which no "
                "engine reads (and which would be no place for a secret); %s" % _FORMS)
        if not parts.hostname or not (parts.hostname + parts.path).isascii() or any(
                not c.isprintable() or c == " " for c in parts.netloc + parts.path):
            raise WrongValue(
                "the address to push to names no host that can be; %s" % _FORMS)

    def __str__(self) -> str:
        """For messages: without the path, which may tell a tenant."""
        port = "" if self.port is None else ":%d" % self.port
        host = "[%s]" % self.host if ":" in self.host else self.host
        return "http%s://%s%s" % ("s" * self.is_secure, host, port)


def parse_every(value: object) -> float:
    """Seconds; raises AllocationSamplingError."""
    return parse_seconds(value, "the time between two pushes", MIN_EVERY, MAX_EVERY,
                         "write for example 15, or leave it out")
