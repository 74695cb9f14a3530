"""What rvmprof.enable() is asked for, of allocation samples."""

import sys

from rpython.rlib.rarithmetic import LONG_BIT

MAX_INTERVAL = 1 << (LONG_BIT - 2)      # in bytes


class BadAllocations(Exception):
    def __init__(self, msg):
        self.msg = msg


class Allocations:
    """From a text, "key=value" with ";" between:

    interval   mean number of allocated bytes between two samples
    seed       which samples are chosen, always the same ones for the same number

    An empty text asks for no samples, and the interval is 0.
    """

    def __init__(self, text):
        self.interval = 0
        self.seed = 0
        if not text:
            return
        for pair in text.split(';'):
            self._set(pair)
        if self.interval == 0:
            raise BadAllocations("no interval: '%s'" % text)

    def _set(self, pair):
        end = pair.find('=')
        if end >= 0:
            value = number(pair[end + 1:])
            if pair[:end] == 'interval' and 1 <= value <= MAX_INTERVAL:
                self.interval = value
                return
            if pair[:end] == 'seed' and value >= 0:
                self.seed = value
                return
        raise BadAllocations("bad value: '%s'" % pair)


def number(text):
    """Of digits; -1 if there are others, or more than an integer holds.  (int()
    takes blanks, and in RPython it does not look for an overflow.)"""
    result = 0
    for c in text:
        if not '0' <= c <= '9' or result > (sys.maxint - 9) // 10:
            return -1
        result = result * 10 + (ord(c) - ord('0'))
    return result if text else -1
