"""Call a function in a forked child shortly after the fork.

The call happens at the child's first minor collection. PyPy runs the functions of
os.register_at_fork() before it has repaired its own threads. A thread that is started
there uses the state from before the fork, and crashes. A child that allocates next to
nothing has no collection, and so no call.
"""
from __future__ import annotations

import sys

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


#: the hook that after_fork() set last
_last: Any = None


def after_fork(function: Callable[[], None]) -> None:
    """Have a function called in this forked child after the fork.

    Call this from a function of os.register_at_fork(). If the program uses all hooks of
    the collector, the function is not called.
    """
    global _last
    import gc
    hooks: Any = getattr(gc, "hooks", None)
    # frame of the caller of fork, which must have continued before the call
    frame: Any = sys._getframe(2) if _depth() > 2 else None
    where = -1 if frame is None else frame.f_lasti
    for name in "on_gc_minor", "on_gc_collect_step":
        hook = getattr(hooks, name, 1)
        # it is _last if this process forked before its own call happened
        if hook is None or hook is _last:
            break
    else:
        return

    def collected(_: object) -> None:
        nonlocal frame
        if frame is not None and frame.f_lasti == where:
            return              # other functions of os.register_at_fork() still run
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
