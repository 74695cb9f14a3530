"""Read single keys from the terminal, for the command live."""
from __future__ import annotations

import os
import select
import sys
import termios
import tty
from typing import Any


class Keys:
    """A context manager during which the terminal passes on each key at once.

    If stdin is another kind of file, no key arrives.
    """

    def __init__(self, is_wanted: bool) -> None:
        """Find out whether stdin is the terminal of this foreground process.

        Args:
            is_wanted: whether the caller uses keys.
        """
        self.are_possible = (is_wanted and sys.stdin is not None and sys.stdin.isatty()
                             and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp())
        self._before: list[Any] | None = None

    def __enter__(self) -> Keys:
        """Change the mode of the terminal; Ctrl-C remains a signal."""
        if self.are_possible:
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the mode of the terminal."""
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Wait for a key.

        Args:
            seconds: the time to wait.

        Returns:
            The key, or "" if no key arrives in time.
        """
        found, _, _ = select.select([self._fd] if self._before is not None else [], [],
                                    [], max(0.0, seconds))
        if not found:
            return ""
        text = os.read(self._fd, 1).decode("latin-1")
        if not text:
            self._before, before = None, self._before
            if before is not None:      # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)
        return text
