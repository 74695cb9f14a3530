"""Tests of the formatted numbers of bytes and of objects."""
from __future__ import annotations

import pytest

from vmprof_convert.text.units import (
    format_bytes,
    format_count,
    format_deviation,
    format_difference,
    format_ends,
    format_range,
)


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


@pytest.mark.parametrize("low, number, high, text", [
    (6.84, 6.86, 6.87, "6.86 GiB, 6.84 GiB, 6.87 GiB"),
    (28.31, 28.32, 28.34, "28.32 GiB, 28.31 GiB, 28.34 GiB"),
    (-0.5, 0.25, 123.4, "256 MiB, -512 MiB, 123 GiB"),
    # an exact number
    (28.32, 28.32, 28.32, "28.3 GiB, 28.3 GiB, 28.3 GiB")])
def test_ends_of_an_interval_differ(low: float, number: float, high: float,
                                    text: str) -> None:
    assert ", ".join(format_ends(
        low * 2**30, number * 2**30, high * 2**30)) == text


def test_ends_of_a_number_of_objects() -> None:
    assert format_ends(1230100, 1230400, 1230700, False) == (
        "1.230M", "1.230M", "1.231M")


def test_range_is_in_the_unit_of_the_number() -> None:
    assert format_range(1.4 * 2**20, 1.5 * 2**20, 1.6 * 2**20) == "1.40-1.60"
    assert format_range(900, 1100, 2000, False) == "0.90-2"


def test_ends_of_a_wide_range_have_separate_units() -> None:
    assert format_range(900, 2**16, 29.6 * 2**20) == "900B-29.6M"
    assert format_range(5 * 2**10, 2**16, 9 * 2**20) == "5-9216"
    assert format_range(16, 55900, 1.2e8, False) == "16-120M"


@pytest.mark.parametrize("low,number,high,bytes_,text", [
    (0, 0, 5, True, ""), (90, 100, 112, True, "+-12%"),
    (88, 100, 110, True, "+-12%"), (100, 100, 100, True, "+-0%"),
    (99.9, 100, 100.1, True, "+-<1%"), (50, 100, 250, True, "<250B"),
    (0, 1024, 5 * 1024, True, "<5K"), (1, 1, 2520, False, "<2.52k"),
    (1.0, 100.0, 150.0, False, "+-99%"), (0.1, 100.0, 150.0, False, "<150")])
def test_deviation_of_a_number(low: float, number: float, high: float, bytes_: bool,
                               text: str) -> None:
    assert format_deviation(low, number, high, bytes_) == text


@pytest.mark.parametrize("difference,is_bytes,text", [
    ((727e3, 975e3, 1223e3), False, "+975k ±248k"),
    ((-27166, -166, 26834), False, "-0.17k ±27.00k"),
    ((1e6, 2**21, 3.2e6), True, "+2.00 ±1.05 MiB"),
])
def test_a_difference_and_its_error_have_the_same_unit(
        difference: tuple[float, float, float], is_bytes: bool, text: str) -> None:
    assert format_difference(*difference, is_bytes) == text
