"""Find functions that are missing in the stacks of compiled code.

If a generator or coroutine waits in a `yield from` or an `await`, a resumption is
passed on to the awaited function before the generator's own bytecode continues. PyPy's
JIT records the functions of compiled code where they run bytecode, so that the record
lacks the generator. In the profile, the function that resumed the generator seems to
call the awaited function directly. (If the generator is interpreted, vmprof records its
frame.)

Assume that a function that can be resumed has a certain caller only in compiled code,
and that other stacks contain functions between this caller and the function. These
functions in between are reported as missing if all of them delegate to others,
according to their source. Without the source, no function is reported.
"""
from __future__ import annotations

import os
import re
import stat
import tokenize
import warnings
from typing import NamedTuple

from vmprof_convert.profile.model import Function, Profile
from vmprof_convert.profile.stacks import Stacks, Tree

#: the largest number of bytes of a source file that is read; larger files are not
#: written by hand
MAX_SOURCE = 2**22

_GENERATES = re.compile(r"\b(yield|async|__next__|send)\b")

#: the addresses of a caller and a callee
_Edge = tuple[int, int]


class Missing(NamedTuple):
    """The functions that are missing in stacks of a profile."""

    #: the indices in Profile.stacks of the stacks that may lack one of `functions`
    stacks: set[int]
    functions: list[Function]


class _Source(NamedTuple):
    """The lines of a file on which functions begin.

    The functions are divided into two sets that may overlap: functions that delegate,
    and functions to which others can delegate.
    """

    delegating: set[int]
    resumable: set[int]


class _Sources:
    """The source of the profile's functions, as far as this machine has it."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._files: dict[str, _Source] = {}
        #: whether a function delegates, by its address
        self._delegates: dict[int, bool] = {}

    def _of(self, function: Function) -> _Source:
        source = self._files.get(function.file)
        if source is None:
            source = self._files[function.file] = _read(function.file)
        return source

    def delegates(self, address: int) -> bool:
        """Return whether a function contains `yield from`, `await`, or the like."""
        result = self._delegates.get(address)
        if result is None:
            function = self._profile.function(address)
            result = function.line in self._of(function).delegating
            self._delegates[address] = result
        return result

    def is_resumable(self, address: int) -> bool:
        """Return whether a function can be resumed, such as a generator."""
        function = self._profile.function(address)
        return (function.name == "<genexpr>"
                or function.line in self._of(function).resumable)


def _read(path: str) -> _Source:
    """Return the lines of delegating and resumable functions in a Python file.

    The sets are empty if the file cannot be read or parsed.
    """
    source = _Source(set(), set())
    try:
        # The name in a damaged profile may denote anything, such as a device.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE:
            return source
        with tokenize.open(path) as file:
            text = file.read()
        if not _GENERATES.search(text):
            return source
        import ast
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # these concern the program's author
            tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        # A code object begins at its first decorator.
        line = min(part.lineno for part in
                   [function, *function.decorator_list])
        if (isinstance(function, ast.AsyncFunctionDef)
                or function.name in ("__next__", "send")):
            source.resumable.add(line)
        inside: list[ast.AST] = list(function.body)
        while inside:
            node = inside.pop()
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                source.resumable.add(line)
            if isinstance(node, (ast.YieldFrom, ast.Await, ast.AsyncFor,
                                 ast.AsyncWith)):
                source.delegating.add(line)
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef,
                                     ast.Lambda, ast.ClassDef)):
                inside += ast.iter_child_nodes(node)
    return source


def missing(profile: Profile) -> Missing:
    """Return the functions that are missing in the profile's stacks."""
    if isinstance(profile.stacks, Stacks) and not any(
            frame.kind == "jit" for frame in profile.stacks.frames):
        return Missing(set(), [])       # avoids the memory of a tree
    tree = profile.stacks.tree()
    callers = _compiled_only(tree)
    if not callers:
        return Missing(set(), [])
    sources = _Sources(profile)
    parents, frames = tree.parents, tree.frames
    edges: set[_Edge] = set()
    between: dict[int, None] = {}
    for node in range(1, len(parents)):
        address = frames[node].address
        candidates = callers.get(address)
        if not candidates:
            continue
        # Continue with the outer frames while all functions delegate.
        passed = []
        outer = parents[node]
        while outer > 0 and parents[outer] and sources.delegates(
                frames[outer].address):
            passed.append(frames[outer].address)
            outer = parents[outer]
            if (frames[outer].address in candidates
                    and sources.is_resumable(address)):
                edges.add((frames[outer].address, address))
                between.update((inner, None) for inner in reversed(passed))
    if not edges:
        return Missing(set(), [])
    lacks = bytearray(len(parents))
    for node in range(1, len(parents)):
        outer = parents[node]
        lacks[node] = lacks[outer] or (
            frames[outer].address, frames[node].address) in edges
    return Missing(
        {number for number, node in enumerate(tree.nodes) if lacks[node]},
        [profile.function(address) for address in between])


def _compiled_only(tree: Tree) -> dict[int, set[int]]:
    """Return the calls that occur only between functions of compiled code.

    Returns:
        The addresses of the callers, by the address of the callee.
    """
    compiled: set[_Edge] = set()
    interpreted: set[_Edge] = set()
    frames = tree.frames
    for callee, outer in zip(frames, tree.parents):
        if outer > 0:
            caller = frames[outer]
            (compiled if caller.kind == callee.kind == "jit" else interpreted
             ).add((caller.address, callee.address))
    result: dict[int, set[int]] = {}
    for caller_, callee_ in compiled - interpreted:
        result.setdefault(callee_, set()).add(caller_)
    return result
