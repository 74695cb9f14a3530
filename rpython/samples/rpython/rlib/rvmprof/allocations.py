"""What rvmprof.enable() is asked for, of allocation samples."""

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
            try:
                value = int(pair[end + 1:])
            except ValueError:
                value = -1
            if pair[:end] == 'interval' and 1 <= value <= MAX_INTERVAL:
                self.interval = value
                return
            if pair[:end] == 'seed' and value >= 0:
                self.seed = value
                return
        raise BadAllocations("bad value: '%s'" % pair)
