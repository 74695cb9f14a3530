"""A bar on the terminal, for input that takes long."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tqdm import tqdm

#: seconds until a bar appears
DELAY = 1.0


@contextlib.contextmanager
def progress_bar(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that is to be called with what is done and what there
    is in all.  Shows nothing unless stderr is a terminal."""
    with tqdm(desc=what, unit=unit, unit_scale=True, delay=DELAY, leave=False,
              disable=None) as bar:
        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)
        yield report
