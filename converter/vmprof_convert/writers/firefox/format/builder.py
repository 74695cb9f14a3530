"""The builder of a file for the Firefox Profiler, from its parts."""
from __future__ import annotations

from collections.abc import Mapping

from vmprof_convert.writers.firefox.format.categories import CATEGORIES, Category
from vmprof_convert.writers.firefox.format.counters import Counter
from vmprof_convert.writers.firefox.format.extra import Entry, section
from vmprof_convert.writers.firefox.format.json_types import Json
from vmprof_convert.writers.firefox.format.markers import SCHEMAS
from vmprof_convert.writers.firefox.format.tables import (
    FrameTable,
    FuncTable,
    SourceTable,
    StackTable,
    StringTable,
)
from vmprof_convert.writers.firefox.format.threads import Thread

# The front end upgrades all older versions. It refuses versions that are newer than
# itself. Version 64 is the oldest one with all necessary features.
PROCESSED_VERSION = 64
#: version in Firefox's own profiles at the time of PROCESSED_VERSION; it has no effect
GECKO_VERSION = 36
#: Number of tracks that are visible at first, in addition to the last track. Users can
#: show the other tracks by a menu.
MAX_TRACKS = 12
#: Interval in milliseconds of a profile without CPU samples. "Profile info" shows it as
#: 0.0ns. With 0, "Profile info" would not show the interval. The front end would divide
#: by zero, draw no track of a rate, and show "<invalid>ns" as the time of a sample.
#: Without any interval, the front end would not fill tracks of sizes, either.
_NO_INTERVAL = 1e-9


class ProfileBuilder:
    """A collection of functions, stacks, threads and counters that becomes a file.

    Add functions, then their frames, then stacks of frames. Adding the same item twice
    returns the same index. Then add threads and counters, and call build().
    """

    def __init__(self, *, product: str, interval: float, start: float,
                 end: float = 0.0, arguments: str = "", system: str = "",
                 source: str = "", unit: str = "ms"):
        """Create a file without threads.

        Args:
            product: The title of the profile.
            interval: Milliseconds between two CPU samples, 0.0 without CPU samples.
            start: Milliseconds since 1970, 0.0 if unknown.
            end: The duration of the run in milliseconds. If samples are later, the
                profile is longer.
            arguments: The command of the program.
            system: The name of the operating system.
            source: The name of the tool that recorded the profile.
            unit: "ms", or "bytes" if all times are numbers of allocated bytes.
        """
        self._product = product
        self._interval = interval or _NO_INTERVAL
        self._start = start
        self._end = end
        self._arguments = arguments
        self._system = system
        self._source = source
        self._unit = unit
        self._strings = StringTable()
        self._sources = SourceTable(self._strings)
        self._functions = FuncTable(self._strings, self._sources)
        self._frames = FrameTable()
        self._stacks = StackTable()
        self._threads: list[Thread] = []
        #: index in `_threads` of the main thread of each process
        self._main_threads: dict[str, int] = {}
        self._counters: list[Counter] = []
        self._extra: list[Json] = []

    def function(self, name: str, file: str = "", line: int = 0, *,
                 python: bool, shown: str = "") -> int:
        """Return the index of a function.

        Args:
            name: The name of the function.
            file: The path of its source file, "" if unknown.
            line: The line of its definition, 0 if unknown.
            python: Whether it is a Python function.
            shown: The path as the Profiler shows it, by default `file`.
        """
        return self._functions.index(name, file, line, python, shown)

    def set_sources(self, texts: Mapping[str, str]) -> None:
        """Set the texts of the source files that the profile includes, by path."""
        self._sources.texts = texts

    def string(self, text: str) -> int:
        """Return the index of a text, which markers use as their name."""
        return self._strings.index(text)

    def frame(self, function: int, category: Category, line: int = 0) -> int:
        """Return the index of a frame; `line` is the executed line, 0 if unknown."""
        return self._frames.index(function, category, line)

    def stack(self, caller: int, frame: int) -> int:
        """Return the index of a stack.

        Args:
            caller: The index of the caller's stack, -1 if `frame` is the outermost.
            frame: The index of the innermost frame.
        """
        return self._stacks.index(caller, frame)

    def add_thread(self, thread: Thread) -> None:
        """Add a thread after all others.

        The main thread of a process must be its first thread. The tracks of the first
        process are on top.

        Raises:
            ValueError: The thread is the first one of its process but not its main
                thread, or the reverse.
        """
        if thread.main != (thread.pid not in self._main_threads):
            raise ValueError("the first thread of a process, and no other, is its "
                             "main one")
        self._main_threads.setdefault(thread.pid, len(self._threads))
        self._threads.append(thread)

    @property
    def end(self) -> float:
        """The duration of the run in milliseconds, as given to the constructor."""
        return self._end

    def has_process(self, pid: str) -> bool:
        """Return whether a thread of this process was added."""
        return pid in self._main_threads

    def add_counter(self, counter: Counter, pid: str) -> None:
        """Add a counter to a process that has threads."""
        counter.pid, counter.main_thread = pid, self._main_threads[pid]
        self._counters.append(counter)

    def add_extra(self, label: str, entries: list[Entry]) -> None:
        """Add a section to the panel "Profile info"."""
        self._extra.append(section(label, entries))

    def _end_time(self) -> float:
        return max(self._end,
                   *(thread.end() + self._interval for thread in self._threads),
                   *(counter.times[-1] for counter in self._counters))

    def build(self) -> Json:
        """Return the profile as a dict for JSON; at least one thread is necessary."""
        return {
            "meta": self._build_meta(),
            "libs": [],
            "pages": [],
            "counters": [counter.build() for counter in self._counters],
            "shared": {
                "stringArray": self._strings.build(),
                "sources": self._sources.build(),
                "sourceLocationTable": {
                    "length": 0, "source": [], "line": [], "column": []},
                "funcTable": self._functions.build(),
                "frameTable": self._frames.build(),
                "stackTable": self._stacks.build(),
                "resourceTable": {
                    "length": 0, "name": [], "host": [], "type": [], "lib": []},
                "nativeSymbols": {
                    "length": 0, "libIndex": [], "address": [], "name": [],
                    "functionSize": []},
            },
            "threads": [thread.build(first=thread.pid == self._threads[0].pid)
                        for thread in self._threads],
        }

    def _build_meta(self) -> Json:
        return {
            "version": GECKO_VERSION,
            "preprocessedProfileVersion": PROCESSED_VERSION,
            "interval": self._interval,
            "startTime": self._start,
            "profilingStartTime": 0,
            "profilingEndTime": self._end_time(),
            "processType": 0,
            "product": self._product,
            "arguments": self._arguments,
            "importedFrom": self._source,
            "oscpu": self._system,
            "stackwalk": 1,
            **({} if self._unit == "ms" else {"sampleUnits": {
                "time": self._unit, "eventDelay": "ms",
                "threadCPUDelta": "ns"}}),
            "categories": CATEGORIES,
            "markerSchema": SCHEMAS,
            # the profile has the names and lines, so the front end need not look them
            # up
            "symbolicated": True,
            "symbolicationNotSupported": True,
            "sourceCodeIsNotOnSearchfox": True,
            # without these two, the front end hides threads without CPU samples
            "initialVisibleThreads": [
                number for number in range(len(self._threads))
                if number < MAX_TRACKS or number == len(self._threads) - 1],
            "initialSelectedThreads": [0],
            "keepProfileThreadOrder": True,
            "extra": self._extra,
        }
