"""Formatting of numbers of bytes and objects, with units and intervals.

Functions with `low`, `number` and `high` format an estimate and the ends of its
interval. If `bytes_` is true, the numbers are bytes, otherwise numbers of objects.
"""
from __future__ import annotations

_BYTES = [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"),
          (2.0**10, "KiB"), (1.0, "B")]
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")]
_COUNTS = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]


def format_bytes(number: float) -> str:
    """Format a number of bytes with three significant digits, such as "1.53 MiB"."""
    scale, unit = _scale(number, _BYTES)
    return "%s %s" % (_three_digits(number / scale), unit)


def format_ends(low: float, number: float, high: float,
                bytes_: bool = True) -> tuple[str, str, str]:
    """Return a number and the ends of its interval as texts with units.

    The texts have three digits or, if the texts of the ends were equal, up to six, such
    as "28.32 GiB", "28.31 GiB", "28.34 GiB". If six digits are not enough, the texts
    have three.

    Returns:
        The texts of `number`, `low` and `high`.
    """
    units = _BYTES if bytes_ else _COUNTS
    between = " " if bytes_ else ""

    def texts(more: int) -> tuple[str, str, str]:
        return (_with_unit(number, units, between, more),
                _with_unit(low, units, between, more),
                _with_unit(high, units, between, more))

    for more in 0, 1, 2, 3:
        found = texts(more)
        if found[1] != found[2]:
            return found
    return texts(0)


def _with_unit(number: float, units: list[tuple[float, str]], between: str,
               more: int) -> str:
    if number < 0:
        return "-" + _with_unit(-number, units, between, more)
    scale, unit = _scale(number, units)
    return _three_digits(number / scale, more) + between * bool(unit) + unit


def format_count(number: float) -> str:
    """Format a number of objects with three significant digits, such as "1.53M"."""
    scale, unit = _scale(number, _COUNTS)
    return _three_digits(number / scale) + unit


def format_seconds(number: float) -> str:
    """Format a duration in seconds with three digits, such as "1.53 s" or "20 ms"."""
    scale, unit = _scale(number, _SECONDS) if number else _SECONDS[0]
    return "%s %s" % (_three_digits(number / scale), unit)


def format_moment(nanoseconds: int) -> str:
    """Format a time since the start in seconds, such as "2.5 s" or "0.133 s".

    The time is rounded to milliseconds, unless it is less than a millisecond.
    """
    seconds = nanoseconds / 1e9
    return "%.9g s" % (seconds if seconds < 0.001 else round(seconds, 3))


def format_number(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 function" or "2 functions"."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def format_range(low: float, number: float, high: float,
                 bytes_: bool = True) -> str:
    """Return the interval from `low` to `high` in the unit of `number`: "1.47-1.60".

    If an end had too many digits, both ends get their own units: "0.87K-29.6M".
    """
    units = _BYTES if bytes_ else _COUNTS
    scale, _ = _scale(number, units)
    if high >= 9999.5 * scale:
        return "%s-%s" % (_with_letter(low, units), _with_letter(high, units))
    return "%s-%s" % (_three_digits(low / scale), _three_digits(high / scale))


def format_estimate(low: float, number: float, high: float,
                    bytes_: bool = True) -> str:
    """Return an estimate with its largest error: "36.3 ±4.4 MiB" or "894k ±34k".

    The error is the distance to the farther end of the interval. If the error is as
    large as the number, the text contains the upper end instead: "129 <20.3k".
    """
    units = _BYTES if bytes_ else _COUNTS
    scale, unit = _scale(number, units)
    text = _three_digits(number / scale)
    if unit and bytes_:
        unit = " " + unit
    off = max(high - number, number - low)
    if off and off >= 0.995 * number:
        return "%s%s <%s" % (text, unit, _with_letter(high, units))
    if off:
        digits = 0 if number / scale >= 99.95 else 1 if number / scale >= 9.995 else 2
        # more digits for a small error
        while digits < 4 and not float("%.*f" % (digits, off / scale)):
            digits += 1
        error = " \u00b1%.*f" % (digits, off / scale)
        # 36.3 +-4.4 MiB, but 894k +-34k: k is part of the number
        text += error if bytes_ else unit + error
    return text + unit


def format_difference(low: float, number: float, high: float,
                      bytes_: bool = True) -> str:
    """Return a difference with its sign and its largest error.

    The error is the distance to the farther end of the interval. Examples are
    "+36.3 ±4.4 MiB" and "-0.17k ±27k".
    """
    units = _BYTES if bytes_ else _COUNTS
    off = max(high - number, number - low)
    # the unit of the larger number: 0.31 \u00b11.10 MiB, not 317 \u00b11126 KiB
    scale, unit = _scale(max(abs(number), off), units)
    digits = 0 if abs(number) / scale >= 99.95 else 1 if abs(
        number) / scale >= 9.995 else 2
    if not unit or unit == "B":
        digits = 0
    text = "%+.*f" % (digits, number / scale)
    if off:
        while unit not in ("", "B") and digits < 4 and not float(
                "%.*f" % (digits, off / scale)):
            digits += 1
        text += "%s \u00b1%.*f" % ("" if bytes_ else unit, digits, off / scale)
    return text + (" " + unit if unit and bytes_ else unit)


def format_change(number: float, deviation: float) -> str:
    """Return a change in bytes with its largest error, such as "-36.3 ±4.4 MiB"."""
    scale, unit = _scale(max(abs(number), deviation), _BYTES)
    digits = 0 if max(abs(number), deviation) / scale >= 99.95 else 1
    # more digits for a small error
    while deviation and digits < 4 and not float("%.*f" % (digits, deviation / scale)):
        digits += 1
    return "%s%s \u00b1%s %s" % (
        "-" if number < 0 else "", _three_digits(abs(number) / scale),
        "%.*f" % (digits, deviation / scale), unit)


def format_deviation(low: float, number: float, high: float,
                     bytes_: bool = True) -> str:
    """Return the largest error of an estimate as a share of `number`, such as "+-12%".

    If the error is as large as `number`, the text is the upper end: "<9.01K".
    """
    if not number:
        return ""
    share = max(high - number, number - low) / number
    if share >= 0.995:
        return "<" + _with_letter(high, _BYTES if bytes_ else _COUNTS)
    if 0 < share < 0.005:
        return "+-<1%"
    return "+-%.0f%%" % (100 * share)


def _with_letter(number: float, units: list[tuple[float, str]]) -> str:
    scale, unit = _scale(number, units)
    return _three_digits(number / scale) + unit[:1]


def _scale(number: float, units: list[tuple[float, str]]) -> tuple[float, str]:
    for scale, unit in units:
        if number >= 0.9995 * scale:
            return scale, unit
    return units[-1]


def _three_digits(number: float, more: int = 0) -> str:
    """Return `number` with three significant digits and `more` digits."""
    if number == int(number):
        return "%.0f" % number
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return "%.*f" % (digits + more, number)
