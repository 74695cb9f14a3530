"""A bar on the terminal, for input that takes long."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

#: seconds until a bar appears
DELAY = 1.0


@contextlib.contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal.

    Args:
        what: the text before the bar.
        unit: the unit of the amounts.

    Yields:
        A function that takes the finished amount and the total amount.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    # importing tqdm takes as long as converting a small profile
    from tqdm import tqdm
    with tqdm(desc=what, unit=unit, unit_scale=True, delay=DELAY,
              leave=False) as bar:
        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
        yield report
