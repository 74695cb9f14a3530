"""Which frames of a stack are the user's program."""
from __future__ import annotations

from vmprof_allocation.reader import Frame, Function, Profile

#: files that stand between PyPy's start-up code and the program
_RUNNERS = ("<vmprof-allocation>", "/vmprof/__main__.py", "/runpy.py",
            "<frozen runpy>")
_OURS = "/vmprof_allocation/"
_STARTUP = "/app_main.py"

#: stands for stacks of which nothing is left
START = Function("[starting and ending the run]", 0, "", "")
#: stands for stacks that got lost
LOST = Function("[stack lost]", 0, "", "")


def program_frames(profile: Profile, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """`stack` (outermost frame first) without PyPy's start-up and the command
    that ran the program.  Empty if it holds nothing else."""
    for i, frame in enumerate(stack):
        file = profile.function(frame.address).file
        if not (file.endswith(_RUNNERS) or _OURS in file
                or (file.startswith("<") and file.endswith(_STARTUP))):
            return stack[i:]
    return ()
