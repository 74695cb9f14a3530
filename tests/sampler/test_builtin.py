"""The builtin engine with a `_vmprof` in plain Python.

test_estimates.py, test_harmless.py and test_command_line.py also test this engine if
the environment variable PYPY names a PyPy that has the engine.
"""
from __future__ import annotations

import errno
import io
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmprof_allocation.commands.doctor import doctor
from vmprof_allocation.engines import choose, thread_names
from vmprof_allocation.engines.builtin import engine as builtin
from vmprof_allocation.engines.builtin.engine import BuiltinEngine
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.session import Session
from vmprof_allocation.settings.processes import Processes
from vmprof_allocation.settings.settings import Limit, Settings


class VMProfError(Exception):
    pass


class Vmprof(types.ModuleType):
    """A stand-in for the part of PyPy's `_vmprof` that the engine uses."""

    VMProfError = VMProfError

    def __init__(self) -> None:
        super().__init__("_vmprof")
        self.enabled = False
        self.calls: list[Any] = []
        #: exception that the next call raises
        self.error: BaseException | None = None
        #: result of the next rotation: why the profile that it ends is not complete
        self.incomplete = ""
        self.alive = [16, 1, 2, 24, 20, 1000, 3, 48, 7, 2, 16, 16, 1000, 0]
        self.peak = 3000.0
        self.ignored = False
        self.names: dict[int, str] = {}

    def call(self, *what: Any) -> None:
        self.calls.append(what)
        error, self.error = self.error, None
        if error is not None:
            raise error

    def enable(self, *arguments: Any, **keywords: Any) -> None:
        if self.enabled:
            raise VMProfError("vmprof is already enabled")
        self.call("enable", arguments, keywords)
        self.enabled = True

    def disable(self) -> None:
        if not self.enabled:
            raise VMProfError("vmprof is not enabled")
        self.enabled = False
        self.call("disable")

    def is_enabled(self) -> bool:
        return self.enabled

    def set_allocation_interval(self, interval: int) -> None:
        self.call("interval", interval)

    def rotate_allocations(self, fileno: int, allocation_settings: str) -> str:
        self.call("rotate", fileno, allocation_settings)
        return self.incomplete

    def alive_allocations(self, forget: bool = False) -> list[int]:
        alive = self.alive
        if forget:
            self.alive = []
        return alive

    def alive_allocation_bytes(self, reset_peak: bool = False
                               ) -> tuple[float, float]:
        result = 2000.0, self.peak
        if reset_peak:
            self.peak = 2000.0
        return result

    def ignore_allocations(self, ignored: bool) -> bool:
        before, self.ignored = self.ignored, ignored
        return before

    def name_thread(self, thread: int, name: str) -> None:
        name.encode()
        self.names[thread] = name

    def mark(self, name: str) -> None:
        name.encode()
        self.call("mark", name)

    def allocation_statistics(self) -> dict[str, int]:
        return {"allocated": 1000, "collections": 2, "samples": 30, "lost": 4,
                "time_samples": 5, "dropped": 6}


@pytest.fixture
def vmprof(monkeypatch: pytest.MonkeyPatch) -> Vmprof:
    module = Vmprof()
    monkeypatch.setitem(sys.modules, "_vmprof", module)
    monkeypatch.setattr(builtin, "_engine", None)
    return module


def chosen() -> BuiltinEngine:
    result = choose.choose()
    assert isinstance(result, BuiltinEngine)
    return result


def test_builtin_is_preferred(vmprof: Vmprof) -> None:
    assert chosen().name == "builtin"
    assert chosen() is chosen()
    assert vmprof.calls == []


def test_stock_pypy_has_no_builtin_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_vmprof", types.ModuleType("_vmprof"))
    assert choose.sampling_vmprof() is None
    monkeypatch.setitem(sys.modules, "_vmprof", None)       # import fails
    assert choose.sampling_vmprof() is None


