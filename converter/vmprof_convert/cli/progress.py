"""A bar on the terminal, for input that takes long."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

#: seconds until a bar appears
DELAY = 1.0


@contextlib.contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that is to be called with what is done and what there
    is in all.  Shows nothing unless stderr is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    # takes as long to load as a small profile to convert
    from tqdm import tqdm
    with tqdm(desc=what, unit=unit, unit_scale=True, delay=DELAY,
              leave=False) as bar:
        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
        yield report
