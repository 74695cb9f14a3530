"""Tests that native functions of the interpreter without names are not shown."""
from __future__ import annotations

from collections.abc import Sequence

import pytest

from made_profiles import FrameSpec, Log, native
from vmprof_convert import readers
from vmprof_convert.analysis.summary import BY_FUNCTION, summarize
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats

LIBRARY = "libpypy3.9-c.so"
PATH = "/usr/lib/" + LIBRARY


def named(log: Log, name: str, path: str) -> int:
    log.addresses += 8
    address = log.addresses + 1
    log.name(address, "n:%s:0:%s" % (name, path))
    return address


def made(**settings: object) -> tuple[Log, list[Sequence[FrameSpec]]]:
    log = Log()
    log.settings(**settings)
    f, g = log.function("f"), log.function("g")
    inner, outer = (native(named(log, "%s+0x%x" % (LIBRARY, at), PATH))
                    for at in (0x1000, 0x2000))
    append = native(named(log, "PyList_Append", PATH))
    other = native(named(log, "other.so+0x10", "/site-packages/other.so"))
    same = native(named(log, LIBRARY + "+0x1000", "/elsewhere/x.so"))
    return log, [[f, outer, inner], [f], [f, outer, other, append, inner], [f, g],
                 [outer], [f, inner, same]]


def shown(profile: Profile) -> list[list[str]]:
    program = Program(profile)
    return [[function.name for function in program.functions(stack)]
            for stack in profile.samples.stack]


def test_allocations_of_nameless_functions_belong_to_their_callers() -> None:
    log, stacks = made(native=LIBRARY)
    for stack in stacks:
        log.allocation(stack, size=100)
    profile = readers.read_bytes(log.data())
    assert shown(profile) == [
        ["f"], ["f"], ["f", "other.so+0x10", "PyList_Append"], ["f", "g"],
        ["[compiled code, function not known]"], ["f", LIBRARY + "+0x1000"]]
    assert profile.nameless == 2
    # the profile no longer contains the nameless functions
    assert not any(function.file == PATH and "+0x" in function.name
                   for function in profile.functions.values())
    lines = caveats.of_figures(profile, summarize(profile), BY_FUNCTION)
    assert [line for line in lines if line.startswith("native: ")] == [
        "native: this PyPy has no names for 2 functions of the interpreter; their "
        "allocations are attributed to their callers"]


@pytest.mark.parametrize("settings", [{}, {"native": ""}, {"native": "1"},
                                      {"native": "other"}])
def test_nameless_functions_stay_if_the_library_is_unknown(
        settings: dict[str, str]) -> None:
    log, stacks = made(**settings)
    for stack in stacks:
        log.allocation(stack, size=100)
    profile = readers.read_bytes(log.data())
    assert list(map(len, shown(profile))) == list(map(len, stacks))
    assert profile.nameless == 0


def test_name_that_comes_later_replaces_the_first_one() -> None:
    """The sampler looks up names when a profile ends."""
    log, stacks = made(native=LIBRARY)
    log.allocation(stacks[0], size=100)
    log.name(log.addresses + 9, "n:%s+0x77:0:%s" % (LIBRARY, PATH))
    address = log.addresses + 9
    log.allocation([*stacks[1], native(address)], size=100)
    log.name(address, "n:list_append:0:" + PATH)
    assert shown(readers.read_bytes(log.data())) == [["f"], ["f", "list_append"]]
