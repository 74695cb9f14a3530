"""Choose an engine for a command, and report a search that takes long."""
from __future__ import annotations

from collections.abc import Callable

from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import PASSING
from vmprof_allocation.settings.settings import Settings

#: message before the search
SEARCHING = ("searching for the garbage collector in this build of PyPy; this is "
             "necessary once, and takes a second or more")


def knowledge(tell: Callable[[str], None], settings: Settings, folder: str = "") -> str:
    """Return Engine.knowledge() for a process to be sampled with these settings.

    Args:
        tell: Receives messages for the user.
        settings: The settings of the run.
        folder: The argument of Engine.knowledge().
    """
    engine = choose_aloud(tell, settings)
    if engine.name == "builtin" and "lifetimes" not in engine.capabilities():
        from vmprof_allocation.engines.builtin.samples import REMARK
        tell(REMARK)
    return engine.knowledge(folder)


def _not_kept(file: str | None, reason: str) -> str:
    """Return the message that the next run searches for the GC again.

    Args:
        file: The cache file that could not be written, or None.
        reason: The reason why the result of this search was not stored.
    """
    if PASSING in reason:
        return ("the next run searches again, because this search was incomplete (%s): "
                "give it more memory or processor time" % reason)
    return ("cannot store the result in %s (%s), so the next run searches again. Set "
            "XDG_CACHE_HOME to another folder" % (
                repr(file) if file else "the user's home", reason or "unknown reason"))


def choose_aloud(tell: Callable[[str], None], settings: Settings) -> Engine:
    """Choose the engine for these settings, and announce a search for the GC.

    Args:
        tell: Receives messages for the user, for example about a search.
        settings: The settings of the run.
    """
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
