"""The report of leaks, for the terminal: the first two lines tell the largest."""
from __future__ import annotations

from typing import TextIO

from vmprof_convert import remarks
from vmprof_convert.leaks import CONFIDENCE, Growth, Leak, Leaks, Place
from vmprof_convert.model import Profile
from vmprof_convert.units import format_bytes, format_number, format_range

MEBIBYTE = 2.0**20
#: of a leak so many are named in its first line
MAX_TYPES = 4


def write(profile: Profile, leaks: Leaks, out: TextIO, limit: int = 25) -> None:
    """Write what leaks.find() found, the `limit` largest of each kind."""
    first, second = leaks.windows.seconds
    for leak in leaks.leaks[:limit]:
        print("leak: %s" % _what(leak), file=out)
        print("      grows by %s" % _rate(leaks, leak.growth, leak.windows),
              file=out)
        if len(leak.sites) > 1:
            print("      of which %s" % ", ".join(
                "%s %s/s" % (site.type.name, _signed(
                    site.growth.value / sum(leaks.windows.seconds)))
                for site in leak.sites), file=out)
    if len(leaks.leaks) > limit:
        print("... and %d more" % (len(leaks.leaks) - limit), file=out)
    if not leaks.leaks:
        print("no leak was found: no place where objects are allocated held more "
              "and more of them", file=out)
        print("(%s had enough samples to tell; what one type at one place adds shows "
              "from about %s/s on: of less, with a smaller interval or in a longer "
              "run)" % (format_number(leaks.tested, "place"),
                        format_bytes(leaks.limit)), file=out)
    if leaks.slowing:
        print(file=out)
    for leak in leaks.slowing[:limit]:
        print("slows down, like a cache that fills: %s" % _what(leak), file=out)
        print("      grew by %s" % _rate(leaks, leak.growth, leak.windows),
              file=out)
    if len(leaks.slowing) > limit:
        print("... and %d more" % (len(leaks.slowing) - limit), file=out)
    print(file=out)
    print("all together: what is held grew by %s" % _rate(
        leaks, leaks.growth, leaks.windows_growth), file=out)
    print("what major collections found alive at %.2f, %.2f and %.2f s: two windows "
          "of %.2f and %.2f s" % (
              *(leaks.windows.times[number] / 1e9 for number in (
                  leaks.windows.first, leaks.windows.middle, leaks.windows.last)),
              first, second), file=out)
    if leaks.leaks:
        print("of %s that had enough samples to tell; in %.0f of 100 runs without a "
              "leak none is named, if objects come and go one by one" % (
                  format_number(leaks.tested, "place"), 100 * CONFIDENCE), file=out)
    if leaks.lost:
        print("lost: what became of %s is not known"
              % format_number(leaks.lost, "sampled object"), file=out)
    for line in remarks.of_run(profile):
        print(line, file=out)


def _what(leak: Leak) -> str:
    names = [site.type.name for site in leak.sites]
    if len(names) > MAX_TYPES:
        names[MAX_TYPES:] = ["and %d more" % (len(names) - MAX_TYPES)]
    return "%s  %s" % (", ".join(names), "  <- ".join(map(_place, leak.places)))


def _place(place: Place) -> str:
    name, _, file, _ = place.function
    if not file:
        return name
    return "%s  %s:%d" % (name, file, place.line) if place.line else (
        "%s  %s" % (name, file))


def _rate(leaks: Leaks, growth: Growth, windows: tuple[float, float]) -> str:
    seconds = sum(leaks.windows.seconds)
    allocated = sum(leaks.windows.allocated)
    value, low, high = (bytes_ / seconds for bytes_ in growth)
    rate = "%s/s (95 %%: %s)" % (
        _signed(value), format_range(max(low, 0.0), max(value, 0.0),
                                     max(high, 0.0)))
    if allocated > 0:
        rate += ", %s for each MiB allocated" % _signed(
            growth.value / allocated * MEBIBYTE)
    return "%s: %s in the first window, %s in the second" % (
        rate, _signed(windows[0]), _signed(windows[1]))


def _signed(bytes_: float) -> str:
    return ("-" if bytes_ < 0 else "") + format_bytes(abs(bytes_))
