"""Which functions are missing from the stacks of compiled code.

A generator or coroutine that is resumed while it waits in a `yield from` or
an `await` passes the call on before its own bytecode goes on.  PyPy's JIT
records which functions its code stands for where they run bytecode: such a
function is not among them.  In the profile, who resumed it seems to call what
it waits for.  (In frames that are interpreted, vmprof has it.)

That can be seen where a generator or coroutine has a caller in compiled code
only, other stacks have functions between the two, and all of these delegate,
as their source says.  Without the source nothing is said.
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

#: bytes of a file that are read: larger ones weren't written by hand
MAX_SOURCE = 2**22

_GENERATES = re.compile(r"\b(yield|async|__next__|send)\b")

#: caller, callee: addresses
_Edge = tuple[int, int]


class Missing(NamedTuple):
    """What is missing."""

    #: indices in Profile.stacks: those that may lack something
    stacks: set[int]
    functions: list[Function]


class _Source(NamedTuple):
    """Lines of a file in which functions begin: those that delegate, and those
    that somebody can delegate to."""

    delegating: set[int]
    resumable: set[int]


class _Sources:
    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._files: dict[str, _Source] = {}
        #: by address
        self._delegates: dict[int, bool] = {}

    def _of(self, function: Function) -> _Source:
        source = self._files.get(function.file)
        if source is None:
            source = self._files[function.file] = _read(function.file)
        return source

    def delegates(self, address: int) -> bool:
        result = self._delegates.get(address)
        if result is None:
            function = self._profile.function(address)
            result = function.line in self._of(function).delegating
            self._delegates[address] = result
        return result

    def is_resumable(self, address: int) -> bool:
        function = self._profile.function(address)
        return (function.name == "<genexpr>"
                or function.line in self._of(function).resumable)


def _read(path: str) -> _Source:
    source = _Source(set(), set())
    try:
        # the name may be anything, if the profile is damaged
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE:
            return source
        with tokenize.open(path) as file:
            text = file.read()
        if not _GENERATES.search(text):
            return source
        import ast
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of the program's author
            tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        # a code object begins with its decorators
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
    if isinstance(profile.stacks, Stacks) and not any(
            frame.kind == "jit" for frame in profile.stacks.frames):
        return Missing(set(), [])       # without a tree, which takes memory
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
        # from here outwards, as long as all delegate
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
    """The addresses of the functions that call another one in compiled code
    only, by its address."""
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
