"""Programs that do at random what users do one at a time: on PyPy."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable

from builds import Build


@dataclasses.dataclass
class Done:
    name: str
    result: str
    is_good: bool


PROGRAMS: list[Callable[[Build], Done]] = []
