"""Parse and test the conditions of --fail-if, for the commands check and diff."""
from __future__ import annotations

import argparse
from collections.abc import Sequence

from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.thresholds import Condition
from vmprof_convert.cli import run_files
from vmprof_convert.cli.messages import complain
from vmprof_convert.cli.options import STANDARD, selection
from vmprof_convert.cli.run_files import File
from vmprof_convert.errors import ProfileError, about
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats

#: exit code if a condition is met
EXIT_FAILED = 1


def add_conditions(parser: argparse.ArgumentParser, examples: str,
                   is_required: bool) -> None:
    """Add the option --fail-if.

    Args:
        parser: the parser of the command.
        examples: examples of conditions for the help.
        is_required: whether the command needs a condition.
    """
    parser.add_argument(
        "--fail-if", metavar="CONDITION", type=_condition, action="append",
        required=is_required, default=None if is_required else [],
        help="end with exit code 1 if CONDITION is certainly true (%.4g %%%%): %s; one "
             "of several conditions suffices" % (
                 100 * thresholds.CONFIDENCE, examples))


def _condition(text: str) -> Condition:
    try:
        return thresholds.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def choose_conditions(options: argparse.Namespace) -> None:
    """Have all conditions test native memory if the option --native-memory is given.

    Raises:
        ProfileError: a condition is about the process.
    """
    if not options.native_memory:
        return
    for condition in options.fail_if:
        if condition.is_read:
            raise ProfileError(
                "argument --fail-if: '%s' is about the process, and not about native "
                "memory: leave --native-memory out, and write raw before the "
                "conditions on native memory" % condition.text)
    options.fail_if = [condition._replace(is_raw=True)
                       for condition in options.fail_if]


def find_files(options: argparse.Namespace, paths: Sequence[str],
               other: str | None = None) -> list[File]:
    """Return the files of a run, and complain of files that were left out.

    See run_files.find().
    """
    found = run_files.find(paths, other)
    complain(options.program, found.left_out)
    return found.files


def read_run(files: list[File], options: argparse.Namespace, is_raw: bool,
             warnings: list[str] | None = None) -> Profile:
    """Read the profile of a run, with the selected samples.

    Args:
        files: the files of the run.
        options: the command's options.
        is_raw: whether to read native memory instead of the GC's heap.
        warnings: gets a line if malloc's own count contradicts the samples.
    """
    def check(profile: Profile) -> None:
        from vmprof_convert.analysis.summary import summarize
        thresholds.check_raw(options.fail_if, profile)
        if warnings is not None:
            warnings.extend("%s: %s" % (files[0].path, line) for line in caveats.missed(
                profile, summarize(profile).figures))

    asked = argparse.Namespace(**{**vars(options), "native_memory": is_raw})
    with about(files[0].name):
        if files[0].path == STANDARD and is_raw != options.native_memory:
            raise ProfileError(
                "'raw ...' of --fail-if reads the profile separately, and standard "
                "input can be read only once: name a file, or write "
                "--native-memory")
        return run_files.read(files, asked, check if is_raw else None)


def check_conditions(options: argparse.Namespace, is_raw: bool, paths: Sequence[str],
                     profiles: Sequence[Profile]) -> None:
    """Check that the profiles contain the data that the conditions of --fail-if need.

    Args:
        options: the command's options.
        is_raw: whether the profiles are of native memory.
        paths: the names of the profiles in messages.
        profiles: the profiles.

    Raises:
        FileError: a profile lacks data.
    """
    conditions = [condition for condition in options.fail_if
                  if condition.is_raw == is_raw]
    thresholds.check_processes(conditions, selection(options).is_everything,
                             bool(getattr(options, "between", None)))
    for path, profile in zip(paths, profiles):
        with about(path):
            thresholds.check(conditions, profile, len(profiles) > 1)
