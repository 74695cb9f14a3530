"""What is sent of a profile: a request's body, as each engine takes it."""
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
    data: bytes
    #: of a request
    headers: dict[str, str]


#: Makes the body of a profile, which is of this service, and number so and so of its
#: process.  Raises ProfileError if there is nothing in it.
Make = Callable[[Profile, Service, int], Body]


def _otlp(profile: Profile, service: Service, number: int) -> Body:
    out = io.BytesIO()
    otlp.write(profile, out, service.attributes(profile),
               {"vmprof.window": number})
    return Body(_compressed(out.getvalue()), {
        "Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"})


def _pyroscope(profile: Profile, service: Service, number: int) -> Body:
    """A PushRequest.  Each label of a sample would be a series of its own there, so
    that threads and types are left out."""
    labels = {**service.labels(profile), "__name__": "memory",
              # or what is of one window alone would be taken for a sum since the
              # start, and the first one for nothing
              "__delta__": "false", "process.runtime.name": "pypy"}
    series = b"".join(
        protobuf.bytes_field(1, protobuf.text_field(1, name)
                             + protobuf.text_field(2, value))
        for name, value in sorted(labels.items()))
    # sent twice, it is the same
    sample = protobuf.bytes_field(1, _pprof(profile, labels=False)) + (
        protobuf.text_field(2, str(uuid.UUID(bytes=identity(profile)))))
    return Body(protobuf.bytes_field(1, series + protobuf.bytes_field(2, sample)),
                {"Content-Type": "application/proto"})


def _parca(profile: Profile, service: Service, number: int) -> Body:
    """A WriteRawRequest as JSON, which Parca's gateway takes; it knows no compression
    but that of the profile itself."""
    labels = {**service.labels(profile), "__name__": "memory",
              "process_runtime_name": "pypy"}
    return Body(json.dumps({
        "series": [{
            "labels": {"labels": [{"name": name, "value": value}
                                  for name, value in sorted(labels.items())]},
            "samples": [{"rawProfile": base64.b64encode(
                _pprof(profile, labels=True)).decode("ascii")}]}],
        # names, and no addresses
        "normalized": True}, separators=(",", ":")).encode("ascii"), {
            "Content-Type": "application/json"})


def _pprof(profile: Profile, *, labels: bool) -> bytes:
    out = io.BytesIO()
    # arguments stay here: one may be a secret
    pprof.write(dataclasses.replace(profile, command=program_name(profile)), out,
                labels=labels)
    return _compressed(out.getvalue())


def _compressed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


MAKE: dict[str, Make] = {"otlp": _otlp, "pyroscope": _pyroscope, "parca": _parca}
