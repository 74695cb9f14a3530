"""Describe the service that is profiled, by attributes or by labels.

A server distinguishes services by these values.  protocols.py puts the values into
each request.
"""
from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from vmprof_convert.profile.identity import program_name
from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import shortened

#: OpenTelemetry's variables, which many services already set
_NAME, _ATTRIBUTES = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"


class Service(NamedTuple):
    """The service's name, version, host, and further attributes."""

    #: name, or "" to use the name of the profile's script
    name: str
    #: version, or "" if it is unknown
    version: str
    host: str
    #: further attributes of OTEL_RESOURCE_ATTRIBUTES
    more: Mapping[str, str]

    def attributes(self, profile: Profile) -> dict[str, str | int]:
        """Return the resource attributes by their OpenTelemetry names."""
        found: dict[str, str | int] = {
            **self.more, "service.name": self.name or _program(profile),
            "host.name": self.host, "process.runtime.name": "pypy"}
        if self.version:
            found["service.version"] = self.version
        if profile.pid:
            found["process.pid"] = profile.pid
        return found

    def labels(self, profile: Profile) -> dict[str, str]:
        """Return the same values by names that are valid for Prometheus labels."""
        found = {re.sub("[^a-zA-Z0-9_]", "_", key): value
                 for key, value in self.more.items()}
        found.update(service_name=self.name or _program(profile), host=self.host)
        if self.version:
            found["version"] = self.version
        if profile.pid:
            found["pid"] = str(profile.pid)
        return found


def read(name: str, version: str,
         environment: Mapping[str, str] = os.environ) -> Service:
    """Return the service, with values of the environment for empty arguments."""
    more = {}
    for pair in environment.get(_ATTRIBUTES, "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            more[shortened(unquote(key.strip()))] = shortened(unquote(value.strip()))
    named = more.pop("service.name", "")
    version = version or more.pop("service.version", "")
    more.pop("service.version", None)
    host = more.pop("host.name", "") or socket.gethostname()
    return Service(shortened(name or environment.get(_NAME, "") or named),
                   shortened(version), shortened(host), more)


def _program(profile: Profile) -> str:
    return program_name(profile) or "unknown_service"
