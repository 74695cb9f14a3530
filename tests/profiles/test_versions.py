"""Profiles of other times: older ones are read, and of newer ones is said what
is not understood."""
from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from made_profiles import (
    BLOCK_ADDRESS,
    FrameSpec,
    Log,
    digits,
    jit,
    machine_code,
    packed,
)
from report_runs import COMMANDS, report, text
from vmprof_convert import readers
from vmprof_convert.analysis.summary import summarize
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import LOST, Profile
from vmprof_convert.text.units import format_bytes
from vmprof_convert.writers import firefox

DATA = Path(__file__).with_name("data")


def sampled(blocks: int = 3) -> Log:
    log = Log(blocks=blocks)
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([f, g], size=24, time=10)
    log.allocation([f], size=48, time=20)
    log.flush()
    return log


# ________________________________________
# newer ones


@pytest.mark.parametrize("kind", ["settings", "samples", "objects", "facts"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
def test_newer_block_is_named_and_nothing_is_read(
        tmp_path: Path, kind: str, first: bool, command: str) -> None:
    """What stands in the log for vmprof's readers looks like time samples."""
    log = Log() if first else sampled()
    log.block(kind, "whatever;comes", version=4)
    f = log.function("f")
    for _ in range(20):
        log.raw_stack(log.words([f]), 0)
    path = tmp_path / "new.vmprof"
    path.write_bytes(packed(log.data()))
    done = report(path, command=command)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"vmprof.\w+: %s: the profile has blocks of version 4; this "
        "vmprof-convert understands 2 and 3: install a newer vmprof-convert "
        "to read it\n" % re.escape(str(path)), done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("block", [
    "alloc:a:b:c:4:samples", "alloc::4:Object_Facts", "alloc::4:"])
def test_newer_block_may_hold_anything(block: str) -> None:
    log = sampled()
    log.name(BLOCK_ADDRESS, block)
    with pytest.raises(ProfileError, match=r"version 4; .* newer"):
        readers.read_bytes(log.data())


def test_a_later_part_goes_on_counting() -> None:
    """PROFILE.rst, `part`."""
    log = Log()
    f = log.function("f")
    log.settings(part=2)
    log.written = log.keys = 1000
    log.allocation([f], size=24, time=10)
    log.flush()
    log.block("objects", digits(1001, 2 * 7 + 1, 999, 2 * 8))
    profile = readers.read_bytes(log.data())
    (type_,), (fate,) = profile.samples.type, profile.samples.fate
    assert (profile.types[type_].number, fate) == (7, LOST)
    # without that key, something is missing
    with pytest.raises(ProfileError, match="samples that are none"):
        readers.read_bytes(log.data().replace(b";part=2", b";xxxx=2"))


@pytest.mark.parametrize("version", ["1", "0", "4", "999999999"])
def test_versions_that_are_not_understood(version: str) -> None:
    log = sampled()
    log.block("samples", "", version=version)
    with pytest.raises(ProfileError, match="version %s; .* understands 2 and 3"
                       % version) as caught:
        readers.read_bytes(log.data(), salvage=True)
    assert ("newer" in str(caught.value)) == (int(version) > 3)


@pytest.mark.parametrize("block", [
    "alloc::x:samples", "alloc::-3:samples", "alloc:::samples", "alloc::3",
    "alloc::3:samples:", "alloc::\u0663:samples", "alloc::" + "9" * 5000 + ":a",
    "alloc::3:", "alloc::3:Samples", "alloc::3:" + "x" * 33, "alloc::3:a;b",
    "alloc::3:a\n"])
def test_what_is_no_block(block: str) -> None:
    log = sampled()
    log.name(-0x616C6C6F63, block)
    with pytest.raises(ProfileError, match="damaged profile: a block that is"):
        readers.read_bytes(log.data())


def shown(profile: Profile) -> tuple[str, dict[str, object]]:
    """The table, and what the Firefox profile's info panel says."""
    return text(profile), {
        entry["label"]: entry["value"]
        for section in firefox.convert(profile)["meta"]["extra"]
        for entry in section["entries"]}


PASSED_OVER = "blocks of kinds that are not known here were passed over: "


def passed_over(panel: dict[str, object]) -> list[str]:
    return [value for value in panel.values()
            if isinstance(value, str) and PASSED_OVER in value]


def test_unknown_kinds_are_passed_over_and_named() -> None:
    log = sampled()
    for _ in range(3):
        log.block("colours", "whatever;comes")
    log.block("gc-events", digits(1, 2, 3))
    profile = readers.read_bytes(log.data())
    assert list(profile.samples.size) == [24, 48]
    assert profile.unknown == {"colours": 3, "gc-events": 1}
    text, panel = shown(profile)
    assert ("  blocks of kinds that are not known here were passed over: "
            "colours (3), gc-events (1); a newer vmprof-convert may show what is "
            "in them\n") in text
    (said,) = passed_over(panel)
    assert said.startswith(PASSED_OVER + "colours (3), gc-events (1); a newer")


def test_the_room_for_what_comes_is_passed_over() -> None:
    """PROFILE.rst names kinds that are not written yet."""
    text = (DATA.parents[2] / "converter" / "PROFILE.rst").read_text()
    room = text[text.index("\nRoom for what comes\n---"):
                text.index("\nWhy it is so\n---")]
    kinds = re.findall("^``([a-z]+)``[:,]", room, re.MULTILINE)
    assert kinds == ["processes"]
    log = sampled()
    for kind in kinds:
        log.block(kind, digits(3, 1, 1, 7, 2, 99, 5))
    profile = readers.read_bytes(log.data())
    assert profile.unknown == dict.fromkeys(kinds, 1)
    assert list(profile.samples.size) == [24, 48]


def test_many_unknown_kinds_are_not_all_named() -> None:
    log = sampled()
    for number in range(1000):
        log.block("kind-%03d" % number, "")
    (said,) = passed_over(shown(readers.read_bytes(log.data()))[1])
    assert said.startswith(PASSED_OVER + "kind-000 (1), kind-001 (1), ")
    assert ", kind-009 (1), 990 kinds more; " in said


def test_without_unknown_kinds_nothing_is_said() -> None:
    text, panel = shown(readers.read_bytes(sampled().data()))
    assert "passed over" not in text and not passed_over(panel)


def test_unknown_kind_alone_makes_it_an_allocation_profile() -> None:
    """vmprof's samples stand there for vmprof's readers."""
    log = Log()
    log.block("something", "")
    log.raw_stack(log.words([log.function("f")]), 0)
    profile = readers.read_bytes(log.data())
    assert len(profile.samples) == 0 and profile.unknown == {"something": 1}


def test_unknown_settings_are_kept() -> None:
    log = Log()
    log.settings(colour="blue")
    log.allocation([log.function("f")], size=24)
    profile = readers.read_bytes(log.data())
    assert profile.settings["colour"] == "blue"
    assert shown(profile)[1]["colour"] == "blue"


# ________________________________________
# the engine's names


@pytest.mark.parametrize("settings,engine", [
    ({"engine": "hook"}, "hook"), ({"engine": "builtin"}, "builtin"),
    ({"carrier": "live"}, "hook"), ({"carrier": "patch"}, "builtin"),
    ({"engine": "another"}, "another"), ({}, ""),
])
def test_engine_has_one_name(settings: dict[str, str], engine: str) -> None:
    log = Log()
    log.block("settings", ";".join(
        "%s=%s" % pair for pair in {"interval": "1", **settings}.items()))
    profile = readers.read_bytes(log.data())
    assert profile.engine == engine
    assert "carrier" not in profile.settings


# ________________________________________
# version 2


def stacks_of_many_shapes(blocks: int) -> Profile:
    log = Log(blocks=blocks)
    f, g, h = (log.function(name) for name in "fgh")
    stacks: list[list[FrameSpec]] = [
        [f, g, h], [f, g], [f, g, g], [], [h], [f, g, h, f, g, h], [f, g, h],
        [jit(f), g], [f, jit(g)], [f, jit(f), machine_code(8)], [f for _ in range(509)],
        [*[f] * 508, g], [2**63]]
    log.settings()
    for i, frames in enumerate(stacks * 2):
        log.allocation(frames, size=8 + i, time=i)
        if i % 5 == 0:
            log.flush()
    log.allocation(None, size=8)
    return readers.read_bytes(log.data())


def test_version_2_says_the_same_in_another_way() -> None:
    two, three = stacks_of_many_shapes(2), stacks_of_many_shapes(3)
    assert two == three
    assert len(two.stacks) == 12 and two.cut_stacks == three.cut_stacks == 4


@pytest.mark.parametrize("entries", [
    (0,), (0, 0), (0, 0, 1), (0, 0, 1, 1),      # half a definition
    (0, 1, 0),                                  # more than was there before
    (0, 0, 1, 1, 8, 0, 2, 0), (0, 2**63, 0), (0, 0, 2**62),
    (0, 0, 1, 1, 2**64), (0, 0, 1, 2**64, 1),
    (1 + 8, 0, 8, 1),                           # not defined
])
def test_hostile_definitions(entries: tuple[int, ...]) -> None:
    log = Log(blocks=2)
    log.settings()
    log.block("samples", digits(*[0] * 8, *entries))
    with pytest.raises(ProfileError, match="a block of samples that are none"):
        readers.read_bytes(log.data())


# ________________________________________
# real ones: data/README.rst


class Facts(NamedTuple):
    """What the writer of the time, or its own reader, said."""

    samples: int
    time_samples: int
    allocated: int
    collections: int
    interval: int
    limit: str
    has_memory: bool
    deepest: int


FACTS = {
    "version-2-alone": Facts(221, 0, 4010712, 4, 16384, "", False, 509),
    "version-2-with-time": Facts(27, 3, 4008640, 4, 65536, "1000/s", True, 417),
    "version-3-alone": Facts(350, 0, 14447528, 14, 36864, "", False, 509),
    "version-3-with-time": Facts(
        71, 6, 14456808, 14, 65536, "1000/s", True, 453),
}


def test_all_profiles_are_of_the_version_in_their_names() -> None:
    assert {path.stem for path in DATA.glob("*.vmprof")} == {*FACTS}
    for name in FACTS:
        path = DATA / (name + ".vmprof")
        assert path.stat().st_size < 12 * 1024
        found = set(re.findall(rb"alloc:[^:]*:(\d+):[a-z]+",
                               gzip.decompress(path.read_bytes())))
        assert found == {name.split("-")[1].encode()}


@pytest.mark.parametrize("name", FACTS)
def test_old_profile(name: str) -> None:
    facts = FACTS[name]
    profile = readers.read(DATA / (name + ".vmprof"))
    samples = profile.samples
    sizes = [size for size in samples.size if size]
    assert (len(samples), len(samples) - len(sizes)) == facts[:2]
    assert profile.moments[-1].allocated == facts.allocated
    assert profile.moments[-1].collections == facts.collections
    assert profile.interval == facts.interval
    assert profile.settings["limit"] == facts.limit
    assert (profile.engine, profile.unknown) == ("hook", {})
    assert any(samples.memory) == facts.has_memory
    assert max(map(len, profile.stacks)) == facts.deepest
    assert profile.lost_stacks == 0 and profile.end_time is not None
    assert len(set(samples.thread)) == 2
    # what the program did, and how it was called
    program = Program(profile)
    callers: dict[str, set[str]] = {}
    for stack in samples.stack:
        names = [f.name for f in program.functions(stack)]
        callers.setdefault(names[-1], set()).update(names[:-1])
    assert callers["down"] >= {"<module>", "work", "down"}
    assert callers["items"] >= {"<module>", "work"}
    assert not any("vmprof" in function.file for number in
                   range(len(profile.stacks))
                   for function in program.functions(number))
    # and how much
    estimate = summarize(profile).bytes
    assert estimate.low < facts.allocated < estimate.high


@pytest.mark.parametrize("name", FACTS)
def test_old_profile_in_both_outputs(name: str) -> None:
    profile = readers.read(DATA / (name + ".vmprof"))
    text, panel = shown(profile)
    facts = FACTS[name]
    allocations = facts.samples - facts.time_samples
    assert "(%d samples, " % allocations in text.splitlines()[0]
    assert panel["Allocation samples"] == allocations
    assert panel["Engine"] == "hook"
    assert panel["Allocated, counted by the GC"] == format_bytes(facts.allocated)
