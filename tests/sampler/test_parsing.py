"""Intervals, limits, outputs and durations that users write."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.settings import parsing
from vmprof_allocation.settings.parsing import (
    check_interval,
    check_output,
    make_settings,
    parse_interval,
    parse_limit,
)


@pytest.mark.parametrize("text,number", [
    ("1", 1), ("0128", 128), ("128k", 131072), ("1 M", 2**20), ("2G", 2**31),
    (" 64 ", 64), ("+5k", 5120),
    ("128KiB", 131072), ("128kB", 131072), ("128 KB", 131072), ("64B", 64),
    ("131072", 131072), ("128K", 131072), ("2g", 2**31), (str(2**62), 2**62),
    ("1.5M", 1572864), ("0.5 GiB", 2**29), (".5k", 512), ("2.k", 2048),
    ("0.1M", 104858), ("1T", 2**40), ("0.001k", 1),
    ("0" * 9000 + "7k", 7168), ("1." + "0" * 9000 + "k", 1024),
])
def test_sizes_as_people_write_them(text: str, number: int) -> None:
    assert parse_interval(text) == number


@pytest.mark.parametrize("text", [
    "x", "", "1.5", "12 8", "k", "nan", "inf", "1,5M", "1.000.000", "1 000", "1_000",
    "1e6", "128i", "128iB",
    "128kk", "128bk", "128bits", "1.5.M", ".", ".k", "M", "B", "0x10", "k128",
    "128k/s", "1 k B", "\u0661k", "12\uff4b",
])
def test_ambiguous_and_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(AllocationSamplingError,
                       match="write a number of bytes, such as"):
        parse_interval(text)


@pytest.mark.parametrize("text", [
    "0", "0k", "-1", "-128k", "0.0001k", "-1.5k", "0T", "8388608T", "5000000000G",
    str(2**62 + 1), "9" * 9000, "9" * 9000 + "k"])
def test_sizes_out_of_range(text: str) -> None:
    with pytest.raises(AllocationSamplingError, match=r"is too (small|large)"):
        parse_interval(text)


@pytest.mark.parametrize("text,limit", [
    ("auto", "5000ppm"), (" AUTO ", "5000ppm"), ("auto:1000/s", "1000/s"),
    ("auto:1/s", "1/s"), ("auto:1000000/s", "1000000/s"),
    ("auto:0.5%", "5000ppm"), ("auto:1%", "10000ppm"),
    ("auto:.001%", "10ppm"), ("auto:50%", "500000ppm"),
    ("auto:0.1234%", "1234ppm"), ("auto:0.1%", "1000ppm"),
    ("auto:0.300000%", "3000ppm"),
])
def test_limits(text: str, limit: str) -> None:
    assert str(parse_limit(text)) == limit


@pytest.mark.parametrize("text", ["128k", "", "automatic", "1000/s", "1%"])
def test_intervals_are_not_limits(text: str) -> None:
    assert parse_limit(text) is None


@pytest.mark.parametrize("text", [
    "auto:", "auto:%", "auto:/s", "auto:1000", "auto:1.5/s", "auto:-1/s",
    "auto:x%", "auto:1e3/s", "auto:0.5 %", "auto:0.5.5%", "auto:\u0661%",
    "auto:0/s", "auto:1000001/s", "auto:0%", "auto:51%", "auto:0.0009%",
    "auto:0.12345%", "auto:nan%", "auto:" + "9" * 50 + "%",
    "auto:" + "9" * 9000 + "/s",
])
def test_bad_limits(text: str) -> None:
    with pytest.raises(AllocationSamplingError, match="invalid limit"):
        parse_limit(text)


@pytest.mark.parametrize("number", [0, -1, 2**62 + 1])
def test_numbers_out_of_range(number: int) -> None:
    with pytest.raises(AllocationSamplingError, match=str(number)):
        check_interval(number)


@pytest.mark.parametrize("settings,kind,words", [
    ({"seed": "x"}, TypeError, "invalid seed 'x': write an integer"),
    ({"seed": -1}, ValueError, "invalid seed -1: it must be"),
    ({"seed": 2**64}, ValueError, "invalid seed %d: it must" % 2**64),
    ({"period": 0.0}, ValueError, "invalid period 0.0: it"),
    ({"period": -1.0}, ValueError, "invalid period -1.0: it"),
    ({"period": 1.0}, ValueError, "invalid period 1.0: it"),
    ({"period": "x"}, TypeError, "invalid period 'x': write the seconds"),
    ({"period": float("nan")}, ValueError, "invalid period nan: it"),
    ({"gaps": ("fixed", 1)}, ValueError,
     "invalid sampling distribution ('fixed', 1): write "),
    ({"interval": None}, TypeError, "invalid sample interval None: write"),
    ({"interval": 0}, ValueError, "invalid sample interval 0: it is too small, and"),
])
def test_settings_that_make_no_sense(settings: dict[str, Any],
                                     kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        make_settings(**{"interval": 1024, **settings})
    assert isinstance(caught.value, AllocationSamplingError)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("output,kind,words", [
    ("-", ValueError, "invalid output '-': standard output belongs to the"),
    ("a\0b", ValueError, "invalid output 'a\\x00b': the name contains a zero byte. "),
    (b"a\0b", ValueError, "invalid output b'a\\x00b': the name contains a zero byte."),
    ("", ValueError, "invalid output '': the name is empty. Write"),
    (3, TypeError, "invalid output 3: write the name of a file"),
    (None, TypeError, "invalid output None: write the name of a file"),
])
def test_invalid_outputs_are_refused(
        output: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        check_output(output)
    assert isinstance(caught.value, AllocationSamplingError)
    assert str(caught.value).startswith(words)


def test_outputs_may_be_bytes_and_paths() -> None:
    assert check_output(b"a.vmprof") == check_output(Path("a.vmprof")) == "a.vmprof"


def test_share_of_the_time_can_not_be_kept_with_native_frames() -> None:
    """The sampler's measured time does not include the walk of native frames."""
    for interval in "auto", "auto:0.1%":
        with pytest.raises(AllocationSamplingError,
                           match="limit in percent of the time is not possible with "
                                 "native"):
            make_settings(interval, native=True)
    assert make_settings("auto:1000/s", native=True).native
    assert make_settings("128k", native=True).native
    assert not make_settings("auto").native


@pytest.mark.parametrize("text, seconds", [
    ("90", 90), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("7d", 7 * 86400), (0.5, 0.5)])
def test_seconds_with_units(text: object, seconds: float) -> None:
    assert parsing.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1w", "1 h 5 m", "1hh", "--", None])
def test_invalid_durations_are_refused(text: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        parsing.seconds(text)
