"""The choice of an engine by a command, which says why it takes long if it does."""
from __future__ import annotations

from collections.abc import Callable

from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import PASSING
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


def _not_kept(file: str | None, reason: str) -> str:
    """Return the message that the next run searches again."""
    if PASSING in reason:
        return ("the next run searches again, as this search was not complete (%s): "
                "give it more memory or processor time" % reason)
    return ("can't keep the result in %s (%s), and the next run searches again; "
            "XDG_CACHE_HOME names another folder" % (
                repr(file) if file else "the user's home", reason or "unknown reason"))


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
            tell(_not_kept(cached, lookup.not_kept))
    return engine
