"""What was alive at one moment, grouped, filtered, compared and kept.

The meaning of every name is that of CPython's module.  Sizes and counts are
estimates: each sampled object stands for 1/p objects, where p is the
probability with which one of its size is sampled (vmprof_convert.meaning.estimator).
Where that matters there is an error beside them, half the width of the 95 %
interval; it is 0 for traces that somebody else has made.
"""
from __future__ import annotations

import fnmatch
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Union, overload

from vmprof_allocation.tracemalloc.frames import RawFrame, RawTraceback, Traceback

#: standard deviations to each side that make 95 %
Z = 1.959964

#: (domain, bytes, traceback) and, if they are known: how many frames there were
#: in all, how many objects these are, the variances of bytes and objects, and
#: the number of the sample
RawTrace = tuple[Any, ...]
_BYTES, _TRACEBACK, _FRAMES, _OBJECTS, _VARIANCE, _OBJECTS_VARIANCE, _KEY = (
    range(1, 8))


def _at(trace: RawTrace, i: int, default: Any) -> Any:
    return trace[i] if len(trace) > i else default


def format_size(size: float, signed: bool = False) -> str:
    """In the largest unit that leaves at least ten of them, or a hundred with a
    digit less."""
    sign = "+" if signed else ""
    units = "B", "KiB", "MiB", "GiB", "TiB"
    for unit in units:
        if abs(size) < 100 and unit != "B":
            return ("%" + sign + ".1f %s") % (size, unit)
        if abs(size) < 10 * 1024 or unit == units[-1]:
            break
        size /= 1024
    return ("%" + sign + ".0f %s") % (size, unit)


