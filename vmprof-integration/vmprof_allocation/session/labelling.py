"""Label the allocations of a thread or task with the program's current work.

A label is, for example, the route that a server answers. Programs use the context
manager `labels`. The labels are in a context variable, so that each thread and each
asyncio task has its own. The engine knows each set of labels by a number, and gets the
number when the set changes.

PyPy implements contexts in Python. While a labelled program is sampled, this module
replaces PyPy's function that enters a context. Its own function also passes the number
of the context's labels to the engine.
"""
from __future__ import annotations

import sys
from contextvars import Context, ContextVar

from vmprof_allocation.critical.forks import Undivided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.engines.base import Engine

#: maximum length of a value in characters
MAX_VALUE = 200
#: maximum number of sets, including the empty set; PROFILE_LOG_LABELS in profile_log.h
MAX_SETS = 10000
#: number of sets that are reserved in each of two steps, first for sets whose inner
#: values are replaced, and then for sets whose values are all replaced
RESERVED = 500
#: value that replaces other values when there are too many sets
TOO_MANY = "[too many]"
#: maximum size of a set in bytes of UTF-8, below RECORD_MOST_TEXT in records.h
MAX_BYTES = 1000
#: end of a shortened value
CUT = "\u2026"
#: separator between the pairs of a set in the text for the engine
BETWEEN = "\x1f"

#: the number of the current set of the thread or task, an index of _sets
_present: ContextVar[int] = ContextVar("vmprof_allocation.labels", default=0)
_sets: list[dict[str, str]] = [{}]
_numbers: dict[tuple[tuple[str, str], ...], int] = {(): 0}
#: the engine's number of each set in _sets; 0 if the engine does not know the set
_natives = [0]
_engine: Engine | None = None
#: PyPy's function that enters a context, while this module replaces it
_enter_context: Any = None


class labels:
    """A context manager that labels the allocations of the current thread or task.

    The labels are added to the labels of enclosing blocks::

        with vmprof_allocation.labels(endpoint="/users", tenant=tenant):
            answer()

    Values become text of at most 200 characters, and of at most a kilobyte together. A
    longer text is shortened and ends with an ellipsis. After nine thousand different
    sets, the values of new sets are ``[too many]``. If nothing is sampled, the labels
    have no effect.
    """

    __slots__ = ("_before", "_pairs")

    def __init__(self, **pairs: object) -> None:
        """Store the labels and their values, which __enter__() sets."""
        self._pairs = pairs
        self._before = 0

    def __enter__(self) -> labels:
        """Set the labels for the current thread or task."""
        self._before = _present.get()
        self._set()
        return self

    def update(self, **pairs: object) -> None:
        """Add labels, or change their values, until the block ends."""
        self._pairs = {**self._pairs, **pairs}
        self._set()

    def _set(self) -> None:
        number = _number(_sets[self._before], {
            _clean(key): _clean(str(value)) for key, value in self._pairs.items()})
        _present.set(number)
        _tell(number)

    def __exit__(self, *exception: object) -> None:
        """Restore the labels of the enclosing block."""
        _present.set(self._before)
        _tell(self._before)


def _clean(text: str) -> str:
    return text[:MAX_VALUE].replace(BETWEEN, "?").replace("\0", "?")


def _number(outer: dict[str, str], inner: dict[str, str]) -> int:
    """Return the number of a set of labels, and add the set if it is new.

    If there are too many sets, the values of the inner labels are replaced by TOO_MANY,
    and later also the values of the outer labels. The result is 0, the empty set, if
    there is no room for the set with replaced values either.

    Args:
        outer: the labels of the enclosing block.
        inner: the labels of this block.
    """
    for pairs, most in (
            ({**outer, **inner}, MAX_SETS - 2 * RESERVED),
            # labels with few values remain useful if only the inner values are replaced
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
    """Return a set of labels as text, in the form that PROFILE.rst defines."""
    pairs = {key.replace("=", "?"): value for key, value in pairs.items()}
    while True:
        text = BETWEEN.join(map("=".join, pairs.items()))
        if len(text.encode("utf-8", "replace")) <= MAX_BYTES:
            return text
        longest = max(pairs, key=lambda key: len(pairs[key]))
        if len(pairs[longest]) <= 2:        # half of this value and CUT is as long
            pairs = dict(list(pairs.items())[:-1])
        else:
            pairs[longest] = pairs[longest][:len(pairs[longest]) // 2] + CUT


def _tell(number: int) -> None:
    engine = _engine
    if engine is not None:
        engine.label(_natives[number])


def use(engine: Engine) -> None:
    """Define all sets of labels in the engine, and pass later changes to the engine.

    Session calls this function when an engine starts.
    """
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
    """Stop passing changes of labels to the engine.

    Session calls this function when the last session ends.
    """
    global _engine, _enter_context
    with Undivided():
        _engine = None
        if _enter_context is not None:
            _contexts().set_contextvar_context = _enter_context
            _enter_context = None


def _contexts() -> Any:
    """Return PyPy's module `_contextvars`, or None if its content is unknown."""
    try:
        import _contextvars
    except ImportError:
        return None
    return _contextvars if (hasattr(_contextvars, "set_contextvar_context")
                            and hasattr(Context(), "_data")) else None


def _watch() -> None:
    """Pass the number of the current labels to the engine when a context is entered."""
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
    """Use the engine of a session that began before this module was imported."""
    if "vmprof_allocation.session.resident" in sys.modules:
        from vmprof_allocation.session.session import current
        running = current()
        if running is not None and running.engine is not None:
            use(running.engine)


_find_engine()
