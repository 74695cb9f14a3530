"""Parse the flags that the sampler adds to `python -m vmprof`, and run the program.

startup.py calls parse() and main() in place of vmprof's own main. main() ends by
replacing this process by the program's interpreter, in which begin.py continues.
"""
from __future__ import annotations

import argparse
import fcntl
import os
import resource
import stat
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from vmprof_allocation.engines import searching
from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.launch import parent, temporary
from vmprof_allocation.launch.begin import VARIABLE, refuse
from vmprof_allocation.launch.program import find, interpreter, read_log_request
from vmprof_allocation.remote.control.prepared import VARIABLE as CONTROL
from vmprof_allocation.session.profile_file import check_replaceable
from vmprof_allocation.settings.parsing import make_settings, parse_rotate
from vmprof_allocation.settings.settings import Settings

#: lowest number of a descriptor that the program inherits from this module
_HIGH = 1000

#: addition to the help of vmprof's own flag --lines
_LINES = ("; on PyPy: record the executed line of each function in allocation samples "
          "(report --by line). CPU samples have no lines, because a signal can "
          "interrupt the GC, and then the frames cannot be read. This takes time "
          "whenever PyPy compiles")


#: whether messages other than errors are suppressed
_is_quiet = False


def note(message: str) -> None:
    """Print a message to stderr, unless --quiet is given."""
    if not _is_quiet:
        say(message)


