"""The real OpenTelemetry collector, in a process of its own: it passes profiles on to
another engine."""
from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest

from conftest import ROOT

COLLECTOR = ROOT / ".build" / "otelcol" / "otelcol"

# Each answer is the one that the engine behind it gave: nothing waits here, and
# nothing is tried again.
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Collector:
    """A context manager."""

    def __init__(self, folder: Path, port: int, behind: int, encoding: str) -> None:
        """`port` is its own, `behind` the other engine's; `encoding`, of what is passed
        on: json or proto."""
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
