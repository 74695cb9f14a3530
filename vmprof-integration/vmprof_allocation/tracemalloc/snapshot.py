"""Snapshots of the live objects, with their statistics, filters and comparisons.

The names have the same meanings as in CPython's module.  Sizes and counts are
estimates.  Each sampled object represents 1/p objects, where p is the probability of
sampling an object of this size (vmprof_convert.meaning.estimator).  Statistics also
have errors.  An error is half the width of the estimate's 95 % interval.  The errors
are 0 for traces without variances, which other code may have made.
"""
from __future__ import annotations

import fnmatch
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Union, overload

from vmprof_allocation.tracemalloc.frames import RawFrame, RawTraceback, Traceback

#: half the width of a 95 % interval, in standard deviations
Z = 1.959964

#: (domain, bytes, traceback).  Traces of this package continue with the number of
#: frames of the whole stack, the estimated number of objects, the variances of bytes
#: and objects, and a key that identifies the sample.
RawTrace = tuple[Any, ...]
_BYTES, _TRACEBACK, _FRAMES, _OBJECTS, _VARIANCE, _OBJECTS_VARIANCE, _KEY = (
    range(1, 8))


def _at(trace: RawTrace, i: int, default: Any) -> Any:
    return trace[i] if len(trace) > i else default


def format_size(size: float, signed: bool = False) -> str:
    """Return a size in bytes as text with a binary unit, as CPython does.

    A number below 100 gets one digit after the point, unless the unit is bytes.  A
    number from 100 to 10240 gets no such digit.
    """
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
    """The base of classes whose instances compare and hash by their public values."""

    __slots__: tuple[str, ...] = ()

    def _shown(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Compare the contents."""
        if type(other) is not type(self):
            return NotImplemented
        return self._shown() == other._shown()

    def __hash__(self) -> int:
        """Hash the contents."""
        return hash(self._shown())


class Trace(_Record):
    """A sampled object, with the bytes and objects that it represents."""

    __slots__ = ("_trace",)

    def __init__(self, trace: RawTrace) -> None:
        """Wrap a raw trace."""
        self._trace = trace

    def _shown(self) -> tuple[Any, ...]:
        return self._trace

    @property
    def domain(self) -> int:
        """Return 0, the domain of the garbage collector's memory."""
        domain: int = self._trace[0]
        return domain

    @property
    def size(self) -> int:
        """Return the estimated bytes."""
        size: int = self._trace[_BYTES]
        return size

    @property
    def count(self) -> float:
        """Return the estimated number of objects."""
        return float(_at(self._trace, _OBJECTS, 1))

    @property
    def traceback(self) -> Traceback:
        """Return the traceback of the allocation."""
        return Traceback(self._trace[_TRACEBACK],
                         _at(self._trace, _FRAMES, None))

    def __str__(self) -> str:
        """Return the short text that CPython prints."""
        return "%s: %s" % (self.traceback, format_size(self.size))

    def __repr__(self) -> str:
        """Return the text for debugging."""
        return "<Trace domain=%s size=%s, traceback=%r>" % (
            self.domain, format_size(self.size), self.traceback)


class Statistic(_Record):
    """The sums over all traces of one file, line or traceback."""

    __slots__ = ("count", "count_error", "size", "size_error", "traceback")

    def __init__(self, traceback: Traceback, size: int, count: int,
                 size_error: float = 0.0, count_error: float = 0.0) -> None:
        """Store the sums and their errors."""
        self.traceback = traceback
        #: estimated bytes
        self.size = size
        #: estimated number of objects
        self.count = count
        #: half the widths of the 95 % intervals of `size` and `count`
        self.size_error = size_error
        self.count_error = count_error

    def _shown(self) -> tuple[Any, ...]:
        return self.traceback, self.size, self.count

    def __str__(self) -> str:
        """Return the short text that CPython prints."""
        text = "%s: size=%s, count=%i" % (
            self.traceback, format_size(self.size), self.count)
        if self.count:
            text += ", average=%s" % format_size(self.size / self.count)
        return text

    def __repr__(self) -> str:
        """Return the text for debugging."""
        return "<Statistic traceback=%r size=%i count=%i>" % self._shown()

    def _sort_key(self) -> tuple[Any, ...]:
        return self.size, self.count, self.traceback


class StatisticDiff(_Record):
    """The sums of one file, line or traceback, and their changes since a snapshot."""

    __slots__ = ("count", "count_diff", "count_diff_error", "size", "size_diff",
                 "size_diff_error", "traceback")

    def __init__(self, traceback: Traceback, size: int, size_diff: int,
                 count: int, count_diff: int, size_diff_error: float = 0.0,
                 count_diff_error: float = 0.0) -> None:
        """Store the sums, their changes, and the errors of the changes."""
        self.traceback = traceback
        self.size = size
        self.size_diff = size_diff
        self.count = count
        self.count_diff = count_diff
        #: half the widths of the 95 % intervals of the changes; objects that are alive
        #: in both snapshots do not contribute
        self.size_diff_error = size_diff_error
        self.count_diff_error = count_diff_error

    def _shown(self) -> tuple[Any, ...]:
        return (self.traceback, self.size, self.size_diff, self.count,
                self.count_diff)

    def __str__(self) -> str:
        """Return the short text that CPython prints."""
        text = "%s: size=%s (%s), count=%i (%+i)" % (
            self.traceback, format_size(self.size),
            format_size(self.size_diff, True), self.count, self.count_diff)
        if self.count:
            text += ", average=%s" % format_size(self.size / self.count)
        return text

    def __repr__(self) -> str:
        """Return the text for debugging."""
        return ("<StatisticDiff traceback=%r size=%i (%+i) count=%i (%+i)>"
                % self._shown())

    def _sort_key(self) -> tuple[Any, ...]:
        return (abs(self.size_diff), self.size, abs(self.count_diff), self.count,
                self.traceback)


class BaseFilter:
    """The interface of the filters."""

    def __init__(self, inclusive: bool) -> None:
        """Make a filter that keeps matching traces, or that removes them."""
        self.inclusive = inclusive

    def matches(self, trace: RawTrace) -> bool:
        """Return whether the filter's condition is true for the trace."""
        raise NotImplementedError


@functools.lru_cache(maxsize=1024)
def _normalized(filename: str) -> str:
    filename = os.path.normcase(filename)
    return filename[:-1] if filename.endswith(".pyc") else filename


class Filter(BaseFilter):
    """A filter by file and line of the innermost frame, or of any frame."""

    def __init__(self, inclusive: bool, filename_pattern: str,
                 lineno: int | None = None, all_frames: bool = False,
                 domain: int | None = None) -> None:
        """Make a filter from a shell pattern for file names and optional conditions."""
        super().__init__(inclusive)
        self._pattern = _normalized(filename_pattern)
        self.lineno = lineno
        self.all_frames = all_frames
        self.domain = domain

    @property
    def filename_pattern(self) -> str:
        """Return the normalized pattern for file names."""
        return self._pattern

    def _matches_frame(self, frame: RawFrame) -> bool:
        filename, lineno = frame
        return (self.lineno in (None, lineno)
                and fnmatch.fnmatch(_normalized(filename), self._pattern))

    def matches(self, trace: RawTrace) -> bool:
        """Return whether the domain, the file and the line of the trace match."""
        if self.domain is not None and trace[0] != self.domain:
            return False
        frames = trace[_TRACEBACK]
        return any(map(self._matches_frame,
                       frames if self.all_frames else frames[:1]))


class DomainFilter(BaseFilter):
    """A filter by the domain of a trace."""

    def __init__(self, inclusive: bool, domain: int) -> None:
        """Make a filter that keeps the traces of one domain, or removes them."""
        super().__init__(inclusive)
        self._domain = domain

    @property
    def domain(self) -> int:
        """Return the domain of the matching traces."""
        return self._domain

    def matches(self, trace: RawTrace) -> bool:
        """Return whether the trace has this domain."""
        return bool(trace[0] == self._domain)


class Traces(Sequence[Trace]):
    """The sequence of a snapshot's traces, which makes a `Trace` on each access."""

    def __init__(self, traces: Sequence[RawTrace]) -> None:
        """Wrap raw traces."""
        self._traces = traces

    def __len__(self) -> int:
        """Return the number of elements."""
        return len(self._traces)

    @overload
    def __getitem__(self, index: int) -> Trace: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Trace, ...]: ...

    def __getitem__(self, index: int | slice) -> Trace | tuple[Trace, ...]:
        """Return an element, or a tuple of elements for a slice."""
        if isinstance(index, slice):
            return tuple(map(Trace, self._traces[index]))
        return Trace(self._traces[index])

    def __iter__(self) -> Iterator[Trace]:
        """Iterate over the elements."""
        return map(Trace, self._traces)

    def __contains__(self, trace: object) -> bool:
        """Return whether an equal element exists."""
        return isinstance(trace, Trace) and trace._trace in self._traces

    def __eq__(self, other: object) -> bool:
        """Compare the contents."""
        if not isinstance(other, Traces):
            return NotImplemented
        return self._traces == other._traces

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the text for debugging."""
        return "<Traces len=%d>" % len(self)


_Groups = dict[Traceback, list[RawTrace]]
_KEYS: dict[str, Callable[[RawFrame], RawFrame]] = {
    "filename": lambda frame: (frame[0], 0),
    "lineno": lambda frame: frame,
}


class Snapshot:
    """The sampled objects that were alive at one moment."""

    def __init__(self, traces: Iterable[RawTrace], traceback_limit: int) -> None:
        """Store the traces, and the maximum number of frames of a trace."""
        self._raw = list(traces)
        #: one trace for each sampled live object
        self.traces = Traces(self._raw)
        self.traceback_limit = traceback_limit

    def dump(self, filename: Union[str, os.PathLike[str]]) -> None:
        """Write the snapshot to a file by pickle."""
        import pickle
        with open(filename, "wb") as file:
            pickle.dump(self, file, pickle.HIGHEST_PROTOCOL)

    @staticmethod
    def load(filename: Union[str, os.PathLike[str]]) -> Snapshot:
        """Read a snapshot from a file of dump().

        Unpickling can execute arbitrary code, so the file's author must be trusted.

        Raises:
            OSError: The file is not readable.
            pickle.UnpicklingError: The file contains no valid pickle.
            ValueError: The pickle is not a snapshot.
        """
        import pickle
        with open(filename, "rb") as file:
            try:
                snapshot = pickle.load(file)
            except OSError:
                raise
            except Exception as e:
                # PyPy's pickle raises exceptions of many classes for invalid data
                raise pickle.UnpicklingError(
                    "%r contains no snapshot: %s. Pass a file that dump() wrote to "
                    "load()"
                    % (os.fspath(filename), e if isinstance(e, pickle.UnpicklingError)
                       else repr(e))) from e
        if not isinstance(snapshot, Snapshot):
            raise ValueError("%r contains a %s instead of a snapshot" % (
                filename, type(snapshot).__name__))
        return snapshot

    def filter_traces(self, filters: Iterable[BaseFilter]) -> Snapshot:
        """Return a snapshot with the traces that pass the filters.

        A trace passes if no exclusive filter matches, and if an inclusive filter
        matches or there are no inclusive filters.
        """
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
            raise ValueError("invalid key type %r: write 'traceback', 'lineno' or "
                             "'filename'" % (key_type,))
        if cumulative and key_type == "traceback":
            raise ValueError("the key type 'traceback' cannot be cumulative: write "
                             "'filename' or 'lineno'")
        groups: _Groups = {}
        # Most traces share their traceback with another trace.
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
        """Return the statistics of groups of traces, the largest first.

        Args:
            key_type: The property that defines the groups, one of "filename", "lineno"
                and "traceback".
            cumulative: Whether a trace belongs to the groups of all its frames instead
                of the innermost frame only.
        """
        result = [
            Statistic(traceback, _bytes(traces), _objects(traces),
                      _error(traces, _VARIANCE), _error(traces,
                                                        _OBJECTS_VARIANCE))
            for traceback, traces in self._groups(key_type, cumulative).items()]
        result.sort(key=Statistic._sort_key, reverse=True)
        return result

    def compare_to(self, old_snapshot: Snapshot, key_type: str,
                   cumulative: bool = False) -> list[StatisticDiff]:
        """Return each group's statistics and their changes since `old_snapshot`.

        The largest change comes first.  See statistics() for `key_type` and
        `cumulative`.
        """
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
    """Return the traces of those samples that only one of the two lists contains."""
    keys = {_at(t, _KEY, None) for t in now} & {_at(t, _KEY, None)
                                                for t in before}
    return [t for t in (*now, *before) if _at(t, _KEY, None) not in keys]
