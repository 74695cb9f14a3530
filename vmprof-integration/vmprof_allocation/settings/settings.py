"""What a run is asked for."""
from __future__ import annotations

# import only what is needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal
    Gaps = Literal["exponential", "fixed"]


class Limit:
    """What sampling may take at most: `per_second` samples, or, where that is
    0, a `share` of the time in millionths."""

    __slots__ = ("per_second", "share")

    def __init__(self, per_second: int = 0, share: int = 0):
        self.per_second = per_second
        self.share = share

    def __str__(self) -> str:
        """As in the profile: PROFILE.rst."""
        if self.per_second:
            return "%d/s" % self.per_second
        return "%dppm" % self.share

    @classmethod
    def parse(cls, text: str) -> Limit | None:
        """The opposite of str(); empty text: None."""
        if text.endswith("/s"):
            return cls(per_second=int(text[:-2]))
        return cls(share=int(text[:-3])) if text else None


class Settings:
    """What the user asks for."""

    __slots__ = ("follow", "gaps", "held", "in_memory", "interval",
                 "last_snapshot", "lifetimes", "limit", "lines", "max_bytes",
                 "max_files", "memory", "memory_at_end", "native", "period",
                 "raw_memory", "rotate", "seed", "snapshots")

    def __init__(self, interval: int, seed: int, gaps: Gaps = "exponential",
                 period: float | None = None, memory: bool = False,
                 limit: Limit | None = None, lifetimes: bool = True,
                 in_memory: bool = False, follow: bool = True, rotate: float = 0.0,
                 native: bool = False, held: bool = False, lines: bool = False,
                 raw_memory: int = 0, memory_at_end: bool = False,
                 snapshots: bool = False, last_snapshot: bool = False):
        #: mean number of bytes between two samples, 1 to 2**62
        self.interval = interval
        #: if not None, the interval is only the first one, and follows this
        self.limit = limit
        #: seed of the generator of gaps, 0 to 2**64 - 1
        self.seed = seed
        self.gaps: Gaps = gaps
        #: seconds between two time samples; None: no time samples
        self.period = period
        #: vmprof's own switch for its resident memory column
        self.memory = memory
        #: what becomes of sampled objects, where the engine can find out
        self.lifetimes = lifetimes
        #: the profile holds no samples, only what their stacks and types are:
        #: Engine.alive() says which objects there are
        self.in_memory = in_memory
        #: children, where the engine can: see processes.py
        self.follow = follow
        #: seconds between two profiles; 0.0: there is one
        self.rotate = rotate
        #: at the end of the program, it is looked at who holds what
        self.held = held
        #: heap snapshots are taken while the program runs
        self.snapshots = snapshots
        #: A heap snapshot finds the live objects at the end of the profile.  Programs
        #: that call stop() often do not have it, because it takes 0.1 s.
        self.last_snapshot = last_snapshot
        #: when the profile ends, it is read where the memory is
        self.memory_at_end = memory_at_end
        #: of those that have ended, so many stay of each process beside its first one,
        #: the newest ones, with so many bytes; 0: all
        self.max_files = self.max_bytes = 0
        #: native frames, inside of the innermost Python frame
        self.native = native
        #: the line at which each function is, where it is known
        self.lines = lines
        #: mean number of bytes between two samples of what C code has of malloc; 0:
        #: none are taken
        self.raw_memory = raw_memory

    def text(self, *names: str) -> str:
        """``interval=131072;limit=;seed=...``: these, or all of them, in the words of
        PROFILE.rst where the profile has them, too.  For parse(), in whatever
        process."""
        return ";".join("%s=%s" % (name, _text(getattr(self, name)))
                        for name in names or self.__slots__)

    @classmethod
    def parse(cls, text: str) -> Settings:
        """The opposite of text().  Raises ValueError."""
        settings = cls(0, 0)
        for pair in text.split(";"):
            name, _, value = pair.partition("=")
            setattr(settings, name, _PARSERS[name](value))
        return settings

    @property
    def ends_with_snapshot(self) -> bool:
        """Whether a heap snapshot is taken at the end of each profile."""
        return self.held or self.snapshots

    @property
    def has_last_snapshot(self) -> bool:
        """Whether the engine takes a snapshot when the profile ends.

        With ends_with_snapshot, this is true of children alone.
        """
        return (self.last_snapshot and self.lifetimes
                and not (self.in_memory or self.max_files))

    @property
    def needs_hook(self) -> bool:
        """Only the hook engine can do this."""
        return (self.ends_with_snapshot or self.lines or self.memory_at_end
                or bool(self.raw_memory))

    def with_seed(self, seed: int) -> Settings:
        """The same, for another run."""
        return self._with(seed=seed)

    def with_pace(self, interval: int, limit: Limit | None) -> Settings:
        """The same, as they came to be: Session.set_interval()."""
        return self._with(interval=interval, limit=limit)

    def _with(self, **changed: object) -> Settings:
        settings = Settings.parse(self.text())
        for name, value in changed.items():
            setattr(settings, name, value)
        return settings


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _flag(text: str) -> bool:
    return text == "1"


#: by Settings.__slots__
_PARSERS: dict[str, Callable[[str], object]] = {
    "follow": _flag, "gaps": str, "held": _flag, "in_memory": _flag, "interval": int,
    "last_snapshot": _flag, "lifetimes": _flag, "limit": Limit.parse, "lines": _flag,
    "max_bytes": int, "max_files": int, "memory": _flag, "memory_at_end": _flag,
    "native": _flag, "period": lambda text: float(text) if text else None,
    "raw_memory": int,
    "rotate": float, "seed": int, "snapshots": _flag}
