"""The command line of vmprof-convert: options, commands and output files."""
from __future__ import annotations

from vmprof_convert.cli.command import main

__all__ = ["main"]
