"""Numbers of bytes and of samples, read and written."""
from __future__ import annotations

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.sizes import (
    check_interval,
    parse_interval,
    parse_limit,
)
from vmprof_convert.units import format_bytes, format_count, format_range


@pytest.mark.parametrize("text,number", [
    ("1", 1), ("0128", 128), ("128k", 131072), ("1 M", 2**20), ("2G", 2**31),
    (" 64 ", 64), ("+5k", 5120),
    ("128KiB", 131072), ("128kB", 131072), ("128 KB", 131072), ("64B", 64),
    ("1.5M", 1572864), ("0.5 GiB", 2**29), (".5k", 512), ("2.k", 2048),
    ("0.1M", 104858), ("1T", 2**40), ("0.001k", 1),
    ("0" * 9000 + "7k", 7168), ("1." + "0" * 9000 + "k", 1024),
])
def test_sizes_as_people_write_them(text: str, number: int) -> None:
    assert parse_interval(text) == number


@pytest.mark.parametrize("text", [
    "1.5", "1,5M", "1.000.000", "1 000", "1_000", "1e6", "128i", "128iB",
    "128kk", "128bk", "128bits", "1.5.M", ".", ".k", "M", "B", "0x10", "k128",
    "128k/s", "1 k B", "\u0661k", "12\uff4b",
])
def test_what_could_mean_several_things_is_refused(text: str) -> None:
    with pytest.raises(AllocationSamplingError,
                       match="is not a number of bytes; write for example"):
        parse_interval(text)


@pytest.mark.parametrize("text", ["0.0001k", "-1.5k", "0T", "8388608T",
                                  "9" * 9000, "9" * 9000 + "k"])
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
def test_what_is_no_limit(text: str) -> None:
    assert parse_limit(text) is None


@pytest.mark.parametrize("text", [
    "auto:", "auto:%", "auto:/s", "auto:1000", "auto:1.5/s", "auto:-1/s",
    "auto:x%", "auto:1e3/s", "auto:0.5 %", "auto:0.5.5%", "auto:\u0661%",
    "auto:0/s", "auto:1000001/s", "auto:0%", "auto:51%", "auto:0.0009%",
    "auto:0.12345%", "auto:nan%", "auto:" + "9" * 50 + "%",
    "auto:" + "9" * 9000 + "/s",
])
def test_bad_limits(text: str) -> None:
    with pytest.raises(AllocationSamplingError, match="the limit"):
        parse_limit(text)


@pytest.mark.parametrize("number", [0, -1, 2**62 + 1])
def test_out_of_range(number: int) -> None:
    with pytest.raises(AllocationSamplingError, match=str(number)):
        check_interval(number)


@pytest.mark.parametrize("number,text", [
    (0, "0 B"), (999, "999 B"), (1000, "1000 B"), (1024, "1 KiB"),
    (1536, "1.50 KiB"), (10 * 2**20 + 2**19, "10.5 MiB"),
    (123.4 * 2**30, "123 GiB"), (5 * 2**40, "5 TiB"), (1023.7, "1.00 KiB"),
])
def test_bytes(number: float, text: str) -> None:
    assert format_bytes(number) == text


@pytest.mark.parametrize("number,text", [
    (0, "0"), (7, "7"), (999, "999"), (1000, "1k"), (1234567, "1.23M"),
    (4.2e9, "4.20G"),
])
def test_counts(number: float, text: str) -> None:
    assert format_count(number) == text


def test_range_is_in_the_unit_of_the_number() -> None:
    assert format_range(1.4 * 2**20, 1.5 * 2**20, 1.6 * 2**20) == "1.40-1.60"
    assert format_range(900, 1100, 2000, False) == "0.90-2"


def test_ends_of_a_wide_range_have_units_of_their_own() -> None:
    assert format_range(900, 2**16, 29.6 * 2**20) == "900B-29.6M"
    assert format_range(5 * 2**10, 2**16, 9 * 2**20) == "5-9216"
    assert format_range(16, 55900, 1.2e8, False) == "16-120M"
