"""The writer of an HTML page that shows a profile, or the difference of two.

The page contains the data (table.py), the script and the styles of this folder, and
loads nothing else. So users can mail the page, and open it in ten years.
"""
from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Callable
from typing import Any, BinaryIO

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.diff import Difference
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile
from vmprof_convert.report.diff_tables import Names
from vmprof_convert.writers.html import table

#: parts of the page's script, each after the parts that it needs
SCRIPTS = ("sums.js", "looks.js", "tip.js", "chart.js", "timeline.js", "page.js")
STYLE = "page.css"

# The content security policy forbids to load anything and to run other scripts, even if
# a name in the profile contains HTML.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'sha256-%s'">
<title>%s</title>
<style>
%s</style>
</head>
<body>
<noscript>JavaScript is turned off, but this page needs its script.</noscript>
<script type="application/json" id="profile">%s</script>
<script>"""


def write(profile: Profile, out: BinaryIO,
          progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Write a page that shows a profile.

    Args:
        profile: The profile.
        out: The file.
        progress: A function that is called now and then with the number of converted
            groups of samples and the number of all groups.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: The profile has no allocation samples.
    """
    by_stack.check_samples(profile)
    if not (any(profile.samples.size) or profile.samples.carried):
        raise ProfileError("has no allocation samples, and the page shows nothing else")
    _write(table.make(profile, progress), out)
    return by_stack.left_out(
        profile, by_stack.THREADS, by_stack.PROCESSES, by_stack.TICKS,
        by_stack.LINES, by_stack.LABELS, has_times=True)


def write_diff(difference: Difference, names: Names,
               out: BinaryIO) -> list[str]:
    """Write a page that shows increases, decreases, and changes that may be random.

    Args:
        difference: The difference.
        names: The names of the compared profiles.
        out: The file.

    Returns:
        A line that lists the omitted data, if there are any.
    """
    _write(table.make_diff(difference, names), out)
    return by_stack.left_out(
        difference.sides.after[-1], by_stack.THREADS, by_stack.PROCESSES,
        by_stack.TICKS, by_stack.LINES, by_stack.LABELS)


def _write(data: dict[str, Any], out: BinaryIO) -> None:
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    out.write((_PAGE % (digest, _text(data["title"]), _part(STYLE), _data(data))
               ).encode("utf-8"))
    out.write(script.encode("utf-8"))
    out.write(b"</script>\n</body>\n</html>\n")


def _script() -> str:
    return '\n"use strict";\n%s' % "\n".join(map(_part, SCRIPTS))


def _part(name: str) -> str:
    return importlib.resources.files(__name__).joinpath(name).read_text("utf-8")


def _data(data: object) -> str:
    """Return JSON text without characters that have a meaning in HTML."""
    return json.dumps(data, separators=(",", ":")).replace("&", "\\u0026").replace(
        "<", "\\u003c").replace(">", "\\u003e")


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
