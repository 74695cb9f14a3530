"""stack_nodes.c: vmprof's list tells which stack it is."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import pytest

from native_build import load

CODE, JITTED = 1, 3
#: more than vmprof's samples hold
TOO_LONG = 513

Pair = tuple[int, int]


class Node(ctypes.Structure):
    pass


Node._fields_ = [("next", ctypes.POINTER(Node)), ("value", ctypes.c_ssize_t),
                 ("kind", ctypes.c_ssize_t)]


class Piece:
    """Of the JIT's code: below its stack pointer, where it called from."""

    def __init__(self, return_address: int) -> None:
        self.word = ctypes.c_uint64(return_address)
        self.node: Pair = (JITTED, ctypes.addressof(self.word) + 8)


Key = Callable[..., int]


@pytest.fixture(scope="module")
def key() -> Key:
    library = load("stack_nodes")
    library.stack_nodes_key.restype = ctypes.c_uint64

    def key(pairs: Sequence[Pair], state: int = 0) -> int:
        nodes = [Node(None, value, kind) for kind, value in pairs]
        for node, outer in zip(nodes, nodes[1:]):
            node.next = ctypes.pointer(outer)
        return int(library.stack_nodes_key(
            ctypes.byref(nodes[0]) if nodes else None, ctypes.c_uint64(state)))
    return key


def test_the_same_nodes_have_the_same_key(key: Key) -> None:
    assert key([(CODE, 8), (CODE, 16)]) == key([(CODE, 8), (CODE, 16)]) != 0


def test_other_nodes_have_other_keys(key: Key) -> None:
    """Another number, another order, one more at either end, another state."""
    piece = Piece(8)
    keys = [key(pairs, state) for state in (0, 1, 2) for pairs in (
        [(CODE, 8)], [(CODE, 16)], [(CODE, 8), (CODE, 16)],
        [(CODE, 16), (CODE, 8)], [(CODE, 8), (CODE, 8)],
        [(CODE, 8), (CODE, 16), (CODE, 24)],
        [(CODE, 24), (CODE, 8), (CODE, 16)], [piece.node])]
    assert len(set(keys)) == len(keys)
    assert 0 not in keys


def test_a_state_does_not_make_up_for_a_node(key: Key) -> None:
    """Both are small numbers, or differ by one, which must not cancel out."""
    outer = (CODE, 24)
    one, other = Piece(0x7f0000001000), Piece(0x7f0000001010)
    keys = [key([*inner, outer], state)
            for inner in ([], [(CODE, 8)], [(CODE, 12)], [one.node],
                          [other.node])
            for state in range(300)]
    assert len(set(keys)) == 5 * 300


def test_a_piece_of_code_counts_by_where_it_called_from(key: Key) -> None:
    """Not by where it has its frame on the machine's stack."""
    one, same, other = Piece(0x7000), Piece(0x7000), Piece(0x7010)
    outer = (CODE, 8)
    assert key([one.node, outer]) == key([same.node, outer])
    assert key([one.node, outer]) != key([other.node, outer])
    assert key([outer, one.node]) != key([outer, other.node])


def test_no_list_no_key(key: Key) -> None:
    assert key([], 5) == 0


def test_longer_than_what_vmprof_records(key: Key) -> None:
    """vmprof cuts it; where, is not for us to say."""
    pairs = [(CODE, 8 * i) for i in range(TOO_LONG)]
    assert key(pairs) == 0
    assert key(pairs[1:]) != 0


@pytest.mark.parametrize("kind", [0, 2, 4, 5, 6, -1])
def test_a_kind_that_is_not_understood(key: Key, kind: int) -> None:
    assert key([(CODE, 8), (kind, 16)]) == 0
