"""Define the output formats and their writers.

A writer gets a profile with the selected samples. For several processes,
Profile.processes lists them. The commands that print reports have no writer here.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Optional

from vmprof_convert.cli.options import FORMS, JSON, MARKDOWN, TABLE
from vmprof_convert.profile.model import Profile

if TYPE_CHECKING:
    from vmprof_convert.analysis.holder_tree import Tree

#: function that is called with the finished and the total amount; None for no progress
Progress = Optional[Callable[[int, int], None]]
#: Function that writes the profile to the stream. It returns lines for the user about
#: data that the format cannot represent. It raises ProfileError if the format cannot
#: represent any of the data.
Write = Callable[[Profile, BinaryIO, argparse.Namespace, Progress], Sequence[str]]
#: function that writes the tree of retainers; the result is like Write's
WriteHeld = Callable[["Tree", BinaryIO], Sequence[str]]

FIREFOX = "firefox"
#: value of Format.view for a page, which the browser opens
OPENED = ""
#: possible x axes of the Firefox Profiler; the first one is the default
AXES = ("time", "bytes")


class Format(NamedTuple):
    """An output format."""

    name: str
    #: endings of file names; an output with .gz is compressed
    suffixes: tuple[str, ...]
    #: description in the help, such as "the Firefox Profiler"
    what: str
    #: the writer; None for a form of the report of differences
    write: Write | None = None
    #: text that is added to the profile's name to name the output; if empty, the
    #: default is standard output
    default: str = ""
    #: options of this format alone, as argparse names them
    options: tuple[str, ...] = ()
    #: name of the command that opens the file for --open, or OPENED. None if --open is
    #: not supported.
    view: str | None = None
    #: the writer for --retainers; None if --retainers is not supported
    write_held: WriteHeld | None = None
    #: whether the output contains the retainers in addition to the samples
    has_held: bool = False
    #: whether the output can contain native memory in addition to the GC's heap
    has_raw: bool = False


# Each function imports its writer, because most runs do not need the other writers.


def _firefox(profile: Profile, out: BinaryIO, options: argparse.Namespace,
             progress: Progress) -> Sequence[str]:
    from vmprof_convert.meaning import source_text
    from vmprof_convert.text.units import format_number
    from vmprof_convert.writers import firefox
    texts, missing = (source_text.read(profile) if options.sources else (None, 0))
    firefox.write(profile, out, progress, unit=options.axis, texts=texts,
                  missing_texts=missing)
    not_held = []
    if carried := len(profile.samples.carried):
        not_held.append(
            "not included: %d sampled objects of earlier segments of the profile; the "
            "report includes them, and so does an output of all segments" % carried)
    if profile.raw and (carried := len(profile.raw.samples.carried)):
        not_held.append("not included: %s of native memory from earlier segments of "
                        "the profile" % format_number(carried, "block"))
    if profile.raw_interval and not (profile.raw and options.axis == AXES[0]):
        not_held.append("not included: native memory, for which --native-memory writes "
                        "a separate file")
    return not_held


def _pprof(profile: Profile, out: BinaryIO, options: argparse.Namespace,
           progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import pprof
    return pprof.write(profile, out)


def _pprof_held(tree: Tree, out: BinaryIO) -> Sequence[str]:
    from vmprof_convert.writers import pprof
    return pprof.write_held(tree, out)


def _otlp(profile: Profile, out: BinaryIO, options: argparse.Namespace,
          progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import otlp
    return otlp.write(profile, out)


def _otlp_held(tree: Tree, out: BinaryIO) -> Sequence[str]:
    from vmprof_convert.writers import otlp
    return otlp.write_held(tree, out)


def _speedscope(profile: Profile, out: BinaryIO,
                options: argparse.Namespace, progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import speedscope
    return speedscope.write(profile, out)


def _speedscope_held(tree: Tree, out: BinaryIO) -> Sequence[str]:
    from vmprof_convert.writers import speedscope
    return speedscope.write_held(tree, out)


def _collapsed(profile: Profile, out: BinaryIO,
               options: argparse.Namespace, progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import collapsed
    return collapsed.write(profile, out, options.weight or "")


def _collapsed_held(tree: Tree, out: BinaryIO) -> Sequence[str]:
    from vmprof_convert.writers import collapsed
    return collapsed.write_held(tree, out)


def _chrome(profile: Profile, out: BinaryIO, options: argparse.Namespace,
            progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import chrome
    return chrome.write(profile, out)


def _html(profile: Profile, out: BinaryIO, options: argparse.Namespace,
          progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import html
    return html.write(profile, out, progress)


def _vmprof(profile: Profile, out: BinaryIO, options: argparse.Namespace,
            progress: Progress) -> Sequence[str]:
    from vmprof_convert.writers import vmprof
    return vmprof.write(profile, out)


FORMATS = {format_.name: format_ for format_ in (
    Format(FIREFOX, (".json", ".json.gz"), "the Firefox Profiler", _firefox,
           default=".json.gz", options=("sources", "axis"), has_held=True,
           has_raw=True),
    Format("html", (".html",), "a page", _html, default=".html", view=OPENED,
           has_held=True),
    Format("pprof", (".pb.gz", ".pb"), "pprof", _pprof, default=".pb.gz",
           write_held=_pprof_held),
    Format("otlp", (".otlp.pb", ".otlp.pb.gz"), "the OpenTelemetry collector", _otlp,
           default=".otlp.pb.gz", write_held=_otlp_held),
    Format("speedscope", (".speedscope.json", ".speedscope.json.gz"), "speedscope",
           _speedscope, default=".speedscope.json", view="speedscope",
           write_held=_speedscope_held),
    Format("collapsed", (".collapsed", ".folded"), "flamegraph.pl", _collapsed,
           options=("weight",), write_held=_collapsed_held),
    Format("chrome", (".heapprofile",), "Chrome's DevTools", _chrome,
           default=".heapprofile"),
    Format("vmprof", (".prof",), "stock vmprof", _vmprof, default=".prof"),
)}

#: formats of the command diff, in which the ending .json selects the report
DIFF_FORMATS = {
    **{form: Format(form, (FORMS[form],), "a report") for form in (
        TABLE, MARKDOWN, JSON)},
    **{name: FORMATS[name] for name in ("html", "collapsed", "pprof", "speedscope")}}


def of_name(name: str, formats: Mapping[str, Format] = FORMATS) -> Format | None:
    """Return the format of a file name, or None if its ending is unknown."""
    found = [(len(suffix), format_.name) for format_ in formats.values()
             for suffix in format_.suffixes if name.endswith(suffix)]
    # the longest ending wins: .speedscope.json also ends with .json
    return formats[max(found)[1]] if found else None


def suffixes(formats: Mapping[str, Format] = FORMATS) -> str:
    """Return the endings of all formats as text for a message."""
    return " or ".join(suffix for format_ in formats.values()
                       for suffix in format_.suffixes)
