"""Parse and check the settings that users write, such as intervals and limits.

The commands, the API, the pytest plugin, tracemalloc and vmprof_push use this module.
Each error is a WrongType or a WrongValue, which are AllocationSamplingErrors.
"""
from __future__ import annotations

import os
import time

from vmprof_allocation.errors import WrongType, WrongValue
from vmprof_allocation.settings.settings import Limit, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.settings.settings import Gaps

#: factors of the units, by name in lower case: k, kB and KiB are the same
_UNITS = {"": 1, "b": 1, **{
    letter + rest: 2**(10 * power) for power, letter in enumerate("kmgt", 1)
    for rest in ("", "b", "ib")}}
#: maximum number of digits of a number
_MAX_DIGITS = 40
#: maximum interval in bytes (SAMPLER_MAX_INTERVAL of native/sampler/sampler.h)
MAX_INTERVAL = 2**62
#: first interval in bytes of a run with a limit (PACE_FIRST_INTERVAL of
#: native/shared/pace.h)
FIRST_INTERVAL = 65536
MAX_PER_SECOND = 10**6
MAX_SEED = 2**64 - 1
#: limits for the time between two profiles in seconds
MIN_ROTATE, MAX_ROTATE = 0.1, 10**7
#: seconds of a unit of time
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

#: advice in errors about limits
LIMIT_FORMS = ("write auto, auto:1000/s (samples per second) or auto:0.5% (of the "
               "time)")
#: share of the run time, in millionths, that the limit `auto` means
DEFAULT_SHARE = 5000


def _are_digits(text: str) -> bool:
    # isdigit() alone accepts digits of other scripts, and int() accepts underscores
    return text.isascii() and text.isdigit()


def parse_limit(text: str) -> Limit | None:
    """Parse a limit: ``auto``, ``auto:1000/s`` or ``auto:0.5%``.

    Args:
        text: the text.

    Returns:
        The limit, or None if the text does not begin like a limit.

    Raises:
        WrongValue: the limit is not 1 to 1000000 samples per second, or 0.001 % to 50 %
            of the run time.
    """
    name, colon, value = text.strip().lower().partition(":")
    if name != "auto":
        return None
    if not colon:
        return Limit(share=DEFAULT_SHARE)
    number = value[:-2] if value.endswith("/s") else value[:-1]
    whole, point, fraction = number.partition(".")
    if not (_are_digits(whole + fraction)
            and (value.endswith("%") or (value.endswith("/s") and not point))):
        raise WrongValue(
            "invalid limit %r: %s" % (text, LIMIT_FORMS))
    if len(number) > _MAX_DIGITS:
        raise _limit_out_of_range(text)
    if value.endswith("/s"):
        limit = Limit(per_second=int(number))
        good = 1 <= limit.per_second <= MAX_PER_SECOND
    else:
        # convert the digits to millionths, because a float would not be exact
        limit = Limit(share=int(whole + (fraction + "0000")[:4]))
        good = 10 <= limit.share <= 500000 and not fraction[4:].strip("0")
    if not good:
        raise _limit_out_of_range(text)
    return limit


def _limit_out_of_range(text: str) -> WrongValue:
    return WrongValue(
        "invalid limit %r: it must be 1 to %d samples per second, or 0.001%% to 50%% "
        "of the time in steps of 0.0001%%"
        % (text, MAX_PER_SECOND))


