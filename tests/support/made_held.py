"""Made profiles with the retainers of live objects (PROFILE.rst, kinds 17 to 20)."""
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from made_profiles import Log
from vmprof_convert.analysis.holder_tree import OTHERWISE as REST
from vmprof_convert.profile.held import (
    ALONE,
    FINALIZER,
    INTERPRETER,
    NO_PATH,
    OTHERWISE,
    TOGETHER,
)


class _Begun(NamedTuple):
    """An unfinished profile, with a search for retainers at 2 s that reached 200 KB."""

    log: Log
    #: addresses of functions
    main: int
    make: int
    #: numbers of types
    text: int
    thing: int


def _begun(settings: dict[str, object]) -> _Begun:
    log = Log()
    log.settings(gaps="fixed", **settings)
    begun = _Begun(log, log.function("main", 3), log.function("make", 9),
                   log.type("str"), log.type("shop.Visit"))
    log.allocation([begun.main], size=1000, interval=1)
    log.held(1, 2_000_000_000, objects=1500, size=200_000)
    return begun


def _in_a_dict(begun: _Begun, *, set_: int, path: int) -> None:
    """Add 45 KB of strings that make() allocated, and 25 KB of visits from main()."""
    log, main, make, text, thing = begun
    for _ in range(15):
        log.held_object(1, [main, make], text, size=3000, set_=set_, how=ALONE,
                        path=path)
    for _ in range(25):
        log.held_object(1, [main], thing, size=1000, set_=set_, how=ALONE, path=path)


def a_log(**settings: object) -> Log:
    """Return a profile in which every object is sampled.

    One name retains 70 KB, another one 30 KB, and both together retain 30 KB.
    """
    begun = _begun(settings)
    log, main, _, text, _ = begun
    log.holder(1, 1, 70_000, 700, "shop._seen", "dict", "web.seen")
    log.holder(1, 2, 30_000, 300, "shop.price -> variable cache", "dict")
    log.holder(1, 4, 100, 3, "shop.small", "list")
    log.holder(1, 3, 30_000, 200)
    _in_a_dict(begun, set_=1, path=0)
    log.held_object(1, [main], text, size=30_000, set_=2, how=ALONE)
    log.held_object(1, [main], text, size=30_000, set_=3, how=TOGETHER)
    log.held_step(1, 1, 0, 9000, "PyPy's own: compiled code", "")
    for how in OTHERWISE, INTERPRETER, FINALIZER, NO_PATH:
        log.held_object(1, [main], text, size=1000 * (how + 1), set_=0, how=how,
                        path=how == INTERPRETER)
    return log


#: bytes of each node of a_tree(), without its children; a node is named by the steps of
#: its reference path, its type, and the function that allocated
TREE = {
    ("shop (dict)", "shop._seen (dict)", "str", "make (app.py:9)"): 45_000,
    ("shop (dict)", "shop._seen (dict)", "shop.Visit", "main (app.py:3)"): 25_000,
    ("shop (dict)", "shop.few (shop.Few)", "shop.Item", "fill (app.py:12)"): 2000,
    ("shop (dict)", "shop.few (shop.Few)"): 100,
    ("shop (dict)",): 150_000 - 70_000 - 2100,
    ("PyPy's own: JIT compiler", "str", "main (app.py:3)"): 5000,
    ("PyPy's own: JIT compiler",): 3000,
    (REST, "str", "main (app.py:3)"): 4000 + 6000,
    (REST,): 200_000 - 150_000 - 8000 - 10_000}


def a_tree(**settings: object) -> Log:
    """Return a profile with steps of reference paths, and objects without a path."""
    begun = _begun(settings)
    log, main, _, text, _ = begun
    log.held_step(1, 1, 0, 150_000, "shop", "dict")
    log.held_step(1, 2, 1, 70_000, "._seen", "dict")
    log.held_step(1, 3, 1, 2_100, ".few", "shop.Few")
    log.held_step(1, 4, 0, 8000, "PyPy's own: JIT compiler", "")
    _in_a_dict(begun, set_=0, path=2)
    log.held_object(1, [log.function("fill", 12)], log.type("shop.Item"), size=2000,
                    set_=0, how=OTHERWISE, path=3)
    for size, how in (4000, OTHERWISE), (5000, INTERPRETER), (6000, FINALIZER):
        log.held_object(1, [main], text, size=size, set_=0, how=how,
                        path=4 * (how == INTERPRETER))
    log.held_object(1, [main], text, size=1000, set_=0, how=NO_PATH)
    return log


def written(tmp_path: Path, log: Log) -> Path:
    """Write a profile to app.vmprof, and return the file's path."""
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    return path
