"""Write the result of the search for leaks to the terminal, the largest leak first."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from vmprof_convert.analysis import holders
from vmprof_convert.analysis.leaks.memory import Memory, Moments
from vmprof_convert.analysis.leaks.search import Leak, Leaks
from vmprof_convert.analysis.leaks.sites import Place
from vmprof_convert.analysis.leaks.statistics import CONFIDENCE, MIN_TREND
from vmprof_convert.analysis.leaks.windows import count_snapshots
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import INTERNAL
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats
from vmprof_convert.report.held import growth_of, holders_of
from vmprof_convert.report.tables import place_of
from vmprof_convert.text.escape import printable, shortened
from vmprof_convert.text.terminal import DOTS, NO_TERMINAL, Terminal, plain, print_prose
from vmprof_convert.text.units import format_bytes, format_change, format_number

MEBIBYTE = 2.0**20
#: if the p-value of a leak exceeds this number, the report adds the rate of false
#: alarms
_SURE = 0.001
#: maximum numbers of types, callers and processes that are named per leak
MAX_TYPES, MAX_CALLERS, MAX_PROCESSES = 4, 3, 4
#: A single object is mentioned if its size is at least this share of the total growth,
#: or at least this share of the growth at its allocation site.
_LARGE, _MOST = 0.1, 0.5
#: maximum number of allocation sites that are listed below the growth of "the rest"
MAX_PLACES = 3


class ProcessLeaks(NamedTuple):
    """The leaks of one of several processes."""

    name: str
    profile: Profile
    #: the leaks of this process alone, or the reason why they are unknown. In that
    #: case, the totals of all processes do not include this process
    leaks: Leaks | str


def write_leaks(profile: Profile, leaks: Leaks, out: TextIO, limit: int = 25, *,
                parts: Sequence[ProcessLeaks] = (), terminal: Terminal = NO_TERMINAL,
                only: str = "") -> None:
    """Write the result of find_leaks() as text.

    Args:
        profile: the profile, or the profile of the first process.
        leaks: the leaks of all processes together.
        out: the file.
        limit: maximum number of leaks of each kind.
        parts: the leaks of each process, if there are several processes.
        terminal: the width and the characters of the terminal.
        only: description of the selected objects; empty for all objects.
    """
    if only:
        print_prose("only " + printable(only), out, terminal)
    _Writer(leaks, out, Origins(profile), terminal).write(profile, limit, parts)


class _Writer:
    def __init__(self, leaks: Leaks, out: TextIO, origins: Origins,
                 terminal: Terminal) -> None:
        self._leaks = leaks
        self._out = out
        self._origins = origins
        self._terminal = terminal
        #: names of the examined processes, if there are several
        self._names: list[str] = []
        #: the retainers by allocation site, if there is only one process
        self._held: dict[Place, list[holders.Share]] = {}

    def write(self, profile: Profile, limit: int,
              parts: Sequence[ProcessLeaks]) -> None:
        """Write the report.  See write_leaks() for the arguments."""
        leaks = self._leaks
        self._profile = profile
        windows = leaks.windows[0]
        self._since, self._until = windows.times[windows.first], windows.times[
            windows.last]
        self._is_raw = profile.is_raw
        self._has_raw = bool(profile.raw_interval)
        looked_at = [part for part in parts if not isinstance(part.leaks, str)]
        self._names = [str(part.profile.pid) for part in looked_at]
        if len(set(self._names)) < len(looked_at):
            self._names = [part.name for part in looked_at]
        if not parts:
            self._held = holders.by_place(profile, self._until)
        is_far = leaks.memory is not None and leaks.memory.is_far is True
        # growth outside of the heap is reported first only if it exceeds each leak
        is_most = is_far and leaks.memory is not None and (
            not leaks.leaks or leaks.memory.outside > max(leaks.memory.explained, *(
                leak.growth.value for leak in leaks.leaks)))
        # a report on native memory is about the memory outside of the heap anyway
        is_far = is_far and not self._is_raw
        is_most = is_most and not self._is_raw
        if is_most:
            self._write_outside()
        if leaks.unseen:
            self._write_unseen(leaks.unseen)
        if leaks.unsure:
            self._write_unsure()
        # smaller leaks may consist of new objects that replaced objects from before the
        # sampling
        certain = [leak for leak in leaks.leaks
                   if leak.growth.value > 2 * leaks.replaced]
        self._write_all(certain, limit, "leak, or garbage" if leaks.unsure
                        else "leak", "grew" if leaks.unsure else "grows")
        replacing = [leak for leak in leaks.leaks if leak not in certain]
        if replacing:
            self._write_replaced()
        self._write_all(replacing, limit, "leak, or new objects that replace old ones",
                        "grows")
        if not leaks.leaks:
            self._write_none()
            if leaks.unseen is None:
                self._say("whether native memory that was not sampled grew is unknown: "
                          "malloc's own count was not read at the end")
        if is_far and not is_most:
            self._write_outside()
        if leaks.slowing:
            self._say("")
        self._write_all(leaks.slowing, limit, "leak, cache or garbage" if leaks.unsure
                        else "slows down, like a cache that fills", "grew")
        self._say("")
        if leaks.leaks or leaks.slowing:
            self._write_rest("the rest: the live bytes of other places " + _total(
                leaks, leaks.rest.growth, leaks.rest.windows))
        one = _one_object(leaks.largest, _LARGE * leaks.growth.value)
        self._say("all together: the live bytes %s%s" % (_total(
            leaks, leaks.growth, leaks.windows_growth, is_all=True),
            "; " + one if one else ""))
        self._write_memory()
        if leaks.apart.low > 0:
            self._say("not included: the data of the JIT and of imports: %s/s"
                      % _change(leaks, leaks.apart))
        if len(leaks.windows) == 1:
            windows, = leaks.windows
            first, middle, last = (windows.times[number] / 1e9 for number in (
                windows.first, windows.middle, windows.last))
            self._say("blocks in use %sat %.2f, %.2f and %.2f s: two windows of %.2f "
                      "and %.2f s" % ("" if leaks.unsure or windows.frees is None else
                                  "after major collections (three of %d) "
                                  % windows.frees,
                                  first, middle, last, *leaks.seconds)
                      if self._is_raw else
                      "objects that heap snapshots reached at %.2f, %.2f and %.2f s: "
                      "two windows of %.2f and %.2f s" % (
                          first, middle, last, *leaks.seconds)
                      if windows.are_snapshots else
                      "objects that major collections found alive at %.2f, %.2f and "
                      "%.2f s (some of them wait for a finalizer, or died during the "
                      "marking%s): two windows of %.2f and %.2f s" % (
                          first, middle, last, "" if not windows.is_single else
                          "; two calls of gc.collect() at each mark exclude these "
                          "objects, and otherwise the growth may consist of them",
                          *leaks.seconds))
        else:
            found = ("blocks in use at three moments in each of %d processes"
                     if self._is_raw else "objects that three heap snapshots or major "
                     "collections of each of %d processes found alive")
            self._say("%s: two windows of %.2f and %.2f s on average" % (
                          found % len(leaks.windows),
                          *leaks.seconds))
        snapshots = count_snapshots(leaks.windows)
        if leaks.leaks and snapshots < MIN_TREND:
            self._say("only %d heap snapshots or major collections are compared: "
                      "memory that warms up, or goes up and down, may still look like "
                      "a leak. A longer run with %d or more excludes much of this" % (
                          snapshots, MIN_TREND))
        if any(leak.p > _SURE for leak in leaks.leaks):
            # a report without uncertain leaks does not need the error rate
            self._say("the search tested %s; in %.0f of 100 runs without a leak, it "
                      "names a leak, if objects come and go one by one" % (
                          format_number(leaks.tested, "place"),
                          100 - 100 * CONFIDENCE))
        if leaks.lost:
            self._say("unknown outcomes: %s"
                      % format_number(leaks.lost, "sampled object"))
        if parts:
            self._say("")
        for part in parts:
            self._say("%s: %s" % (shortened(part.name), (
                "not included: %s" % part.leaks if isinstance(part.leaks, str)
                else "the live bytes %s%s" % (_total(
                    part.leaks, part.leaks.growth, part.leaks.windows_growth),
                    _outside(part.leaks.memory)))))
        named = [(str(part.profile.pid or part.name), part.profile)
                 for part in parts] or [("", profile)]
        for line in caveats.of_runs(named) + caveats.of_labels(
                *(one for _, one in named)):
            self._say(printable(line))

    def _write_none(self) -> None:
        leaks = self._leaks
        enough = ("%s had enough samples; the growth of one place is visible from "
                  "about %s/s on, and with a smaller interval or in a longer run from "
                  "less on" % (
                      format_number(leaks.tested, "place"),
                      format_bytes(leaks.limit)))
        if leaks.growth.low > 0 and min(leaks.windows_growth) > 0:
            # the total grew, but no single allocation site did
            self._write_rest(
                "the live bytes grew by %s/s, but no place clearly grew in both "
                "windows, as a leak does: the growth may be a few large objects, or "
                "too little at each of many places, or it began late (%s)" % (
                    _change(leaks, leaks.growth), enough))
            return
        self._say("%s in %s: %s" % (
            "no clear growth in both windows was found, although freed garbage may "
            "hide growth," if leaks.unsure else "no leak was found",
            "the blocks that were sampled" if leaks.unseen != 0.0 else
            "native memory" if self._is_raw else "the GC's heap",
            "no place that %s retained more and more of them" % (
                "requests blocks" if self._is_raw else "allocates objects")
            if leaks.tested else
            "the live objects of no place have enough samples to show a leak"))
        self._write_rest("(%s)" % enough)

    def _write_unsure(self) -> None:
        """Write that finalizers may still free the native memory that grew."""
        self._say("whether native memory leaks is unknown: PyPy's finalizers free much "
                  "of it after a major collection. Three of these are compared, after "
                  "the first quarter of the run or near the marks: there are too few "
                  "(%s in the whole run). Let the program run longer, or call "
                  "gc.collect() in it" % ", ".join(map(str, self._leaks.unsure)))

    def _write_replaced(self) -> None:
        """Warn that new objects replaced objects from before the sampling."""
        leaks = self._leaks
        self._say("new objects replaced objects from before the sampling: the live "
                  "objects without samples shrank by %s/s, as in a full cache whose "
                  "entries are replaced. Compare with the exact growth of the retainer"
                  % format_bytes(leaks.replaced / sum(leaks.seconds)))

    def _write_unseen(self, unseen: float) -> None:
        """Warn about native memory that was allocated without a sample."""
        self._say("native memory that was not sampled grew: in the whole run, malloc's "
                  "own count grew by %s more than the sampled blocks explain. "
                  "Whether that is a leak, and which function allocates it, is "
                  "unknown" % format_bytes(unseen))
        self._say("      the program calls malloc through pointers that it looked up "
                  "before the sampling began, or small blocks need much bookkeeping. "
                  "Start the program with --native-memory to sample all calls")

    def _write_outside(self) -> None:
        """Warn about growth outside of the GC's heap, which may be the largest leak."""
        memory = self._leaks.memory
        if memory is None:
            return
        grew = "the process%s grew by %s/s, %s in all" % (
            "" if len(self._leaks.windows) == 1 else "es",
            format_bytes(memory.outside / sum(self._leaks.seconds)),
            format_bytes(memory.outside))
        if memory.heap:
            self._say("outside of the GC's heap, %s" % grew)
        else:
            self._say("%s; the size of the GC's heap was not read" % grew)
        self._say("      native memory was sampled, too (--native-memory). Memory "
                  "from mmap, and freed memory that malloc keeps, was not"
                  if self._has_raw else
                  "      the allocating functions are unknown (record them with "
                  "--native-memory 512k): look at C extensions, ctypes and cffi, "
                  "array, mmap, and freed memory that malloc keeps")

    def _write_memory(self) -> None:
        """Write the growth of resident memory and the share that the heap explains."""
        memory = self._leaks.memory
        if memory is None:
            return None if self._is_raw else self._say(
                "memory: resident memory was not read%s: growth outside of the GC's "
                "heap (ctypes, cffi, array, mmap, C extensions) is unknown" % (
                    "" if len(self._leaks.windows) == 1 else " in each process"))
        first, middle, last = memory.resident
        parts = ["memory: meanwhile resident memory %s (%s in the first window, %s in "
                 "the second)" % (_did(memory.resident), _signed(middle - first),
                                  _signed(last - middle))]
        if memory.private:
            parts.append("private memory (USS) %s" % _did(memory.private))
        if self._is_raw:
            return self._say("; ".join(parts))
        if memory.heap:
            parts.append("the GC's own %s" % _did(memory.heap))
            if memory.most and memory.most[2] - memory.most[0] > max(
                    memory.heap[2] - memory.heap[0], 0.0):
                parts.append("the GC's largest size was %s until the first moment, and "
                             "%s until the last" % (format_bytes(memory.most[0]),
                                           format_bytes(memory.most[2])))
            if memory.grown > 0:
                parts.append("that explains %.0f %%; %s came outside of the GC's heap%s"
                             % (100 * memory.explained / memory.grown,
                                format_bytes(memory.outside), "" if self._has_raw else
                                ", where no samples are taken"))
        else:
            parts.append("the size of the GC's heap was not read")
        if memory.is_far is None:
            parts.append("growth outside of the GC's heap is unknown: resident memory "
                         "shows it, and private memory does not, for example because "
                         "of a forked process or mapped files")
        return self._say("; ".join(parts))

    def _write_rest(self, text: str) -> None:
        """Write a text, and list the sites without a leak that grew or shrank most."""
        rest = self._leaks.rest
        places = rest.largest[:MAX_PLACES]
        self._say(text + ("" if not places else "; most of it:" if (
            rest.growth.low > 0 or rest.shrank) else "; the largest growth:"))
        for leak in places:
            self._first_line("      %s/s  %s" % (
                _change(self._leaks, leak.growth), _types(leak)), leak.places)
            if one := _one_object(leak.largest, _MOST * leak.growth.value):
                self._say("            " + one)

    def _say(self, line: str) -> None:
        print_prose(line, self._out, self._terminal)

    def _write_all(self, leaks: list[Leak], limit: int, what: str,
                   verb: str) -> None:
        groups = self._by_retainer(leaks)
        leaks = [leak for group in groups for leak in group]
        heads = {group[0].places: group for group in groups if len(group) > 1}
        for leak in leaks[:limit]:
            self._first_line("%s: %s" % (what, _types(leak)), leak.places)
            self._say("      %s by %s" % (verb, _rate(
                self._leaks, leak.growth, leak.windows)))
            self._write_types(leak)
            if leak.is_replaced:
                self._say("      the objects come and go, as in a queue: of the "
                          "objects of the first window, %.0f %% existed at the end of "
                          "the second"
                          % (100 * (leak.stayed or 0.0)))
            if leak.callers:
                self._say("      called by %s" % _list([
                    "%s (%.0f %%)" % (self._place(place), 100 * share)
                    for place, share in leak.callers], MAX_CALLERS))
            if leak.innermost != leak.places[0]:
                self._say("      most of it in %s" % self._place(leak.innermost))
            shares = self._held.get(leak.places[0], [])
            if held := holders_of(shares):
                self._say("      " + held)
            if shares and len(shares[0].holders) == 1 and (grown := growth_of(
                    shares[0].holders[0], self._profile, self._since, self._until)):
                self._say("      " + grown)
            if group := heads.get(leak.places):
                self._say("      this retainer also keeps what grows at the next %s: "
                          "together %s/s" % (
                              "place" if len(group) == 2
                              else "%d places" % (len(group) - 1),
                              _change(self._leaks, _together(group))))
            if self._names:
                self._say("      " + self._processes(leak))
        if len(leaks) > limit:
            self._say("... and %d more" % (len(leaks) - limit))

    def _by_retainer(self, leaks: list[Leak]) -> list[list[Leak]]:
        """Group leaks by their main retainer, in the order of the first leaks."""
        groups: dict[object, list[Leak]] = {}
        for number, leak in enumerate(leaks):
            shares = self._held.get(leak.places[0], [])
            key: object = number
            if shares and shares[0].holders and shares[0].share > _MOST:
                key = shares[0].holders, leak.is_replaced
            groups.setdefault(key, []).append(leak)
        return [*groups.values()]

    def _write_types(self, leak: Leak) -> None:
        if len(leak.types) < 2:
            return
        seconds = sum(self._leaks.seconds)
        largest = sorted(leak.types, key=lambda one: -one.growth.value)[:MAX_TYPES]
        growing = [one for one in largest if one.growth.value > 0]
        shown = ["%s %s/s" % (one.type.name, _signed(one.growth.value / seconds))
                 for one in growing]
        left = leak.growth.value - sum(one.growth.value for one in growing)
        # the threshold is the precision of the shown numbers
        if abs(left) > 0.005 * abs(leak.growth.value):
            shown.append("other types %s/s" % _signed(left / seconds))
        if len(shown) > 1:
            self._say("      of which %s" % ", ".join(shown))

    def _processes(self, leak: Leak) -> str:
        """Return a text about the processes in which the leak grows."""
        seconds = sum(self._leaks.seconds)
        growing = sorted(((growth.value, name) for growth, name in zip(
            leak.processes, self._names) if growth.low > 0), reverse=True)
        count = len(self._names)
        if len(growing) == count:
            return "in each of the %d processes" % count
        if not growing:
            return "the growth in each of the %d processes is too small to tell" % count
        return "in process %s, of %d processes" % (_list([
            "%s (%s/s)" % (shortened(name), format_bytes(value / seconds))
            for value, name in growing], MAX_PROCESSES), count)

    def _first_line(self, text: str, places: tuple[Place, ...]) -> None:
        """Write a text, the allocation site, and as many of its callers as fit.

        Args:
            text: the kind of the line and the types.
            places: the allocation site and its callers, innermost first.
        """
        from rich.cells import cell_len, set_cell_size
        width = max(self._terminal.width, 8)
        for number, place in enumerate(map(self._place, places)):
            longer = "%s  %s%s" % (text, "<- " if number else "", place)
            if cell_len(longer) > width:
                if number:
                    break
                # cut the names of the types rather than the allocation site
                room = width - cell_len(place) - 3
                if room < 12:
                    print(plain(set_cell_size(text, min(width, cell_len(text))),
                                self._terminal), file=self._out)
                    return self._say("      " + place)
                longer = "%s%s  %s" % (set_cell_size(text, room).rstrip(), DOTS, place)
            text = longer
        print(plain(text, self._terminal), file=self._out)
        return None

    def _place(self, place: Place) -> str:
        name = shortened(place.function.name)
        where = place_of(place.function, place.line, self._origins)
        return "%s  %s" % (name, where) if where else name


