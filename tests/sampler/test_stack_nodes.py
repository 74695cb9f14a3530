"""The key of a stack, which is computed from vmprof's list of nodes (stack_nodes.c)."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import pytest

from native_build import load

CODE, JITTED = 1, 3
#: more nodes than vmprof's samples hold
TOO_LONG = 513

Pair = tuple[int, int]


class Node(ctypes.Structure):
    pass


Node._fields_ = [("next", ctypes.POINTER(Node)), ("value", ctypes.c_ssize_t),
                 ("kind", ctypes.c_ssize_t)]


class Piece:
    """A frame of compiled code, with the return address below its stack pointer."""

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
    """The nodes differ in a number, in their order or number, or `state` differs."""
    piece = Piece(8)
    keys = [key(pairs, state) for state in (0, 1, 2) for pairs in (
        [(CODE, 8)], [(CODE, 16)], [(CODE, 8), (CODE, 16)],
        [(CODE, 16), (CODE, 8)], [(CODE, 8), (CODE, 8)],
        [(CODE, 8), (CODE, 16), (CODE, 24)],
        [(CODE, 24), (CODE, 8), (CODE, 16)], [piece.node])]
    assert len(set(keys)) == len(keys)
    assert 0 not in keys


def test_states_and_nodes_do_not_cancel(key: Key) -> None:
    """Changes of `state` and of the node must not cancel each other in the key."""
    outer = (CODE, 24)
    one, other = Piece(0x7f0000001000), Piece(0x7f0000001010)
    keys = [key([*inner, outer], state)
            for inner in ([], [(CODE, 8)], [(CODE, 12)], [one.node],
                          [other.node])
            for state in range(300)]
    assert len(set(keys)) == 5 * 300


def test_key_of_compiled_code_depends_on_its_return_address(key: Key) -> None:
    """The address of its frame on the machine stack does not matter."""
    one, same, other = Piece(0x7000), Piece(0x7000), Piece(0x7010)
    outer = (CODE, 8)
    assert key([one.node, outer]) == key([same.node, outer])
    assert key([one.node, outer]) != key([other.node, outer])
    assert key([outer, one.node]) != key([outer, other.node])


def test_empty_list_has_no_key(key: Key) -> None:
    assert key([], 5) == 0


def test_stack_that_vmprof_cuts_has_no_key(key: Key) -> None:
    """vmprof cuts such a stack at a place that this code does not know."""
    pairs = [(CODE, 8 * i) for i in range(TOO_LONG)]
    assert key(pairs) == 0
    assert key(pairs[1:]) != 0


@pytest.mark.parametrize("kind", [0, 2, 4, 5, 6, -1])
def test_unknown_kind_of_node_has_no_key(key: Key, kind: int) -> None:
    assert key([(CODE, 8), (kind, 16)]) == 0
