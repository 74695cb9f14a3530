"""Search machine code for the function that creates PyPy's GIL, for gil.py."""
from __future__ import annotations

import array
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Found(NamedTuple):
    """A function that may create the GIL, and the words that it reads and writes.

    The numbers are offsets from the beginning of the code, which begins a page.
    """

    function: int
    #: the word that the function compares with 0, and the word that it sets to 0
    asked: int
    stored: int


# ____________________________________________________________
# x86-64

#: The end of the function: a jump to pthread_atfork(0, 0, f). Few functions end so.
_LAST = b"\x31\xf6\x31\xff\x48\x83\xc4\x08\xe9"
_MAX_SIZE = 300
_FUNCTION = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa)?"               # endbr64
    rb"\x48\x83\x3d(?P<asked>.{4})\x00"     # cmpq $0, waiting
    rb"\x78.\xc3.{0,8}?"                    # js +; ret; nop
    rb"\x48\x83\xec\x08\x31\xf6\x48\x8d\x3d.{4}\xe8.{4}\x85\xc0"    # pthread_mutex_init
    rb".{1,160}?"
    rb"\x48\xc7\x05(?P<stored>.{4})\x00{4}"     # movq $0, waiting
    rb"\x48\x8d\x15.{4}" + re.escape(_LAST), re.DOTALL)


def _x86_64(code: bytes) -> Iterator[Found]:
    at = code.find(_LAST)
    while at >= 0:
        end = at + len(_LAST)
        for match in _FUNCTION.finditer(code, max(0, end - _MAX_SIZE), end):
            asked, stored = (match.end(name) + behind + int.from_bytes(
                match[name], "little", signed=True)
                for name, behind in (("asked", 1), ("stored", 4)))
            yield Found(match.start(), asked, stored)
        at = code.find(_LAST, end)


# ____________________________________________________________
# AArch64

_NOP, _PACIASP, _BTI_C, _RET = 0xd503201f, 0xd503233f, 0xd503245f, 0xd65f03c0
#: mov x0, #0; mov x1, #0
_FIRST, _SECOND = 0xd2800000, 0xd2800001
#: values of the last byte of the instruction b
_JUMPS = b"\x14", b"\x15", b"\x16", b"\x17"
#: Maximum distances in words. _END: from the store of 0 to the end of the function.
#: _BODY: from the comparison to this store. _HEAD: from the start to the comparison.
_END, _BODY, _HEAD = 10, 50, 6


def _aarch64(code: bytes) -> Iterator[Found]:
    last = _FIRST.to_bytes(4, "little")
    at = code.find(last)
    while at >= 0:
        # followed by b
        if at % 4 == 0 and code[at + 7:at + 8] in _JUMPS:
            begin = max(0, at - 4 * (_END + _BODY + _HEAD))
            yield from _ending(array.array("I", code[begin:at]), begin)
        at = code.find(last, at + 1)


def _ending(words: array.array[int], begin: int) -> Iterator[Found]:
    """Find the function that creates the GIL, if it ends after `words`.

    Args:
        words: the last instructions before a jump.
        begin: offset of the first of these words in the code.
    """
    # str xzr, [xn, #...]
    zeroed = [i for i in range(max(0, len(words) - _END), len(words))
              if words[i] & 0xffc0001f == 0xf900001f]
    if len(zeroed) != 1 or _SECOND not in words[zeroed[0]:]:
        return
    (end,) = zeroed
    base = words[end] >> 5 & 31
    for asked in range(end - 1, max(0, end - _BODY), -1):
        if words[asked] & 0xfff80000 == 0xb7f80000:         # tbnz xt, #63, ...
            break
    else:
        return
    # bl: two mutexes, and a condition
    calls = [i + (words[i] & 0x3ffffff) & 0x3ffffff for i in range(asked, end)
             if words[i] & 0xfc000000 == 0x94000000]
    if len(calls) != 3 or calls[0] != calls[1] or calls[1] == calls[2]:
        return
    page = start = load = None
    for i in range(asked - 1, max(0, asked - _HEAD), -1):
        word = words[i]
        if word & 0xffc003ff == 0xf9400000 | base << 5 | words[asked] & 31:
            load = word                                     # ldr xt, [xn, #...]
        elif word & 0x9f00001f == 0x90000000 | base:        # adrp xn, ...
            page = (begin + 4 * i & -4096) + (_signed(
                (word >> 5 & 0x7ffff) << 2 | word >> 29 & 3, 21) << 12)
        elif word & 0xffc003e0 == 0xa98003e0:               # stp x, x, [sp, #...]!
            start = i - 1 if words[i - 1] in (_PACIASP, _BTI_C) else i
            break
    if page is None or load is None or not start or not _ends(words[start - 1]):
        return
    yield Found(begin + 4 * start, page + _offset(load), page + _offset(words[end]))


def _offset(word: int) -> int:
    return 8 * (word >> 10 & 0xfff)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def _ends(word: int) -> bool:
    """Return whether a function may begin after this word.

    Execution never continues after ret, b, or bl of a function that does not return. A
    nop between functions is filler.
    """
    return word in (0, _NOP, _RET) or word & 0x7c000000 == 0x14000000


# ____________________________________________________________

#: the searches, by the machine's name in os.uname()
MACHINES: dict[str, Callable[[bytes], Iterator[Found]]] = {
    "x86_64": _x86_64, "aarch64": _aarch64}