def parse_interval(text: str) -> int:
    """Parse a sample interval.

    Args:
        text: a number of bytes, or a number with a unit. The units k, K, kB and KiB are
            the same, and so on for M, G and T. They are powers of 1024. With a unit,
            the number may have a fraction, such as 1.5.

    Returns:
        The interval in bytes.

    Raises:
        WrongValue: the text is invalid, or the interval is not in 1 to 2**62.
    """
    stripped = text.strip().lower()
    number = stripped.rstrip("kmgtib ")
    unit = _UNITS.get(stripped[len(number):].lstrip(), 0)
    digits = number[1:] if number[:1] in ("+", "-") else number
    whole, point, fraction = digits.partition(".")
    if not (unit and _are_digits(whole + fraction)
            and (unit > 1 or not point)):
        raise WrongValue(
            "invalid sample interval %r: write a number of bytes, such as 131072, "
            "128k, 128KiB or 1.5M (all powers of 1024), or auto" % text)
    # limit the digits, because int() refuses thousands of them
    whole, fraction = whole.lstrip("0"), fraction[:_MAX_DIGITS]
    if len(whole) > _MAX_DIGITS:
        return check_interval(MAX_INTERVAL + 1, text)
    scale = 10 ** len(fraction)
    size = int("0" + whole + fraction) * unit
    size = (2 * size + scale) // (2 * scale)
    return check_interval(-size if number[0] == "-" else size, text)


def make_interval(interval: int | str) -> int:
    """Check a sample interval.

    Args:
        interval: a number of bytes, or text for parse_interval().

    Returns:
        The interval in bytes.

    Raises:
        WrongType: the interval is neither an integer nor text.
        WrongValue: the text is invalid, or the interval is not in 1 to 2**62.
    """
    if type(interval) not in (int, str):
        raise WrongType(
            "invalid sample interval %r: write a number of bytes, such as 131072 or "
            '"128k"' % (interval,))
    return (parse_interval(interval) if isinstance(interval, str)
            else check_interval(interval))


def check_interval(interval: int, text: str | None = None) -> int:
    """Check that an interval is in range, and return it.

    Args:
        interval: the interval in bytes.
        text: the interval as the user wrote it, for the message.

    Raises:
        WrongValue: the interval is not in 1 to 2**62.
    """
    if not 1 <= interval <= MAX_INTERVAL:
        raise WrongValue(
            "invalid sample interval %s: it is too %s, and must be between 1 byte and "
            "2**62 bytes" % (interval if text is None else repr(text),
                             "small" if interval < 1 else "large"))
    return interval


def make_settings(interval: int | str, seed: int | None = None,
                  gaps: Gaps = "exponential", period: float | None = None,
                  memory: bool = False, lifetimes: bool = True,
                  follow: bool = True, rotate: float = 0.0,
                  native: bool = False, held: bool = False,
                  lines: bool = False, raw_memory: int | str | None = None,
                  memory_at_end: bool = False,
                  snapshots: bool = False) -> Settings:
    """Check the settings that the user requests.

    See :class:`settings.Settings` for the other arguments.

    Args:
        interval: a number of bytes, text such as ``128k``, or a limit such as ``auto``,
            which the interval then follows.
        seed: seed of the generator of gaps. None for a random seed, which the profile
            records.
        gaps: ``exponential`` or ``fixed``.
        period: seconds between two CPU samples; None for no CPU samples.
        memory: see Settings.
        lifetimes: see Settings.
        follow: see Settings.
        rotate: see Settings.
        native: see Settings.
        held: see Settings.
        lines: see Settings.
        raw_memory: interval for native memory, like `interval` but without a limit.
            None for no samples of native memory.
        memory_at_end: see Settings.
        snapshots: see Settings.

    Raises:
        WrongType: a setting has an invalid type.
        WrongValue: a setting has an invalid value, or two settings exclude each other.
    """
    limit = parse_limit(interval) if isinstance(interval, str) else None
    interval = FIRST_INTERVAL if limit else make_interval(interval)
    if seed is None:
        try:
            seed = int.from_bytes(os.urandom(8), "little")
        except NotImplementedError:     # without /dev, take another varying number
            seed = (os.getpid() << 40 ^ time.time_ns()) & MAX_SEED
    elif not isinstance(seed, int):
        raise WrongType(
            "invalid seed %r: write an integer, such as 1, or omit the seed"
            % (seed,))
    elif not 0 <= seed <= MAX_SEED:
        raise WrongValue(
            "invalid seed %d: it must be between 0 and 2**64 - 1"
            % seed)
    if gaps not in ("exponential", "fixed"):
        raise WrongValue(
            "invalid sampling distribution %r: write exponential or fixed" % (gaps,))
    if period is not None and not isinstance(period, (int, float)):
        raise WrongType(
            "invalid period %r: write the seconds between two CPU samples, such as "
            "0.001, or omit the period" % (period,))
    # vmprof refuses other periods
    if period is not None and not 1e-6 <= period < 1.0:
        raise WrongValue(
            "invalid period %r: it must be at least 0.000001 and less than 1.0 "
            "seconds" % period)
    if limit is not None and gaps == "fixed":
        raise WrongValue(
            "a fixed distribution cannot follow a limit: if n changes, every n-th byte "
            "is not a fair choice among all bytes. Omit --allocation-distribution")
    if snapshots and not lifetimes:
        raise WrongValue(
            "heap snapshots (--leaks) find the live objects, but a profile without "
            "lifetimes cannot record them. Omit --no-lifetimes")
    if native and limit is not None and limit.share:
        raise WrongValue(
            "a limit in percent of the time is not possible with native frames, "
            "because their time is not measured. Write auto:1000/s (samples per "
            "second), for example, or a number of bytes")
    return Settings(interval, seed, gaps, period, memory, limit, lifetimes,
                    follow=follow, rotate=rotate, native=native, held=held,
                    lines=lines, raw_memory=_make_raw_interval(raw_memory),
                    memory_at_end=memory_at_end, snapshots=snapshots)


