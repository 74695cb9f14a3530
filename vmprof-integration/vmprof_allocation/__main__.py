"""python -m vmprof_allocation doctor | report PROFILE"""
from __future__ import annotations

import argparse
import platform
import sys
from typing import TextIO

from vmprof_allocation import reader, summary
from vmprof_allocation.carrier import patched_vmprof
from vmprof_allocation.errors import (
    AllocationSamplingError,
    Finding,
    UnknownBuild,
)


def doctor(out: TextIO) -> int:
    """Print how this PyPy can be sampled, and what the live carrier finds in
    it, for a bug report.  Returns the exit code: 0 if it can, 1 if not."""
    from vmprof_allocation import live
    print("%s on %s %s" % (sys.version.replace("\n", " "), platform.system(),
                           platform.machine()), file=out)
    if patched_vmprof() is not None:
        print("allocations can be sampled here: this PyPy has the patch",
              file=out)
        return 0
    carrier = live.carrier()
    problem: AllocationSamplingError | None = None
    findings: list[Finding] = []
    try:
        carrier.prepare()
        findings = carrier.findings
    except UnknownBuild as e:
        problem, findings = e, e.findings
    except AllocationSamplingError as e:
        problem = e
    for what, value, good in findings:
        print("  %-4s %s: %s" % ("ok" if good else "BAD", what, value), file=out)
    print(problem or "allocations can be sampled here", file=out)
    return 1 if problem else 0


def report(path: str, limit: int, salvage: bool, out: TextIO) -> int:
    """Print the summary of the profile at `path`."""
    try:
        summary.show(reader.read(path, salvage=salvage), out, limit)
    except AllocationSamplingError as e:
        print("vmprof_allocation: %s: %s" % (path, e), file=sys.stderr)
        return 2
    except OSError as e:
        print("vmprof_allocation: can't read %s: %s" % (path, e.strerror),
              file=sys.stderr)
        return 2
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vmprof_allocation")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "doctor", help="what the sampler finds in this PyPy")
    report_ = commands.add_parser(
        "report", help="who allocated how much, according to a profile")
    report_.add_argument("profile")
    report_.add_argument("--limit", type=int, default=25, metavar="N",
                         help="show the N largest functions (default: 25)")
    report_.add_argument("--salvage", action="store_true",
                         help="read a profile that was cut off")
    args = parser.parse_args()
    if args.command == "doctor":
        return doctor(sys.stdout)
    return report(args.profile, args.limit, args.salvage, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