class Target:
    """The interpreter that runs the program: this one, unless a subclass is used."""

    executable = sys.executable
    is_python_3 = True

    def find(self, program: str, is_module: bool) -> list[str]:
        """Return the arguments that run a program.  See program.find()."""
        return find(program, is_module)

    def knowledge(self, settings: Settings) -> str:
        """Return the build profile for the program's engine.

        Raises:
            AllocationSamplingError: the engine cannot sample this build.
        """
        return searching.knowledge(note, settings)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the sampler's flags to vmprof's parser."""
    group = parser.add_argument_group(
        "allocation sampling (vmprof-allocation)")
    group.add_argument(
        "--allocation-sampling", metavar="BYTES",
        help="Sample allocations, one per BYTES on average, for example 128k or 1.5MiB "
             "(powers of 1024); or as many as a limit allows: auto, auto:1000/s, "
             "auto:0.5%%. Take no CPU samples unless --period is given, too")
    group.add_argument(
        "--allocation-seed", metavar="NUMBER",
        help="Set the seed of the sampling distribution, to make a run repeatable")
    group.add_argument(
        "--allocation-distribution", choices=("exponential", "fixed"),
        help="Select the sampling distribution, which is the distribution of the bytes "
             "between samples; fixed numbers alias with loops (default: exponential)")
    group.add_argument(
        "--no-lifetimes", action="store_true",
        help="Do not record the outcomes of the sampled objects")
    group.add_argument(
        "--no-follow", action="store_true",
        help="Do not sample the program's child processes")
    group.add_argument(
        "--native", action="store_true",
        help="Record the C functions between the innermost Python function and the "
             "allocation")
    group.add_argument(
        "--native-memory", metavar="BYTES",
        help="Also sample the memory that C code gets from malloc (cffi, ctypes, "
             "array, numpy, sqlite, zlib), one sample per BYTES on average, for "
             "example 512k")
    group.add_argument(
        "--rotate", metavar="SECONDS",
        help="End the profile every SECONDS, and begin the next one without a gap: "
             "app.vmprof, app.w2.vmprof and so on. Needs -o")
    group.add_argument(
        "--retainers", action="store_true",
        help="Write the retainers of the live objects into the profile at the "
             "program's end, and with --rotate at the end of each profile, for "
             "pypy-alloc retainers")
    group.add_argument(
        "--leaks", action="store_true",
        help="Take heap snapshots while the program runs, for pypy-alloc leaks, which "
             "shows the allocation sites that grow; without -o, show that report at "
             "the end")
    group.add_argument(
        "--memory", action="store_true",
        help="Write the uses of the process's resident memory into the profile at its "
             "end, for pypy-alloc memory")
    group.add_argument(
        "--control", action="store_true",
        help="Let pypy-alloc control, live and attach access the program by a signal, "
             "even if it is not sampled")
    group.add_argument(
        "--push", metavar="URL",
        help="Send profiles to an engine while the program runs, instead of writing a "
             "file: otlp+http://HOST:4318 (the OpenTelemetry collector), "
             "pyroscope+https://HOST or parca+http://HOST:7070. The default of "
             "--allocation-sampling is then auto")
    group.add_argument(
        "--push-every", metavar="SECONDS",
        help="Set the time between two pushes (default: 15)")
    group.add_argument(
        "--view", action="store_true",
        help="Open the profile in the Firefox Profiler when the program has ended; -o "
             "keeps the profile")
    group.add_argument(
        "--quiet", action="store_true",
        help="Print only errors and the report to stderr")


def _build_parser(build: Callable[[], argparse.ArgumentParser], *,
                  sampling: bool) -> argparse.ArgumentParser:
    """Return vmprof's parser with the sampler's flags.

    Args:
        build: makes vmprof's parser.
        sampling: whether allocations are sampled. If so, the parser does not open the
            output, because some versions of vmprof's parser empty the file before the
            other arguments are checked. Without --period, there are no CPU samples.
    """
    parser = build()
    add_flags(parser)
    for action in parser._actions:
        if action.dest == "lines":
            action.help = (action.help or "") + _LINES
    if sampling:
        parser.add_argument("-c", dest="code", action="store_true",
                            help="Run program as code, as python -c does")
        for action in parser._actions:
            if action.dest == "output":
                action.type = str
            elif action.dest == "period":
                action.default = None
    return parser


def parse(arguments: list[str]) -> Any | None:
    """Parse the arguments of `python -m vmprof`.

    Args:
        arguments: the arguments.

    Returns:
        The parsed arguments if a flag of the sampler is given. Otherwise None: vmprof's
        own main then continues, and its help shows the sampler's flags, too.

    Raises:
        SystemExit: the arguments are wrong (exit code 2).
    """
    import vmprof.cli
    build = vmprof.cli.build_argparser
    vmprof.cli.build_argparser = lambda: _build_parser(build, sampling=True)
    try:
        if _asks_for_us(arguments):
            _check_program(arguments)
            return vmprof.cli.parse_args(arguments)
    finally:
        vmprof.cli.build_argparser = lambda: _build_parser(build, sampling=False)
    return None


class _WrongArguments(Exception):
    pass


class _Probe(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _WrongArguments


def _check_program(arguments: list[str]) -> None:
    """Refuse a command whose last option has taken the program for its value."""
    probe = _make_probe()
    try:
        probe.parse_args(arguments)
        return
    except _WrongArguments:
        pass
    try:
        found = vars(probe.parse_args([*arguments, "program"]))
    except _WrongArguments:
        return          # the parser reports what else is wrong
    value = arguments[-1]
    taken = [name for name, given in found.items() if given == value]
    if not taken:
        return
    try:
        if taken[-1] in ("allocation_sampling", "native_memory"):
            make_settings(value)
    except AllocationSamplingError as e:
        refuse("%s, and then the program" % e)
    refuse("no program follows %r: write the value of %s, and then the program" % (
        " ".join(arguments[-2:]), arguments[-2]))


def _make_probe() -> _Probe:
    """Return a parser of vmprof's arguments and the sampler's flags that opens no file.

    If the arguments are wrong, its parse_args() raises _WrongArguments.
    """
    import vmprof.cli
    probe = _Probe(add_help=False)
    for action in vmprof.cli.build_argparser()._actions:
        if not action.option_strings:
            probe.add_argument(action.dest, nargs=action.nargs)
        elif action.nargs == 0:
            probe.add_argument(*action.option_strings, dest=action.dest,
                               action="store_true")
        else:
            probe.add_argument(*action.option_strings, dest=action.dest)
    return probe


def _asks_for_us(arguments: list[str]) -> bool:
    """Return whether a flag of the sampler comes before the program's name.

    Flags after the program's name belong to the program. This function opens no file
    and reports no error, because parse() or vmprof's own main does so afterwards.
    """
    try:
        found = _make_probe().parse_args(arguments)
    except _WrongArguments:
        return any(a.startswith(("--allocation-", "--no-lifetimes", "--no-follow",
                                 "--native", "--rotate", "--view", "--push",
                                 "--control", "--quiet", "--retainers", "--leaks",
                                 "--memory", "--native-memory"))
                   for a in arguments)
    return (found.no_lifetimes or found.no_follow or found.native or found.view
            or found.control or found.quiet or found.retainers or found.leaks
            or found.memory) or any(
        value is not None for name, value in vars(found).items()
        if name.startswith(("allocation_", "push", "native_memory", "rotate")))


def seed(text: str | None) -> int | None:
    """Convert the value of --allocation-seed to a number.

    Raises:
        AllocationSamplingError: the seed is not a whole number.
    """
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise AllocationSamplingError(
            "invalid seed %r: write an integer, such as 1" % text) from None


def _check(args: Any) -> Settings:
    if args.code and args.module:
        raise AllocationSamplingError("-m runs a module, and -c runs code: omit one of "
                                      "them")
    if args.push is not None:
        _check_push(args)
    elif args.push_every is not None:
        raise AllocationSamplingError("--push-every needs --push: write the URL of the "
                                      "engine after --push")
    if args.allocation_sampling is None:
        raise AllocationSamplingError(
            "--allocation-seed, --allocation-distribution, --no-lifetimes, "
            "--no-follow, --native, --rotate, --retainers, --leaks, --memory, "
            "--native-memory, --view and --quiet need --allocation-sampling")
    for flag, what in (("retainers", "retainers"), ("leaks", "heap snapshots"),
                       ("memory", "memory counts")):
        if getattr(args, flag) and args.push is not None:
            raise AllocationSamplingError(
                "--%s writes %s into a profile, but --push cannot send them: omit one "
                "of the two options" % (flag, what))
    if args.native_memory is not None and args.push is not None:
        raise AllocationSamplingError(
            "--push cannot send samples of native memory (--native-memory): omit one "
            "of the two options")
    if args.web or args.web_auth:
        raise AllocationSamplingError(
            "cannot use --allocation-sampling with --web or --web-auth, because the "
            "server does not support allocations. Write a file with -o")
    if args.native and args.no_native:
        raise AllocationSamplingError(
            "--native and --no-native exclude each other: omit one of them")
    if args.lines and args.jitlog:
        raise AllocationSamplingError(
            "--lines and --jitlog cannot both read PyPy's log of compiled code: omit "
            "one of them")
    settings = make_settings(
        args.allocation_sampling, seed(args.allocation_seed),
        args.allocation_distribution or "exponential", args.period, bool(args.mem),
        not args.no_lifetimes, not args.no_follow, _check_rotate(args),
        bool(args.native), bool(args.retainers), bool(args.lines), args.native_memory,
        bool(args.memory), bool(args.leaks))
    settings.last_snapshot = True
    return settings


def _check_rotate(args: Any) -> float:
    """Return the seconds between two profiles, or 0.0 for a single profile."""
    if args.rotate is None:
        return 0.0
    if args.output is None:
        raise AllocationSamplingError(
            "--rotate writes several profiles: write the name of the first one after "
            "-o")
    return parse_rotate(args.rotate)


def _check_push(args: Any) -> None:
    if args.output is not None or args.view or args.jitlog or args.rotate is not None:
        raise AllocationSamplingError(
            "--push sends profiles, and writes no files: omit --push, or -o, --rotate, "
            "--view and --jitlog")
    if args.allocation_sampling is None:
        args.allocation_sampling = "auto"


def _is_only_prepared(args: Any) -> bool:
    """Return whether the program starts without sampling, which control can start."""
    if (not args.control or args.allocation_sampling is not None
            or args.push is not None):
        return False
    for name, value in vars(args).items():
        if value and name not in ("control", "quiet", "program", "args", "module",
                                  "code", "web_url", "web_auth", "no_native"):
            raise AllocationSamplingError(
                "--control without --allocation-sampling writes no profile, so --%s "
                "has no effect: omit it, or add "
                "--allocation-sampling" % name.replace("_", "-"))
    return True


def main(args: Any, original: list[str],
         target: Target | None = None) -> NoReturn:
    """Check the arguments, and run the program with the sampling.

    As much as possible is checked before anything changes. The program's interpreter
    gets the same command line as without the sampler.

    Args:
        args: the arguments from parse().
        original: the command line of this process.
        target: the interpreter that runs the program; None for this interpreter.
    """
    global _is_quiet
    _is_quiet = bool(args.quiet)
    if read_log_request() is not None:
        # a forked PyPy that logs anything opens PyPy's log again, which empties the log
        os.environ["PYPYLOG"] = "nothing:" + os.devnull
    target = target or Target()
    try:
        is_only_prepared = _is_only_prepared(args)
        settings = None if is_only_prepared else _check(args)
        if (args.push is not None or args.control or args.rotate is not None
                or args.native or args.retainers or args.leaks or args.lines
                or args.memory or args.native_memory is not None
                ) and not target.is_python_3:
            raise AllocationSamplingError(
                "--push, --control, --rotate, --retainers, --leaks, --memory, "
                "--native, --lines and --native-memory need Python 3: omit them, and "
                "write one profile with -o")
        if not is_only_prepared and (args.output is None or args.view):
            _check_report()
        command = [*interpreter(original, len(sys.argv) - 1),
                   *(["-c", args.program] if args.code
                     else target.find(args.program, args.module)), *args.args]
        if args.control:
            os.environ[CONTROL] = "1"
        if settings is None:
            _become(target, command)
        knowledge = target.knowledge(settings)
        held = _check_output(args.output, command)
        if args.rotate is not None and held != -1:
            raise AllocationSamplingError(
                "--rotate cannot begin a second profile in the pipe %r: write the name "
                "of a file after -o, or omit --rotate" % args.output)
        if args.view and held != -1:
            raise AllocationSamplingError(
                "--view cannot show a profile that is written into the pipe %r: write "
                "the name of a file after -o, or omit --view" % args.output)
        jitlog = _open_jitlog(args)
        if settings is not None and args.push is not None:
            from vmprof_push import start
            output = start.start(settings, args.push, args.push_every)
        else:
            output = args.output or temporary.make()
    except AllocationSamplingError as e:
        refuse(str(e))
    def become() -> NoReturn:
        os.environ[VARIABLE] = pack(
            settings, output, knowledge=knowledge, held=held, jitlog=jitlog)
        try:
            _become(target, command)
        except AllocationSamplingError as e:
            refuse(str(e))

    if args.push is None and (args.output is None or args.view):
        try:
            parent.run(become, output, parent.view if args.view else
                       partial(parent.report, more=[
                           name for name in ("retainers", "leaks", "memory")
                           if getattr(args, name)]),
                       is_temporary=args.output is None)
        except AllocationSamplingError as e:
            refuse(str(e))
    become()


def _become(target: Target, command: list[str]) -> NoReturn:
    environment = dict(os.environ)
    log = read_log_request()
    if log is not None:
        environment["PYPYLOG"] = log
    try:
        os.execve(target.executable, command, environment)
    except OSError as e:
        raise AllocationSamplingError(
            "cannot start %s: %s" % (target.executable, e.strerror)) from None


def _check_report() -> None:
    try:
        import vmprof_convert  # noqa: F401
    except ImportError:
        raise AllocationSamplingError(
            "the report needs vmprof-convert, which is missing in this environment. "
            "Install it, or write the profile to a file with -o"
        ) from None


def pack(settings: Settings, output: str, *, knowledge: str, held: int,
         jitlog: int) -> str:
    """Return the value of begin.VARIABLE for this process after its exec.

    Args:
        settings: the settings.
        output: path of the profile.
        knowledge: the build profile that the engine found.
        held: inherited descriptor of the output if it is a pipe, which must stay open
            until the new process opens it; -1 for no pipe.
        jitlog: inherited descriptor of the JIT log; -1 for no log.
    """
    return "\t".join((str(os.getpid()), str(held), str(jitlog), settings.text(),
                      knowledge, output))


def _check_output(path: str | None, command: list[str]) -> int:
    """Check that the profile can be written.

    Returns:
        The descriptor of the profile if it is a pipe, otherwise -1. It has to stay
        open, because a reader takes the closing of the pipe for the end of the profile.

    Raises:
        AllocationSamplingError: the profile cannot be written.
    """
    if path is None:
        return -1
    if path == "-":
        raise AllocationSamplingError(
            "invalid output '-': standard output belongs to the program. Write the "
            "name of a file (such as ./-), and convert it with vmprof-convert export "
            "--format vmprof -o -")
    try:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.unlink(path)
        except FileExistsError:
            if stat.S_ISFIFO(os.stat(path).st_mode):
                return _move_up(os.open(path, os.O_WRONLY))
            for word in command:
                if os.path.exists(word) and os.path.samefile(path, word):
                    raise AllocationSamplingError(
                        "the profile would replace %r, which is part of the command. "
                        "Write -o and another file before the program" % path) from None
            fd = os.open(path, os.O_RDWR)
            try:
                check_replaceable(fd, path)
            except BaseException:
                os.close(fd)
                raise
    except OSError as e:
        raise AllocationSamplingError(
            "cannot write the profile to %r: %s" % (path, e.strerror)) from None
    os.close(fd)
    return -1


def _move_up(fd: int) -> int:
    """Move a descriptor to a high number that exec keeps, and return the number.

    The program then gets the same low numbers for its files as without the sampler. The
    new number is never 0 to 2, even if these descriptors are closed, because the
    program would use it as stdin, stdout or stderr.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    is_high = limit == resource.RLIM_INFINITY or limit > _HIGH
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH if is_high else 3)
    os.close(fd)
    return moved


def _open_jitlog(args: Any) -> int:
    """Open the JIT log next to the profile.

    Returns:
        The descriptor, or -1 if --jitlog is not given. Without -o, the descriptor is of
        /dev/null.

    Raises:
        AllocationSamplingError: the log cannot be written.
    """
    if not args.jitlog:
        return -1
    path = "%s.jit" % args.output if args.output is not None else os.devnull
    try:
        return _move_up(os.open(
            path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, 0o600))
    except OSError as e:
        raise AllocationSamplingError(
            "cannot write the JIT log to %r: %s" % (path, e.strerror)) from None
