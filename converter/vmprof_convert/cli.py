"""The command vmprof-convert."""
from __future__ import annotations

import argparse
import gc
import io
import os
import re
import stat
import sys
from collections.abc import Sequence

from vmprof_convert import formats, judge_command, readers, report
from vmprof_convert.errors import ProfileError
from vmprof_convert.formats import FIREFOX, FORMATS, Format
from vmprof_convert.printable import printable
from vmprof_convert.view import output, serve
from vmprof_convert.view.progress import progress_bar
from vmprof_convert.writers import firefox

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

#: standard input, or output
STANDARD = "-"


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version
        try:
            number = version("vmprof-convert")
        except PackageNotFoundError:
            number = "of no known version: it is not installed"
        print("vmprof-convert %s" % number)
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vmprof-convert",
        description="Say what is in a vmprof profile, with or without allocation "
                    "samples: as a table in the terminal, or in the Firefox "
                    "Profiler.")
    parser.add_argument("profiles", metavar="PROFILE", nargs="+",
                        help="what vmprof wrote, gzipped or not; - is standard "
                             "input")
    parser.add_argument("--version", action=_Version, nargs=0,
                        help="print it, and nothing else")
    parser.add_argument(
        "-o", "--output", metavar="OUT",
        help="the file to write, in the format that its name says: %s; - is "
             "standard output" % ", ".join(
                 "%s (%s)" % (" or ".join(format_.suffixes), format_.what)
                 for format_ in FORMATS.values() if format_.suffixes))
    parser.add_argument(
        "--view", action="store_true",
        help="open the profile in the Firefox Profiler; it is served on this "
             "machine only, until Ctrl-C")
    parser.add_argument(
        "--to", metavar="FORMAT", choices=tuple(FORMATS),
        help="%s (default: what the output's name says, or a table)" % ", ".join(
            "%s (%s)" % (format_.name, format_.what) for format_ in FORMATS.values()))
    of_firefox = parser.add_argument_group("for the Firefox Profiler")
    of_firefox.add_argument(
        "--port", type=_port, default=0, metavar="PORT",
        help="serve it there, for example where a port is forwarded "
             "(default: any that is free)")
    of_firefox.add_argument(
        "--sources", action="store_true",
        help="put the text of the program's own *.py files into the profile, as "
             "far as this machine has them where the profile says: it goes wherever "
             "the profile goes")
    of_firefox.add_argument(
        "--axis", choices=[firefox.TIME, firefox.BYTES], default=firefox.TIME,
        help="what the Profiler's x axis is: time, or bytes allocated since the "
             "start (default: time)")
    parser.add_argument_group("for flamegraph.pl").add_argument(
        "--weight", choices=("bytes", "objects", "time"),
        help="what the numbers behind the stacks are (default: bytes, or time samples "
             "where there are no others)")
    parser.add_argument(
        "--salvage", action="store_true",
        help="read a profile that was cut off in the middle of a record")
    report.add_filters(parser.add_argument_group("which samples, in all formats"))
    report.add_options(parser.add_argument_group("of a report"))
    return parser


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(
        "%r is no port: write a number from 1 to 65535" % text)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with `to` filled in."""
    parser = _parser()
    options = parser.parse_args(arguments)
    target: str | None = options.output
    if options.form != report.TABLE and options.to not in (None, options.form):
        parser.error("--%s is a format, and so is --to %s: write one of them"
                     % (options.form, options.to))
    if options.view and (options.to not in (None, FIREFOX)
                         or options.form != report.TABLE or target == STANDARD):
        parser.error("--view opens the Firefox Profiler, which shows no report: "
                     "leave out --view, or what asks for one")
    if options.to is None:
        options.to = FIREFOX if options.view else options.form
        if target not in (None, STANDARD) and options.form == report.TABLE:
            found = formats.of_name(target or "")
            if options.view and (found is None or found.name != FIREFOX):
                parser.error("%s: with --view, the output's name must end with %s"
                             % (target, " or ".join(FORMATS[FIREFOX].suffixes)))
            if found is None:
                parser.error(
                    "%s: the output's name must end with %s; or say with --to what "
                    "it is to be" % (target, " or ".join(
                        suffix for format_ in FORMATS.values()
                        for suffix in format_.suffixes)))
            options.to = found.name
    format_ = FORMATS[options.to]
    if format_.write is None:
        options.form = options.to
    else:
        options.form = report.TABLE
        given = report.are_given(options)
        if given:
            parser.error("%s: this is for reports, and not for %s (%s)" % (
                ", ".join(given), format_.what, format_.name))
    for other in FORMATS.values():
        for name in other.options:
            if getattr(options, name) != parser.get_default(name) and (
                    name not in format_.options):
                parser.error("--%s is for %s: write --to %s, or an output that ends "
                             "with %s" % (name, other.what, other.name,
                                          " or ".join(other.suffixes)))
    if len(options.profiles) > 1:
        if options.profiles.count(STANDARD) > 1:
            parser.error("standard input can be read once")
        if options.view or (format_.write is not None and target is not None):
            parser.error("one file of %s holds one profile: %d were named"
                         % (format_.what, len(options.profiles)))
    return options


def _run(options: argparse.Namespace) -> None:
    target: str | None = options.output
    if target == STANDARD:
        target = None
    paths: list[str] = options.profiles
    for path in paths:
        if path != STANDARD:
            with _About(path):
                _check_source(path)
    if target is not None:
        for path in paths:
            output.check_target(target, path)
    format_ = FORMATS[options.to]
    if format_.write is not None:
        for path in paths:
            _convert(path, target, options, format_)
        return
    parts = []
    seen_on = report.terminal() if target is None else report.file_()
    for path in paths:
        with _About(path):
            text = report.make(_source(path), options, options.salvage, seen_on)
        if len(paths) > 1 and options.form != report.JSON:
            text = "%s:\n%s" % (printable(path), text)
        parts.append(text)
    text = "\n".join(parts)
    if target is None:
        _say(text.rstrip("\n"))
    else:
        output.write(target, text.encode("utf-8", "backslashreplace"))
        _say("wrote %s" % target)


def _convert(path: str, target: str | None, options: argparse.Namespace,
             format_: Format) -> None:
    """To a format that is no report."""
    is_standard = STANDARD in (options.output, path)
    if target is None and not options.view and not is_standard and format_.default:
        target = path + format_.default
        output.check_target(target, path)
    # without what only filters need
    from vmprof_convert.selection import select
    converted = io.BytesIO()
    assert format_.write is not None
    with _About(path):
        with progress_bar("reading", "B") as progress:
            profile = readers.read(_source(path), salvage=options.salvage,
                                   progress=progress)
        profile = select(profile, report.selection(options))
        with progress_bar("converting", " stacks") as progress:
            left_out = format_.write(profile, converted, options, progress)
    data = converted.getvalue()
    if target is not None:
        output.write(target, data)
        _say("wrote %s" % target)
    for line in left_out:
        print("vmprof-convert: %s" % printable(line), file=sys.stderr)
    if options.view:
        serve.view(data, firefox.query(profile), options.port)
    elif target is None:
        _write_out(data)


def _check_source(path: str) -> None:
    # what else there is can block, or never end
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise ProfileError("is not a file")


def _source(path: str) -> str | int:
    return os.dup(sys.__stdin__.fileno()) if path == STANDARD and (
        sys.__stdin__) else path


def _write_out(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _nobody_listens()


def _say(text: str) -> None:
    """On stdout, if anybody listens: the work is done, anyway."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _nobody_listens()


