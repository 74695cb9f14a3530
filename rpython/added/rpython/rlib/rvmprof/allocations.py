"""The argument 'allocations' of rvmprof.enable(): settings of allocation
samples in a text."""

from rpython.rlib.rarithmetic import LONG_BIT, intmask, r_uint

MAX_INTERVAL = 1 << (LONG_BIT - 2)      # bytes
MAX_LIMIT = 1000000                     # samples per second, or millionths of the time


class BadAllocations(Exception):
    """An invalid text; 'msg' describes the error."""

    def __init__(self, msg):
        self.msg = msg


class Allocations(object):
    """The settings in a text, which consists of "key=value" with ";" between:

    interval   mean number of allocated bytes between two samples
    gaps       "exponential" (the default), or "fixed" to sample exactly every
               interval'th byte
    seed       0 to 2**64 - 1; the same number chooses the same samples (default 0)
    limit      the maximum of samples, as "100/s" (samples per second) or "5000ppm"
               (millionths of the time); 'interval' is then only the first interval
    lifetimes  1 (the default) to record the outcome of each sampled object, 0 to
               record only its type
    in_memory  1 to write only stacks and types to the profile, and no samples, for
               alive_allocations() (default 0)

    Pairs with other keys are settings for the profile: 'rest'.  If the text is empty,
    no allocations are sampled, and 'interval' is 0.
    """

    def __init__(self, text):
        self.interval = 0
        self.fixed = False
        self.seed = 0
        self.per_second = 0
        self.share = 0
        self.lifetimes = True
        self.in_memory = False
        rest = []
        for pair in text.split(';'):
            end = pair.find('=')
            if end < 0:
                if pair:
                    raise BadAllocations("'%s' is not key=value" % pair)
            elif not self._set(pair[:end], pair[end + 1:]):
                rest.append(pair)
        self.rest = ';'.join(rest)
        if text and self.interval == 0:
            raise BadAllocations("no interval: '%s'" % text)

    def _set(self, key, value):
        """Return False if the key is unknown."""
        if key == 'interval':
            self.interval = intmask(number(key, value, 1, r_uint(MAX_INTERVAL)))
        elif key == 'gaps':
            if value != 'exponential' and value != 'fixed':
                raise bad(key, value, "exponential or fixed")
            self.fixed = value == 'fixed'
        elif key == 'seed':
            self.seed = intmask(number(key, value, 0, r_uint(-1)))
        elif key == 'limit':
            self._set_limit(value)
        elif key == 'lifetimes':
            self.lifetimes = number(key, value, 0, r_uint(1)) != 0
        elif key == 'in_memory':
            self.in_memory = number(key, value, 0, r_uint(1)) != 0
        else:
            return False
        return True

    def _set_limit(self, value):
        most = r_uint(MAX_LIMIT)
        self.per_second = self.share = 0
        if value.endswith('/s'):
            end = len(value) - 2
            assert end >= 0
            self.per_second = intmask(number('limit', value[:end], 1, most))
        elif value.endswith('ppm'):
            end = len(value) - 3
            assert end >= 0
            self.share = intmask(number('limit', value[:end], 1, most))
        elif value:
            raise bad('limit', value, "like 100/s or 5000ppm")


def bad(key, value, good):
    """Return the exception for an invalid value.  'good' describes valid values."""
    return BadAllocations("bad value for '%s': %s, must be %s" % (key, value, good))


def number(key, text, least, most):
    """Return the number in 'text' as an r_uint, from 'least' to 'most'.  RPython's
    string_to_int() supports only signed numbers."""
    result = r_uint(0)
    is_good = len(text) > 0
    for c in text:
        digit = ord(c) - ord('0')
        if (digit < 0 or digit > 9 or
                result > (r_uint(-1) - r_uint(digit)) // 10):
            is_good = False
            break
        result = result * 10 + r_uint(digit)
    if not is_good or result < r_uint(least) or result > most:
        raise bad(key, text, "%d to %s" % (least, str(most)))
    return result
