"""The argument 'allocations' of rvmprof.enable(): settings of allocation
samples in a text."""

import sys

from rpython.rlib.rarithmetic import LONG_BIT

MAX_INTERVAL = 1 << (LONG_BIT - 2)      # bytes


class BadAllocations(Exception):
    """An invalid text; 'msg' describes the error."""

    def __init__(self, msg):
        self.msg = msg


class Allocations:
    """The settings in a text, which consists of "key=value" with ";" between:

    interval   mean number of allocated bytes between two samples
    seed       the same number chooses the same samples (default 0)

    If the text is empty, no allocations are sampled, and 'interval' is 0.
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
        """Set the attribute "key" from a text "key=value"."""
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
    """Return the number in 'text', or -1 if 'text' has other characters than
    digits or the number is too large.  int() accepts blanks, and does not detect
    an overflow in RPython."""
    result = 0
    for c in text:
        if not '0' <= c <= '9' or result > (sys.maxint - 9) // 10:
            return -1
        result = result * 10 + (ord(c) - ord('0'))
    return result if text else -1
