"""What the user sees of a stack: the frames of the program, or a label.

All outputs ask here, so that they agree.
"""
from __future__ import annotations

from vmprof_convert.model import LABEL, Frame, Function, Profile

#: files that stand between PyPy's start-up code and the program; the first one
#: in profiles with blocks of version 2
_RUNNERS = ("<vmprof-allocation>", "/vmprof/__main__.py", "/runpy.py",
            "<frozen runpy>")
_OURS = "/vmprof_allocation/"
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
COMPILED = Function("[compiled code, function not known]", 0, "", LABEL)
#: stands for stacks that were empty from the beginning
EMPTY = Function("[no frames]", 0, "", LABEL)
#: stands for stacks that got lost
LOST = Function("[stack lost]", 0, "", LABEL)
#: the root of stacks whose outermost frames are missing, where stacks are shown
CUT = "[callers cut off]"
#: stand for what is none of the program's code, where only that is shown (own.py):
#: what importing costs; and what no function of the program's called
IMPORT = Function("[import]", 0, "", LABEL)
OUTSIDE = Function("[libraries alone]", 0, "", LABEL)

#: likewise: the interpreter's own code shows an exception that nobody caught, or
#: Ctrl-C; it imports much for it
UNCAUGHT = Function("[showing an exception]", 0, "", LABEL)

_LABELS = (START, COMPILED, EMPTY, LOST, IMPORT, OUTSIDE, UNCAUGHT)
#: a frame for each, whose address is its index
LABEL_FRAMES = {label: Frame(i, LABEL, 0) for i, label in enumerate(_LABELS)}


class Program:
    """The stacks of a profile as the user sees them."""

    def __init__(self, profile: Profile):
        self._profile = profile
        #: address: whether its function is of those that ran the program
        self._known: dict[int, bool] = {}

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
        # PyPy's vmprof takes no sample of a stack without frames
        return LABEL_FRAMES[COMPILED if self._profile.interpreter == "pypy"
                            else EMPTY],

    def function(self, frame: Frame) -> Function:
        """Of a frame of stack()."""
        if frame.kind == LABEL:
            return _LABELS[frame.address]
        return self._profile.function(frame.address)

    def functions(self, number: int) -> list[Function]:
        """Those of stack()."""
        return list(map(self.function, self.stack(number)))

    def frames(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """`stack` without the frames of PyPy's start-up, and of the command
        that ran the program; perhaps nothing."""
        for i, frame in enumerate(stack):
            if frame.kind == LABEL:
                return stack[i:]
            outside = self._known.get(frame.address)
            if outside is None:
                outside = _is_outside(self._profile.function(frame.address))
                self._known[frame.address] = outside
            if not outside:
                return () if self._is_start(stack[:i + 1]) else stack[i:]
        return ()

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
