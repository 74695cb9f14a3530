"""The real OpenTelemetry collector in its own process.

It receives profiles and forwards them to another server.
"""
from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest

from conftest import ROOT

COLLECTOR = ROOT / ".build" / "otelcol" / "otelcol"

# The collector returns the other server's answer: it has no queue and does not retry.
CONFIGURATION = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:%d
exporters:
  otlp_http:
    endpoint: http://127.0.0.1:%d
    encoding: %s
    sending_queue:
      enabled: false
    retry_on_failure:
      enabled: false
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [otlp_http]
"""


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Collector:
    """A context manager that runs the collector."""

    def __init__(self, folder: Path, port: int, behind: int, encoding: str) -> None:
        """Write the collector's configuration file.

        Args:
            folder: Receives the configuration and the log of the collector.
            port: The port on which the collector listens.
            behind: The port of the server that receives the profiles.
            encoding: The encoding of the forwarded profiles, json or proto.
        """
        if not COLLECTOR.exists():
            pytest.fail("%s is missing: run `make %s`" % (
                COLLECTOR, COLLECTOR.relative_to(ROOT)))
        self._configuration = folder / "collector.yaml"
        self._configuration.write_text(CONFIGURATION % (port, behind, encoding))
        self._log = folder / "collector.log"

    def __enter__(self) -> Collector:
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                [str(COLLECTOR), "--config", str(self._configuration),
                 "--feature-gates=+service.profilesSupport"], stdout=out, stderr=out)
        until = time.monotonic() + 60
        while "Everything is ready" not in self.log():
            if self._process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise AssertionError(self.log())
            time.sleep(0.05)
        return self

    def log(self) -> str:
        return self._log.read_text()

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
