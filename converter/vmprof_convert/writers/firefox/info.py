"""The panel "Profile info": totals, settings, and notes about missing data."""
from __future__ import annotations

from vmprof_convert.analysis.summary import TYPE, Choice, Summary, summarize
from vmprof_convert.meaning.visible_stacks import CUT
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats
from vmprof_convert.text.units import format_bytes, format_ends
from vmprof_convert.writers.firefox import label_markers
from vmprof_convert.writers.firefox.format.builder import ProfileBuilder
from vmprof_convert.writers.firefox.format.extra import Entry

#: labels of settings that are not displayed with their own names
_SETTINGS = {"interval": "Mean bytes between two samples, at the beginning",
             "limit": "Limit that the interval follows",
             "gaps": "Gaps between samples", "seed": "Seed of the gaps",
             "engine": "Engine", "carrier": "Engine",
             "native": "Library of the interpreter, because native functions were "
                       "requested"}
#: settings that are not displayed, or displayed elsewhere
_UNSAID = ("pid", "period", "facts", "capabilities", "children", "ended",
           "bookkeeping", "run", "part", "parent", "clock", "programs",
           "memory")


def describe(profile: Profile, summary: Summary, builder: ProfileBuilder,
             not_embedded: int, unlabelled: int, raw: Profile | None) -> None:
    """Add the sections of the panel "Profile info" to the builder of the file.

    Args:
        profile: The profile.
        summary: The result of sum_up() for the profile.
        builder: The builder of the file.
        not_embedded: The number of files whose text was requested and is missing.
        unlabelled: The number of threads whose labels changed too often for markers.
        raw: The profile of native memory that the file includes.
    """
    ticks = summary.time_samples
    last = profile.moments[-1] if profile.moments else None
    entries = []
    if summary.samples or profile.settings:
        total = summary.figures.bytes()
        entries = [
            Entry("Allocated, an estimate", "string", "%s (95 %%: %s .. %s)" % (
                format_ends(total.low, total.value, total.high)))]
        if last and not profile.is_raw:
            entries += [Entry("Allocated, counted by the GC", "string",
                              format_bytes(last.allocated)),
                        Entry("Minor collections", "integer", last.collections)]
        entries.append(Entry("Allocation samples", "integer", summary.samples))
    if ticks:
        entries.append(Entry("CPU samples", "integer", ticks))
    missing = caveats.of_run(profile) + caveats.missed(profile, summary.figures) + [
        text for text in caveats.of_figures(
            profile, summary, Choice(by=(TYPE,) if profile.has_types else ()))
        # the note that the report omits CPU samples is wrong here
        if not text.startswith("CPU samples: ")]
    if raw is not None:
        figures = summarize(raw).figures
        total = figures.bytes()
        entries += [
            Entry("Native memory requested, an estimate", "string",
                  "%s (95 %%: %s .. %s)" % format_ends(
                      total.low, total.value, total.high)),
            Entry("Samples of native memory", "integer", figures.sum().samples)]
        missing += ["native memory: " + text for text in caveats.missed(raw, figures)]
    builder.add_extra("Samples", entries)
    if profile.cut_off:
        missing.append("stacks below %s lack their outermost callers" % CUT)
    if profile.torn:
        missing.append("%d bytes at the end were left out, because they are an "
                       "incomplete record"
                       % profile.torn)
    if last and last.dropped:
        missing.append("%d CPU samples were dropped, because the sampler was recording "
                       "another sample"
                       % last.dropped)
    if not_embedded:
        missing.append("the text of %d files is missing: the files are not on this "
                       "machine, or changed since the run" % not_embedded)
    if unlabelled:
        missing.append("labels of %d threads changed more than %d times, and have no "
                       "markers: --label writes a file for one label"
                       % (unlabelled, label_markers.MOST))
    if missing:
        builder.add_extra("Notes", [
            Entry("%d" % number, "string", text)
            for number, text in enumerate(missing, 1)])
    if profile.settings:
        builder.add_extra("Sampling", [
            Entry(_SETTINGS.get(key, key), "string", value)
            for key, value in profile.settings.items()
            # unknown settings are shown with their key
            if value and key not in _UNSAID])
