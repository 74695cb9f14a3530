"""python -m vmprof_allocation doctor | report PROFILE"""
from __future__ import annotations

import argparse
import io
import os
import platform
import signal
import sys
from typing import TextIO

from vmprof_allocation.engines.choose import sampling_vmprof
from vmprof_allocation.errors import (
    AllocationSamplingError,
    Finding,
    UnknownBuild,
)


def doctor(out: TextIO) -> int:
    """Print how this PyPy can be sampled, and what the hook engine finds in
    it, for a bug report.  Returns the exit code: 0 if it can, 1 if not."""
    from vmprof_allocation.engines.hook import engine as hook
    print("%s on %s %s" % (sys.version.replace("\n", " "), platform.system(),
                           platform.machine()), file=out)
    if sampling_vmprof() is not None:
        print("allocations can be sampled here: this PyPy does it on its own",
              file=out)
        return 0
    engine = hook.engine()
    problem: AllocationSamplingError | None = None
    findings: list[Finding] = []
    try:
        engine.prepare()
        findings = engine.findings
    except UnknownBuild as e:
        problem, findings = e, e.findings
    except AllocationSamplingError as e:
        problem = e
    for what, value, good in findings:
        print("  %-4s %s: %s" % ("ok" if good else "BAD", what, value), file=out)
    print(problem or "allocations can be sampled here", file=out)
    return 1 if problem else 0


def report(options: argparse.Namespace, out: TextIO) -> int:
    """Print the summary of a profile."""
    from vmprof_convert import report
    from vmprof_convert.errors import ProfileError
    path: str = options.profile
    try:
        text = report.make(0 if path == "-" else path, options, options.salvage)
    except ProfileError as e:
        print("vmprof_allocation: %s: %s" % (path, e), file=sys.stderr)
        return 2
    except OSError as e:
        print("vmprof_allocation: can't read %s: %s" % (path, e.strerror),
              file=sys.stderr)
        return 2
    return write(text, out)


def write(text: str, out: TextIO) -> int:
    try:
        print(text, end="", file=out, flush=True)
    except BrokenPipeError:
        # who read it has seen enough: end as if Python did not catch this
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    except OSError as e:
        print("vmprof_allocation: can't write the report: %s" % e.strerror,
              file=sys.stderr)
        # what could not be written would be tried again at the end
        os._exit(2)
    return 0


def with_little_memory() -> None:
    """Go on in a PyPy whose nursery is small, unless somebody chose one.  Its
    default is half of the processor's cache, which may be more than all else
    that a report takes, and with it grows what the GC lets lie."""
    if (sys.implementation.name != "pypy" or "PYPY_GC_NURSERY" in os.environ
            or not sys.executable):
        return
    flags = ["-%s" % letter for letter, is_set in (
        ("I", sys.flags.isolated), ("E", sys.flags.ignore_environment),
        ("s", sys.flags.no_user_site), ("S", sys.flags.no_site)) if is_set]
    try:
        os.execve(sys.executable,
                  [sys.executable, *flags, "-m", "vmprof_allocation",
                   *sys.argv[1:]],
                  {**os.environ, "PYPY_GC_NURSERY": "2M"})
    except OSError:
        pass            # then it takes more


def main() -> int:
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            # names may have characters that the terminal can't show
            stream.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(prog="python -m vmprof_allocation")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "doctor", help="what the sampler finds in this PyPy")
    report_ = commands.add_parser(
        "report", help="who allocated how much, according to a profile")
    missing: ImportError | None = None
    try:
        from vmprof_convert.report import add_filters, add_options
    except ImportError as e:
        missing = e
        report_.add_argument("anything", nargs=argparse.REMAINDER)
    else:
        report_.add_argument("profile", help="what was written with -o; - is "
                                             "standard input")
        add_filters(report_)
        add_options(report_)
        report_.add_argument("--salvage", action="store_true",
                             help="read a profile that was cut off")
    options = parser.parse_args()
    if options.command == "doctor":
        text = io.StringIO()
        code = doctor(text)
        return write(text.getvalue(), sys.stdout) or code
    if missing is not None:
        print("vmprof_allocation: the report is made by vmprof-convert (%s); "
              "install it into this environment" % missing, file=sys.stderr)
        return 2
    with_little_memory()
    return report(options, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
