"""The command vmprof-convert, which is also `python -m vmprof_allocation report`.

`main()` parses the options and reads the profiles of a run. It then writes a report, an
output file in another format, or serves the profile to the Firefox Profiler.
"""
from __future__ import annotations

import argparse
import contextlib
import gc
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO

from vmprof_convert.cli import formats, options, run_files, streams
from vmprof_convert.cli.formats import AXES, FIREFOX, FORMATS, Format
from vmprof_convert.cli.run_files import STANDARD
from vmprof_convert.errors import FileError, ProfileError, about
from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import printable

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
#: options of reports that other formats support together with --held
_OF_TREE = ("--held", "--group-storage")
#: commands of diff_check.py; a profile that is called diff has to be given as ./diff
JUDGING = ("diff", "check")


class _Failed(Exception):
    """The command failed; the message is one line."""


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version
        try:
            number = version("vmprof-convert")
        except PackageNotFoundError:
            number = "of unknown version: it is not installed"
        print("vmprof-convert %s" % number)
        parser.exit()


def _parser(command: str) -> argparse.ArgumentParser:
    parser = options.Parser(
        prog=command,
        description="Report the contents of a vmprof profile, with or without "
                    "allocation samples, as a table in the terminal or in the Firefox "
                    "Profiler.",
        epilog="'%s diff' compares profiles, and '%s check' compares a profile with "
               "limits. Both have a --help." % (command, command))
    parser.add_argument("profiles", metavar="PROFILE", nargs="+",
                        help="profile of vmprof, gzipped or not; - is standard input. "
                             "For a run of several processes, name the profile of the "
                             "first process (the others are found in its folder), or "
                             "the profiles of some processes")
    parser.add_argument("--version", action=_Version, nargs=0,
                        help="print the version, and exit")
    parser.add_argument(
        "-o", "--output", metavar="OUT",
        help="write to the file OUT, whose suffix selects the format: %s; with --json, "
             "the report for programs; - is standard output" % ", ".join(
                 "%s (%s)" % (" or ".join(format_.suffixes), format_.what)
                 for format_ in FORMATS.values() if format_.suffixes))
    parser.add_argument(
        "--view", action="store_true",
        help="open the profile in the Firefox Profiler, and serve it on this machine "
             "only, until Ctrl-C. With --to html or --to speedscope, write a file, and "
             "open it")
    parser.add_argument(
        "--to", metavar="FORMAT", choices=tuple(FORMATS),
        help="select the format: %s (default: the format of the output's suffix, or a "
             "table)" % ", ".join(
            "%s (%s)" % (format_.name, format_.what) for format_ in FORMATS.values()))
    of_firefox = parser.add_argument_group("for the Firefox Profiler")
    of_firefox.add_argument(
        "--port", type=_port, default=0, metavar="PORT",
        help="serve the profile on this port, for example if it is forwarded (default: "
             "any free port)")
    of_firefox.add_argument(
        "--sources", action="store_true",
        help="include the text of the program's own *.py files, as far as this machine "
             "has them at the recorded paths. All recipients of the output can read it")
    of_firefox.add_argument(
        "--axis", choices=AXES, default=AXES[0],
        help="select the Profiler's x axis: time, or bytes allocated since the start "
             "(default: time)")
    parser.add_argument_group("for flamegraph.pl").add_argument(
        "--weight", choices=("bytes", "objects", "time"),
        help="select the number after each stack (default: bytes, or CPU samples if "
             "the profile has no others)")
    parser.add_argument(
        "--salvage", action="store_true",
        help="read a profile that was cut off in the middle of a record")
    # name of each profile in messages, if the path means nothing to the user
    parser.add_argument("--called", action="append", default=[], help=argparse.SUPPRESS)
    options.add_filters(parser.add_argument_group(
        "selection of samples, in all formats"))
    options.add_options(parser.add_argument_group("options of a report"))
    return parser


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(
        "invalid port %r: write a number from 1 to 65535" % text)


