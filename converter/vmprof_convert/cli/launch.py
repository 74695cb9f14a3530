"""Open what was written, or is served."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from vmprof_convert.cli import streams
from vmprof_convert.cli.output import OutputError

#: how to get the commands that files are opened with
_FROM = {"speedscope": "npm install -g speedscope"}


def check(command: str) -> None:
    """Raises OutputError if there is no such command: better before the work than
    after it."""
    if command and shutil.which(command) is None:
        raise OutputError(
            "--view: the command %s is not on the PATH; get it with `%s`, or leave out "
            "--view, which writes the file" % (command, _FROM[command]))


def launch(path: str, command: str) -> None:
    """With `command`, which opens a browser and has the page in it; empty: it is a
    page.  Raises OutputError."""
    if command:
        try:
            done = subprocess.run([command, os.path.abspath(path)],
                                  stdin=subprocess.DEVNULL).returncode
        except OSError as error:
            raise OutputError("%s: %s" % (command, error.strerror)) from error
        if done:
            raise OutputError("%s could not open %s: exit code %d" % (
                command, path, done))
        return
    address = Path(os.path.abspath(path)).as_uri()
    opened = has_browser(os.environ, sys.platform) and open_address(address)
    streams.say(("opened %s" if opened else "open this in a browser: %s") % address)


def has_browser(environment: Mapping[str, str], platform: str) -> bool:
    """Whether a browser with windows can be opened.  One in the terminal can't
    show the page."""
    return (platform in ("darwin", "win32", "cygwin") or any(
        environment.get(name) for name in (
            "DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def open_address(address: str) -> bool:
    """Whether a browser was found that opens it."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
