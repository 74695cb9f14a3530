"""The settings of a run, which the engine, the session and the children read."""
from __future__ import annotations

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal
    Gaps = Literal["exponential", "fixed"]


class Limit:
    """A limit of the samples, to which the sampler adapts the interval.

    The limit is `per_second` samples. If that is 0, the samples may take a `share` of
    the run time, in millionths.
    """

    __slots__ = ("per_second", "share")

    def __init__(self, per_second: int = 0, share: int = 0):
        """Set one of the two attributes, and leave the other 0."""
        self.per_second = per_second
        self.share = share

    def __str__(self) -> str:
        """Return the limit in the form that PROFILE.rst defines."""
        if self.per_second:
            return "%d/s" % self.per_second
        return "%dppm" % self.share

    @classmethod
    def parse(cls, text: str) -> Limit | None:
        """Parse the result of str(); return None for an empty text."""
        if text.endswith("/s"):
            return cls(per_second=int(text[:-2]))
        return cls(share=int(text[:-3])) if text else None


class Settings:
    """The settings of a run."""

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
        """Set the attributes, which are described below, without checks."""
        #: mean number of bytes between two samples, 1 to 2**62
        self.interval = interval
        #: limit to which the sampler adapts the interval, beginning with `interval`;
        #: None for a fixed interval
        self.limit = limit
        #: seed of the generator of gaps between samples, 0 to 2**64 - 1
        self.seed = seed
        self.gaps: Gaps = gaps
        #: seconds between two CPU samples; None for no CPU samples
        self.period = period
        #: whether vmprof records resident memory with its samples
        self.memory = memory
        #: whether the outcomes of sampled objects are recorded, if the engine can do it
        self.lifetimes = lifetimes
        #: whether the samples stay in memory, where Engine.alive() finds them; the
        #: profile then contains only their stacks and types
        self.in_memory = in_memory
        #: whether children are sampled, if the engine can do it: see processes.py
        self.follow = follow
        #: seconds between two profiles; 0.0 for a single profile
        self.rotate = rotate
        #: whether retainers are recorded at the end of the program
        self.held = held
        #: whether heap snapshots are taken while the program runs
        self.snapshots = snapshots
        #: Whether a heap snapshot finds the live objects at the end of the profile. It
        #: is off for programs that call stop() often, because it takes 0.1 s.
        self.last_snapshot = last_snapshot
        #: whether the memory counts are recorded when the profile ends
        self.memory_at_end = memory_at_end
        #: Limits for the number and bytes of the segments of each process that have
        #: ended, without its first segment. The newest segments are kept. 0 for no
        #: limit.
        self.max_files = self.max_bytes = 0
        #: whether samples have native frames inside of the innermost Python frame
        self.native = native
        #: whether the executed lines of functions are recorded, if they are known
        self.lines = lines
        #: mean number of bytes between two samples of native memory; 0 for no samples
        self.raw_memory = raw_memory

    def text(self, *names: str) -> str:
        """Return settings as text: ``interval=131072;limit=;seed=...``.

        Settings that the profile contains have the same form as in PROFILE.rst.
        Another process can parse() the text of all settings.

        Args:
            names: names of the attributes; all attributes if empty.
        """
        return ";".join("%s=%s" % (name, _text(getattr(self, name)))
                        for name in names or self.__slots__)

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Parse the result of text().

        Raises:
            ValueError: a value is invalid.
        """
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
        """Whether the engine takes a heap snapshot when the profile ends.

        If ends_with_snapshot is true, only children take this snapshot.
        """
        return (self.last_snapshot and self.lifetimes
                and not (self.in_memory or self.max_files))

    @property
    def needs_hook(self) -> bool:
        """Whether only the hook engine supports these settings."""
        return (self.ends_with_snapshot or self.lines or self.memory_at_end
                or bool(self.raw_memory))

    def with_seed(self, seed: int) -> Settings:
        """Return a copy of these settings with another seed, for another run."""
        return self._with(seed=seed)

    def with_pace(self, interval: int, limit: Limit | None) -> Settings:
        """Return a copy of these settings with another interval and limit.

        See Session.set_interval().
        """
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


#: functions that parse the attributes of Settings, by name
_PARSERS: dict[str, Callable[[str], object]] = {
    "follow": _flag, "gaps": str, "held": _flag, "in_memory": _flag, "interval": int,
    "last_snapshot": _flag, "lifetimes": _flag, "limit": Limit.parse, "lines": _flag,
    "max_bytes": int, "max_files": int, "memory": _flag, "memory_at_end": _flag,
    "native": _flag, "period": lambda text: float(text) if text else None,
    "raw_memory": int,
    "rotate": float, "seed": int, "snapshots": _flag}