def _parse(parser: argparse.ArgumentParser,
           arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the options.

    The result has two more attributes: `to` is the output format, and `hint` is a text
    to print after the name of the output.
    """
    # options may come before profiles
    asked = parser.parse_intermixed_args(arguments)
    target: str | None = asked.output
    asked.hint = ""
    if asked.form != options.TABLE and asked.to not in (None, asked.form):
        parser.error("--%s is a format, and so is --to %s: write one of them"
                     % (asked.form, asked.to))
    viewed = [format_.name for format_ in FORMATS.values() if format_.view is not None]
    if asked.view and (asked.to not in (None, *viewed)
                       or asked.form != options.TABLE or target == STANDARD):
        parser.error("--view opens the Firefox Profiler, or a file of one of the "
                     "formats %s (--to), and no report: leave out --view, or the "
                     "option that selects a report"
                     % ", ".join(viewed))
    if asked.to is None:
        asked.to = FIREFOX if asked.view else asked.form
        if target not in (None, STANDARD) and asked.form == options.TABLE:
            found = formats.of_name(target or "")
            if asked.view and (found is None or found.view is None):
                parser.error("%s: with --view, the output's name must end with %s"
                             % (target, formats.suffixes({
                                 name: FORMATS[name] for name in viewed})))
            if found is None:
                parser.error(
                    "%s: the output's name must end with %s; or select the format with "
                    "--to" % (target, formats.suffixes()))
            asked.to = found.name
            if asked.to == FIREFOX and not asked.view and str(target).endswith(".json"):
                asked.hint = ", for the Firefox Profiler (--json writes the report)"
    format_ = FORMATS[asked.to]
    if format_.write is None:
        asked.form = asked.to
    else:
        asked.form = options.TABLE
        given = options.are_given(asked)
        if asked.held:
            _check_held(parser, asked, format_)
            given = [name for name in given if name not in _OF_TREE]
        if given:
            parser.error("%s: only reports support this, and not the format %s" % (
                ", ".join(given), format_.name))
    for other in FORMATS.values():
        for name in other.options:
            if getattr(asked, name) != parser.get_default(name) and (
                    name not in format_.options):
                parser.error("--%s is for %s: write --to %s, or an output that ends "
                             "with %s" % (name, other.what, other.name,
                                          " or ".join(other.suffixes)))
    if asked.port and not (asked.view and format_.view == formats.SERVED):
        parser.error("--port is the port at which --view serves a profile to the "
                     "Firefox Profiler, and this command does not serve one: leave it "
                     "out")
    if asked.profiles.count(STANDARD) > 0 and len(asked.profiles) > 1:
        parser.error("standard input contains one profile: to read several, name only "
                     "files")
    return asked


def _check_held(parser: argparse.ArgumentParser, asked: argparse.Namespace,
                format_: Format) -> None:
    """Check that the format can contain the retainers instead of the samples."""
    if format_.has_held:
        parser.error("--held is not needed here: the format %s includes the retainers, "
                     "if the profile has them; leave it out" % format_.name)
    if format_.write_held is None:
        parser.error("--held is for reports and the formats %s, and not for %s" % (
            ", ".join(other.name for other in FORMATS.values() if other.write_held),
            format_.name))
    if asked.weight not in (None, "bytes"):
        parser.error("--held is about bytes: leave out --weight %s" % asked.weight)
    if asked.samples is not None:
        parser.error("--samples limits the allocation samples, and --held shows none: "
                     "leave it out")


def _with_names(text: str, asked: argparse.Namespace) -> str:
    """Return a message with the names of --called in place of the profiles' paths."""
    names = dict(zip(asked.profiles, asked.called))
    if not names:
        return text
    return re.sub("(%s)(?![0-9])" % "|".join(map(re.escape, names)),
                  lambda found: names[found[0]], text)


def _run(asked: argparse.Namespace, name: str) -> None:
    target: str | None = asked.output
    if target == STANDARD:
        target = None
    format_ = FORMATS[asked.to]
    is_served = asked.view and format_.view == formats.SERVED
    found = run_files.find(asked.profiles)
    if (target is None and format_.default and not is_served
            and STANDARD not in (asked.output, asked.profiles[0])):
        target = asked.profiles[0] + format_.default
    if asked.view and not is_served:
        if target is None:
            raise _Failed("--view opens a file: name it with -o")
        from vmprof_convert.cli import launch
        with _writing():
            launch.check(format_.view or "")
    if target is not None:
        from vmprof_convert.cli import output
        with _writing():
            for file in found.files:
                output.check_target(target, file.path)
        if format_.name != "vmprof":
            run_files.check_not_a_profile(target)
    elif sys.stdout is None and not asked.view:
        raise _Failed("cannot write to standard output: it is closed")
    if format_.write is None:
        _report(found, asked, target, name)
        return
    with about(found.files[0].name):
        profile, convert = _converter(found.files, asked, format_)
    if is_served or target is None:
        with io.BytesIO() if is_served else _temporary() as whole:
            with _writing(), about(found.files[0].name), _room():
                not_held = convert(whole)
            whole.seek(0)
            if target is not None:
                with _writing():
                    output.write(target, whole.read())
                streams.say("wrote %s" % target)
            _complain_of(name, [*found.left_out, *not_held])
            whole.seek(0)
            if is_served:
                from vmprof_convert.cli import serve
                from vmprof_convert.writers.firefox import query
                with _writing():
                    serve.view(whole.read(), query(profile), asked.port)
            else:
                streams.write(whole)
        return
    # an output may be ten times as large as the profile, so do not keep it in memory
    with _writing(), about(found.files[0].name), output.replacing(target) as out:
        not_held = convert(out)
    streams.say("wrote %s%s" % (target, asked.hint))
    _complain_of(name, [*found.left_out, *not_held])
    if asked.view:
        with _writing():
            launch.launch(target, format_.view or "")


def _report(found: run_files.Found, asked: argparse.Namespace, target: str | None,
            name: str) -> None:
    from vmprof_convert.cli import report
    with about(found.files[0].name):
        text = report.make(found.files, asked, report.terminal() if target is None
                           else report.file_())
    if target is not None:
        from vmprof_convert.cli import output
        with _writing():
            output.write(target, text.encode("utf-8", "backslashreplace"))
        streams.say("wrote %s" % target)
    _complain_of(name, found.left_out)
    if target is None:
        # stdout escapes characters that the terminal does not have (see main())
        streams.say(text.rstrip("\n"))


def _converter(files: Sequence[run_files.File], asked: argparse.Namespace,
               format_: Format) -> tuple[Profile, Callable[[BinaryIO], Sequence[str]]]:
    """Read the profiles of a run, and choose the function that writes the output.

    Returns:
        The profile, and a function that writes it. The function returns lines about
        data that the output does not contain.
    """
    if asked.held:
        from vmprof_convert.cli import held
        assert format_.write_held is not None
        tree = held.tree(files, asked)
        return tree.profile, partial(format_.write_held, tree)
    profile = run_files.read(files, asked)
    if format_.has_raw and profile.raw_interval:
        profile.raw = run_files.read_raw(files, asked)
    return profile, partial(_convert, profile, asked, format_)


def _convert(profile: Profile, asked: argparse.Namespace, format_: Format,
             out: BinaryIO) -> Sequence[str]:
    """Write a profile, and return lines about data that the output lacks."""
    from vmprof_convert.cli.progress import progress_bar
    assert format_.write is not None
    with progress_bar("converting") as progress:
        not_held = format_.write(profile, out, asked, progress)
    profiles = [profile, *([profile.raw] if profile.raw else [])]
    if not any(one.thinned for one in profiles):
        return not_held
    from vmprof_convert.report import caveats
    return [*caveats.thinned(*profiles), *not_held]


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _Failed("cannot write a temporary file for the output: %s"
                      % error.strerror) from error


def _temporary() -> BinaryIO:
    """Open a file for an output that is copied to stdout when it is complete."""
    import tempfile
    with _room():
        return tempfile.TemporaryFile()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    # import output.py late, because a report in the terminal does not need its memory
    from vmprof_convert.cli.output import OutputError
    try:
        yield
    except OutputError as error:
        raise _Failed(str(error)) from error


def _complain_of(name: str, lines: Sequence[str]) -> None:
    for line in lines:
        _complain(name, line)


def _complain(name: str, text: str) -> None:
    """Print a message to stderr in one line."""
    streams.complain("%s: %s" % (name, printable(text)))


def main(arguments: Sequence[str] | None = None, *,
         command: str = "vmprof-convert", name: str = "vmprof-convert") -> int:
    """Run vmprof-convert.

    Args:
        arguments: the arguments; None for the arguments of the process.
        command: name of the command in the help.
        name: name of the command in messages.

    Returns:
        The exit code.
    """
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            # names may contain characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    # Hardly any object of this command is part of a cycle of references, and the search
    # for cycles takes a seventh of the run time. In PyPy, gc.disable() would keep all
    # dead objects.
    has_gc = sys.implementation.name == "cpython" and gc.isenabled()
    if has_gc:
        gc.disable()
    if arguments is None:
        arguments = sys.argv[1:]
    asked = None
    try:
        if arguments and arguments[0] in JUDGING:
            # do not import modules that only the other commands need
            from vmprof_convert.cli import diff_check
            with _writing():
                return diff_check.run(arguments)
        asked = _parse(_parser(command), arguments)
        _run(asked, name)
    except (_Failed, FileError, ProfileError) as error:
        text = str(error)
        _complain(name, _with_names(text, asked) if asked is not None else text)
        return EXIT_BAD_INPUT
    except OSError as error:
        _complain(name, "cannot write to standard output: %s" % error.strerror)
        # otherwise, Python would try to write the rest of the output when it exits
        streams.nobody_listens()
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        if has_gc:
            gc.enable()
    return 0
