"""The commands, from files to what is written, on the terminal and in the browser."""
from __future__ import annotations

from vmprof_convert.cli.command import main

__all__ = ["main"]
