"""The profile as a whole."""
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

# Every version is upgraded by the front end for ever, and one that is newer
# than the user's front end is refused: 64 is the oldest that has what is
# needed here.
PROCESSED_VERSION = 64
#: of Firefox's own profiles at that time; nothing depends on it here
GECKO_VERSION = 36
#: So many tracks are seen at first, and the last one; the others are in its menu.
MAX_TRACKS = 12
#: The interval where there is none; "Profile info" calls it 0.0ns.  0 would hide it
#: there, and the front end divides by it: it draws no track of a rate, and says of a
#: sample that it was taken at "<invalid>ns".  Without an interval, it fills no track
#: of a size, either.
_NO_INTERVAL = 1e-9


class ProfileBuilder:
    """Collects functions, stacks, threads and counters.

    Ask for functions, then for frames of them, then for stacks; what is asked for
    twice is there once.  Then add threads and counters.
    """

    def __init__(self, *, product: str, interval: float, start: float,
                 end: float = 0.0, arguments: str = "", system: str = "",
                 source: str = "", unit: str = "ms"):
        """`product` is the title.  `interval` is
        the time between two time samples, 0.0: there is none; and `end` the
        length of the run, in milliseconds; the profile gets longer when its
        samples are.  `start` is milliseconds since 1970, 0.0: not known.
        `source` names the tool that took the profile.  If `unit` is "bytes", all
        times are bytes allocated instead."""
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
        #: of each process, among them
        self._main_threads: dict[str, int] = {}
        self._counters: list[Counter] = []
        self._extra: list[Json] = []

    def function(self, name: str, file: str = "", line: int = 0, *,
                 python: bool, shown: str = "") -> int:
        """The index of a function; `line` is that of its definition, and `shown`
        is how its file is called."""
        return self._functions.index(name, file, line, python, shown)

    def set_sources(self, texts: Mapping[str, str]) -> None:
        """The text of these files goes into the profile."""
        self._sources.texts = texts

    def string(self, text: str) -> int:
        """The index of a text, for markers."""
        return self._strings.index(text)

    def frame(self, function: int, category: Category, line: int = 0) -> int:
        """The index of a frame; `line` is the executed one."""
        return self._frames.index(function, category, line)

    def stack(self, caller: int, frame: int) -> int:
        """The index of a stack: `frame`, called by what the stack `caller` ends with;
        -1: by nobody."""
        return self._stacks.index(caller, frame)

    def add_thread(self, thread: Thread) -> None:
        """Threads appear in the order in which they are added; of each process
        the main thread comes first.  The first process stays on top."""
        if thread.main != (thread.pid not in self._main_threads):
            raise ValueError("the first thread of a process, and no other, is its "
                             "main one")
        self._main_threads.setdefault(thread.pid, len(self._threads))
        self._threads.append(thread)

    @property
    def end(self) -> float:
        """Of the run, as it was given."""
        return self._end

    def has_process(self, pid: str) -> bool:
        """Whether there is a thread of it."""
        return pid in self._main_threads

    def add_counter(self, counter: Counter, pid: str) -> None:
        """Of a process that has threads."""
        counter.pid, counter.main_thread = pid, self._main_threads[pid]
        self._counters.append(counter)

    def add_extra(self, label: str, entries: list[Entry]) -> None:
        """A section of the panel "Profile info"."""
        self._extra.append(section(label, entries))

    def _end_time(self) -> float:
        return max(self._end,
                   *(thread.end() + self._interval for thread in self._threads),
                   *(counter.times[-1] for counter in self._counters))

    def build(self) -> Json:
        """The profile, ready for json.dump; there must be a thread."""
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
            # names and lines are known: nothing is to be looked up
            "symbolicated": True,
            "symbolicationNotSupported": True,
            "sourceCodeIsNotOnSearchfox": True,
            # without these, a thread that only allocates is hidden
            "initialVisibleThreads": [
                number for number in range(len(self._threads))
                if number < MAX_TRACKS or number == len(self._threads) - 1],
            "initialSelectedThreads": [0],
            "keepProfileThreadOrder": True,
            "extra": self._extra,
        }
