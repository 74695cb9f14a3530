"""The command check: report whether a run exceeds limits."""
from __future__ import annotations

import argparse

from vmprof_convert.analysis import process_memory, thresholds
from vmprof_convert.cli import streams
from vmprof_convert.cli.conditions import (
    EXIT_FAILED,
    add_conditions,
    check_conditions,
    choose_conditions,
    find_files,
    read_run,
)
from vmprof_convert.cli.options import add_filters, add_profiles, add_samples
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_conditions(parser, "'alive > 10M', 'objects > 2M', 'peak > 200M' (the GC's "
                           "heap), 'rss > 300M', 'private > 90M' or 'raw > 50M' "
                           "(native memory)", is_required=True)
    add_samples(parser)
    add_profiles(parser, "app.vmprof --fail-if 'alive > 10M'")
    add_filters(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    from vmprof_convert.analysis.summary import summarize
    choose_conditions(options)
    files = find_files(options, options.profiles)
    profiles: dict[bool, Profile] = {}
    for is_raw in sorted({condition.is_raw for condition in options.fail_if}):
        profiles[is_raw] = read_run(files, options, is_raw)
        check_conditions(options, is_raw, [files[0].path], [profiles[is_raw]])
    figures = {is_raw: summarize(profile).figures
               for is_raw, profile in profiles.items()}
    found = thresholds.of_run(options.fail_if, profiles, figures)
    lines = [*map(str, found), *caveats.thinned(*profiles.values())]
    for is_raw, profile in profiles.items():
        if is_raw:
            for process in profile.processes:
                lines += ["process %d: %s" % (process.profile.pid, line)
                          for line in process_memory.of_malloc(process.profile)]
            lines += process_memory.of_malloc(profile)
    streams.say("\n".join(lines))
    return EXIT_FAILED if any(verdict.failed for verdict in found) else 0