@pytest.mark.parametrize("settings, period, memory, native, allocations", [
    (Settings(1000, 2**64 - 1), 0.0, 0, 0,
     "gaps=exponential;seed=18446744073709551615;limit=;lifetimes=1;in_memory=0"),
    (Settings(1000, 1, "fixed", 0.01, True), 0.01, 1, 0,
     "gaps=fixed;seed=1;limit=;lifetimes=1;in_memory=0"),
    (Settings(1000, 1, limit=Limit(7)), 0.0, 0, 0,
     "gaps=exponential;seed=1;limit=7/s;lifetimes=1;in_memory=0"),
    (Settings(1000, 1, limit=Limit(share=8)), 0.0, 0, 0,
     "gaps=exponential;seed=1;limit=8ppm;lifetimes=1;in_memory=0"),
    (Settings(1000, 1, lifetimes=False, native=True), 0.0, 0, 1,
     "gaps=exponential;seed=1;limit=;lifetimes=0;in_memory=0"),
])
def test_settings_are_vmprofs_arguments(
        vmprof: Vmprof, settings: Settings, period: float, memory: int,
        native: int, allocations: str) -> None:
    chosen().start(7, settings)
    assert vmprof.calls == [("enable", (7, period, memory, 0, native, 0), {
        "allocations": "interval=1000;" + allocations})]


def test_threads_and_the_command_have_names(
        vmprof: Vmprof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_names, "of_command", lambda: "app.py --flag")
    monkeypatch.setattr(thread_names, "of_threads", lambda: [(12, "a\0b\ud800")])
    mine = chosen()
    assert "names" in mine.capabilities()
    mine.start(7, Settings(1000, 1))
    assert vmprof.names == {0: "app.py --flag"}
    mine.stop()
    assert vmprof.names[12] == "a?b?"


def test_patches_of_another_version_are_refused(
        vmprof: Vmprof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Vmprof, "name_thread")
    with pytest.raises(AllocationSamplingError, match="another version of the patches"):
        chosen().start(7, Settings(1000, 1))
    assert not vmprof.enabled


def test_moments_are_named_while_it_samples(vmprof: Vmprof) -> None:
    engine = chosen()
    assert "marks" in engine.capabilities()
    engine.mark("before")
    engine.start(7, Settings(1000, 1))
    del vmprof.calls[:]
    engine.mark("warm")
    engine.mark("a\ud800\xe4")
    vmprof.enabled = False              # the program disables vmprof
    engine.mark("disabled")
    engine.stop()
    engine.mark("after")
    assert vmprof.calls == [("mark", "warm"), ("mark", "a?\xe4")]


def test_live_objects_of_a_run_in_memory(vmprof: Vmprof) -> None:
    mine = chosen()
    assert mine.alive() == []
    assert mine.find_alive(16) is None
    assert mine.alive_bytes() == (0.0, 0.0)
    mine.forget_alive()
    mine.reset_peak()
    mine.start(7, Settings(1000, 1, in_memory=True))
    assert vmprof.calls[-1][2]["allocations"].endswith(";in_memory=1")
    with pytest.raises(AllocationSamplingError, match="cannot rotate the data of "
                                                      "tracemalloc"):
        mine.rotate(8, Settings(1000, 1, in_memory=True), None, 2)
    first, second = mine.alive()
    assert [first.address, first.key, first.stack, first.size, first.live_size,
            first.interval, first.type] == [16, 1, 2, 24, 20, 1000, 3]
    assert (second.address, second.type) == (48, 0)
    found = mine.find_alive(48)
    assert found is not None and found.key == 7
    assert mine.find_alive(32) is None
    assert mine.alive_bytes() == (2000.0, 3000.0)
    mine.reset_peak()
    assert mine.alive_bytes() == (2000.0, 2000.0)
    assert mine.ignore(True) is False
    assert mine.ignore(False) is True
    mine.forget_alive()
    assert mine.alive() == []
    mine.stop()


def test_next_profile_belongs_to_the_same_run(vmprof: Vmprof, tmp_path: Path) -> None:
    mine = chosen()
    assert "rotation" in mine.capabilities()
    path = tmp_path / "next.vmprof"
    path.write_text("older")
    with path.open("r+") as file:
        run = Processes("app.vmprof", "abc")
        mine.start(7, Settings(1000, 1), run)
        assert vmprof.names.pop(0) == thread_names.of_command()
        assert vmprof.calls[-1][2]["allocations"].endswith(";in_memory=0;run=abc")
        assert mine.writes_to(7)
        assert mine.rotate(file.fileno(), Settings(1000, 1), run, 2) == ""
        assert vmprof.calls[-1] == ("rotate", file.fileno(), "run=abc;part=2")
        assert vmprof.names.pop(0) == thread_names.of_command()
        assert mine.writes_to(file.fileno())
        assert not mine.writes_to(7)
        child = Processes("app.vmprof", "abc", 5)
        vmprof.incomplete = "No space left on device"
        assert mine.rotate(file.fileno(), Settings(1000, 1), child, 3) \
            == vmprof.incomplete
        assert vmprof.calls[-1][2] == "run=abc;parent=5;part=3"
    assert path.read_text() == ""


