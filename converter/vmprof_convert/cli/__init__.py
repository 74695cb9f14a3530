"""The commands of vmprof-convert, and the files and pages that they make."""
from __future__ import annotations

from vmprof_convert.cli.command import main

__all__ = ["main"]
