"""Test that the tools of vmprof read the files of `vmprof-convert export`.

Other tests compare profiles of vmprof with profiles of the sampler.
"""
from __future__ import annotations

import json
import re

import pytest

from conftest import PYPY, PyPy
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import summarize

APP = """
    filler = b"x" * 5000
    def one():
        for i in range(20000):
            filler[:4000]
    def two():
        for i in range(40000):
            filler[:4000]
    def main():
        one()
        two()
    main()
"""


def for_vmprof(pypy: PyPy) -> str:
    """Convert out.vmprof for vmprof, and return the name of the file."""
    assert cli.main(["export", str(pypy.folder / "out.vmprof"), "--format", "vmprof",
                     "-o", str(pypy.folder / "stock.vmprof")]) in (0, None)
    return "stock.vmprof"


@pytest.mark.parametrize("jit", ["off", ""])
def test_vmprof_reader_counts_bytes(pypy: PyPy, jit: str) -> None:
    """Each sample in the converted file represents the same number of bytes, so
    vmprof's counts are proportional to the estimated bytes of each function.
    """
    profile = pypy.sample(APP, "4k", jit=jit).profile()
    stock = for_vmprof(pypy)
    script = pypy.script("""
        import json, vmprof
        stats = vmprof.read_profile(%r)
        print(json.dumps([len(stats.profiles), {
            name: count for name, count in stats.top_profile()}]))
    """ % stock, "stock.py")
    total, counts = json.loads(pypy.command(str(script)).out)
    rows = {row.function.name: row.total.bytes().value
            for row in summarize(profile).rows}
    bytes_ = summarize(profile).bytes.value
    for function in "one", "two", "main":
        (theirs,) = [count for name, count in counts.items()
                     if name.startswith("py:%s:" % function)
                     and name.endswith("app.py")]
        assert theirs / total == pytest.approx(rows[function] / bytes_, rel=0.01)
    # Without the JIT, vmprof finds the names of all functions in the stacks.
    assert jit == "" or not any("unknown" in name for name in counts)


def test_vmprofshow_shows_the_right_functions(pypy: PyPy) -> None:
    profile = pypy.sample(APP, "4k", jit="off").profile()
    shown = pypy.command(PYPY.replace("pypy3", "vmprofshow"), for_vmprof(pypy), "tree")
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.out)
    share: dict[str, float] = {}
    for line in text.splitlines():
        match = re.match(r"\s*([0-9.]+)%\s+[|.]*\s*(\w+|<\w+>)\s", line)
        if match:
            share.setdefault(match.group(2), float(match.group(1)))
    # vmprofshow's shares are relative to the root of its tree, which is <module>.
    rows = {row.function.name: row for row in summarize(profile).rows}
    main = rows["<module>"].total.bytes().value
    for function in "one", "two":
        ours = 100 * rows[function].total.bytes().value / main
        assert share[function] == pytest.approx(ours, abs=1)
    assert 60 < share["two"] < 70


def test_time_samples_of_both_kinds_of_run_agree(pypy: PyPy) -> None:
    """The CPU samples of a run with allocation sampling give a function the same share
    as the CPU samples of vmprof alone.
    """
    source = """
        import time
        def spin(seconds):
            end = time.process_time() + seconds
            while time.process_time() < end:
                pass
        def one(): spin(0.5)
        def two(): spin(1.0)
        one(); two()
    """
    pypy.sample(source, "1M", "--period", "0.002", jit="off")
    profile = readers.read(pypy.folder / "out.vmprof")
    times = [s for s, size in zip(profile.samples.stack, profile.samples.size)
             if size == 0]
    names = [{profile.function(f.address).name for f in profile.stacks[s]}
             for s in times]
    one = sum("one" in n for n in names)
    two = sum("two" in n for n in names)
    assert one + two > 100
    # one() has a third of the samples, within 6 standard deviations of a binomial
    # share.
    share = one / (one + two)
    assert abs(share - 1 / 3) < 6 * (2 / 9 / (one + two)) ** 0.5


def test_one_profile_of_vmprofs_after_another(pypy: PyPy) -> None:
    """vmprof can be enabled again after vmprof.disable(), which calls stop_sampling()
    but never start_sampling().
    """
    run = pypy.run("""
        import time, vmprof, vmprof_allocation
        def spin():
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
        def profile(name):
            with open(name, "w+b") as file:
                vmprof.enable(file.fileno(), 0.001, native=False)
                spin()
                vmprof.disable()
        for i in range(3):
            profile("%d.vmprof" % i)
        with vmprof_allocation.sample("ours.vmprof", "8k"):
            data = [bytes(1000) for i in range(10000)]
        profile("3.vmprof")
    """)
    assert (run.code, run.err) == (0, "")
    ours = readers.read(pypy.folder / "ours.vmprof")
    assert len(ours.samples) > 20 and ours.lost_stacks == 0
    for i in range(4):
        profile = readers.read(pypy.folder / ("%d.vmprof" % i))
        assert any(profile.function(frame.address).name == "spin"
                   for stack in profile.stacks for frame in stack), i
        assert len(profile.samples) > 0
