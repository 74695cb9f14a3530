import pytest
from rpython.rlib.rarithmetic import intmask
from rpython.rlib.rvmprof.allocations import (
    Allocations, BadAllocations, MAX_INTERVAL)


def test_nothing_is_asked_for():
    assert Allocations("").interval == 0


def test_what_is_not_said():
    wanted = Allocations("interval=131072")
    assert wanted.interval == 131072
    assert (wanted.fixed, wanted.seed) == (False, 0)
    assert (wanted.per_second, wanted.share) == (0, 0)
    assert (wanted.lifetimes, wanted.in_memory) == (True, False)
    assert wanted.rest == ""


def test_all_of_it():
    wanted = Allocations("run=abc;interval=1000;gaps=fixed;seed=7;limit=;"
                         "lifetimes=0;in_memory=1;parent=5")
    assert (wanted.interval, wanted.fixed, wanted.seed) == (1000, True, 7)
    assert (wanted.lifetimes, wanted.in_memory) == (False, True)
    assert wanted.rest == "run=abc;parent=5"


def test_limits():
    wanted = Allocations("interval=1;limit=1000/s")
    assert (wanted.per_second, wanted.share) == (1000, 0)
    wanted = Allocations("interval=1;limit=7/s;limit=5000ppm")
    assert (wanted.per_second, wanted.share) == (0, 5000)


def test_largest_numbers():
    assert Allocations("interval=%d" % MAX_INTERVAL).interval == MAX_INTERVAL
    for seed in [0, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1]:
        assert Allocations("interval=1;seed=%d" % seed).seed == intmask(seed)


@pytest.mark.parametrize("text, message", [
    ("interval=0", "bad value for 'interval': 0, must be 1 to 4611686018427387904"),
    ("interval=", "bad value for 'interval': , must be 1 to 4611686018427387904"),
    ("interval=-1", "'interval': -1"), ("interval=128k", "'interval': 128k"),
    ("interval=%d" % (MAX_INTERVAL + 1), "'interval': 4611686018427387905"),
    ("interval=%d" % (2 ** 64 + 5), "'interval': 18446744073709551621"),
    ("seed=%d" % 2 ** 64, "'seed': 18446744073709551616, must be 0 to "),
    ("seed= 1", "'seed':  1"), ("gaps=none", "must be exponential or fixed"),
    ("limit=5", "'limit': 5, must be like 100/s or 5000ppm"),
    ("limit=0/s", "'limit': 0, must be 1 to 1000000"), ("limit=/s", "'limit': ,"),
    ("limit=1000001ppm", "'limit': 1000001"), ("lifetimes=2", "must be 0 to 1"),
    ("in_memory=x", "'in_memory': x"), ("interval", "'interval' is not key=value"),
    ("intervall=1000", "no interval: 'lifetimes=1;intervall=1000'"),
])
def test_what_makes_no_sense(text, message):
    with pytest.raises(BadAllocations) as e:
        Allocations("lifetimes=1;" + text)
    assert message in e.value.msg
