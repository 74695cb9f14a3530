"""The commands doctor, attach, ctl and top of ``python -m vmprof_allocation``.

All other commands are vmprof-convert's, for users whose only Python is this PyPy.
"""
from __future__ import annotations

import io
import os
import platform
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

from vmprof_allocation.engines.choose import sampling_vmprof, vmprof_with_samples
from vmprof_allocation.errors import AllocationSamplingError, Finding, UnknownBuild
from vmprof_allocation.remote.process_info import Parser


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
              "--leaks, --held, --lines, --memory and --raw-memory)", file=out)
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


def write(text: str, out: TextIO) -> int:
    """Write a text, and return the exit code 0.

    If the text cannot be written, end the process.
    """
    try:
        print(text, end="", file=out, flush=True)
    except BrokenPipeError:
        nobody_listens()
    except OSError as e:
        not_written(e)
    return 0


def nobody_listens() -> NoReturn:
    """End the process by SIGPIPE, because the reader of the output has gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(EXIT_BAD_OUTPUT)       # if SIGPIPE is blocked


def not_written(error: OSError) -> NoReturn:
    """Print an error about standard output, and end the process."""
    print("vmprof_allocation: cannot write to standard output: %s" % error.strerror,
          file=sys.stderr)
    # os._exit(), because Python would try to write the rest when it exits
    os._exit(EXIT_BAD_OUTPUT)


def with_little_memory() -> None:
    """Replace this process by a PyPy with a small nursery that runs the same command.

    This has no effect if the user has set the size of the nursery. The default size is
    half of the processor's cache. It may be larger than all other memory of a report,
    and the GC keeps more garbage if the nursery is larger.
    """
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
        pass            # continue with the default nursery


#: commands of vmprof-convert
OF_CONVERTER = ("report", "tree", "callers", "leaks", "retainers", "memory", "diff",
                "check", "flamegraph", "view", "export")
EXIT_INTERRUPTED = 130
EXIT_BAD_OUTPUT = 2


def main() -> int:
    """Run a command, and return its exit code."""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            # names in a profile may contain characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    if sys.argv[1:2] and sys.argv[1] in OF_CONVERTER:
        return report(sys.argv[1:])
    if sys.argv[1:2] in (["attach"], ["ctl"], ["top"]):
        try:
            return _of_others(sys.argv[1])(sys.argv[2:])
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED     # Ctrl-C came before the command began
        except BrokenPipeError:
            nobody_listens()
        except OSError as e:
            not_written(e)
    parser = Parser(prog="python -m vmprof_allocation")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "doctor", help="show whether and how this PyPy can be sampled")
    for name in OF_CONVERTER:
        commands.add_parser(name, help="the same as vmprof-convert %s" % name)
    commands.add_parser(
        "attach", help="sample a running program, and report its allocations")
    commands.add_parser(
        "ctl", help="start and stop the sampling of a running program")
    commands.add_parser(
        "top", help="show the current allocations of a running program")
    parser.parse_args()
    text = io.StringIO()
    code = doctor(text)
    return write(text.getvalue(), sys.stdout) or code


def _of_others(command: str) -> Callable[[list[str]], int]:
    """Return the main function of attach, ctl or top."""
    if command == "attach":
        from vmprof_allocation.remote import attach
        return attach.main
    if command == "ctl":
        from vmprof_allocation.remote import ctl
        return ctl.main
    from vmprof_allocation.remote import top
    return top.main


def report(arguments: list[str]) -> int:
    """Run a command of vmprof-convert, and return its exit code."""
    try:
        from vmprof_convert import cli
    except ImportError as e:
        print("vmprof_allocation: the report needs vmprof-convert (%s). Install it "
              "into this environment" % e, file=sys.stderr)
        return 2
    with_little_memory()
    return cli.main(arguments, command="python -m vmprof_allocation",
                    name="vmprof_allocation")


if __name__ == "__main__":
    sys.exit(main())
