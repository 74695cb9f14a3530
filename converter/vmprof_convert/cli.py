"""The command vmprof-convert."""
from __future__ import annotations

import argparse
import io
import os
import re
import stat
import sys
from collections.abc import Sequence

from vmprof_convert import readers, report, source_text
from vmprof_convert.errors import ProfileError
from vmprof_convert.view import output, serve
from vmprof_convert.view.progress import progress_bar
from vmprof_convert.writers import firefox

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vmprof-convert",
        description="Turn a vmprof profile, with or without allocation "
                    "samples, into a file for the Firefox Profiler, or into a "
                    "report.")
    parser.add_argument("profile", metavar="PROFILE",
                        help="what vmprof wrote, gzipped or not")
    parser.add_argument(
        "-o", "--output", metavar="OUT",
        help="the file to write; its name ends with .json or .json.gz "
             "(default: PROFILE.json.gz, or no file with --view)")
    parser.add_argument(
        "--view", action="store_true",
        help="open the profile in the Firefox Profiler; the file is served "
             "on this machine only, until Ctrl-C")
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT",
        help="serve it there, for example where a port is forwarded "
             "(default: any that is free)")
    parser.add_argument(
        "--sources", action="store_true",
        help="put the text of the program's files into the profile, as far as "
             "this machine has them: it goes wherever the profile goes")
    parser.add_argument(
        "--axis", choices=[firefox.TIME, firefox.BYTES], default=firefox.TIME,
        help="what the Profiler's x axis is: time, or bytes allocated since the "
             "start (default: time)")
    parser.add_argument(
        "--salvage", action="store_true",
        help="read a profile that was cut off in the middle of a record")
    parser.add_argument(
        "--report", action="store_true",
        help="print who allocated how much, instead of writing a file")
    report.add_options(parser.add_argument_group("with --report"))
    return parser


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(
        "%r is no port: write a number from 1 to 65535" % text)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.report and (options.output is not None or options.view):
        parser.error("--report is printed: it goes with neither --output nor "
                     "--view")
    if not options.report and report.are_given(options):
        parser.error("these options go with --report: write it, too")
    return options


def _run(options: argparse.Namespace) -> None:
    path: str = options.profile
    target: str | None = options.output
    if target is None and not options.view and not options.report:
        target = path + ".json.gz"
    # what else there is can block, or never end
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise ProfileError("is not a file")
    if options.report:
        _say(report.make(path, options, options.salvage).rstrip("\n"))
        return
    if target is not None:
        output.check_target(target, path)

    with progress_bar("reading", "B") as progress:
        profile = readers.read(path, salvage=options.salvage, progress=progress)
    with progress_bar("converting", " stacks") as progress:
        converted = io.BytesIO()
        texts, missing = (source_text.read(profile) if options.sources
                          else (None, 0))
        firefox.write(profile, converted, progress, unit=options.axis,
                      texts=texts, missing_texts=missing)
    data = converted.getvalue()
    if target is not None:
        output.write(target, data)
        _say("wrote %s" % target)
    if options.view:
        serve.view(data, firefox.query(profile), options.port)


def _say(text: str) -> None:
    """On stdout, if anybody listens: the work is done, anyway."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # or Python would try again at the end
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _message(error: BaseException, path: str) -> str:
    """One line that says what is wrong, with which file."""
    if isinstance(error, ProfileError):
        text = "%s: %s" % (path, error)
    elif isinstance(error, MemoryError):
        text = "%s: this machine's memory is too small for it" % path
    elif isinstance(error, OSError):
        text = "%s: %s" % (path, error.strerror)
    else:
        text = str(error)
    # names of files may contain anything
    return "".join(c if c.isprintable() else "?" for c in text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    options = _parse(arguments)
    try:
        _run(options)
    except (ProfileError, output.OutputError, OSError, MemoryError) as error:
        print("vmprof-convert: %s" % _message(error, options.profile),
              file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0
