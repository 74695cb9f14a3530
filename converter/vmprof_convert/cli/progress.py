"""A progress bar on the terminal, for profiles that take long to read or convert."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from time import monotonic

#: seconds until a bar appears
DELAY = 1.0


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal.

    Args:
        what: the text before the bar.

    Yields:
        A function that takes the finished amount and the total amount.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    begin = monotonic() + DELAY
    with contextlib.ExitStack() as stack:
        update: Callable[[int, int], None] | None = None

        def report(done: int, total: int) -> None:
            nonlocal update
            if update is None and monotonic() >= begin:
                update = _begin(what, stack)
            if update is not None:
                update(done, total)
        yield report


def _begin(what: str, stack: contextlib.ExitStack) -> Callable[[int, int], None]:
    # importing rich takes longer than converting a small profile
    from rich.console import Console
    from rich.progress import Progress
    bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
    task = bar.add_task(what)
    return lambda done, total: bar.update(task, completed=done, total=total)