def _make_raw_interval(interval: int | str | None) -> int:
    """Return the interval for native memory in bytes, or 0 for no samples."""
    if interval is None:
        return 0
    if isinstance(interval, str) and parse_limit(interval):
        raise WrongValue(
            "invalid interval for native memory (--native-memory) %r: it cannot follow "
            "a limit. Write a number of bytes, such as 512k" % interval)
    return make_interval(interval)


def parse_rotate(text: str) -> float:
    """Parse the time between two profiles, in seconds.

    Raises:
        WrongValue: the time is invalid or out of range.
    """
    return parse_seconds(text, "time between two profiles", MIN_ROTATE, MAX_ROTATE,
                         "Write for example --rotate 3600")


def seconds(value: object) -> float:
    """Convert a time to seconds.

    Args:
        value: a number, or text such as 90, 90s, 15m, 1h or 1d.

    Raises:
        ValueError: the text is invalid.
        TypeError: the value is neither a number nor text.
    """
    if isinstance(value, str) and value[-1:] in SECONDS:
        return float(value[:-1]) * SECONDS[value[-1]]
    return float(value)     # type: ignore[arg-type]


def parse_seconds(value: object, what: str, least: float, most: float,
                  advice: str) -> float:
    """Convert a time to seconds, and check its range.

    Args:
        value: a number, or text for seconds().
        what: description of the time for the message.
        least: minimum in seconds.
        most: maximum in seconds.
        advice: advice for the message.

    Raises:
        WrongValue: the time is invalid or out of range.
    """
    try:
        found = seconds(value)
    except (TypeError, ValueError):
        found = -1.0
    if not least <= found <= most:
        raise WrongValue("invalid %s %.40r: it must be %.9g to %.9g seconds. %s"
                         % (what, value, least, most, advice))
    return found


def check_output(output: object) -> str:
    """Check the output, and return it as the path of a profile.

    Raises:
        WrongType: the output is not a path.
        WrongValue: the path is empty, contains a zero byte, or is ``-``.
    """
    try:
        path = os.fspath(output)  # type: ignore[call-overload]
    except TypeError:
        raise WrongType(
            'invalid output %r: write the name of a file, such as "app.vmprof"'
            % (output,)) from None
    zero = b"\0" if isinstance(path, bytes) else "\0"
    if not path or zero in path:
        raise WrongValue(
            'invalid output %r: the name %s. Write for example "app.vmprof"' % (
                output, "contains a zero byte" if path else "is empty"))
    if path in ("-", b"-"):
        raise WrongValue(
            "invalid output %r: standard output belongs to the program. Write the name "
            'of a file, such as "app.vmprof"' % (output,))
    return os.fsdecode(path)