def _nobody_listens() -> None:
    # or Python would try again at the end
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class _About:
    """Errors inside are about this file."""

    def __init__(self, path: str) -> None:
        self._path = "standard input" if path == STANDARD else path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None,
                 traceback: object) -> None:
        if isinstance(error, ProfileError):
            raise _Failed("%s: %s" % (self._path, error)) from error
        if isinstance(error, MemoryError):
            raise _Failed("%s: this machine's memory is too small for it"
                          % self._path) from error
        if isinstance(error, OSError):
            raise _Failed("%s: %s" % (self._path, error.strerror)) from error


class _Failed(Exception):
    """The message says why, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names may have characters that the terminal can't show
        sys.stdout.reconfigure(errors="backslashreplace")
    if arguments is None:
        arguments = sys.argv[1:]
    # a profile of this name is ./diff
    if arguments and arguments[0] in judge_command.COMMANDS:
        return judge_command.main(arguments)
    options = _parse(arguments)
    # nothing here makes cycles, and looking for them takes a seventh of the time; in
    # PyPy this would keep all else that is dead, too
    has_gc = sys.implementation.name == "cpython" and gc.isenabled()
    if has_gc:
        gc.disable()
    try:
        _run(options)
    except (_Failed, output.OutputError) as error:
        print("vmprof-convert: %s" % printable(str(error)), file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        print("vmprof-convert: can't write to standard output: %s" % error.strerror,
              file=sys.stderr)
        # what could not be written would be tried again at the end
        _nobody_listens()
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        if has_gc:
            gc.enable()
    return 0
