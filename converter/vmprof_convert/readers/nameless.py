"""Native functions that nobody can name: those of an interpreter without symbols.

Debian's PyPy is one.  What such a function allocates is what the Python function
does that called it, as it is without native frames; so that is where it is shown.
Those of other libraries stay: which library it was, is known.
"""
from __future__ import annotations

import posixpath

from vmprof_convert.profile.model import NATIVE, Function


def of_interpreter(functions: dict[int, Function],
                   settings: dict[str, str]) -> set[int]:
    """The addresses of these among `functions`; `settings` say which library it
    is: PROFILE.rst."""
    library = settings.get("native", "")
    if not library:
        return set()
    return {address for address, function in functions.items()
            if function.kind == NATIVE and function.name.startswith(library + "+0x")
            and posixpath.basename(function.file) == library}
