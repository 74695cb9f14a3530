"""The conditions under which no heap snapshot is taken, and the reported reasons.

The harness gets a folder instead of /, with the kernel's files that the test needs."""
from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from native_build import MEMORY, build
from vmprof_allocation.engines.hook import held
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.memory import cgroup

MIB = 2**20
#: size of a heap in bytes, and the maximum size of its snapshot in MiB
HEAP, NEED = 2**30, 646


def refusal(root: Path, heap: int, files: dict[str, str],
            address_space: int = 0) -> str:
    """Return whether a snapshot is allowed, as the harness prints it.

    Args:
        root: an empty folder.
        heap: size of the heap in bytes.
        files: contents by path.
        address_space: limit in bytes; 0 for none.
    """
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # the address sanitizer reserves terabytes of addresses
    harness = build("limits_harness", "hook/snapshots/snapshot_limits.c",
                    sanitizer="undefined" if address_space else MEMORY)
    return subprocess.run([harness, root, str(heap), str(address_space)], check=True,
                          text=True, stdout=subprocess.PIPE).stdout.strip()


@pytest.mark.parametrize("free, answer", [(NEED - 1, "memory"), (NEED + 1, "allowed")])
def test_memory_of_the_system(tmp_path: Path, free: int, answer: str) -> None:
    found = refusal(tmp_path, HEAP, {
        "proc/meminfo": "MemTotal: 1 kB\nMemAvailable: %d kB\n" % (free * 1024)})
    assert found == "%s %d %d" % (answer, NEED, free)


VERSION_2 = {"proc/self/cgroup": "0::/a/b\n",
             "sys/fs/cgroup/a/b/memory.max": "max\n",
             "sys/fs/cgroup/a/b/memory.current": "1\n",
             "sys/fs/cgroup/a/memory.max": "%d\n" % (500 * MIB),
             "sys/fs/cgroup/a/memory.current": "%d\n" % (100 * MIB)}
VERSION_1 = {"proc/self/cgroup": "3:memory2:/b\n5:cpu,memory:/a\n",
             "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "%d\n" % (500 * MIB),
             "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "%d\n" % (100 * MIB)}
ROOT_GROUP = {"proc/self/cgroup": "0::/\n",
              "sys/fs/cgroup/memory.max": "%d\n" % (500 * MIB),
              "sys/fs/cgroup/memory.current": "%d\n" % (100 * MIB)}


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1, ROOT_GROUP],
                         ids=["a group around it", "version 1", "root group"])
def test_limit_of_a_cgroup(tmp_path: Path, files: dict[str, str]) -> None:
    files = {**files, "proc/meminfo": "MemAvailable: 99999999 kB\n"}
    assert refusal(tmp_path, 100 * MIB, files) == "allowed 92 400"
    assert refusal(tmp_path, HEAP, files) == "memory %d 400" % NEED


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1, ROOT_GROUP],
                         ids=["a group around it", "version 1", "root group"])
def test_memory_report_has_the_same_limit(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    name = next(name for name, text in files.items() if text == "%d\n" % (100 * MIB))
    files = {**files, "proc/meminfo": "MemAvailable: 99999999 kB\n",
             os.path.dirname(name) + "/memory.stat":
             "inactive_anon 4\ninactive_file %d\nactive_file %d\n" % (
                 2 * MIB, 3 * MIB)}
    _, _, left = refusal(tmp_path, HEAP, files).split()

    def read(path: str) -> str:
        file = tmp_path / path.lstrip("/")
        return file.read_text() if file.exists() else ""

    monkeypatch.setattr(cgroup, "read", read)
    limit = cgroup.tightest()
    assert limit is not None
    assert limit.left() == int(left) * MIB == 405 * MIB


def test_version_1_has_groups_without_limit(tmp_path: Path) -> None:
    files = {**VERSION_1,
             "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "%d\n" % (2**63 - 4096)}
    assert refusal(tmp_path, HEAP, files).startswith("allowed")


def test_kernel_returns_memory_of_files(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a\n",
        "sys/fs/cgroup/a/memory.max": "%d\n" % HEAP,
        "sys/fs/cgroup/a/memory.current": "%d\n" % HEAP,
        "sys/fs/cgroup/a/memory.stat": (
            "anon 5\nactive_file %d\ninactive_file %d\n" % (300 * MIB, 100 * MIB))}
    assert refusal(tmp_path, HEAP, files) == "memory %d 400" % NEED


@pytest.mark.parametrize("own, of_parent, answer", [
    ("Seccomp_filters:\t1\n", "Seccomp_filters:\t0\n", "filtered"),
    # a container or a service manager has set the filters
    ("Seccomp_filters:\t1\n", "Seccomp_filters:\t1\n", "allowed"),
    ("Seccomp_filters:\t1\n", "", "allowed"), ("", "", "allowed")])
def test_filters_of_system_calls(tmp_path: Path, own: str, of_parent: str,
                                 answer: str) -> None:
    # the harness's parent is this process
    found = refusal(tmp_path, MIB, {
        "proc/self/status": "Name:\tx\n" + own,
        "proc/%d/status" % os.getpid(): "Name:\tx\n" + of_parent})
    assert found.split()[0] == answer


@pytest.mark.parametrize("left, answer", [(31, "address space"), (33, "allowed")])
def test_limit_of_the_address_space(tmp_path: Path, left: int, answer: str) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    pages = 2**30 // page
    found = refusal(tmp_path, MIB, {"proc/self/statm": "%d 5 5 5 0 5 0\n" % pages},
                    pages * page + left * MIB)
    assert found.startswith(answer)


def test_snapshot_is_allowed_without_known_limits(tmp_path: Path) -> None:
    assert refusal(tmp_path, HEAP, {}).startswith("allowed %d " % NEED)


class Snapshot:
    """A stand-in for a snapshot by the native code, with one outcome."""

    def __init__(self, outcome: int) -> None:
        self._outcome = outcome

    def finish(self) -> int:
        return self._outcome


@pytest.mark.parametrize("outcome, message", [
    (errno.EPERM, "fork.. failed: " + os.strerror(errno.EPERM)),
    (-1, "did not run"), (1001, "not enough memory"), (1003, "roots"),
    (1005, "did not end within"), (2011, "SIGSEGV"),
    (-2, "ended during the snapshot")])
def test_reason_of_a_failure(outcome: int, message: str) -> None:
    with pytest.raises(AllocationSamplingError, match=message):
        held.take(cast(Any, Snapshot(outcome)))


def test_success_raises_nothing() -> None:
    held.take(cast(Any, Snapshot(0)))
