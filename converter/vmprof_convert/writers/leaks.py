"""The report of leaks, for the terminal: the first two lines tell the largest."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TextIO

from vmprof_convert import remarks
from vmprof_convert.leaks import (
    CONFIDENCE,
    MIN_TREND,
    STAYS,
    Growth,
    Leak,
    Leaks,
    Place,
    count_snapshots,
)
from vmprof_convert.model import Profile
from vmprof_convert.origins import Origins
from vmprof_convert.printable import printable, shortened
from vmprof_convert.sheet import place_of
from vmprof_convert.terminal import DOTS, NO_TERMINAL, Terminal, plain, print_prose
from vmprof_convert.units import format_bytes, format_change, format_number

MEBIBYTE = 2.0**20
#: a leak that is more probable by chance is named with how often that happens
_SURE = 0.001
#: of a leak so many are named in its first line
MAX_TYPES = 4


class Part(NamedTuple):
    """One of several processes."""

    name: str
    profile: Profile
    #: by itself; or why that can't be told, and it is not in what was found
    leaks: Leaks | str


def write(profile: Profile, leaks: Leaks, out: TextIO, limit: int = 25, *,
          parts: Sequence[Part] = (), terminal: Terminal = NO_TERMINAL,
          only: str = "") -> None:
    """Write what leaks.find() found, the `limit` largest of each kind; `profile`: the
    first process's; `parts`: of several processes each; `only`: of which objects."""
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

    def write(self, profile: Profile, limit: int, parts: Sequence[Part]) -> None:
        leaks = self._leaks
        self._write_all(leaks.leaks, limit, "leak", "grows")
        if not leaks.leaks:
            self._write_none()
        if leaks.slowing:
            self._say("")
        self._write_all(leaks.slowing, limit, "slows down, like a cache that fills",
                        "grew")
        self._say("")
        self._say("all together: what is held %s" % _total(leaks))
        if len(leaks.windows) == 1:
            windows, = leaks.windows
            self._say("what major collections found alive at %.2f, %.2f and %.2f s: "
                      "two windows of %.2f and %.2f s" % (
                          *(windows.times[number] / 1e9 for number in (
                              windows.first, windows.middle, windows.last)),
                          *leaks.seconds))
        else:
            self._say("what three major collections of each of %d processes found "
                      "alive: two windows of %.2f and %.2f s on average" % (
                          len(leaks.windows), *leaks.seconds))
        snapshots = count_snapshots(leaks.windows)
        if leaks.leaks and snapshots < MIN_TREND:
            self._say("only %d major collections are looked at: what warms up, or goes "
                      "up and down, may still look like a leak; with %d or more, in a "
                      "longer run, much of that is told apart" % (snapshots, MIN_TREND))
        if any(min(site.p for site in leak.sites) > _SURE for leak in leaks.leaks):
            # who is told nothing else need not wonder how sure that is
            self._say("looked at were %s; where nothing leaks, a leak is named in "
                      "%.0f of 100 runs, if objects come and go one by one" % (
                          format_number(leaks.tested, "place"),
                          100 - 100 * CONFIDENCE))
        if leaks.lost:
            self._say("lost: what became of %s is not known"
                      % format_number(leaks.lost, "sampled object"))
        if parts:
            self._say("")
        for part in parts:
            self._say("%s: %s" % (shortened(part.name), (
                "not in it: %s" % part.leaks if isinstance(part.leaks, str)
                else "what is held %s" % _total(part.leaks))))
        named = [(str(part.profile.pid or part.name), part.profile)
                 for part in parts] or [("", profile)]
        for line in remarks.of_runs(named) + remarks.of_labels(
                *(one for _, one in named)):
            self._say(printable(line))

    def _write_none(self) -> None:
        leaks = self._leaks
        self._say("no leak was found: %s" % (
            "no place where objects are allocated held more and more of them"
            if leaks.tested else
            "nothing that is kept has enough samples to show one"))
        enough = ("%s had enough samples; what one type at one place adds shows from "
                  "about %s/s on, and less with a smaller interval or in a longer "
                  "run" % (format_number(leaks.tested, "place"),
                           format_bytes(leaks.limit)))
        if leaks.growth.low > 0:
            # what the total says, and no place
            self._say("but what is held, all together, grew: many places may add too "
                      "little each (%s)" % enough)
        else:
            self._say("(%s)" % enough)

    def _say(self, line: str) -> None:
        print_prose(line, self._out, self._terminal)

    def _write_all(self, leaks: list[Leak], limit: int, what: str,
                   verb: str) -> None:
        for leak in leaks[:limit]:
            self._first_line("%s: %s" % (what, _types(leak)), leak.places)
            self._say("      %s by %s" % (verb, _rate(
                self._leaks, leak.growth, leak.windows)))
            if len(leak.sites) > 1:
                self._say("      of which %s" % ", ".join(
                    "%s %s/s" % (site.type.name, _signed(
                        site.growth.value / sum(self._leaks.seconds)))
                    for site in leak.sites))
            if leak.stayed < STAYS:
                self._say("      it comes and goes, as in a queue: of what came in the "
                          "first window, %.0f %% was there at the end of the second"
                          % (100 * leak.stayed))
            inside = leak.largest.innermost
            if inside != leak.places[0]:
                self._say("      most of it in %s" % self._place(inside))
        if len(leaks) > limit:
            self._say("... and %d more" % (len(leaks) - limit))

    def _first_line(self, text: str, places: tuple[Place, ...]) -> None:
        """With as many callers as there is room for."""
        from rich.cells import cell_len, set_cell_size
        width = max(self._terminal.width, 8)
        for number, place in enumerate(map(self._place, places)):
            longer = "%s  %s%s" % (text, "<- " if number else "", place)
            if cell_len(longer) > width:
                if number:
                    break
                # the place tells more than the rest of the types
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


def _total(leaks: Leaks) -> str:
    """What all together does: it may do nothing that is more than chance."""
    growth = leaks.growth
    rate = _rate(leaks, growth, leaks.windows_growth)
    if growth.low > 0:
        return "grew by %s" % rate
    if growth.high < 0:
        return "shrank: %s" % rate
    return "neither grew nor shrank more than by chance: %s" % rate


def _rate(leaks: Leaks, growth: Growth, windows: tuple[float, float]) -> str:
    seconds = sum(leaks.seconds)
    rate = "%s/s" % format_change(
        growth.value / seconds, (growth.high - growth.low) / 2 / seconds)
    if leaks.allocated > 0:
        rate += ", %s for each MiB allocated" % _signed(
            growth.value / leaks.allocated * MEBIBYTE)
    return "%s: %s in the first window, %s in the second" % (
        rate, _signed(windows[0]), _signed(windows[1]))


def _types(leak: Leak) -> str:
    names = [site.type.name for site in leak.sites]
    if len(names) > MAX_TYPES:
        names[MAX_TYPES:] = ["and %d more" % (len(names) - MAX_TYPES)]
    return ", ".join(names)


def _signed(bytes_: float) -> str:
    return ("-" if bytes_ < 0 else "") + format_bytes(abs(bytes_))
