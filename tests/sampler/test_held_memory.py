"""engines/hook/held.py: when nobody looks who holds what, and what is said of that."""
from __future__ import annotations

import errno
import os

import pytest

from vmprof_allocation.engines.hook import held
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.memory import cgroup

MIB = 2**20
#: of a heap of 1 GiB, what the process that looks takes at most
HEAP, NEED = 2**30, 646


def files(monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """By their names, with - for /; what is not there is empty."""
    monkeypatch.setattr(cgroup, "read", lambda path: texts.get(
        path.strip("/").replace("/", "_").replace(".", "_"), ""))


@pytest.mark.parametrize("free, is_enough", [(NEED - 1, False), (NEED + 1, True)])
def test_memory_of_the_system(monkeypatch: pytest.MonkeyPatch, free: int,
                              is_enough: bool) -> None:
    files(monkeypatch, proc_meminfo="MemTotal: 1 kB\nMemAvailable: %d kB\n"
          % (free * 1024))
    if is_enough:
        held.refuse_if_short(HEAP)
        return
    with pytest.raises(AllocationSamplingError,
                       match="takes up to %d MiB, and the system has %d MiB left"
                       % (NEED, free)):
        held.refuse_if_short(HEAP)


@pytest.mark.parametrize("texts", [
    {"proc_self_cgroup": "0::/a/b\n",
     "sys_fs_cgroup_a_b_memory_max": "max\n",
     "sys_fs_cgroup_a_b_memory_current": "1\n",
     "sys_fs_cgroup_a_memory_max": "%d\n" % (500 * MIB),
     "sys_fs_cgroup_a_memory_current": "%d\n" % (100 * MIB)},
    {"proc_self_cgroup": "5:cpu,memory:/a\n",
     "sys_fs_cgroup_memory_a_memory_limit_in_bytes": "%d\n" % (500 * MIB),
     "sys_fs_cgroup_memory_a_memory_usage_in_bytes": "%d\n" % (100 * MIB)}],
    ids=["of the one around", "version 1"])
def test_the_limit_of_a_cgroup(monkeypatch: pytest.MonkeyPatch,
                               texts: dict[str, str]) -> None:
    files(monkeypatch, proc_meminfo="MemAvailable: 99999999 kB\n", **texts)
    held.refuse_if_short(100 * MIB)
    with pytest.raises(AllocationSamplingError, match="its cgroup has 400 MiB left"):
        held.refuse_if_short(HEAP)


def test_files_in_memory_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    files(monkeypatch, proc_meminfo="MemAvailable: 99999999 kB\n",
          proc_self_cgroup="0::/a\n", sys_fs_cgroup_a_memory_max="%d\n" % HEAP,
          sys_fs_cgroup_a_memory_current="%d\n" % HEAP,
          sys_fs_cgroup_a_memory_stat="anon 5\nactive_file %d\ninactive_file %d\n" % (
              300 * MIB, 100 * MIB))
    held.refuse_if_short(100 * MIB)
    with pytest.raises(AllocationSamplingError, match="its cgroup has 400 MiB left"):
        held.refuse_if_short(HEAP)


@pytest.mark.parametrize("own, of_parent, is_asked", [
    ("Seccomp_filters:\t1\n", "Seccomp_filters:\t0\n", False),
    # all of a container, or a service, has them
    ("Seccomp_filters:\t1\n", "Seccomp_filters:\t1\n", True),
    ("Seccomp_filters:\t1\n", "", True), ("", "", True)])
def test_a_program_that_filters_its_system_calls(
        monkeypatch: pytest.MonkeyPatch, own: str, of_parent: str,
        is_asked: bool) -> None:
    """Its filter may end it when another process is made."""
    files(monkeypatch, **{"proc_%d_status" % os.getpid(): own,
                          "proc_%d_status" % os.getppid(): of_parent})
    if is_asked:
        held.refuse_if_filtered()
        return
    with pytest.raises(AllocationSamplingError, match="seccomp"):
        held.refuse_if_filtered()


def test_where_nothing_is_known_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    files(monkeypatch)
    held.refuse_if_short(HEAP)


class Answered:
    """The native half."""

    def __init__(self, outcome: int) -> None:
        self._outcome = outcome

    def hook_held(self) -> int:
        return self._outcome


@pytest.mark.parametrize("outcome, said", [
    (errno.EPERM, "no process can be made that looks: " + os.strerror(errno.EPERM)),
    (-1, "did not come by"), (1001, "not enough memory"), (1003, "roots"),
    (1005, "did not come to an end"), (2011, "ended by SIGSEGV"),
    (-2, "ended while it was looked at")])
def test_why_there_is_no_answer(outcome: int, said: str) -> None:
    with pytest.raises(AllocationSamplingError, match=said):
        held.take(Answered(outcome))


def test_an_answer() -> None:
    held.take(Answered(0))
