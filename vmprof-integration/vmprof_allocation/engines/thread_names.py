"""The names of the program's threads, and the program's command line.

The functions run no code of the program, because a thread's name may be a property of
a class that the program defines.
"""
from __future__ import annotations

import os
import sys

# Import only necessary modules (engines/base.py).

#: options of the interpreter whose next argument is their value
_WITH_VALUE = ("-W", "-X", "-Q", "--jit", "--check-hash-based-pycs")
#: largest number of threads from each of the two lists of `threading`
_MOST = 2000
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                  "@%+=:,./-_")


def of_threads() -> list[tuple[int, str]]:
    """Return the kernel's thread ID and the name of each thread of `threading`."""
    module = sys.modules.get("threading")
    try:
        # Finished threads are listed until a collection finds them.  The kernel may
        # have given their IDs to newer threads, which come later in the list.
        threads = [*vars(module)["_dangling"]][-_MOST:]
        threads += [*vars(module)["_active"].values()][-_MOST:]
        result = [(vars(thread).get("_native_id"), vars(thread).get("_name"))
                  for thread in threads]
    except Exception:
        return []           # `threading` is not imported, or was changed
    return [(number, name) for number, name in result
            if type(number) is int and number > 0 and type(name) is str]


def for_native(name: str) -> bytes:
    """Encode a name for C, in which the first zero byte would end the name."""
    return name.replace("\0", "?").encode("utf-8", "replace")


def of_command() -> str:
    """Return the script and its arguments as a shell command, or "" if unknown.

    The source is /proc/self/cmdline.
    """
    try:
        with open("/proc/self/cmdline", "rb") as file:
            arguments = os.fsdecode(file.read()).split("\0")[1:-1]
    except OSError:
        return ""
    while arguments and arguments[0].startswith("-") and arguments[0] not in (
            "-", "-c", "-m"):
        option = arguments.pop(0)
        if option in _WITH_VALUE:
            del arguments[:1]
    return " ".join(map(_quoted, arguments))


def _quoted(argument: str) -> str:
    # the same as shlex.quote(), without its import
    if argument and _SAFE.issuperset(argument):
        return argument
    return "'" + argument.replace("'", "'\"'\"'") + "'"