class _Record:
    """What is equal if all that it shows is."""

    __slots__: tuple[str, ...] = ()

    def _shown(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._shown() == other._shown()

    def __hash__(self) -> int:
        return hash(self._shown())


class Trace(_Record):
    """One sampled object, and what it stands for."""

    __slots__ = ("_trace",)

    def __init__(self, trace: RawTrace) -> None:
        self._trace = trace

    def _shown(self) -> tuple[Any, ...]:
        return self._trace

    @property
    def domain(self) -> int:
        """Always 0, as all memory is the garbage collector's."""
        domain: int = self._trace[0]
        return domain

    @property
    def size(self) -> int:
        """Bytes."""
        size: int = self._trace[_BYTES]
        return size

    @property
    def count(self) -> float:
        """Objects."""
        return float(_at(self._trace, _OBJECTS, 1))

    @property
    def traceback(self) -> Traceback:
        return Traceback(self._trace[_TRACEBACK],
                         _at(self._trace, _FRAMES, None))

    def __str__(self) -> str:
        return "%s: %s" % (self.traceback, format_size(self.size))

    def __repr__(self) -> str:
        return "<Trace domain=%s size=%s, traceback=%r>" % (
            self.domain, format_size(self.size), self.traceback)


class Statistic(_Record):
    """All traces of one place."""

    __slots__ = ("count", "count_error", "size", "size_error", "traceback")

    def __init__(self, traceback: Traceback, size: int, count: int,
                 size_error: float = 0.0, count_error: float = 0.0) -> None:
        self.traceback = traceback
        #: bytes
        self.size = size
        #: objects
        self.count = count
        #: half the width of their 95 % intervals
        self.size_error = size_error
        self.count_error = count_error

    def _shown(self) -> tuple[Any, ...]:
        return self.traceback, self.size, self.count

    def __str__(self) -> str:
        text = "%s: size=%s, count=%i" % (
            self.traceback, format_size(self.size), self.count)
        if self.count:
            text += ", average=%s" % format_size(self.size / self.count)
        return text

    def __repr__(self) -> str:
        return "<Statistic traceback=%r size=%i count=%i>" % self._shown()

    def _sort_key(self) -> tuple[Any, ...]:
        return self.size, self.count, self.traceback


class StatisticDiff(_Record):
    """All traces of one place, now and before."""

    __slots__ = ("count", "count_diff", "count_diff_error", "size", "size_diff",
                 "size_diff_error", "traceback")

    def __init__(self, traceback: Traceback, size: int, size_diff: int,
                 count: int, count_diff: int, size_diff_error: float = 0.0,
                 count_diff_error: float = 0.0) -> None:
        self.traceback = traceback
        self.size = size
        self.size_diff = size_diff
        self.count = count
        self.count_diff = count_diff
        #: half the width of the 95 % intervals: what is alive in both snapshots
        #: adds nothing to it
        self.size_diff_error = size_diff_error
        self.count_diff_error = count_diff_error

    def _shown(self) -> tuple[Any, ...]:
        return (self.traceback, self.size, self.size_diff, self.count,
                self.count_diff)

    def __str__(self) -> str:
        text = "%s: size=%s (%s), count=%i (%+i)" % (
            self.traceback, format_size(self.size),
            format_size(self.size_diff, True), self.count, self.count_diff)
        if self.count:
            text += ", average=%s" % format_size(self.size / self.count)
        return text

    def __repr__(self) -> str:
        return ("<StatisticDiff traceback=%r size=%i (%+i) count=%i (%+i)>"
                % self._shown())

    def _sort_key(self) -> tuple[Any, ...]:
        return (abs(self.size_diff), self.size, abs(self.count_diff), self.count,
                self.traceback)


class BaseFilter:
    def __init__(self, inclusive: bool) -> None:
        self.inclusive = inclusive

    def matches(self, trace: RawTrace) -> bool:
        """Is it one of those that this is about?"""
        raise NotImplementedError


@functools.lru_cache(maxsize=1024)
def _normalized(filename: str) -> str:
    filename = os.path.normcase(filename)
    return filename[:-1] if filename.endswith(".pyc") else filename


class Filter(BaseFilter):
    """By the file, or the file and line, of the innermost frame or of any."""

    def __init__(self, inclusive: bool, filename_pattern: str,
                 lineno: int | None = None, all_frames: bool = False,
                 domain: int | None = None) -> None:
        super().__init__(inclusive)
        self._pattern = _normalized(filename_pattern)
        self.lineno = lineno
        self.all_frames = all_frames
        self.domain = domain

    @property
    def filename_pattern(self) -> str:
        return self._pattern

    def _matches_frame(self, frame: RawFrame) -> bool:
        filename, lineno = frame
        return (self.lineno in (None, lineno)
                and fnmatch.fnmatch(_normalized(filename), self._pattern))

    def matches(self, trace: RawTrace) -> bool:
        if self.domain is not None and trace[0] != self.domain:
            return False
        frames = trace[_TRACEBACK]
        return any(map(self._matches_frame,
                       frames if self.all_frames else frames[:1]))


class DomainFilter(BaseFilter):
    def __init__(self, inclusive: bool, domain: int) -> None:
        super().__init__(inclusive)
        self._domain = domain

    @property
    def domain(self) -> int:
        return self._domain

    def matches(self, trace: RawTrace) -> bool:
        return bool(trace[0] == self._domain)


class Traces(Sequence[Trace]):
    """Of a snapshot, made when they are asked for."""

    def __init__(self, traces: Sequence[RawTrace]) -> None:
        self._traces = traces

    def __len__(self) -> int:
        return len(self._traces)

    @overload
    def __getitem__(self, index: int) -> Trace: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Trace, ...]: ...

    def __getitem__(self, index: int | slice) -> Trace | tuple[Trace, ...]:
        if isinstance(index, slice):
            return tuple(map(Trace, self._traces[index]))
        return Trace(self._traces[index])

    def __iter__(self) -> Iterator[Trace]:
        return map(Trace, self._traces)

    def __contains__(self, trace: object) -> bool:
        return isinstance(trace, Trace) and trace._trace in self._traces

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Traces):
            return NotImplemented
        return self._traces == other._traces

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<Traces len=%d>" % len(self)


_Groups = dict[Traceback, list[RawTrace]]
_KEYS: dict[str, Callable[[RawFrame], RawFrame]] = {
    "filename": lambda frame: (frame[0], 0),
    "lineno": lambda frame: frame,
}


