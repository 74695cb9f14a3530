"""Call a function in a forked child shortly after the fork.

The call happens at the child's first minor collection. PyPy runs the functions of
os.register_at_fork() before it has repaired its state of threads. A thread that such a
function starts would use the state from before the fork, and crash. A child that
allocates very little has no collection, and so no call.
"""
from __future__ import annotations

import sys

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


#: the function that after_fork() set last as a hook of the collector (gc.hooks)
_last: Any = None


def after_fork(function: Callable[[], None]) -> None:
    """Have a function called in this forked child after the fork.

    Call after_fork() from a function of os.register_at_fork(). If the program uses all
    hooks of the collector, `function` is not called.
    """
    global _last
    import gc
    hooks: Any = getattr(gc, "hooks", None)
    # the frame that called fork(); it must have continued when `function` is called
    frame: Any = sys._getframe(2) if _depth() > 2 else None
    where = -1 if frame is None else frame.f_lasti
    for name in "on_gc_minor", "on_gc_collect_step":
        hook = getattr(hooks, name, 1)
        # the hook is _last if this process forked before its own function was called
        if hook is None or hook is _last:
            break
    else:
        return

    def collected(_: object) -> None:
        nonlocal frame
        if frame is not None and frame.f_lasti == where:
            return              # functions of os.register_at_fork() still run
        frame = None
        if getattr(hooks, name) is collected:
            setattr(hooks, name, None)
            function()

    _last = collected
    setattr(hooks, name, collected)


def _depth() -> int:
    """Return the depth of the caller's stack, at most 3."""
    frame, depth = sys._getframe(1), 0
    while frame is not None and depth < 3:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth
