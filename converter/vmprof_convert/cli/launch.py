"""Open an output file, or the address of a served profile, in a browser."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from vmprof_convert.cli import streams
from vmprof_convert.cli.streams import OutputError

#: for each command that opens output files, a shell command that installs it
_FROM = {"speedscope": "npm install -g speedscope"}


def check(command: str) -> None:
    """Check before the work starts that a command is installed.

    Raises:
        OutputError: the command is not on the PATH.
    """
    if command and shutil.which(command) is None:
        raise OutputError(
            "--open: the command %s is not on the PATH; get it with `%s`, or leave out "
            "--open" % (command, _FROM[command]))


def launch(path: str, command: str) -> None:
    """Open an output file.

    Args:
        path: the file.
        command: the command that opens it in the browser.  If empty, the file is a page
            for the browser.

    Raises:
        OutputError: the command failed.
    """
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
    """Return whether a graphical browser can be opened.

    A browser in the terminal cannot show the page.
    """
    return (platform in ("darwin", "win32", "cygwin") or any(
        environment.get(name) for name in (
            "DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))


def open_address(address: str) -> bool:
    """Open an address in the browser, and return whether a browser was found."""
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