class Snapshot:
    """What was alive."""

    def __init__(self, traces: Iterable[RawTrace], traceback_limit: int) -> None:
        self._raw = list(traces)
        #: one for each sampled object that was alive
        self.traces = Traces(self._raw)
        self.traceback_limit = traceback_limit

    def dump(self, filename: Union[str, os.PathLike[str]]) -> None:
        import pickle
        with open(filename, "wb") as file:
            pickle.dump(self, file, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load(filename: Union[str, os.PathLike[str]]) -> Snapshot:
        """Read what dump() wrote.  As with every pickle: only of somebody who is
        trusted."""
        import pickle
        with open(filename, "rb") as file:
            try:
                snapshot = pickle.load(file)
            except OSError:
                raise
            except Exception as e:
                # PyPy's pickle raises whatever comes
                raise pickle.UnpicklingError(
                    "%r holds no snapshot: %s; give load() what dump() wrote"
                    % (os.fspath(filename), e if isinstance(e, pickle.UnpicklingError)
                       else repr(e))) from e
        if not isinstance(snapshot, Snapshot):
            raise ValueError("%r holds no snapshot, but a %s" % (
                filename, type(snapshot).__name__))
        return snapshot

    def filter_traces(self, filters: Iterable[BaseFilter]) -> Snapshot:
        """Those that one of the inclusive filters matches, if there are any, and
        none of the others."""
        if not isinstance(filters, Iterable):
            raise TypeError("filters must be a list of filters, not %s"
                            % type(filters).__name__)
        filters = list(filters)
        inclusive = [f for f in filters if f.inclusive]
        exclusive = [f for f in filters if not f.inclusive]
        return Snapshot([
            trace for trace in self._raw
            if (not inclusive or any(f.matches(trace) for f in inclusive))
            and not any(f.matches(trace) for f in exclusive)],
            self.traceback_limit)

    def _groups(self, key_type: str, cumulative: bool) -> _Groups:
        if key_type not in ("traceback", *_KEYS):
            raise ValueError("the key type %r is none of 'traceback', 'lineno' "
                             "and 'filename'" % (key_type,))
        if cumulative and key_type == "traceback":
            raise ValueError("whole tracebacks can't be cumulative; the key type "
                             "has to be 'filename' or 'lineno'")
        groups: _Groups = {}
        # most have the traceback of another one
        known: dict[RawTraceback, list[list[RawTrace]]] = {}
        for trace in self._raw:
            frames = trace[_TRACEBACK]
            lists = known.get(frames)
            if lists is None:
                keys: set[RawTraceback]
                if key_type == "traceback":
                    keys = {frames}
                else:
                    key = _KEYS[key_type]
                    keys = {(key(frame),) for frame in (
                        frames if cumulative else frames[:1])}
                lists = known[frames] = [
                    groups.setdefault(Traceback(k), []) for k in keys]
            for list_ in lists:
                list_.append(trace)
        return groups

    def statistics(self, key_type: str,
                   cumulative: bool = False) -> list[Statistic]:
        """The largest first.  `key_type`: what makes a group: "filename",
        "lineno" or "traceback"; `cumulative`: of all frames, not only the
        innermost ones."""
        result = [
            Statistic(traceback, _bytes(traces), _objects(traces),
                      _error(traces, _VARIANCE), _error(traces,
                                                        _OBJECTS_VARIANCE))
            for traceback, traces in self._groups(key_type, cumulative).items()]
        result.sort(key=Statistic._sort_key, reverse=True)
        return result

    def compare_to(self, old_snapshot: Snapshot, key_type: str,
                   cumulative: bool = False) -> list[StatisticDiff]:
        """Statistics of each group, and their differences to `old_snapshot`, the
        largest difference first.  `key_type` and `cumulative`: as for statistics()."""
        new = self._groups(key_type, cumulative)
        old = old_snapshot._groups(key_type, cumulative)
        result = []
        for traceback in {**new, **old}:
            now, before = new.get(traceback, []), old.get(traceback, [])
            size, count = _bytes(now), _objects(now)
            changed = _changed(now, before)
            result.append(StatisticDiff(
                traceback, size, size - _bytes(before), count,
                count - _objects(before), _error(changed, _VARIANCE),
                _error(changed, _OBJECTS_VARIANCE)))
        result.sort(key=StatisticDiff._sort_key, reverse=True)
        return result


def _bytes(traces: list[RawTrace]) -> int:
    return sum(int(trace[_BYTES]) for trace in traces)


def _objects(traces: list[RawTrace]) -> int:
    return round(sum(float(_at(trace, _OBJECTS, 1)) for trace in traces))


def _error(traces: list[RawTrace], variance: int) -> float:
    return Z * math.sqrt(sum(_at(trace, variance, 0.0) for trace in traces))


def _changed(now: list[RawTrace], before: list[RawTrace]) -> list[RawTrace]:
    """The traces of samples that are in one of the two only."""
    keys = {_at(t, _KEY, None) for t in now} & {_at(t, _KEY, None)
                                                for t in before}
    return [t for t in (*now, *before) if _at(t, _KEY, None) not in keys]
