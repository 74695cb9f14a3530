"""Build the requests for a process that a command samples, and check the answers."""
from __future__ import annotations

from vmprof_allocation.engines import searching
from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.remote.control.client import Process
from vmprof_allocation.remote.process_info import DEFAULT, printable
from vmprof_allocation.settings.parsing import make_settings
from vmprof_allocation.settings.processes import Processes
from vmprof_allocation.settings.settings import Settings


def wanted(process: Process, settings: Settings, output: str, folder: str = "",
           run: str = "", parent: int = 0) -> list[str]:
    """Return the fields that follow the name of a START or HOLD request.

    Args:
        process: the process that is to be sampled.
        settings: the settings.
        output: path of the profile, or of the first process's profile.
        folder: folder from work_folder.own() for data that the process needs.
        run: ID of an existing run that the process becomes a child of, or "".
        parent: pid of the process's parent in this run, or 0.
    """
    knowledge = (searching.knowledge(say, settings, folder)
                 if process.runs_this() else "")
    return [output, knowledge, settings.text(), run, str(parent)]


def check_started(process: Process, request: list[str], answer: list[str]
                  ) -> tuple[str, str]:
    """Return the path and the run of the profile that `process` writes.

    Args:
        process: the sampled process.
        request: the request that the process received; see wanted().
        answer: its answer to START, or to HOLD.

    Raises:
        AllocationSamplingError: the answer names another file than the request, or
            another run.  A command opens only the files that it requested.
    """
    output, _, _, run, parent = request
    path, new_run = answer
    possible = (Processes(output, run, int(parent)).paths_of_child(process.own_pid)
                if run else [output])
    for asked in possible:
        if printable(asked) == path and run in ("", new_run):
            return asked, new_run
    raise AllocationSamplingError(
        "process %d received the request to write the profile to %r, but answered that "
        "it writes to %r. It runs another version of vmprof-allocation, or another "
        "program" % (process.pid, possible[0], path))


def gc_state(process: Process) -> str:
    """Return the field of a MEMORY request: where to read whether the GC sweeps.

    The result is Engine.gc_state() for the interpreter of `process`. It is "" if this
    build of PyPy cannot be sampled.
    """
    if not process.runs_this():
        return ""
    try:
        return searching.choose_aloud(say, make_settings(DEFAULT)).gc_state()
    except AllocationSamplingError:
            return ""           # the build cannot be sampled, but has memory counts
