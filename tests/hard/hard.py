"""Run the tests that take too long for `make test`, before a release.

    hard.py [--build SUITE | --pypy FILE] [--output FILE] [SUITE...]

This program runs the tests of CPython and of some packages from PyPI with and without
sampling, and compares each test. Then it runs programs that start, stop, fork and
interrupt at random. It exits with 1 if the sampling causes a difference.

`make hard` first runs all pytest tests with the marker `hard`.
"""
from __future__ import annotations

import argparse
import datetime
import signal
import subprocess
import sys
from pathlib import Path

import builds
from builds import Build
from compare import NO_END, Comparison, compare, tests
from random_programs import Done, programs
from suites import Suite, suites


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Try hard to find a program that notices the sampling.")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE",
        help="the name of a suite of suites.py (default: all suites, and the "
        "programs)")
    parser.add_argument(
        "--build", metavar="RELEASE",
        help="the PyPy of another release of Debian: trixie, sid (default: "
        "this machine's)")
    parser.add_argument(
        "--pypy", type=Path, metavar="FILE",
        help="a PyPy that has all that is needed; it may be slow")
    parser.add_argument(
        "--output", type=Path, metavar="FILE",
        help="where the table of a whole run goes, besides .build/hard/RELEASE/"
        "results.rst (default: tests/hard/results-VERSION.rst)")
    parser.add_argument(
        "--programs", action="store_true",
        help="only the programs, none of the suites")
    return parser.parse_args()


def commit() -> str:
    """Return the tested commit, with ", changed" if the source has uncommitted changes.
    """
    git = ["git", "-C", str(builds.ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "vmprof-integration"], text=True,
        stdout=subprocess.PIPE).stdout.strip()
    return (name or "unknown") + (", changed" if changed else "")


def cell(comparison: Comparison, interval: str) -> str:
    """Return the number of tests that differ, without flaky and explained differences.
    """
    if interval not in comparison.differences:
        return ""
    return str(sum(difference.kind == "differs"
                   for difference in comparison.differences[interval]))


def row(comparison: Comparison) -> tuple[str, ...]:
    """Return a suite's row in the table of results."""
    plain = comparison.plain
    names = tests(plain)
    bad = sum(plain[name] not in ("ok", "skipped", "failed-as-expected")
              for name in names)
    skipped = sum(plain[name] == "skipped" for name in names)
    return (comparison.suite.name, str(len(names)), str(skipped), str(bad),
            cell(comparison, "4k"), cell(comparison, "64"))


HEAD = ("suite", "tests", "skipped", "failed", "4k", "64")

ABOUT = """\
%(title)s
%(underline)s

%(tried)s. Written by ``make hard``
(tests/hard/hard.py).

Each suite of tests ran without sampling and with a sample every 4 KiB, some
suites also with a sample every 64 bytes. The table shows the number of *tests*,
and the tests that were *skipped* and *failed* without sampling. The last columns
show the tests that ended differently with sampling in each run (up to three
runs). The process must end in the same way, and the profile must be complete. A
test that ended equally once is *flaky*. Tests that fail without sampling fail
because of PyPy or Debian, or need a file that Debian omits.

"""


def report(tried: str, comparisons: list[Comparison], done: list[Done],
           is_complete: bool) -> str:
    """Return the page of results; `tried` is PyPy's version, the commit and date."""
    title = "Hard run: PyPy %s" % tried.split()[0]
    text = ABOUT % {
        "title": title, "underline": "=" * len(title), "tried": tried}
    if not is_complete:
        text += "**This run is not complete.**\n\n"
    ran = [c for c in comparisons if tests(c.plain)]
    rows = [row(comparison) for comparison in ran]
    rows.append(("all (%d)" % len(ran), *(
        str(sum(int(cells[i] or 0) for cells in rows))
        for i in range(1, len(HEAD)))))
    widths = [max(map(len, column)) for column in zip(HEAD, *rows)]
    line = "  ".join("=" * width for width in widths)
    head, *body = ("  ".join(map(str.ljust, cells, widths)).rstrip()
                   for cells in (HEAD, *rows))
    text += "\n".join([line, head, line, *body, line])
    text += "\n"
    notes = []
    for kind in "differs", "explained", "flaky":
        notes += ["* %s, %s (%s): %s" % (c.suite.name, kind, interval, d)
                  for c in comparisons for interval, d in c.notes(kind)]
    notes += ["* %s: ``%s`` without sampling: not compared" % (
        c.suite.name, c.plain["(process)"])
        for c in comparisons if c.plain["(process)"] == NO_END]
    notes += ["* %s: none of its tests could be run here" % c.suite.name
              for c in comparisons
              if not tests(c.plain) and c.plain["(process)"] != NO_END]
    notes += ["* %s: %s" % (d.name, d.result) for d in done]
    return text + "\n" + "\n".join(notes) + "\n"


def main() -> int:
    # SIGTERM raises an exception, as Ctrl-C does, so that the child processes end, too
    signal.signal(signal.SIGTERM, lambda *ignored: sys.exit(1))
    options = parse()
    try:
        chosen = [] if options.programs else suites(options.suites)
    except KeyError as e:
        print("there is no suite %s" % e, file=sys.stderr)
        return 2
    build = (builds.given(options.pypy) if options.pypy
             else builds.prepare(options.build))
    name = "%s; commit %s, %s" % (
        version(build), commit(), datetime.date.today().isoformat())
    output = build.folder / "results.rst"
    comparisons: list[Comparison] = []
    done: list[Done] = []
    for suite in chosen:
        comparisons.append(compare(build, suite))
        show(suite, comparisons[-1])
        output.write_text(report(name, comparisons, done, False))
    if not options.suites:
        for program in programs(build):
            done.append(program)
            print("%s: %s" % (done[-1].name, done[-1].result), flush=True)
    text = report(name, comparisons, done, True)
    output.write_text(text)
    if not options.suites and not options.programs:
        output = options.output or Path(__file__).with_name(
            "results-%s.rst" % name.split()[0])
        output.write_text(text)
    print("see %s" % output)
    return int(any(c.notes("differs") for c in comparisons)
               or not all(d.is_good for d in done))


def version(build: Build) -> str:
    """Return the versions of a build's PyPy, of its Python and of its Debian package.
    """
    return build.say("-c", "import sys; print('%d.%d.%d (Python %d.%d, Debian "
                     "%s)' % (*sys.pypy_version_info[:3], "
                     "*sys.version_info[:2], sys.version.split()[1].strip('(,'"
                     ")))")


def show(suite: Suite, comparison: Comparison) -> None:
    print("  ".join(row(comparison)), comparison.samples or "", flush=True)
    for kind in "differs", "explained", "flaky":
        for interval, difference in comparison.notes(kind):
            print("   ", kind, interval, difference, flush=True)


if __name__ == "__main__":
    sys.exit(main())
