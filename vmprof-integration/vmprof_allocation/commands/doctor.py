"""The command doctor: show whether and how this PyPy can be sampled."""
from __future__ import annotations

import io
import os
import platform
import sys
from typing import TextIO

from vmprof_allocation.commands.options import Parser
from vmprof_allocation.engines.choose import sampling_vmprof, vmprof_with_samples
from vmprof_allocation.errors import AllocationSamplingError, Finding, UnknownBuild


def run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    Parser("doctor", "Check whether and how this PyPy can be sampled. Send the output "
                     "with a bug report. The exit code is 1 if sampling is not "
                     "possible.",
           "pypy-alloc doctor", usage="pypy-alloc doctor").parse_args(arguments)
    text = io.StringIO()
    code = doctor(text)
    print(text.getvalue(), end="", flush=True)
    return code


def doctor(out: TextIO) -> int:
    """Print whether and how this PyPy can be sampled, for a bug report.

    The output contains the findings of the hook engine.

    Args:
        out: the file to which the text is written.

    Returns:
        The exit code, which is 0 if sampling is possible, and otherwise 1.
    """
    from vmprof_allocation.engines.hook import engine as hook
    print("%s on %s %s" % (sys.version.replace("\n", " "), platform.system(),
                           platform.machine()), file=out)
    if sampling_vmprof() is not None:
        print("allocations can be sampled here: this PyPy samples with its builtin "
              "engine, which takes no heap snapshots (the hook engine is used with "
              "--leaks, --retainers, --lines, --memory and --native-memory)", file=out)
        return 0
    # if this process is sampled, importing `session` continues its session
    from vmprof_allocation.session import session
    if (on := session.current()) is not None:
        print("allocations can be sampled here: this process is being sampled into "
              "%r" % on.where, file=out)
        return 0
    engine = hook.engine()
    problem: AllocationSamplingError | None = None
    findings: list[Finding] = []
    try:
        engine.prepare()
        findings = engine.findings
        findings.append(_children())
    except UnknownBuild as e:
        problem, findings = e, e.findings
    except AllocationSamplingError as e:
        problem = e
    if isinstance(problem, UnknownBuild) and vmprof_with_samples() is not None:
        from vmprof_allocation.engines.builtin.samples import REMARK
        print("allocations can be sampled here: %s" % REMARK, file=out)
        return 0
    for what, value, good in findings:
        print("  %-4s %s: %s" % ("ok" if good else "BAD", what, value), file=out)
    if isinstance(problem, UnknownBuild) and ("the nursery in memory" not in {
            what for what, _, _ in findings}):
        print("please report this: send all of these lines and the origin of this "
              "PyPy, so that the search can be extended for this build", file=out)
    print(problem or "allocations can be sampled here", file=out)
    return 1 if problem else 0


def _children() -> Finding:
    """Start a session, and return the finding whether children are sampled."""
    import tempfile

    from vmprof_allocation.engines.hook import engine as hook
    from vmprof_allocation.session.session import Session
    from vmprof_allocation.settings.settings import Settings
    with tempfile.TemporaryDirectory() as folder, Session(
            Settings(2**40, 1), os.path.join(folder, "doctor.vmprof")):
        error = hook.engine().follow_errno
    if error:
        return ("children", "counted, but not sampled: %s" % os.strerror(error), False)
    return "children", "followed", True
