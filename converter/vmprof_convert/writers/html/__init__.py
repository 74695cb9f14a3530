"""One page that needs nothing else: the profile, and what draws it.

``table`` is what the page's script reads (``converter/page/page.js``, bundled with
d3-flame-graph by ``make .build/page``); here, it becomes a file.
"""
from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Callable
from typing import Any, BinaryIO

from vmprof_convert import stack_values
from vmprof_convert.diff import Difference
from vmprof_convert.diff_sheet import Names
from vmprof_convert.errors import ProfileError
from vmprof_convert.model import Profile
from vmprof_convert.writers.html import table

#: beside this file, if it was made
SCRIPT = "bundle.js"

# Nothing is loaded from anywhere, and no other script runs, whatever names say.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'sha256-%s'">
<title>%s</title>
</head>
<body>
<noscript>This page is drawn by its own script, which is turned off.</noscript>
<script type="application/json" id="profile">%s</script>
<script>"""


def write(profile: Profile, out: BinaryIO,
          progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Returns what is left out.  Raises ProfileError."""
    stack_values.check_samples(profile)
    if not (any(profile.samples.size) or profile.samples.carried):
        raise ProfileError("has no allocation samples, and the page shows nothing else")
    _write(table.make(profile, progress), out)
    return stack_values.left_out(
        profile, stack_values.THREADS, stack_values.PROCESSES, stack_values.TICKS,
        stack_values.LABELS, has_times=True)


def write_diff(difference: Difference, names: Names,
               out: BinaryIO) -> list[str]:
    """In colours: what grew, what shrank, and what may be chance; `names`: of what is
    compared.  Returns what is left out."""
    _write(table.make_diff(difference, names), out)
    return stack_values.left_out(
        difference.sides.after[-1], stack_values.THREADS, stack_values.PROCESSES,
        stack_values.TICKS, stack_values.LABELS)


def _write(data: dict[str, Any], out: BinaryIO) -> None:
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode("ascii")
    out.write((_PAGE % (digest, _text(data["title"]), _data(data))).encode("utf-8"))
    out.write(script)
    out.write(b"</script>\n</body>\n</html>\n")


def _script() -> bytes:
    path = importlib.resources.files(__name__).joinpath(SCRIPT)
    if not path.is_file():
        raise ProfileError("the page needs a script that is not installed: `make page` "
                           "before `pip install ./converter` brings it")
    script = path.read_bytes()
    # it would end there, and an unusual beginning would hide its end
    assert b"</script" not in script.lower() and b"<!--" not in script
    return script


def _data(data: object) -> str:
    """JSON in which nothing is HTML."""
    return json.dumps(data, separators=(",", ":")).replace("&", "\\u0026").replace(
        "<", "\\u003c").replace(">", "\\u003e")


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
