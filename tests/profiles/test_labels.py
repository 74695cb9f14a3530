"""Tests of labels, with which a program describes its current activity."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hostile_names
from firefox_profiles import MS, converted
from made_profiles import Log
from report_runs import lines, refused, report
from vmprof_convert import cli
from vmprof_convert.cli.formats import FORMATS
from vmprof_convert.writers.firefox import label_markers


def a_log(**settings: object) -> Log:
    log = Log()
    log.settings(**settings)
    log.label_set(1, endpoint="/users", tenant="a")
    log.label_set(7, endpoint="/export")
    main = log.function("main")
    log.allocation([main], size=1000, interval=1)
    log.label(1)
    log.allocation([main], size=200, interval=1)
    log.allocation([main], size=200, interval=1)
    log.flush()
    log.allocation([main], size=100, interval=1)
    log.label(7)
    log.label(1)
    log.allocation([main, log.function("f")], size=30, interval=1)
    log.flush()
    log.label(7)
    log.allocation([main], size=70, interval=1)
    log.label(0)
    log.allocation(None, size=20, interval=1)
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "app.vmprof"
    found.write_bytes(a_log().data())
    return found


def as_json(path: Path, *options: str) -> Any:
    return json.loads(report(path, *options, "--json", program="convert").stdout)


def markers(log: Log) -> list[tuple[float, float, str]]:
    profile = converted(log)
    table = profile["threads"][0]["markers"]
    return [(start, end, data["text"]) for start, end, data in zip(
        table["startTime"], table["endTime"], table["data"])
        if data["type"] == "Labels"]


def test_labels_are_markers_in_the_firefox_profiler() -> None:
    """A marker covers successive samples with the same labels, from first to last."""
    log = Log()
    log.settings()
    log.label_set(1, endpoint="/users", tenant="a")
    log.label_set(2, endpoint="<b>\x1b[1m")
    main = log.function("main")
    for time, label in ((1, 0), (2, 1), (3, 1), (4, 0), (5, 1), (6, 2)):
        log.label(label)
        log.allocation([main], size=16, time=time * MS)
    assert markers(log) == [
        (2, 3, "endpoint=/users, tenant=a"), (5, 5, "endpoint=/users, tenant=a"),
        (6, 6, "endpoint=<b>?[1m")]


def test_too_many_markers_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_markers, "MOST", 1)
    log = a_log()
    assert markers(log) == []
    told = [entry["value"] for section in converted(log)["meta"]["extra"]
            for entry in section["entries"]]
    assert any("labels of 1 threads changed more than 1 times" in str(text)
               for text in told)


def sums(path: Path, *options: str) -> dict[str, float]:
    return {row["label"]: round(row["self"]["allocated"]["bytes"]["value"])
            for row in as_json(path, *options)["rows"]}


def test_rows_of_a_label(path: Path) -> None:
    assert sums(path, "--by", "label:endpoint") == {
        "/users": 530, "/export": 70, "[without endpoint]": 1020}
    assert sums(path, "--by", "label:tenant") == {
        "a": 530, "[without tenant]": 1090}
    shown = lines(path, "--by", "label:endpoint", "-n", "1")
    assert "  labels: endpoint, tenant (--by label:KEY, --label KEY=VALUE)" in shown
    assert any(line.endswith("  endpoint") for line in shown)
    assert any(line.endswith("  [without endpoint]") for line in shown)
    assert any("... and 2 values more" in line for line in shown)


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_without_labels_says_so(
        path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    out = tmp_path / "out"
    assert cli.main(["export", str(path), "--format", form, "-o", str(out)]) == 0
    said = capsys.readouterr().err
    has_them = form in ("pprof", "otlp", "firefox")
    assert ("labels" in said) == (not has_them and FORMATS[form].write is not None)
    # only the report explains its options
    assert (b"--by label:KEY" in out.read_bytes()) == (FORMATS[form].write is None)


def test_functions_have_one_row_for_all_labels(path: Path) -> None:
    rows = as_json(path, "--by", "function")["rows"]
    assert {row["function"]["name"]: round(row["self"]["allocated"]["bytes"]["value"])
            for row in rows} == {"main": 1570, "f": 30, "[stack lost]": 20}


@pytest.mark.parametrize("pattern, bytes_", [
    ("endpoint=/users", 530), ("endpoint=/*", 600), ("*=a", 530)])
def test_filter_selects_samples_with_a_label(path: Path, pattern: str,
                                             bytes_: int) -> None:
    found = as_json(path, "--by", "function", "--label", pattern)
    assert round(found["sum"]["allocated"]["bytes"]["value"]) == bytes_
    assert found["only"]["label"] == [pattern]


@pytest.mark.parametrize("options, said", [
    (["--label", "x"], "invalid label 'x': write KEY=VALUE"),
    (["--label", "endpoint=/nowhere"], "no sample has the label 'endpoint=/nowhere'"),
    (["--label", "endpont=/users"], "; there is 'endpoint=/users'"),
    (["--by", "label:x"], "no sample has a label 'x'; there are: endpoint, tenant"),
    (["--by", "label:"], "invalid kind of row 'label:'"),
    (["--by", "label:x,line"], "invalid kind of row 'label:x,line'")])
def test_refuses_unknown_labels(path: Path, options: list[str], said: str) -> None:
    assert said in refused(path, *options)


def test_a_profile_without_labels_says_where_they_come_from(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=8)
    (tmp_path / "x").write_bytes(log.data())
    assert "the program sets them with vmprof_allocation.labels()" in refused(
        tmp_path / "x", "--by", "label:endpoint")


def test_rows_of_a_label_and_a_type(path: Path) -> None:
    log = a_log(facts="types")
    path.write_bytes(log.data())
    rows = as_json(path, "--by", "label:endpoint,type")["rows"]
    assert {(row["label"], row["type"]["name"]) for row in rows} == {
        (name, "[type not known]")
        for name in ("/users", "/export", "[without endpoint]")}


def test_two_processes_have_one_set_of_labels(tmp_path: Path) -> None:
    paths = []
    for number in 1, 2:
        log = Log()
        log.settings(pid=number, run="r", clock=0)
        # the two profiles number their labels differently
        log.label_set(3 - number, endpoint="/a")
        log.label_set(number, endpoint="/b")
        for label, size in ((3 - number, 10), (number, 100), (0, 1000)):
            log.label(label)
            log.allocation([log.function("f")], size=size * number, interval=1)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(log.data())
    assert sums(paths[0], str(paths[1]), "--by", "label:endpoint") == {
        "/a": 30, "/b": 300, "[without endpoint]": 3000}


def test_labels_of_all_processes_are_listed_once(tmp_path: Path) -> None:
    paths = []
    for number, keys in enumerate(("a", "ab", "c"), 1):
        log = Log()
        log.settings(pid=number, run="r", clock=0)
        log.label_set(1, **dict.fromkeys(keys, "x"))
        log.allocation([log.function("f")], size=100, interval=1)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(log.data())
    said = lines(paths[0], *map(str, paths[1:]))
    assert [line for line in said if "labels: " in line] == [
        "  labels: a, b, c (--by label:KEY, --label KEY=VALUE)"]


def test_labels_of_only_one_process(tmp_path: Path) -> None:
    plain = Log()
    plain.settings(pid=1, run="r", clock=0)
    plain.allocation([plain.function("f")], size=10, interval=1)
    (tmp_path / "1.vmprof").write_bytes(plain.data())
    (tmp_path / "2.vmprof").write_bytes(a_log(pid=2, run="r", clock=0).data())
    for order in ("1", "2"), ("2", "1"):
        first, second = (tmp_path / (name + ".vmprof") for name in order)
        assert sums(first, str(second), "--by", "label:tenant") == {
            "a": 530, "[without tenant]": 1100}


def test_a_difference_by_label(path: Path, tmp_path: Path,
                               capsys: pytest.CaptureFixture[str]) -> None:
    log = a_log()
    log.label(1)
    for _ in range(50):
        log.allocation([log.function("main")], size=100, interval=1)
    after = tmp_path / "after.vmprof"
    after.write_bytes(log.data())
    assert cli.main(["diff", str(path), str(after), "--by", "label:endpoint",
                     "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["label"]: (row["is"], round(row["change"]["value"]))
            for row in found["changes"]} == {
                "/users": ("grew", 5000), "/export": ("same", 0),
                "[without endpoint]": ("same", 0)}


def test_hostile_labels_are_escaped(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    for number, name in enumerate(hostile_names.HOSTILE, 1):
        log.label_set(number, **{"k": name, name.replace("=", "") or "x": "v"})
        log.label(number)
        log.allocation([log.function("f")], size=10, interval=1)
    (tmp_path / "x").write_bytes(log.data())
    for options in (["--by", "label:k"], ["--by", "label:k", "--markdown"]):
        assert all(line.isprintable() for line in lines(tmp_path / "x", *options))
