"""Native functions without names, in an interpreter without symbols such as Debian's.

The readers remove these functions from the stacks. Their allocations then count for the
Python function that called them, as in a profile without native frames. Functions of
other libraries stay, because their library is known.
"""
from __future__ import annotations

import posixpath

from vmprof_convert.profile.model import NATIVE, Function


def of_interpreter(functions: dict[int, Function],
                   settings: dict[str, str]) -> set[int]:
    """Return the addresses of the interpreter's functions without names.

    Args:
        functions: All functions of a profile, by their addresses.
        settings: Settings of the profile; "native" is the name of the interpreter's
            library (PROFILE.rst).
    """
    library = settings.get("native", "")
    if not library:
        return set()
    return {address for address, function in functions.items()
            if function.kind == NATIVE and function.name.startswith(library + "+0x")
            and posixpath.basename(function.file) == library}
