"""The engine for a PyPy that has only the first patches (builtin/samples.py).

Such a PyPy samples allocations, but records no outcomes and no children.  Here, a
class in plain Python replaces its module `_vmprof`.  test_rpython_samples.py tests the
profiles of such a PyPy.
"""
from __future__ import annotations

import io
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmprof_allocation.commands import doctor as commands
from vmprof_allocation.engines import choose, searching
from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.builtin import samples
from vmprof_allocation.engines.hook import engine as hook
from vmprof_allocation.errors import AllocationSamplingError, UnknownBuild
from vmprof_allocation.session.profile_file import HEAD
from vmprof_allocation.session.session import Session
from vmprof_allocation.settings.processes import Processes
from vmprof_allocation.settings.settings import Limit, Settings


class VMProfError(Exception):
    pass


class Vmprof(types.ModuleType):
    """A stand-in for `_vmprof` of a PyPy with the first patches."""

    VMProfError = VMProfError

    def __init__(self) -> None:
        super().__init__("_vmprof")
        self.enabled = False
        self.calls: list[Any] = []

    def enable(self, fileno: int, period: float, memory: int, lines: int, native: int,
               real_time: int, allocations: str = "") -> None:
        self.calls.append((period, memory, lines, native, real_time, allocations))
        os.write(fileno, HEAD)
        self.enabled = True

    def disable(self) -> None:
        self.calls.append("disable")
        self.enabled = False

    def is_enabled(self) -> bool:
        return self.enabled


class Stock(Vmprof):
    """A stand-in for a stock PyPy's `_vmprof`, which samples no allocations."""

    def enable(self, fileno: int, period: float, memory: int, lines: int,  # type: ignore[override]
               native: int, real_time: int) -> None:
        raise NotImplementedError


@pytest.fixture
def vmprof(monkeypatch: pytest.MonkeyPatch) -> Vmprof:
    module = Vmprof()
    monkeypatch.setitem(sys.modules, "_vmprof", module)
    monkeypatch.setattr(samples, "_engine", None)
    monkeypatch.setattr(hook.HookEngine, "prepare", refusing)
    return module


def refusing(self: Engine, knowledge: str = "") -> None:
    raise UnknownBuild("this build of PyPy is not known", [("what", "value", False)])


def test_hook_engine_is_preferred(vmprof: Vmprof,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook.HookEngine, "prepare", lambda *ignored: None)
    assert choose.choose().name == "hook"


def test_pypy_samples_if_the_hook_engine_refuses(vmprof: Vmprof) -> None:
    engine = choose.choose("knowledge")
    assert isinstance(engine, samples.SamplesEngine) and engine is choose.choose()
    assert vmprof.calls == []


@pytest.mark.parametrize("settings", [Settings(1000, 1, held=True),
                                      Settings(1000, 1, lines=True)])
def test_options_that_need_the_hook_engine_are_refused(
        vmprof: Vmprof, settings: Settings) -> None:
    with pytest.raises(UnknownBuild):
        choose.choose(hook=settings.needs_hook)


def test_stock_pypy_is_refused(vmprof: Vmprof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_vmprof", Stock())
    with pytest.raises(UnknownBuild):
        choose.choose()


def test_other_problems_of_the_hook_engine_are_reported(
        vmprof: Vmprof, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(self: Engine, knowledge: str = "") -> None:
        raise AllocationSamplingError("already on")

    monkeypatch.setattr(hook.HookEngine, "prepare", prepare)
    with pytest.raises(AllocationSamplingError, match="already on"):
        choose.choose()


def test_missing_facts_are_reported(vmprof: Vmprof) -> None:
    said: list[str] = []
    assert searching.knowledge(said.append, Settings(1000, 1)) == ""
    assert said == [samples.REMARK]
    out = io.StringIO()
    assert commands.doctor(out) == 0
    assert out.getvalue().splitlines()[1:] == [
        "allocations can be sampled here: " + samples.REMARK]


@pytest.mark.parametrize("settings, asked", [
    (Settings(1000, 2**62 - 1),
     (0.0, 0, 0, 0, 0, "interval=1000;seed=4611686018427387903")),
    # the engine reduces the seed to the numbers that this PyPy accepts
    (Settings(1000, 2**64 - 1, period=0.01, memory=True),
     (0.01, 1, 0, 0, 0, "interval=1000;seed=4611686018427387903")),
])
def test_session_passes_its_settings_and_empties_the_file(
        vmprof: Vmprof, tmp_path: Path, settings: Settings, asked: object) -> None:
    path = tmp_path / "app.vmprof"
    path.write_bytes(HEAD + b"an older and longer profile")
    with Session(settings, str(path)) as session:
        session.mark("warm")
        assert session.suspend() is None
        session.go_on()
    assert vmprof.calls == [asked, "disable"]
    assert path.read_bytes() == HEAD


@pytest.mark.parametrize("settings, said", [
    (Settings(1000, 1, limit=Limit(7)),
     r"a limit of samples \(auto\)\. Write an interval"),
    (Settings(1000, 1, "fixed"), "fixed gaps. Omit it"),
    (Settings(1000, 1, native=True), r"native frames \(--native\)\. Omit"),
    (Settings(1000, 1, rotate=60.0), r"a second profile \(--rotate\)\. Omit")])
def test_settings_that_the_engine_lacks_are_refused(
        vmprof: Vmprof, tmp_path: Path, settings: Settings, said: str) -> None:
    with pytest.raises(AllocationSamplingError, match="not support " + said):
        Session(settings, str(tmp_path / "app.vmprof")).start()
    assert not vmprof.calls and not [*tmp_path.iterdir()]


def test_profile_of_a_child_is_refused(vmprof: Vmprof, tmp_path: Path) -> None:
    run = Processes(str(tmp_path / "app.vmprof"), "abc", 1)
    with pytest.raises(AllocationSamplingError, match="profiles of children"):
        Session(Settings(1000, 1), str(tmp_path / "app.2.vmprof"), run).start()
    assert not vmprof.calls


def test_requests_that_are_refused_during_the_sampling(
        vmprof: Vmprof, tmp_path: Path) -> None:
    with Session(Settings(1000, 1), str(tmp_path / "app.vmprof")) as session:
        asked: tuple[tuple[Callable[[], object], str], ...] = (
            (session.statistics, "not support statistics. Stop"),
            (lambda: session.set_interval(7),
             "another interval while it samples. Stop"),
            (lambda: session.rotate(str(tmp_path / "next.vmprof")), "second profile"),
            (session.retainers, "start with --leaks or --retainers"))
        for ask, said in asked:
            with pytest.raises(AllocationSamplingError, match=said):
                ask()
        assert session.is_on and vmprof.enabled
    assert vmprof.calls[1:] == ["disable"]


def test_forked_child_is_not_sampled(vmprof: Vmprof, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """The child leaves the profile of its parent alone, and can begin its own."""
    session = Session(Settings(1000, 1), str(tmp_path / "app.vmprof"))
    session.start()
    pid = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: pid + 1)
        session.go_on()
        assert not session.is_inherited
        with Session(Settings(2000, 1), str(tmp_path / "own.vmprof")):
            pass
        assert [call for call in vmprof.calls if call != "disable"][1:] == [
            (0.0, 0, 0, 0, 0, "interval=2000;seed=1")]
    session.stop()