def test_rotation_that_fails_keeps_the_present_profile(vmprof: Vmprof) -> None:
    mine = chosen()
    with pytest.raises(AllocationSamplingError, match="sampling is not on"):
        mine.rotate(8, Settings(1000, 1), None, 2)
    mine.start(7, Settings(1000, 1))
    vmprof.error = VMProfError("No space left on device")
    with open(os.devnull, "w") as file, pytest.raises(
            AllocationSamplingError,
            match="cannot write the next profile: No space left on device; the "
                  "present"):
        mine.rotate(file.fileno(), Settings(1000, 1), None, 2)
    assert mine.writes_to(7)
    vmprof.enabled = False              # the program disables vmprof
    with pytest.raises(AllocationSamplingError, match="sampling is not on"):
        mine.rotate(8, Settings(1000, 1), None, 2)
    assert not mine.writes_to(7)


def test_refusal_of_vmprof_becomes_our_error(vmprof: Vmprof) -> None:
    vmprof.error = VMProfError("the GC of this program cannot sample")
    with pytest.raises(AllocationSamplingError,
                       match="vmprof reports: the GC of this"):
        chosen().start(7, Settings(1000, 1))
    chosen().start(7, Settings(1000, 1))


def test_retainers_and_lines_need_the_hook_engine(
        vmprof: Vmprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose.find(hook=True).name == "hook"
    session = Session(Settings(1000, 1), str(tmp_path / "app.vmprof"))
    session._engine, session._pid = chosen(), os.getpid()
    for take in session.retainers, session.snapshot:
        with pytest.raises(AllocationSamplingError, match="start with --leaks or"):
            take()
    asked: list[bool] = []

    def choosing(*, hook: bool) -> BuiltinEngine:
        asked.append(hook)
        return chosen()

    monkeypatch.setattr("vmprof_allocation.session.session.choose", choosing)
    for wanted in Settings(1000, 1, held=True), Settings(1000, 1, lines=True):
        session = Session(wanted, str(tmp_path / "refused.vmprof"))
        with pytest.raises(AllocationSamplingError, match="with this interpreter"):
            session.start()
        with pytest.raises(AllocationSamplingError, match="with this interpreter"):
            session.start(chosen())
    assert asked == [True, True] and not [*tmp_path.iterdir()]


def test_doctor_names_what_only_the_hook_engine_does(vmprof: Vmprof) -> None:
    out = io.StringIO()
    assert doctor(out) == 0
    assert "(the hook engine is used with --leaks, --retainers," in out.getvalue()


def test_second_start_is_refused(vmprof: Vmprof) -> None:
    chosen().start(7, Settings(1000, 1))
    with pytest.raises(AllocationSamplingError, match="already on in this"):
        chosen().start(8, Settings(1000, 1))
    assert len(vmprof.calls) == 1


def test_programs_own_vmprof_is_left_alone(vmprof: Vmprof) -> None:
    vmprof.enabled = True
    with pytest.raises(AllocationSamplingError, match="already enabled"):
        choose.choose()
    assert vmprof.enabled


def test_start_that_is_interrupted_can_be_done_again(vmprof: Vmprof) -> None:
    vmprof.error = KeyboardInterrupt()
    mine = chosen()
    with pytest.raises(KeyboardInterrupt):
        mine.start(7, Settings(1000, 1))
    assert not vmprof.enabled
    mine.start(7, Settings(1000, 1))
    mine.stop()


def test_stop_that_is_interrupted_can_be_done_again(vmprof: Vmprof) -> None:
    mine = chosen()
    mine.start(7, Settings(1000, 1))
    vmprof.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        mine.stop()
    mine.stop()
    mine.start(7, Settings(1000, 1))


def test_stop_without_start_is_harmless(vmprof: Vmprof) -> None:
    """Two threads may want to end the same run, so a second stop is harmless, too."""
    mine = chosen()
    mine.stop()
    mine.start(7, Settings(1000, 1))
    mine.stop()
    mine.stop()
    assert not vmprof.is_enabled()


@pytest.mark.parametrize("problem, said", [
    (os.strerror(errno.EBADF), "the program closed its file"),
    (os.strerror(errno.ENOSPC), os.strerror(errno.ENOSPC)),
])
def test_incomplete_profile_is_reported(vmprof: Vmprof, problem: str,
                                        said: str) -> None:
    mine = chosen()
    mine.start(7, Settings(1000, 1))
    vmprof.error = VMProfError(problem)
    with pytest.raises(AllocationSamplingError,
                       match="^the profile is not complete: %s$" % said):
        mine.stop()
    mine.start(7, Settings(1000, 1))


def test_program_that_disabled_vmprof(vmprof: Vmprof) -> None:
    mine = chosen()
    mine.start(7, Settings(1000, 1))
    vmprof.disable()
    mine.set_interval(2000)
    mine.stop()
    assert [call[0] for call in vmprof.calls] == ["enable", "disable"]


def test_forked_child_may_start(vmprof: Vmprof,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    mine = chosen()
    mine.start(7, Settings(1000, 1))
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    mine.set_interval(2000)         # does not reach vmprof in a child
    assert len(vmprof.calls) == 1
    mine.prepare()
    assert not vmprof.enabled
    mine.start(8, Settings(1000, 1))


@pytest.fixture
def followed(vmprof: Vmprof, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
             ) -> Iterator[BuiltinEngine]:
    """Yield the engine of a sampled process that takes itself for a forked child."""
    mine = chosen()
    app = tmp_path / "app.vmprof"
    app.touch()
    monkeypatch.setattr(os, "_exit", os._exit)      # so that it is restored
    mine.start(7, Settings(1000, 1, period=0.01), Processes(str(app), "abc"))
    pid = os.getpid()
    assert not mine.is_sampled_child()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    yield mine
    mine.stop()


def test_forked_child_has_a_profile_of_its_own(
        vmprof: Vmprof, followed: BuiltinEngine, tmp_path: Path) -> None:
    vmprof.calls.clear()
    assert followed.is_sampled_child()
    path = tmp_path / ("app.%d.vmprof" % os.getpid())
    assert followed.child_path() == str(path)
    (_, (fd, period, *_), keywords), = vmprof.calls[1:]     # "disable" is first
    settings = Settings.parse(keywords["allocations"].partition(";run")[0])
    # a child takes no CPU samples, and samples other objects than its parent
    assert (fd > 2, period, settings.seed != 1) == (True, 0.0, True)
    assert keywords["allocations"].endswith(";run=abc;parent=%d" % (os.getpid() - 1))
    assert followed.is_sampled_child() and len(vmprof.calls) == 2
    followed.stop()
    assert path.exists() and not vmprof.enabled


def test_forked_child_without_a_sample_leaves_no_profile(
        vmprof: Vmprof, followed: BuiltinEngine, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed.is_sampled_child()
    monkeypatch.setattr(Vmprof, "allocation_statistics", lambda self: {})
    followed.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["app.vmprof"]


def test_forked_child_ends_its_profile_in_os_exit(
        vmprof: Vmprof, followed: BuiltinEngine, monkeypatch: pytest.MonkeyPatch,
        ) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    assert followed.is_sampled_child()
    os._exit(3)
    assert (ended, vmprof.enabled) == ([3], False)


def test_forked_child_without_a_profile_is_counted(
        vmprof: Vmprof, followed: BuiltinEngine, tmp_path: Path) -> None:
    """The parent's profile is gone, so the child begins none.

    The GC counts the child, and continues to sample.
    """
    (tmp_path / "app.vmprof").unlink()
    assert not followed.is_sampled_child()
    assert vmprof.enabled and followed.child_path() == ""


def test_forked_child_that_can_not_be_sampled(
        vmprof: Vmprof, followed: BuiltinEngine, tmp_path: Path) -> None:
    vmprof.enabled, vmprof.error = False, VMProfError("no memory")
    assert not followed.is_sampled_child()
    assert not vmprof.enabled and followed.child_path() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["app.vmprof"]


def test_another_engine_of_the_process_continues(
        vmprof: Vmprof, followed: BuiltinEngine,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The program imported our modules again, and both copies notice the fork."""
    state = followed.state()
    assert state is not None
    followed.ending(True).forked()
    monkeypatch.setattr(builtin, "_engine", None)
    another = chosen_again = builtin.engine(vmprof)
    another.restore(state)
    assert another is chosen_again and another.is_sampled_child()
    followed.ending(True).end_child()
    assert not another.is_sampled_child()


def test_interval_and_statistics(vmprof: Vmprof) -> None:
    mine = chosen()
    mine.start(7, Settings(1000, 1))
    mine.set_interval(2000)
    assert vmprof.calls[-1] == ("interval", 2000)
    counted = mine.statistics()
    assert (counted.allocated, counted.collections, counted.samples) \
        == (1000, 2, 30)
    assert (counted.lost, counted.time_samples, counted.dropped) == (4, 5, 6)
    assert (counted.pressures, counted.surprises) == (0, 0)
