"""From files to the model."""
from __future__ import annotations

from vmprof_convert.readers.vmprof import read, read_bytes, read_into

__all__ = ["read", "read_bytes", "read_into"]
