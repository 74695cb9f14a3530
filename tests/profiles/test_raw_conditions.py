"""Tests of `--fail-if` and of leaks with native memory, which malloc gives C code."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from convert_runs import run_and_fail
from made_profiles import Log
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import summarize
from vmprof_convert.meaning.lifetimes import STILL_ALIVE, is_alive_exact

KIB = 2**10
SECOND = 10**9
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes profiles of ten seconds to the current folder."""
    monkeypatch.chdir(tmp_path)

    def write_(name: str, *, kept: int = 0, given_back: int = 0, objects: int = 100,
               counted: int | None = -1, raw: int = 64, run: str = "",
               pid: int = 10, has_marks: bool = True, majors: int = 1,
               seconds: int = 10, compiled: int = 0) -> None:
        """Write a profile.

        Each block is sampled, except with a probability of a millionth.

        Args:
            kept: the number of blocks of 1 KiB that leak() allocates, evenly over the
                first `seconds`.
            given_back: the number of blocks of work(), which frees each block after
                half a second.
            objects: the number of objects of 1 KiB in the GC's heap.
            counted: the KiB in use at the end by malloc's own count. None if the
                process was killed. By default, the count agrees with the blocks.
            majors: the number of major collections, evenly over the run.
            compiled: the second from which on compiled code allocates.
        """
        log = Log()
        main, leak, work = map(log.function, ("main", "leak", "work"))
        log.settings(run=run or name, pid=pid, raw=raw, facts="types,lifetimes")
        log.collection(SECOND // 2)
        for _ in range(objects):
            log.allocation([main], size=KIB, interval=64, time=SECOND // 4)
            log.young(log.keys, 1)
        for number in range(1, majors + 1):
            log.event(3, number * 9 * SECOND // majors, 0, number)
        blocks = [(number * seconds * SECOND // kept, leak) for number in range(kept)]
        blocks += [(number * 9 * SECOND // given_back, work)
                   for number in range(given_back)]
        types = [log.type("malloc (libffi.so)"), log.type("malloc (JIT code)")]
        for time, function in sorted(blocks):
            key = log.block([main, function], size=KIB, interval=64, time=time,
                            type_=types[time >= compiled * SECOND])
            if function == work:
                log.given_back(key, time + SECOND // 2)
        if has_marks:
            log.mark(2 * SECOND, "warm")
            log.mark(10 * SECOND, "done")
        if counted is not None:
            counted = 5 + kept if counted < 0 else counted
            log.figure(10, 0, 5 * KIB)
            log.figure(10, 10 * SECOND, counted * KIB)
        (tmp_path / (name + ".vmprof")).write_bytes(log.data())
    return write_


@pytest.fixture
def folder(write: Write, tmp_path: Path) -> Path:
    write("a", kept=100, given_back=1000)
    write("b", kept=300, given_back=1000)
    return tmp_path


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the command, and return its exit code, and its output in one line."""
    code = cli.main(arguments)
    return code, " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("text, code, said", [
    ("raw > 99k", 1, "failed: raw > 99k: raw alive is 100 KiB"),
    ("raw > 101k", 0, "passed: raw > 101k: raw alive is 100 KiB"),
    ("raw alive > 99k", 1, "failed: raw alive > 99k: raw alive is 100 KiB"),
    ("raw allocated > 1097k", 1, "raw allocated is 1.074 MiB"),
    ("raw allocated > 1103k", 0, "raw allocated is 1.074 MiB"),
    ("raw objects > 1000", 1, "raw objects is 1.10k"),
    ("raw objects > 1200", 0, "raw objects is 1.10k"),
])
def test_limits_of_live_and_allocated_memory(
        folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: int,
        said: str) -> None:
    found, out = ended(capsys, "check", "a.vmprof", "--fail-if", text)
    assert found == code and said in out, out


def test_freed_blocks_are_not_in_use(
        write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("a", given_back=1000)
    assert ended(capsys, "check", "a.vmprof", "--fail-if", "raw > 1k")[0] == 0
    assert ended(capsys, "check", "a.vmprof", "--fail-if", "raw allocated > 900k",
                 )[0] == 1


def test_native_memory_and_the_heap_are_separate(
        write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("a", kept=100, objects=500)
    code, said = ended(capsys, "check", "a.vmprof", "--fail-if", "alive > 400k",
                       "--fail-if", "raw > 200k", "--fail-if", "allocated > 550k")
    assert code == 1
    assert "failed: alive > 400k: alive is 500 KiB" in said
    assert "passed: raw > 200k: raw alive is 100 KiB" in said
    assert "passed: allocated > 550k: allocated is 500 KiB" in said
    # with --native-memory, all conditions are about native memory
    assert "alive > 99k: raw alive is 100 KiB" in ended(
        capsys, "check", "a.vmprof", "--native-memory", "--fail-if", "alive > 99k")[1]


def test_filters_select_blocks(folder: Path,
                               capsys: pytest.CaptureFixture[str]) -> None:
    for function, code in ("leak", 1), ("work", 0):
        assert ended(capsys, "check", "a.vmprof", "--function", function, "--fail-if",
                     "raw > 50k")[0] == code


@pytest.mark.parametrize("text, code", [
    ("raw growth > 195k", 1), ("raw growth > 205k", 0), ("raw growth > 190%", 1),
    ("raw growth > 210%", 0), ("raw > 295k", 1), ("raw > 305k", 0),
    ("alive growth > 1k", 0)])
def test_growth_from_one_run_to_another(
        folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: int) -> None:
    for options in [], ["--native-memory"] * text.startswith("raw"):
        found, said = ended(capsys, "diff", "a.vmprof", "b.vmprof", *options,
                            "--fail-if", text)
        assert (found, "%s: %s: " % (("passed", "failed")[code], text) in said) == (
            code, True), said
    assert ended(capsys, "diff", "b.vmprof", "a.vmprof", "--fail-if",
                 "raw growth > 0")[0] == 0


@pytest.mark.parametrize("between", ["warm..done", "2.1..10"])
def test_growth_within_a_run(folder: Path, capsys: pytest.CaptureFixture[str],
                             between: str) -> None:
    """leak() grows by 79 KiB between the moments.

    work() always has 55 KiB in use, and frees them before the end. The moments need no
    mark, because the use of native memory is always known.
    """
    for function, limit, code in (
            ("leak", "75k", 1), ("leak", "82k", 0), ("*", "20k", 1), ("*", "26k", 0),
            ("work", "0", 0)):
        found, said = ended(
            capsys, "diff", "a.vmprof", "--between", between, "--native-memory",
            "--sort", "alive", "--function", function, "--fail-if",
            "raw growth > " + limit)
        assert found == code, said
        assert "may be garbage" not in said and "unclear" not in said


def test_live_native_memory_is_exact_at_each_moment(folder: Path) -> None:
    from vmprof_convert.analysis.diff import moment
    profile = readers.read("a.vmprof", raw=True)
    for at in moment(profile, 3 * SECOND + 12345), profile:
        assert is_alive_exact(at)
        assert summarize(at).figures.sum(STILL_ALIVE).value_bytes > 0
    assert not profile.collections and set(profile.looks) >= {2 * SECOND, 10 * SECOND}


def test_little_native_memory_is_within_limits(
        write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("a")
    write("b")
    assert ended(capsys, "check", "a.vmprof", "--fail-if", "raw > 1k")[0] == 0
    assert ended(capsys, "diff", "a.vmprof", "b.vmprof", "--fail-if",
                 "raw growth > 1k")[0] == 0


def test_refuses_a_profile_without_native_memory(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.settings(facts="types,lifetimes")
    log.allocation([log.function("f")], size=24)
    write("a", kept=100)
    (tmp_path / "heap.vmprof").write_bytes(log.data())
    for command in (["check", "heap.vmprof"], ["diff", "a.vmprof", "heap.vmprof"]):
        assert (
            "heap.vmprof: the profile has no samples of native memory, which "
            "--native-memory and conditions such as 'raw growth > 10M' need: start the "
            "program with --native-memory") in run_and_fail(
                tmp_path, capsys, *command, "--fail-if", "raw > 1G")


def test_refuses_growth_of_a_single_profile(folder: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    assert "'raw growth > 1' is about two profiles, or two moments" in run_and_fail(
        folder, capsys, "check", "a.vmprof", "--fail-if", "raw growth > 1")


def test_refuses_conditions_if_the_sampler_missed_frees(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """malloc's own count is smaller than the sampled blocks.

    Conditions for some of the blocks are refused, too, although these blocks might be
    fewer than malloc's count.
    """
    write("good", kept=100, counted=106)
    write("bad", kept=100, given_back=10, counted=20)
    code, said = ended(capsys, "check", "good.vmprof", "--fail-if", "raw > 50k")
    assert code == 1 and said.endswith(
        "native memory, as malloc counts it: 5 KiB in use when sampling began, 106 KiB "
        "at the end")
    for command in (["check", "bad.vmprof"], ["diff", "bad.vmprof", "good.vmprof"],
                    ["check", "bad.vmprof", "--function", "work", "--native-memory"]):
        for limit in "10k", "1G":
            assert ("bad.vmprof: cannot evaluate 'raw > %s': the samples count 8"
                    % limit) in run_and_fail(
                tmp_path, capsys, *command, "--fail-if", "allocated > 1G",
                "--fail-if", "raw > " + limit)
    # the number of allocated bytes does not depend on frees
    assert ended(capsys, "check", "bad.vmprof", "--fail-if",
                 "raw allocated > 50k")[0] == 1


def test_refuses_conditions_if_the_sampler_missed_allocations(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """malloc's bookkeeping does not count as a missed allocation."""
    write("good", kept=100, counted=2000)
    write("bad", kept=100, counted=20000)
    assert ended(capsys, "check", "good.vmprof", "--fail-if", "raw > 1M")[0] == 0
    assert "cannot evaluate 'raw > 1M': malloc's own count grew by 19" in (
        run_and_fail(tmp_path, capsys, "check", "bad.vmprof", "--fail-if", "raw > 1M"))


def test_refuses_conditions_without_the_count_of_malloc(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A killed process lacks malloc's count at its end, and may have missed blocks."""
    write("good", kept=100)
    write("killed", kept=100, counted=None)
    write("parent", run="r", kept=100)
    write("parent.11", run="r", pid=11, kept=100, counted=None)
    for command in (["check", "killed.vmprof"], ["check", "parent.vmprof"],
                    ["diff", "good.vmprof", "killed.vmprof"]):
        for limit in "10k", "1G":
            assert ("cannot evaluate 'raw > %s': malloc's own count is missing" % limit
                    ) in run_and_fail(tmp_path, capsys, *command, "--fail-if",
                                      "raw > " + limit)
    # the number of allocated bytes does not need the count
    assert ended(capsys, "check", "killed.vmprof", "--fail-if",
                 "raw allocated > 50k")[0] == 1
    for command in (["report", "killed.vmprof"],
                    ["diff", "killed.vmprof", "good.vmprof"]):
        assert ("unchecked: malloc's own count is missing"
                in ended(capsys, *command, "--native-memory")[1])


def test_refuses_leaks_if_the_sampler_missed_frees(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("bad", kept=100, given_back=10, counted=20)
    assert "cannot evaluate leaks of native memory: the samples count 8" in (
        run_and_fail(tmp_path, capsys, "leaks", "bad.vmprof", "--native-memory"))


@pytest.mark.parametrize("condition", ["peak > 1M", "rss growth > 1M"])
def test_refuses_conditions_of_the_process_with_option_raw(
        folder: Path, capsys: pytest.CaptureFixture[str], condition: str) -> None:
    assert "'%s' is about the process, and not about native memory" % condition in (
        run_and_fail(folder, capsys, "diff", "a.vmprof", "b.vmprof", "--native-memory",
                     "--fail-if", condition))


def test_counts_of_malloc_are_added_for_several_processes(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("app", run="r", kept=100, counted=106)
    write("app.11", run="r", pid=11, kept=100, counted=106)
    assert ended(capsys, "check", "app.vmprof", "--fail-if", "raw > 190k")[0] == 1
    assert ended(capsys, "check", "app.vmprof", "--fail-if", "raw > 210k")[0] == 0
    write("app.11", run="r", pid=11, kept=100, counted=20)
    assert "cannot evaluate" in run_and_fail(
        tmp_path, capsys, "check", "app.vmprof", "--fail-if", "raw > 190k")


def test_standard_input_is_read_once(
        folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    with open("a.vmprof", "rb") as file:
        monkeypatch.setattr("sys.__stdin__", file)
        assert "'raw ...' of --fail-if reads the profile separately" in run_and_fail(
            folder, capsys, "check", "-", "--fail-if", "raw > 1")
        assert ended(capsys, "check", "-", "--native-memory", "--fail-if",
                     "raw > 99k")[0] == 1


@pytest.mark.parametrize("counted, is_seen", [(105, True), (20480, False)])
def test_leaks_of_raw_memory_are_compared_with_mallocs_count(
        write: Write, capsys: pytest.CaptureFixture[str], counted: int,
        is_seen: bool) -> None:
    """malloc's count starts at 5 KiB; 100 KiB of blocks are sampled and kept."""
    for kept, verdict in (100, "leak: "), (0, "no leak was found in "):
        write("a", kept=kept, given_back=1000, counted=counted - (100 - kept),
              has_marks=False, majors=9)
        code, out = ended(capsys, "leaks", "a.vmprof", "--native-memory")
        assert code == 0, out
        assert ("more than the sampled blocks explain" in out) == (not is_seen), out
        assert verdict in out
        assert ("no leak was found in native memory" in out) == (is_seen and not kept)
        cli.main(["leaks", "a.vmprof", "--json", "--native-memory"])
        unseen = json.loads(capsys.readouterr().out)["unseen_bytes"]
        assert unseen == (0.0 if is_seen else pytest.approx(
            (counted - 105) * KIB, rel=0.01)), unseen
        # the report of allocations has the same warning
        assert ("incomplete: malloc's own count grew by" in ended(
            capsys, "report", "a.vmprof", "--native-memory")[1]) == (not is_seen)


def test_without_mallocs_count_only_sampled_blocks_have_a_verdict(
        write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile of a killed process lacks malloc's own count of the used bytes."""
    write("a", given_back=1000, has_marks=False, majors=9, counted=None)
    out = ended(capsys, "leaks", "a.vmprof", "--native-memory")[1]
    assert out.startswith("no leak was found in the blocks that were sampled: ")
    assert "whether native memory that was not sampled grew is unknown" in out
    cli.main(["leaks", "a.vmprof", "--json", "--native-memory"])
    assert json.loads(capsys.readouterr().out)["unseen_bytes"] is None


@pytest.mark.parametrize("counted, is_said", [(105, False), (20480, True)])
def test_differences_are_compared_with_mallocs_count(
        write: Write, capsys: pytest.CaptureFixture[str], counted: int,
        is_said: bool) -> None:
    """Two equal sets of samples do not show that native memory has not grown."""
    write("a", kept=100, counted=105)
    write("b", kept=100, counted=counted)
    code, out = ended(capsys, "diff", "a.vmprof", "b.vmprof", "--native-memory")
    assert code == 0, out
    assert ("incomplete: malloc's own count grew by 19" in out) == is_said, out


@pytest.mark.parametrize("majors", [2, 9])
def test_growth_is_called_a_cache_only_if_garbage_is_known(
        write: Write, capsys: pytest.CaptureFixture[str], majors: int) -> None:
    """Garbage of one window that is freed in the other window may hide a leak."""
    write("a", kept=1000, has_marks=False, majors=majors, seconds=6, counted=1005)
    out = ended(capsys, "leaks", "a.vmprof", "--native-memory")[1]
    assert ("slows down, like a cache that fills: " in out) == (majors == 9), out
    assert ("leak, cache or garbage: " in out) == (majors == 2), out
    assert ("no clear growth in both windows was found, although freed garbage may "
            "hide growth, in native memory" in out) == (majors == 2), out


@pytest.mark.parametrize("compiled", [5, 6, 7])
def test_leak_of_a_function_that_is_compiled_later_is_not_a_cache(
        write: Write, capsys: pytest.CaptureFixture[str], compiled: int) -> None:
    """The blocks of interpreted code stay in use, and compiled code adds others."""
    write("a", kept=1000, has_marks=False, majors=9, compiled=compiled, counted=1005)
    out = ended(capsys, "leaks", "a.vmprof", "--native-memory")[1]
    assert "like a cache" not in out, out
    assert "malloc (JIT code) leak app.py:1" in out, out


@pytest.mark.parametrize("majors", [0, 1, 2])
def test_few_major_collections_do_not_show_leaks_of_native_memory(
        write: Write, capsys: pytest.CaptureFixture[str], majors: int) -> None:
    write("a", kept=100, has_marks=False, majors=majors)
    out = ended(capsys, "leaks", "a.vmprof", "--native-memory")[1]
    assert out.startswith("whether native memory leaks is unknown: ")
    assert "there are too few (%d in the whole run)" % majors in out
    assert "leak, or garbage: " in out
    assert "leak: " not in out
    cli.main(["leaks", "a.vmprof", "--json", "--native-memory"])
    assert json.loads(capsys.readouterr().out)["shows_leaks"] is False


@pytest.mark.parametrize("is_leak", [True, False])
def test_native_memory_is_compared_after_its_finalizers(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], is_leak: bool) -> None:
    """A major collection at the end of each second frees all blocks of work().

    work() has more blocks in each second, and more in use between two collections, but
    does not leak.
    """
    log = Log()
    main, leak, work = map(log.function, ("main", "leak", "work"))
    log.settings(raw=64, facts="types,lifetimes")
    log.collection(SECOND // 2)
    for second in range(12):
        for number in range(20):
            time = second * SECOND + (number + 1) * SECOND // 25
            for _ in range(second + 1):
                key = log.block([main, work], size=KIB, interval=64, time=time)
                log.given_back(key, (second + 1) * SECOND + 5_000_000)
            if is_leak:
                log.block([main, leak], size=KIB, interval=64, time=time)
        log.event(3, (second + 1) * SECOND, 0, second + 1)
    log.figure(10, 0, 0)
    (tmp_path / "saw.vmprof").write_bytes(log.data())
    code = cli.main(["leaks", str(tmp_path / "saw.vmprof"), "--json",
                     "--native-memory"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and found["shows_leaks"]
    assert found["slowing"] == []
    assert [one["places"][0]["function"]["name"] for one in found["leaks"]] == (
        ["leak"] * is_leak)
    if is_leak:
        rate = found["leaks"][0]["growth"]["value"] / sum(found["seconds"])
        assert rate == pytest.approx(20 * KIB, rel=0.01)
