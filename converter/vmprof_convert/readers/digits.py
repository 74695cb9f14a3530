"""The numbers in the blocks of an allocation profile, and the runs of them that are
alike: text, which regular expressions take apart in C.  In Python, a number at a time,
that would be most of what it takes to read a profile."""
from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator

#: behind a quantifier: what it took, it never gives back.  There is one way alone to
#: read digits, and not to remember others takes a third less time
_HOLD = "+" if sys.version_info >= (3, 11) else ""
#: all digits of a number but the last have the sixth bit set
_NUMBER_TEXT = "[`-\x7f]*%s[@-_]" % _HOLD
_NUMBER = re.compile(_NUMBER_TEXT)
_LAST_DIGIT = re.compile("[@-_]")
_NUMBERS = re.compile("([@-\x7f]*[@-_])?")
#: that are read at once; and of `facts`
_MAX_DIGITS, _MAX_FACTS = 2**11, 2**13
#: marks of entries of `facts`
LONG, MORE = "E", "F"
#: digits of a number; longer ones are none that anybody wrote
_LONGEST = 2**6
#: so many digits are remembered, with what they mean
_KNOWN = 3


def _some(count: int) -> str:
    return _NUMBER_TEXT * count


def _samples(flags: int) -> re.Pattern[str]:
    """Samples with these flags: the first number, less one, begins with them, and so
    does its first digit."""
    first = [digit for digit in range(32) if (digit - 1) % 8 == flags]
    # a digit 0 alone is the number 0, which is no sample
    last = [digit for digit in first if digit]
    return re.compile("(?:(?:[%s]%s|[%s])%s)+%s" % (
        "".join(re.escape(chr(0x60 + digit)) for digit in first), _NUMBER_TEXT,
        "".join(re.escape(chr(0x40 + digit)) for digit in last),
        _some(2 + bin(flags).count("1")), _HOLD))


#: by the first character; @ begins a definition
_RUNS = {chr(start + digit): (_samples((digit - 1) % 8), (digit - 1) % 8)
         for start in (0x40, 0x60) for digit in range(32)
         if start + digit != 0x40}
#: an entry of so many numbers as there are in most
_ENTRY_TEXT = "|".join(re.escape(chr(0x40 + count)) + _some(count)
                       for count in range(1, 9))
_ENTRY = re.compile(_ENTRY_TEXT)
#: Most entries of `facts` begin with 1, 2 and an outcome below 4, behind which is one
#: number more, or are two; or with 1, 0 and such an outcome, before two (PROFILE.rst).
_COMMON = re.compile("(?:DAB[@-C]%s|EA[@B][@-C]%s)+%s" % (_some(1), _some(2), _HOLD))
_OTHERS = re.compile("(?:(?!DAB[@-C]|EA[@B][@-C])(?:%s))+%s" % (_ENTRY_TEXT, _HOLD))


class Numbers(dict[str, int]):
    """What digits mean.  Most numbers are small and come again."""

    def __missing__(self, digits: str) -> int:
        if len(digits) > _LONGEST:
            raise ValueError
        if len(digits) > _KNOWN:
            # what it begins with comes again, too
            return self[digits[:_KNOWN]] | self[digits[_KNOWN:]] << 5 * _KNOWN
        number = 0
        for digit in reversed(digits):
            number = number << 5 | ord(digit) & 31
        self[digits] = number
        return number


class Payload:
    """That of a block, from where it was read so far.  Raises ValueError if its end
    comes too early, or a number is too long."""

    def __init__(self, text: str, numbers: Numbers) -> None:
        """Raises ValueError if the text is no sequence of numbers."""
        if not _NUMBERS.fullmatch(text):
            raise ValueError
        self._text = text
        self._numbers = numbers
        self._at = 0

    @property
    def is_left(self) -> bool:
        return self._at < len(self._text)

    def number(self) -> int:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise ValueError
        self._at = match.end()
        return self._numbers[match[0]]

    def rest(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self._parts())

    def _parts(self) -> Iterator[Iterator[int]]:
        # not all at once: each is a string of its own
        while self.is_left:
            last = _LAST_DIGIT.search(self._text, self._at + _MAX_DIGITS)
            yield self._until(last.end() if last else len(self._text))

    def _until(self, end: int) -> Iterator[int]:
        return map(self._numbers.__getitem__, self._texts(end))

    def samples(self) -> tuple[int, list[str]]:
        """Flags of the next samples, and their numbers, as text; none: what follows
        is no sample."""
        run, flags = _RUNS.get(self._text[self._at], (None, 0))
        if run is None:
            return 0, []
        match = run.match(self._text, self._at, self._at + _MAX_DIGITS)
        if match is None:
            raise ValueError
        return flags, self._texts(match.end())

    def _texts(self, end: int) -> list[str]:
        texts = _NUMBER.findall(self._text, self._at, end)
        self._at = end
        return texts

    def facts(self) -> Iterator[tuple[bool, list[str]]]:
        """All entries of `facts`, some at a time, as texts, which parse() reads.  Those
        that begin with 1, 2 or 0, and an outcome, as nearly all do, are apart, and
        without these two: LONG is before three numbers, and MORE if there was a 0."""
        while self.is_left:
            start, most = self._at, self._at + _MAX_FACTS
            match = _COMMON.match(self._text, start, most)
            if match is not None:
                self._at = match.end()
                # In no other place do such entries have these three characters, and
                # no outcome is written as a mark is.
                yield True, match[0].replace("EA@", "DAB" + MORE).replace(
                    "EAB", "DAB" + LONG).split("DAB")[1:]
                continue
            match = _OTHERS.match(self._text, start, most)
            if match is not None:
                self._at = match.end()
                yield False, _ENTRY.findall(self._text, start, match.end())
                continue
            for _ in range(self.number()):
                self.number()
            yield False, [self._text[start:self._at]]

    def parse(self, text: str) -> list[int]:
        """The numbers of an entry, of which there is at least one behind its
        length."""
        numbers = list(map(self._numbers.__getitem__, _NUMBER.findall(text)))
        if len(numbers) < 2:
            raise ValueError
        return numbers
