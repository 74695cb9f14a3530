"""What a forked child does a moment after the fork: at its first minor collection.

PyPy calls what os.register_at_fork() was given before it has made its own threads
good again: one that is started there meets what the fork left, and crashes.  A child
that allocates next to nothing does nothing at all.
"""
from __future__ import annotations

import sys

# import only what is needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


#: the hook that was set last
_last: Any = None


def after_fork(function: Callable[[], None]) -> None:
    """Called by what os.register_at_fork() calls in the child: have `function` called
    when the fork is over.  Where the program has all hooks of the collector for
    itself, it is not."""
    global _last
    import gc
    hooks: Any = getattr(gc, "hooks", None)
    # the one that forked: that call has to be over
    frame: Any = sys._getframe(2) if _depth() > 2 else None
    where = -1 if frame is None else frame.f_lasti
    for name in "on_gc_minor", "on_gc_collect_step":
        hook = getattr(hooks, name, 1)
        # or the process that forked is a child itself, and did nothing as yet
        if hook is None or hook is _last:
            break
    else:
        return

    def collected(_: object) -> None:
        nonlocal frame
        if frame is not None and frame.f_lasti == where:
            return              # other functions of the kind are being called
        frame = None
        if getattr(hooks, name) is collected:
            setattr(hooks, name, None)
            function()

    _last = collected
    setattr(hooks, name, collected)


def _depth() -> int:
    """Of the caller's stack, as far as it matters."""
    frame, depth = sys._getframe(1), 0
    while frame is not None and depth < 3:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth
