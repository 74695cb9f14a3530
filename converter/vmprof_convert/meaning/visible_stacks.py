"""Convert the recorded stacks into the stacks that outputs show.

Frames of PyPy's start-up code and of the sampler are omitted. A stack without other
frames becomes a label. All reports and writers use this module, so that they show the
same stacks.
"""
from __future__ import annotations

import array
from itertools import islice

from vmprof_convert.profile.model import LABEL, PYTHON, Function, Profile
from vmprof_convert.profile.stacks import Frame, Stacks, Tree
from vmprof_convert.readers.pypy_stacks import NOT_KNOWN

#: the files of frames between PyPy's start-up code and the program; the first one
#: occurs in profiles with blocks of version 2
_RUNNERS = ("<vmprof-allocation>", "/vmprof/__main__.py", "/runpy.py",
            "<frozen runpy>")
_OURS = "/vmprof_allocation/"
#: the outermost function of the sampler's thread in a process that was not
#: control-enabled: there, a C function runs a string (remote/entry of the sampler)
_RUN_STRING = ("<string>", "<module>")
#: the file of the code that the string executes, and the files of its callees
_ENTERED = "<vmprof-allocation>"
_CALLED_THERE = (_ENTERED, "<frozen importlib._bootstrap>")
#: the files of PyPy's start-up code, "<builtin>/...", which starts and ends a run
_START_UP = ("/app_main.py", "/app_atexit.py")
#: the function of sys.excepthook in PyPy
_SHOWS = ("<builtin>/sys/app.py", "excepthook")
#: the functions in PyPy's start-up code that run code of the program
_PROGRAM = ("run_toplevel", "run_exitfuncs")

#: the label of stacks with only start-up code
START = Function("[starting and ending the run]", 0, "", LABEL)
#: the label of stacks that contain only unknown compiled code. Most of this code
#: belongs to generators that were resumed within several nested `yield from`, so that
#: vmprof's record had no room for other frames
COMPILED = NOT_KNOWN
#: the label of stacks without frames in the profile
EMPTY = Function("[no frames]", 0, "", LABEL)
#: the label of the stacks that the sampler could not record
LOST = Function("[stack lost]", 0, "", LABEL)
#: the line of a Python function whose executed line is unknown
UNKNOWN_LINE = -1
#: the root of stacks without their outermost frames, in outputs that show stacks
CUT = "[callers cut off]"
#: labels of other code if only user code is shown (user_code.py): imports, and code
#: that no user function called
IMPORT = Function("[import]", 0, "", LABEL)
OUTSIDE = Function("[libraries alone]", 0, "", LABEL)

#: the label of the interpreter's code that shows an uncaught exception or Ctrl-C, and
#: imports many modules for this purpose
UNCAUGHT = Function("[showing an exception]", 0, "", LABEL)

_LABELS = (START, COMPILED, EMPTY, LOST, IMPORT, OUTSIDE, UNCAUGHT)
#: the frame of each label, whose address is the label's index
LABEL_FRAMES = {label: Frame(i, LABEL, 0) for i, label in enumerate(_LABELS)}

_RUNS, _STARTS, _STRING = -1, -2, -3


def has_lines(profile: Profile) -> bool:
    """Return whether the profile records executed lines."""
    if isinstance(profile.stacks, Stacks):
        return any(frame.line > 0 for frame in profile.stacks.frames)
    return any(frame.line > 0 for stack in profile.stacks for frame in stack)


class Program:
    """The shown stacks of a profile, without the frames that run the program."""

    def __init__(self, profile: Profile):
        """Prepare the stacks of a profile."""
        self._profile = profile
        #: whether a function belongs to the code that runs the program, by its address
        self._known: dict[int, bool] = {}
        #: whether the profile records lines; None if this was not determined yet
        self._has_lines: bool | None = None
        self._was_entered = any(function.file == _ENTERED
                                for function in profile.functions.values())

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, outermost first; at least one.

        The result is the frame of a label if no other frame remains.

        Args:
            number: the index of the stack; -1 for a lost one.
        """
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
        """Return the results of stack() for all stacks of the profile as a tree."""
        whole = self._profile.stacks.tree()
        result = Stacks()
        labels: dict[Function, int] = {}

        def label(of: Function) -> int:
            frame = LABEL_FRAMES[of]
            return labels.setdefault(of, result.child(0, *frame))

        # For each node of `whole`, its node in `result`. _RUNS means that the path
        # contains only code that runs the program. _STARTS means that neither the node
        # nor its callees are shown. _STRING means that the node's callee decides.
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
        # PyPy's vmprof takes no samples of stacks without frames.
        return COMPILED if self._profile.interpreter == "pypy" else EMPTY

    def function(self, frame: Frame) -> Function:
        """Return the function of a frame that stack() returned."""
        if frame.kind == LABEL:
            return _LABELS[frame.address]
        return self._profile.function(frame.address)

    def line(self, frame: Frame) -> int:
        """Return the executed line of a frame, or UNKNOWN_LINE.

        The result is 0 if lines were not recorded, or if the frame has no lines.
        """
        if frame.line > 0 or self.function(frame).kind != PYTHON:
            return frame.line
        if self._has_lines is None:
            self._has_lines = (has_lines(self._profile)
                               or "lines" in self._profile.settings)
        return UNKNOWN_LINE if self._has_lines else 0

    def functions(self, number: int) -> list[Function]:
        """Return the functions of a stack, outermost first; at least one."""
        return list(map(self.function, self.stack(number)))

    def frames(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """Return a stack without the frames that start PyPy and run the program.

        The result may be empty.
        """
        if self._is_of_ours(stack):
            return ()
        for i, frame in enumerate(stack):
            if frame.kind == LABEL:
                return stack[i:]
            if not self._is_outside(frame):
                return () if self._is_start(stack[:i + 1]) else stack[i:]
        return ()

    def _is_of_ours(self, stack: tuple[Frame, ...]) -> bool:
        """Return whether the stack belongs to a thread of the sampler."""
        return bool(stack) and (self._is_ours(stack[0]) or (
            self._may_be_ours(stack[0])
            and all(map(self._is_called_there, stack[1:2]))))

    def _is_ours(self, outermost: Frame) -> bool:
        """Return whether a thread with this outermost frame belongs to the sampler."""
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
        """Return whether PyPy's start-up code itself called the last of some frames.

        For example, the start-up code imports `site`, and searches for the program.
        """
        *callers, last = [self._profile.function(f.address) for f in frames]
        return (bool(callers) and last.name != "<module>"
                and all(_is_start_up(f.file) and f.name not in _PROGRAM
                        for f in callers))


def shows_an_exception(function: Function) -> bool:
    """Return whether PyPy calls this function for uncaught exceptions."""
    return (function.file, function.name) == _SHOWS


def _is_outside(function: Function) -> bool:
    file = function.file
    return file.endswith(_RUNNERS) or _OURS in file or _is_start_up(file)


def _is_start_up(file: str) -> bool:
    return file.startswith("<") and file.endswith(_START_UP)
