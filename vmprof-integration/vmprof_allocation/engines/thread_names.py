"""What the program calls its threads, and how it was called itself.

Nothing of the program's is run: a name may be a property of a class of its own.
"""
from __future__ import annotations

import os
import sys

# nothing that is not needed: see engines/base.py

#: options of the interpreter that have their value behind them
_WITH_VALUE = ("-W", "-X", "-Q", "--jit", "--check-hash-based-pycs")
#: threads of a kind: a program may have started any number
_MOST = 2000
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                  "@%+=:,./-_")


def of_threads() -> list[tuple[int, str]]:
    """Of each thread that `threading` still knows, what the kernel numbers it, and
    its name."""
    module = sys.modules.get("threading")
    try:
        # Those that ended are known until a collection finds them.  The kernel may
        # have given their numbers to others, which come later.
        threads = [*vars(module)["_dangling"]][-_MOST:]
        threads += [*vars(module)["_active"].values()][-_MOST:]
        result = [(vars(thread).get("_native_id"), vars(thread).get("_name"))
                  for thread in threads]
    except Exception:
        return []           # it is not there, or not what it was
    return [(number, name) for number, name in result
            if type(number) is int and number > 0 and type(name) is str]


def for_native(name: str) -> bytes:
    """A name for C, where it ends with its first zero."""
    return name.replace("\0", "?").encode("utf-8", "replace")


def of_command() -> str:
    """The script and its arguments, as the system has them; empty: not known."""
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
    # as shlex.quote(), which has to be imported
    if argument and _SAFE.issuperset(argument):
        return argument
    return "'" + argument.replace("'", "'\"'\"'") + "'"