def _total(leaks: Leaks, growth: Estimate, windows: tuple[float, float],
           is_all: bool = False) -> str:
    """Return a text about the growth of many sites, which may be due to chance."""
    rate = _rate(leaks, growth, windows, is_all)
    if growth.low > 0:
        return "grew by %s" % rate
    if growth.high < 0:
        return "shrank: %s" % rate
    return "neither grew nor shrank more than by chance: %s" % rate


def _one_object(size: int, enough: float) -> str:
    """Return a text about a single object that is a large part of the growth.

    Such an object may be in use at the last moment by chance. The text is empty if the
    object has less than `enough` bytes.
    """
    return ("%s of it is one object, which existed at the last moment"
            % format_bytes(size)) if 0 < enough <= size else ""


def _outside(memory: Memory | None) -> str:
    """Return a text about the growth of one process outside of the GC's heap.

    The text is empty if the process did not clearly grow there, or if its heap was not
    read.
    """
    return "" if memory is None or not memory.is_far or not memory.heap else (
        "; outside of the GC's heap, it grew by %s" % format_bytes(memory.outside))


def _did(moments: Moments) -> str:
    first, _, last = moments
    if first == last:
        return "stayed at %s" % format_bytes(last)
    return "%s by %s, from %s to %s" % (
        "grew" if last > first else "shrank", format_bytes(abs(last - first)),
        format_bytes(first), format_bytes(last))


