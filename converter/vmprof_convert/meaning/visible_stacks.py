"""What the user sees of a stack: the frames of the program, or a label.

All outputs ask here, so that they agree.
"""
from __future__ import annotations

import array
from itertools import islice

from vmprof_convert.profile.model import LABEL, PYTHON, Function, Profile
from vmprof_convert.profile.stacks import Frame, Stacks, Tree
from vmprof_convert.readers.pypy_stacks import NOT_KNOWN

#: files that stand between PyPy's start-up code and the program; the first one
#: in profiles with blocks of version 2
_RUNNERS = ("<vmprof-allocation>", "/vmprof/__main__.py", "/runpy.py",
            "<frozen runpy>")
_OURS = "/vmprof_allocation/"
#: in a process that nobody prepared: what a function of C runs, and what that calls
_RUN_STRING = ("<string>", "<module>")
_ENTERED = "<vmprof-allocation>"
_CALLED_THERE = (_ENTERED, "<frozen importlib._bootstrap>")
#: PyPy's own, "<builtin>/...": it starts and ends a run; and the functions that
#: run what is the program's
_START_UP = ("/app_main.py", "/app_atexit.py")
#: PyPy's sys.excepthook
_SHOWS = ("<builtin>/sys/app.py", "excepthook")
_PROGRAM = ("run_toplevel", "run_exitfuncs")

#: stands for stacks of which nothing is left
START = Function("[starting and ending the run]", 0, "", LABEL)
#: stands for stacks of pieces of the JIT's machine code alone, of which vmprof
#: doesn't know what they are: mostly generators that were resumed inside a
#: `yield from`, one in the other, so many that no other frame had room
COMPILED = NOT_KNOWN
#: stands for stacks that were empty from the beginning
EMPTY = Function("[no frames]", 0, "", LABEL)
#: stands for stacks that got lost
LOST = Function("[stack lost]", 0, "", LABEL)
#: of a function that was at some line
UNKNOWN_LINE = -1
#: the root of stacks whose outermost frames are missing, where stacks are shown
CUT = "[callers cut off]"
#: stand for what is none of the program's code, where only that is shown
#: (user_code.py): what importing costs; and what no function of the program's called
IMPORT = Function("[import]", 0, "", LABEL)
OUTSIDE = Function("[libraries alone]", 0, "", LABEL)

#: likewise: the interpreter's own code shows an exception that nobody caught, or
#: Ctrl-C; it imports much for it
UNCAUGHT = Function("[showing an exception]", 0, "", LABEL)

_LABELS = (START, COMPILED, EMPTY, LOST, IMPORT, OUTSIDE, UNCAUGHT)
#: a frame for each, whose address is its index
LABEL_FRAMES = {label: Frame(i, LABEL, 0) for i, label in enumerate(_LABELS)}

_RUNS, _STARTS, _STRING = -1, -2, -3


def has_lines(profile: Profile) -> bool:
    """Whether it is recorded which lines were executed."""
    if isinstance(profile.stacks, Stacks):
        return any(frame.line > 0 for frame in profile.stacks.frames)
    return any(frame.line > 0 for stack in profile.stacks for frame in stack)


