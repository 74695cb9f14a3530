"""Make a request's body from a profile, in the form that each kind of server accepts.

`MAKE` has a function for each protocol of target.py.  __main__.py calls the function
with a segment's profile, and sending.py sends the result.
"""
from __future__ import annotations

import base64
import dataclasses
import gzip
import io
import json
import uuid
from collections.abc import Callable
from typing import NamedTuple

from vmprof_convert.profile.identity import identity, program_name
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers import otlp, pprof, protobuf
from vmprof_push.service import Service


class Body(NamedTuple):
    """The body of an HTTP request, with the headers that describe the body."""

    data: bytes
    headers: dict[str, str]


#: Makes the body from a profile, its service, and the segment's number in its process.
#: Raises ProfileError if the profile is empty.
Make = Callable[[Profile, Service, int], Body]


def _otlp(profile: Profile, service: Service, number: int) -> Body:
    out = io.BytesIO()
    otlp.write(profile, out, service.attributes(profile),
               {"vmprof.window": number})
    return Body(_compressed(out.getvalue()), {
        "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"})


def _pyroscope(profile: Profile, service: Service, number: int) -> Body:
    """Return Pyroscope's PushRequest.

    Threads and types are left out, because Pyroscope makes a separate series from
    each label of a sample.
    """
    labels = {**service.labels(profile), "__name__": "memory",
              # The values belong to one segment.  By default, Pyroscope takes values
              # for sums since the start, and ignores the first profile.
              "__delta__": "false", "process.runtime.name": "pypy"}
    series = b"".join(
        protobuf.bytes_field(1, protobuf.text_field(1, name)
                             + protobuf.text_field(2, value))
        for name, value in sorted(labels.items()))
    # the identity lets Pyroscope recognise a segment that is sent twice
    sample = protobuf.bytes_field(1, _pprof(profile, labels=False)) + (
        protobuf.text_field(2, str(uuid.UUID(bytes=identity(profile)))))
    return Body(protobuf.bytes_field(1, series + protobuf.bytes_field(2, sample)),
                {"Content-Type": "application/proto"})


def _parca(profile: Profile, service: Service, number: int) -> Body:
    """Return Parca's WriteRawRequest as JSON for its HTTP gateway.

    Only the profile within the request is compressed, because the gateway does not
    accept compressed requests.
    """
    labels = {**service.labels(profile), "__name__": "memory",
              "process_runtime_name": "pypy"}
    return Body(json.dumps({
        "series": [{
            "labels": {"labels": [{"name": name, "value": value}
                                  for name, value in sorted(labels.items())]},
            "samples": [{"rawProfile": base64.b64encode(
                _pprof(profile, labels=True)).decode("ascii")}]}],
        # the profile has function names instead of addresses
        "normalized": True}, separators=(",", ":")).encode("ascii"), {
            "Content-Type": "application/json"})


def _pprof(profile: Profile, *, labels: bool) -> bytes:
    out = io.BytesIO()
    # the command's arguments are not sent, because one may be a secret
    pprof.write(dataclasses.replace(profile, command=program_name(profile)), out,
                labels=labels)
    return _compressed(out.getvalue())


def _compressed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


#: for each protocol, the function that makes the body
MAKE: dict[str, Make] = {"otlp": _otlp, "pyroscope": _pyroscope, "parca": _parca}
