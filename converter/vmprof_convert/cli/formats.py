"""The formats that profiles can be written in: a row for each.

A writer gets a profile with the samples that were asked for; if it is of several
processes, Profile.processes says which.  A form of the report has no writer here:
what it is made of is added up while a profile is read (report.py).
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Optional

from vmprof_convert.cli.options import JSON, MARKDOWN, TABLE
from vmprof_convert.profile.model import Profile

if TYPE_CHECKING:
    from vmprof_convert.analysis.holder_tree import Tree

#: progress(done, total) is called now and then; None: nobody looks
Progress = Optional[Callable[[int, int], None]]
#: Writes the profile to the stream.  Returns what of it the format could not hold, a
#: line each, for who reads it.  Raises ProfileError if it can hold nothing of it.
Write = Callable[[Profile, BinaryIO, argparse.Namespace, Progress], Sequence[str]]
#: Likewise, who held what was alive.
WriteHeld = Callable[["Tree", BinaryIO], Sequence[str]]

FIREFOX = "firefox"
#: of --view: not the names of commands
SERVED, OPENED = "served", ""
#: what the Profiler's x axis can be; the first one if nothing is asked
AXES = ("time", "bytes")


class Format(NamedTuple):
    name: str
    #: what files of this format end with; .gz: what is written gets compressed
    suffixes: tuple[str, ...]
    #: whose or what it is, in the help: "the Firefox Profiler's"
    what: str
    #: None: a form of the report
    write: Write | None = None
    #: what is behind the profile's name, where no output is named; empty: it goes to
    #: standard output
    default: str = ""
    #: options that no other format has, as argparse names them
    options: tuple[str, ...] = ()
    #: what --view does: serve it to the Profiler, open it in the browser, or give it to
    #: a command of this name; None: it can't
    view: str | None = None
    #: with --held; None: it can't
    write_held: WriteHeld | None = None
    #: what was asked of who holds what is in it, beside all else
    has_held: bool = False
    #: raw memory can be in it, beside the GC's heap
    has_raw: bool = False


# Writers are imported when they write: most runs need none of them.


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
            "not in there: %d sampled objects of earlier parts of the profile; the "
            "report has them, and so has who opens all parts" % carried)
    if profile.raw and (carried := len(profile.raw.samples.carried)):
        not_held.append("not in there: %s of raw memory that earlier parts of the "
                        "profile asked for" % format_number(carried, "block"))
    if profile.raw_interval and not (profile.raw and options.axis == AXES[0]):
        not_held.append("not in there: raw memory, of which --raw makes a file")
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
    Format(FIREFOX, (".json", ".json.gz"), "the Firefox Profiler's", _firefox,
           default=".json.gz", options=("sources", "axis"), view=SERVED,
           has_held=True, has_raw=True),
    Format("html", (".html",), "a page", _html, default=".html", view=OPENED,
           has_held=True),
    Format("pprof", (".pb.gz", ".pb"), "pprof's", _pprof, default=".pb.gz",
           write_held=_pprof_held),
    Format("otlp", (".otlp.pb", ".otlp.pb.gz"), "the OpenTelemetry collector's", _otlp,
           default=".otlp.pb.gz", write_held=_otlp_held),
    Format("speedscope", (".speedscope.json", ".speedscope.json.gz"), "speedscope's",
           _speedscope, default=".speedscope.json", view="speedscope",
           write_held=_speedscope_held),
    Format("collapsed", (".collapsed", ".folded"), "flamegraph.pl's", _collapsed,
           options=("weight",), write_held=_collapsed_held),
    Format("chrome", (".heapprofile",), "that of Chrome's DevTools", _chrome,
           default=".heapprofile"),
    Format("vmprof", (".prof",), "stock vmprof's", _vmprof, default=".prof"),
    Format(TABLE, (".txt",), "a table"),
    Format(MARKDOWN, (".md",), "Markdown"),
    # other JSON is the Profiler's, so that this has to be asked for
    Format(JSON, (), "the table for programs"),
)}


#: those of a difference; here, .json is the table for programs
DIFF_FORMATS = {name: FORMATS[name] for name in (
    TABLE, MARKDOWN, "html", "collapsed", "pprof", "speedscope")}
DIFF_FORMATS[JSON] = FORMATS[JSON]._replace(suffixes=(".json",))


def of_name(name: str, formats: Mapping[str, Format] = FORMATS) -> Format | None:
    """That of a file of this name; None: it says nothing."""
    found = [(len(suffix), format_.name) for format_ in formats.values()
             for suffix in format_.suffixes if name.endswith(suffix)]
    # .speedscope.json is more than .json
    return formats[max(found)[1]] if found else None


def suffixes(formats: Mapping[str, Format] = FORMATS) -> str:
    """For a message."""
    return " or ".join(suffix for format_ in formats.values()
                       for suffix in format_.suffixes)
