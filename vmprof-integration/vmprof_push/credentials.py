"""Read the HTTP headers with the user's credentials.

The headers come from the environment, or from a file.  The file is read before each
request, so that the user can change a secret.  No message and no profile contains a
header's value.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from vmprof_allocation.errors import WrongValue

#: variable with name=value pairs, separated by commas; values are percent-encoded
VARIABLE = "VMPROF_PUSH_HEADERS"
#: OpenTelemetry's variable of the same form, read for the protocol otlp only
OTLP_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
#: variable with the path of a file, each line of which is "Name: value"
FILE_VARIABLE = "VMPROF_PUSH_HEADERS_FILE"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
#: headers that this package sets, in lower case
_OURS = frozenset(("content-type", "content-encoding", "content-length", "host",
                   "transfer-encoding", "connection"))
#: largest number of bytes that are read from the file with headers
_MAX_FILE = 65536


def read(protocol: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers as a dict from name to value.

    A later source replaces a header of an earlier one.  The order is
    `OTLP_VARIABLE`, `VARIABLE`, the file.

    Raises:
        AllocationSamplingError: A header is malformed or reserved, or the file is
            unreadable.  The message contains no part of a value.
    """
    found: dict[str, str] = {}
    for variable in (OTLP_VARIABLE, VARIABLE):
        if variable == OTLP_VARIABLE and protocol != "otlp":
            continue
        for pair in environment.get(variable, "").split(","):
            name, equals, value = pair.partition("=")
            if pair.strip():
                _add(found, variable, name, unquote(value) if equals else None)
    path = environment.get(FILE_VARIABLE, "")
    if path:
        for line in _lines(path):
            name, colon, value = line.partition(":")
            if line.strip():
                _add(found, "the file of " + FILE_VARIABLE, name,
                     value if colon else None)
    return found


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE).decode("latin-1").splitlines()
    except OSError as error:
        raise WrongValue("cannot read the file of %s: %s"
                         % (FILE_VARIABLE, error.strerror)) from None


def _add(found: dict[str, str], where: str, name: str, value: str | None) -> None:
    name, value = name.strip(), None if value is None else value.strip()
    if value is None or not _NAME.fullmatch(name):
        raise WrongValue("invalid header in %s (the value is not shown): write a name "
                         "and a value" % where)
    if any(not " " <= c <= "~" for c in value):
        raise WrongValue("%s: the value of the header %s has invalid "
                         "characters" % (where, name))
    if name.lower() in _OURS:
        raise WrongValue("%s: the profiler sets the header %s itself. Omit it"
                         % (where, name))
    found[name] = value
