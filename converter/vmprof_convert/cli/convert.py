"""Write the profiles of a run in the format of another tool."""
from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import BinaryIO

from vmprof_convert.cli import launch, run_files, streams
from vmprof_convert.cli.formats import Format
from vmprof_convert.cli.messages import complain
from vmprof_convert.cli.options import STANDARD
from vmprof_convert.cli.report import find_run
from vmprof_convert.errors import about
from vmprof_convert.profile.model import Profile


def write_file(options: argparse.Namespace, format_: Format) -> int:
    """Write the output file, or standard output, and return the exit code 0.

    Args:
        options: the options: add_profiles(), `output` and `open`, and in formats with
            write_held `retainers`. Without `output`, the output is named after the
            profile, or is standard output if the format has no default.
        format_: the format.
    """
    if options.output == STANDARD:
        options.output = None
    elif options.output is None and format_.default and options.profiles[0] != STANDARD:
        options.output = options.profiles[0] + format_.default
    if options.open:
        if options.output is None:
            raise streams.OutputError("--open opens a file: name it with -o")
        launch.check(format_.view or "")
    found = find_run(options, writes_profile=format_.name == "vmprof")
    name = found.files[0].name
    with about(name):
        _, convert = read(found.files, options, format_)
    if options.output is None:
        with _temporary() as whole:
            with about(name), _room():
                left_out = convert(whole)
            whole.seek(0)
            complain(options.program, [*found.left_out, *left_out])
            streams.write(whole)
        return 0
    # an output may be ten times as large as the profile, so do not keep it in memory
    from vmprof_convert.cli import output
    with about(name), output.replacing(options.output) as out:
        left_out = convert(out)
    streams.say("wrote %s" % options.output)
    complain(options.program, [*found.left_out, *left_out])
    if options.open:
        launch.launch(options.output, format_.view or "")
    return 0


def serve_profile(options: argparse.Namespace, format_: Format) -> int:
    """Serve the output to the Firefox Profiler until Ctrl-C, and return 0.

    Args:
        options: the options of the command view.
        format_: the format of the Firefox Profiler.
    """
    if options.output == STANDARD:
        raise streams.OutputError("-o names a file, because the command view serves "
                                  "the profile: leave it out")
    found = find_run(options, prints=False)
    with about(found.files[0].name):
        profile, convert = read(found.files, options, format_)
        whole = io.BytesIO()
        left_out = convert(whole)
    if options.output is not None:
        from vmprof_convert.cli import output
        output.write(options.output, whole.getvalue())
        streams.say("wrote %s" % options.output)
    complain(options.program, [*found.left_out, *left_out])
    from vmprof_convert.cli import serve
    from vmprof_convert.writers.firefox import query
    serve.view(whole.getvalue(), query(profile), options.port)
    return 0


def read(files: Sequence[run_files.File], options: argparse.Namespace, format_: Format
         ) -> tuple[Profile, Callable[[BinaryIO], Sequence[str]]]:
    """Read the profiles of a run, and choose the function that writes the output.

    Returns:
        The profile, and a function that writes it. The function returns lines about
        data that the output does not contain.
    """
    if options.retainers:
        from vmprof_convert.cli import held
        assert format_.write_held is not None
        tree = held.tree(files, options)
        return tree.profile, partial(format_.write_held, tree)
    profile = run_files.read(files, options)
    if format_.has_raw and profile.raw_interval:
        profile.raw = run_files.read_raw(files, options)
    return profile, partial(_convert, profile, options, format_)


def _convert(profile: Profile, options: argparse.Namespace, format_: Format,
             out: BinaryIO) -> Sequence[str]:
    """Write a profile, and return lines about data that the output lacks."""
    from vmprof_convert.cli.progress import progress_bar
    assert format_.write is not None
    with progress_bar("converting") as progress:
        left_out = format_.write(profile, out, options, progress)
    profiles = [profile, *([profile.raw] if profile.raw else [])]
    if not any(one.thinned for one in profiles):
        return left_out
    from vmprof_convert.report import caveats
    return [*caveats.thinned(*profiles), *left_out]


def _temporary() -> BinaryIO:
    """Open a file for an output that is copied to stdout when it is complete."""
    import tempfile
    with _room():
        return tempfile.TemporaryFile()


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise streams.OutputError("cannot write a temporary file for the output: %s"
                                  % error.strerror) from error