class Program:
    """The stacks of a profile as the user sees them."""

    def __init__(self, profile: Profile):
        self._profile = profile
        #: address: whether its function is of those that ran the program
        self._known: dict[int, bool] = {}
        #: None: not asked for yet
        self._has_lines: bool | None = None
        self._was_entered = any(function.file == _ENTERED
                                for function in profile.functions.values())

    def stack(self, number: int) -> tuple[Frame, ...]:
        """The frames of the stack of this number (-1: lost), outermost first,
        at least one: the frame of a label, if nothing else is left."""
        if number < 0:
            return LABEL_FRAMES[LOST],
        stack = self._profile.stacks[number]
        frames = self.frames(stack)
        if frames:
            return frames
        if stack:
            return LABEL_FRAMES[START],
        return LABEL_FRAMES[self._of_nothing],

    def tree(self) -> Tree:
        """All that stack() returns but the lost one, as a tree."""
        whole = self._profile.stacks.tree()
        result = Stacks()
        labels: dict[Function, int] = {}

        def label(of: Function) -> int:
            frame = LABEL_FRAMES[of]
            return labels.setdefault(of, result.child(0, *frame))

        # of each node its own in the result; _RUNS: only what ran the program is
        # there; _STARTS: nothing is shown, whatever it calls; _STRING: it depends on
        # what it calls
        places = array.array("i", [_RUNS])
        for parent, frame in zip(islice(whole.parents, 1, None),
                                 islice(whole.frames, 1, None)):
            place = places[parent]
            if place == _STRING:
                place = (_STARTS if self._is_called_there(frame) else result.child(
                    0, *whole.frames[parent]))
            elif parent == 0 and self._is_ours(frame):
                place = _STARTS
            elif parent == 0 and self._may_be_ours(frame):
                place = _STRING
            elif place == _RUNS and frame.kind == LABEL:
                place = 0
            elif place == _RUNS and not self._is_outside(frame):
                place = (_STARTS if self._is_start(whole.path(len(places)))
                         else 0)
            places.append(place if place < 0 else result.child(place, *frame))
        for node in whole.nodes:
            place = places[node]
            if place < 0:
                place = label(START if node else self._of_nothing)
            result.append(place)
        return result.tree()

    @property
    def _of_nothing(self) -> Function:
        # PyPy's vmprof takes no sample of a stack without frames
        return COMPILED if self._profile.interpreter == "pypy" else EMPTY

    def function(self, frame: Frame) -> Function:
        """Of a frame of stack()."""
        if frame.kind == LABEL:
            return _LABELS[frame.address]
        return self._profile.function(frame.address)

    def line(self, frame: Frame) -> int:
        """The one that was executed, or UNKNOWN_LINE; 0: lines were not asked for, or
        it is of none."""
        if frame.line > 0 or self.function(frame).kind != PYTHON:
            return frame.line
        if self._has_lines is None:
            self._has_lines = (has_lines(self._profile)
                               or "lines" in self._profile.settings)
        return UNKNOWN_LINE if self._has_lines else 0

    def functions(self, number: int) -> list[Function]:
        """Those of stack()."""
        return list(map(self.function, self.stack(number)))

    def frames(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """`stack` without the frames of PyPy's start-up, and of the command
        that ran the program; perhaps nothing."""
        if self._is_of_ours(stack):
            return ()
        for i, frame in enumerate(stack):
            if frame.kind == LABEL:
                return stack[i:]
            if not self._is_outside(frame):
                return () if self._is_start(stack[:i + 1]) else stack[i:]
        return ()

    def _is_of_ours(self, stack: tuple[Frame, ...]) -> bool:
        """Whether it is of a thread that is ours, with all that is called there."""
        return bool(stack) and (self._is_ours(stack[0]) or (
            self._may_be_ours(stack[0])
            and all(map(self._is_called_there, stack[1:2]))))

    def _is_ours(self, outermost: Frame) -> bool:
        """A thread that begins in our code."""
        if outermost.kind == LABEL:
            return False
        file = self._profile.function(outermost.address).file
        return file == _ENTERED or _OURS in file

    def _may_be_ours(self, outermost: Frame) -> bool:
        if not self._was_entered or outermost.kind == LABEL:
            return False
        function = self._profile.function(outermost.address)
        return (function.file, function.name) == _RUN_STRING

    def _is_called_there(self, frame: Frame) -> bool:
        return frame.kind != LABEL and self._profile.function(
            frame.address).file.endswith(_CALLED_THERE)

    def _is_outside(self, frame: Frame) -> bool:
        found = self._known.get(frame.address)
        if found is None:
            found = self._known[frame.address] = _is_outside(
                self._profile.function(frame.address))
        return found

    def _is_start(self, frames: tuple[Frame, ...]) -> bool:
        """Whether the last of `frames` was called by PyPy's start-up itself:
        it imports `site`, and looks for the program."""
        *callers, last = [self._profile.function(f.address) for f in frames]
        return (bool(callers) and last.name != "<module>"
                and all(_is_start_up(f.file) and f.name not in _PROGRAM
                        for f in callers))


def shows_an_exception(function: Function) -> bool:
    """Whether it is what PyPy calls when nobody caught one."""
    return (function.file, function.name) == _SHOWS


def _is_outside(function: Function) -> bool:
    file = function.file
    return file.endswith(_RUNNERS) or _OURS in file or _is_start_up(file)


def _is_start_up(file: str) -> bool:
    return file.startswith("<") and file.endswith(_START_UP)
