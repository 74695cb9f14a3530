"""What the program says of its work, such as which route of a server it answers: labels
of what is allocated meanwhile.

They are kept in a context variable, so that they are those of a task of asyncio as
well as of a thread; the engine gets the number of a set when it changes.  PyPy's
contexts are Python code: while a labelled program is sampled, the function that enters
one tells the engine, too.
"""
from __future__ import annotations

import sys
from contextvars import Context, ContextVar

from vmprof_allocation.critical.forks import Undivided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.engines.base import Engine

#: characters of a value
MAX_VALUE = 200
#: so many sets have a number, the empty one included: native/shared/recorder.h
MAX_SETS = 10000
#: of these, twice so many are for what there are too many of
RESERVED = 500
#: the values of a set more
TOO_MANY = "[too many]"
#: bytes of a set in UTF-8 (native/shared/profile_log.h); and what ends a cut value
MAX_BYTES = 1000
CUT = "\u2026"
#: between the pairs of a set, for the engine
BETWEEN = "\x1f"

#: the set that is in force: an index of _sets
_present: ContextVar[int] = ContextVar("vmprof_allocation.labels", default=0)
_sets: list[dict[str, str]] = [{}]
_numbers: dict[tuple[tuple[str, str], ...], int] = {(): 0}
#: number in the engine of each set
_natives = [0]
_engine: Engine | None = None
#: how a context is entered, while the engine is told
_enter_context: Any = None


class labels:
    """A context manager: what is allocated inside, by this thread or task, has these
    labels beside those that it has already::

        with vmprof_allocation.labels(endpoint="/users", tenant=tenant):
            answer()

    Values become text, of 200 characters at most, and of a kilobyte all together: what
    is longer ends with an ellipsis.  Nine thousand different sets are told apart; of
    more, the values given here are ``[too many]``.  Harmless where nothing is sampled.
    """

    __slots__ = ("_before", "_pairs")

    def __init__(self, **pairs: object) -> None:
        self._pairs = pairs
        self._before = 0

    def __enter__(self) -> labels:
        self._before = _present.get()
        self._set()
        return self

    def update(self, **pairs: object) -> None:
        """From here on to the end, these too, or other values of the same."""
        self._pairs = {**self._pairs, **pairs}
        self._set()

    def _set(self) -> None:
        number = _number(_sets[self._before], {
            _clean(key): _clean(str(value)) for key, value in self._pairs.items()})
        _present.set(number)
        _tell(number)

    def __exit__(self, *exception: object) -> None:
        _present.set(self._before)
        _tell(self._before)


def _clean(text: str) -> str:
    return text[:MAX_VALUE].replace(BETWEEN, "?").replace("\0", "?")


def _number(outer: dict[str, str], inner: dict[str, str]) -> int:
    """Of a set; 0: there is no room for anything of it."""
    for pairs, most in (
            ({**outer, **inner}, MAX_SETS - 2 * RESERVED),
            # the others may have few values, and go on telling something
            ({**outer, **dict.fromkeys(inner, TOO_MANY)}, MAX_SETS - RESERVED),
            (dict.fromkeys({**outer, **inner}, TOO_MANY), MAX_SETS)):
        key = tuple(sorted(pairs.items()))
        number = _numbers.get(key)
        if number is None and len(_sets) < most:
            number = _add(key, pairs)
        if number is not None:
            return number
    return 0


def _add(key: tuple[tuple[str, str], ...], pairs: dict[str, str]) -> int:
    with Undivided():
        number = _numbers.get(key)
        if number is None:
            number = len(_sets)
            _sets.append(pairs)
            _natives.append(0)
            if _engine is not None:
                _define(number)
                _watch()
            _numbers[key] = number
    return number


def _define(number: int) -> None:
    assert _engine is not None
    _natives[number] = _engine.define_label(_text(_sets[number]))


def _text(pairs: dict[str, str]) -> str:
    """As PROFILE.rst has it."""
    pairs = {key.replace("=", "?"): value for key, value in pairs.items()}
    while True:
        text = BETWEEN.join(map("=".join, pairs.items()))
        if len(text.encode("utf-8", "replace")) <= MAX_BYTES:
            return text
        longest = max(pairs, key=lambda key: len(pairs[key]))
        if len(pairs[longest]) <= 2:        # half of it would be as long
            pairs = dict(list(pairs.items())[:-1])
        else:
            pairs[longest] = pairs[longest][:len(pairs[longest]) // 2] + CUT


def _tell(number: int) -> None:
    engine = _engine
    if engine is not None:
        engine.label(_natives[number])


def use(engine: Engine) -> None:
    """It samples now."""
    global _engine
    with Undivided():
        _engine = engine
        for number in range(1, len(_sets)):
            if not _natives[number]:
                _define(number)
        if len(_sets) > 1:
            _watch()
    _tell(_present.get())


def leave() -> None:
    """Nothing is sampled any more."""
    global _engine, _enter_context
    with Undivided():
        _engine = None
        if _enter_context is not None:
            _contexts().set_contextvar_context = _enter_context
            _enter_context = None


def _contexts() -> Any:
    """PyPy's module; None: it is another one."""
    try:
        import _contextvars
    except ImportError:
        return None
    return _contextvars if (hasattr(_contextvars, "set_contextvar_context")
                            and hasattr(Context(), "_data")) else None


def _watch() -> None:
    """Who enters a context, has its labels."""
    global _enter_context
    contexts = _contexts()
    if contexts is None or _enter_context is not None:
        return
    enter = _enter_context = contexts.set_contextvar_context

    def set_contextvar_context(context: Any) -> None:
        enter(context)
        _tell(0 if context is None else context._data.get(_present, 0))

    contexts.set_contextvar_context = set_contextvar_context


def _find_engine() -> None:
    """Sampling began before this was imported."""
    if "vmprof_allocation.session.resident" in sys.modules:
        from vmprof_allocation.session.session import current
        running = current()
        if running is not None and running.engine is not None:
            use(running.engine)


_find_engine()