def _together(leaks: Sequence[Leak]) -> Estimate:
    """Return the growth of several leaks, whose samples are independent."""
    growths = [leak.growth for leak in leaks]
    value = sum(one.value for one in growths)
    return Estimate(value,
                    value - math.hypot(*(one.value - one.low for one in growths)),
                    value + math.hypot(*(one.high - one.value for one in growths)))


def _change(leaks: Leaks, growth: Estimate) -> str:
    """Return the growth per second as text."""
    seconds = sum(leaks.seconds)
    return format_change(growth.value / seconds, max(
        growth.high - growth.value, growth.value - growth.low) / seconds)


def _rate(leaks: Leaks, growth: Estimate, windows: tuple[float, float],
          is_per_mebibyte: bool = True) -> str:
    rate = "%s/s" % _change(leaks, growth)
    if is_per_mebibyte and leaks.allocated > 0:
        rate += ", %s for each MiB allocated" % _signed(
            growth.value / leaks.allocated * MEBIBYTE)
    return "%s: %s in the first window, %s in the second" % (
        rate, _signed(windows[0]), _signed(windows[1]))


def _types(leak: Leak) -> str:
    """Return the names of the types that clearly grew, or the first types if none did.

    If the allocation site shrank, these are the types that shrank.
    """
    if leak.growth.high < 0:
        types = sorted((one for one in leak.types if one.growth.value < 0),
                       key=lambda one: one.growth.value)
    else:
        types = [one for one in leak.types if one.is_clear] or leak.types
    # a class is more informative than the internal objects of its instances
    types = [one for one in types if one.type.kind != INTERNAL] or types
    return _list([one.type.name for one in types], MAX_TYPES)


def _list(texts: list[str], limit: int) -> str:
    if len(texts) > limit:
        texts = [*texts[:limit], "and %d more" % (len(texts) - limit)]
    return ", ".join(texts)


def _signed(bytes_: float) -> str:
    return ("-" if bytes_ < 0 else "") + format_bytes(abs(bytes_))
