"""The choice of an engine by a command, which says why it takes long if it does."""
from __future__ import annotations

from collections.abc import Callable

from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.settings.settings import Settings

SEARCHING = ("looking for the garbage collector in this build of PyPy, once; that "
             "takes a second or more")


def knowledge(tell: Callable[[str], None], settings: Settings, folder: str = "") -> str:
    """Engine.knowledge() for the process that is to be sampled with these settings."""
    engine = choose_aloud(tell, settings)
    if engine.name == "builtin" and "lifetimes" not in engine.capabilities():
        from vmprof_allocation.engines.builtin.samples import REMARK
        tell(REMARK)
    return engine.knowledge(folder)


def choose_aloud(tell: Callable[[str], None], settings: Settings) -> Engine:
    """choose() for these settings; `tell` gets what the user may want to know."""
    from vmprof_allocation.engines.hook.discovery import cache, lookup
    searched: list[str | None] = []

    def searching(cached: str | None) -> None:
        searched.append(cached)
        tell(SEARCHING)

    lookup.searching = searching
    engine = choose(hook=settings.needs_hook)
    for cached in searched:
        if cached is None or cache.load(cached) is None:
            tell("what was found can't be kept in %s, and will be looked for "
                 "again each time; XDG_CACHE_HOME names another folder"
                 % (repr(cached) if cached else "the user's home, as there is none"))
    return engine
