"""Tests of reports with a row for each thread or process."""
from __future__ import annotations

from pathlib import Path

import pytest

from made_heap import Heap
from made_profiles import Log
from report_runs import as_json, lines, refused


def two_threads(folder: Path) -> Path:
    log = Log()
    log.settings(interval=1, pid=7, facts="types,lifetimes")
    main, work = log.function("main"), log.function("work")
    text, number = log.type("str"), log.type("int")
    log.thread(8, "worker")
    for thread, stack, size in (
            (7, [main], 1000), (8, [work], 3000), (8, [work], 500), (9, [main], 20)):
        log.allocation(stack, size=size, interval=1, thread=thread)
    log.collection(100)
    for key, outcome, type_ in (1, 0, text), (2, 1, text), (3, 1, number), (4, 1, text):
        log.young(key, outcome, type_)
    path = folder / "threads.vmprof"
    path.write_bytes(log.data())
    return path


def rows(path: Path, key: str, *options: str) -> dict[object, tuple[int, int]]:
    """Return the allocated and the live bytes of each row, by its `key`."""
    result: dict[object, tuple[int, int]] = {}
    for row in as_json(path, *options)["rows"]:
        name = row[key] if "type" not in row else (row[key], row["type"]["name"])
        assert name not in result and row["self"] == row["total"]
        result[name] = (round(row["self"]["allocated"]["bytes"]["value"]),
                        round(row["self"]["alive"]["bytes"]["value"]))
    return result


def test_threads(tmp_path: Path) -> None:
    path = two_threads(tmp_path)
    of_each = {"worker 8": (3500, 3500), "MainThread 7": (1000, 0), "9": (20, 20)}
    assert rows(path, "thread", "--by", "thread") == of_each
    assert list(rows(path, "thread", "--by", "thread", "--sort", "alive")) == [
        "worker 8", "9", "MainThread 7"]
    assert rows(path, "thread", "--by", "thread,type") == {
        ("worker 8", "str"): (3000, 3000), ("worker 8", "int"): (500, 500),
        ("MainThread 7", "str"): (1000, 0), ("9", "str"): (20, 20)}
    # filters select the same samples as in tables with other rows
    assert rows(path, "thread", "--by", "thread", "--function", "work") == {
        "worker 8": (3500, 3500)}
    assert rows(path, "thread", "--by", "thread", "--thread", "worker") == {
        "worker 8": (3500, 3500)}
    assert rows(path, "thread", "--by", "thread", "--type", "str") == {
        "worker 8": (3000, 3000), "MainThread 7": (1000, 0), "9": (20, 20)}
    content = as_json(path, "--by", "thread")
    assert content["sum"]["allocated"] == as_json(path)["sum"]["allocated"]
    found = lines(path, "--by", "thread", "-n", "1")
    assert found[2].split() == ["allocated", "%", "survived", "objects", "died",
                                "young", "thread"]
    assert found[3].endswith("  worker 8") and found[4].strip() == (
        "... and 2 threads more")


def test_inherited_objects_have_no_known_thread(tmp_path: Path) -> None:
    log = Log()
    work = log.function("work")
    log.settings(interval=1, pid=7, part=2, first=2, facts="types,lifetimes")
    log.keys = 1
    log.allocation([work], size=30, interval=1, thread=7)
    log.earlier(1, [work], size=40, interval=1)
    path = tmp_path / "later.vmprof"
    path.write_bytes(log.data())
    assert rows(path, "thread", "--by", "thread") == {
        "MainThread 7": (30, 30), "[thread not known]": (0, 40)}


def test_processes(tmp_path: Path) -> None:
    for pid, size in (10, 500), (11, 700):
        log = Log()
        log.settings(interval=1, pid=pid, run="r", clock=10**9, facts="types,lifetimes",
                     **({} if pid == 10 else {"parent": 10}))
        log.command("serve")
        log.thread(pid, "MainThread")
        log.allocation([log.function("f")], size=size, interval=1, thread=pid)
        name = "app.vmprof" if pid == 10 else "app.11.vmprof"
        (tmp_path / name).write_bytes(log.data())
    path = tmp_path / "app.vmprof"
    assert rows(path, "process", "--by", "process") == {
        "10 serve": (500, 500), "11 serve": (700, 700)}
    assert rows(path, "process", "--by", "process", "--process", "11") == {
        "11 serve": (700, 700)}
    assert rows(path, "thread", "--by", "thread") == {
        "MainThread 10 in 10 serve": (500, 500),
        "MainThread 11 in 11 serve": (700, 700)}


def test_one_process_has_one_row(tmp_path: Path) -> None:
    heap = Heap(interval=1, pid=5)
    heap.allocate("main", ("a", 50, 0), ("b", 70, 10**6))
    heap.collect()
    path = tmp_path / "one.vmprof"
    path.write_bytes(heap.data())
    ((name, (allocated, alive)),) = rows(path, "process", "--by", "process").items()
    assert str(name).startswith("5") and (allocated, alive) == (120, 70)


@pytest.mark.parametrize("options, said", [
    (["tree"], "invalid kind of row 'thread': write function, line, file, module or "
               "label:KEY, or select one thread, process or type with --thread"),
    (["--of", "rss"], "--by thread is for tables of the allocations of one run")])
def test_refuses_options_that_do_not_fit_rows_of_threads(
        tmp_path: Path, options: list[str], said: str) -> None:
    path = two_threads(tmp_path)
    if "rss" in options:
        log = Log()
        log.settings(interval=1)
        log.figure(1, 0, 2**20)
        log.figure(1, 10**9, 2**21)
        log.allocation([log.function("f")], size=16)
        path.write_bytes(log.data())
    assert said in refused(path, *options, "--by", "thread")
    assert "invalid kind of row" in refused(path, "--by", "thread,line")
