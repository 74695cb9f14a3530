"""Tests of executed lines, and of functions whose executed line is unknown.

The outputs never show the line of a definition as an executed line.
"""
from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import otlp_request
import protobuf_messages
from made_profiles import Log, jit
from report_runs import as_json, lines
from vmprof_convert import cli


def profile(known: bool = True, asked: bool = True) -> bytes:
    """Return a profile of `work`, which begins at line 4.

    Args:
        known: whether three of four samples are at line 29; the others have no line.
        asked: whether the sampler was started with `--lines`.
    """
    log = Log()
    log.settings(**{"lines": 1} if asked else {})
    main, work = log.function("main", 1), log.function("work", 4)
    for number in range(40):
        log.allocation([main, (8, 31), jit(work), (8, 29)] if known and number % 4
                       else [main, jit(work)], size=24, time=number)
    return log.data()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.vmprof"
    path.write_bytes(profile())
    return path


def places(path: Path, *options: str) -> list[str]:
    """Return the last column of each row with a place in app.py."""
    return [line.split("  ")[-1].strip() for line in lines(path, *options)
            if "app.py" in line]


def remark(path: Path, *options: str) -> list[str]:
    return [line for line in lines(path, *options) if line.startswith("lines: ")]


@pytest.mark.parametrize("compiled, is_first", [(0, False), (5, False), (20, True)])
def test_report_states_that_compiled_code_moves_allocations(
        tmp_path: Path, compiled: int, is_first: bool) -> None:
    """The note needs no --notes if compiled code allocated many of the bytes."""
    log = Log()
    log.settings(lines=1)
    main = log.function("main", 1)
    for number in range(100):
        log.allocation([jit(main) if number < compiled else main, (8, 29)], size=24,
                       time=number)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    note = ("compiled lines: compiled code allocated %d %% of the bytes. It allocates "
            "an object where its value is first needed, which may be a later line or "
            "the head of the loop" % compiled)
    assert (note in lines(path, "--by", "line")) == is_first
    assert (note in lines(path, "--by", "line", "--notes")) == bool(compiled)
    assert not any("compiled lines: " in line
                   for line in lines(path, "--by", "function", "--notes"))


def test_report_by_line(path: Path) -> None:
    assert places(path, "--by", "line") == [
        "app.py:29", "app.py:4 (def)", "app.py:31", "app.py:1 (def)"]
    assert remark(path, "--by", "line") == [
        "lines: the line is unknown for 25 % of the bytes, and (def) is the first line "
        "of their function. Code that PyPy compiled before the sampling has no lines, "
        "and some other compiled code lacks them, too"]
    # rows of functions have no executed lines
    assert places(path, "--by", "function") == ["app.py:4", "app.py:1"]
    assert not remark(path, "--by", "function")


def test_report_without_known_lines(path: Path) -> None:
    """All code was compiled before the sampling, or `--lines` was not given."""
    path.write_bytes(profile(known=False))
    assert places(path, "--by", "line") == ["app.py:4 (def)", "app.py:1 (def)"]
    assert "for 100 % of the bytes" in remark(path, "--by", "line")[0]
    path.write_bytes(profile(known=False, asked=False))
    assert places(path, "--by", "line") == ["app.py:4", "app.py:1"]
    assert "this profile has no executed lines" in remark(path, "--by", "line")[0]


@pytest.fixture
def recursion(path: Path) -> Path:
    """Write a profile in which the line of each innermost function is known.

    In half of the stacks, the callers are compiled code without known lines.
    """
    log = Log()
    log.settings(lines=1)
    main, walk = log.function("main", 1), log.function("walk", 4)
    for number in range(40):
        callers = [jit(walk)] * 3 if number % 2 else [walk, (8, 27)] * 3
        log.allocation([main, (8, 31), *callers, walk, (8, 29)], size=24, time=number)
    path.write_bytes(log.data())
    return path


def test_report_states_that_lines_of_callers_are_unknown(recursion: Path) -> None:
    """Without this note, the report would look complete."""
    note = ("lines of callers: in the stacks of 50 % of the bytes, a caller's line is "
            "unknown. The caller's row (def) contains these bytes in \"total\"; the "
            "rows of its lines may lack them")
    assert places(recursion, "--by", "line") == [
        "app.py:29", "app.py:31", "app.py:4 (def)", "app.py:27"]
    assert note in lines(recursion, "--by", "line")
    assert note in lines(recursion, "tree", "--by", "line")
    assert remark(recursion, "--by", "line") == []
    assert not any("lines of callers" in line
                   for line in lines(recursion, "--by", "function"))


def test_focus_states_the_share_of_unknown_lines(path: Path, recursion: Path) -> None:
    assert "its lines, with their callees:" in lines(recursion, "callers", "walk")
    path.write_bytes(profile())
    assert ("its lines, with their callees (the line is unknown for 25 % of the bytes):"
            in lines(path, "callers", "work"))


def test_as_json(path: Path) -> None:
    found = as_json(path, "--by", "line")
    assert [(row["function"]["line"], row["line"]) for row in found["rows"]] == [
        (4, 29), (4, None), (1, 31), (1, None)]


def test_pprof_and_opentelemetry(path: Path, tmp_path: Path) -> None:
    """The line 0 is an unknown line in these formats."""
    out = tmp_path / "app.pb.gz"
    assert cli.main(["export", str(path), "-o", str(out)]) == 0
    found = protobuf_messages.read("Pprof", gzip.decompress(out.read_bytes()))
    assert sorted(location["line"][0]["line"] for location in found["location"]) == [
        0, 0, 29, 31]
    assert {function["start_line"] for function in found["function"]} == {1, 4}
    out = tmp_path / "app.otlp.pb"
    assert cli.main(["export", str(path), "-o", str(out)]) == 0
    for of_type in otlp_request.read(out.read_bytes()).types.values():
        assert {tuple(line for _, _, line in sample.stack)
                for sample in of_type.samples} == {(31, 29), (0, 0)}


@pytest.mark.parametrize("name", ["a.folded", "a.speedscope.json", "a.heapprofile",
                                  "a.html"])
def test_formats_without_lines_say_so(path: Path, tmp_path: Path, name: str,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    said = "executed lines (a function has the line of its definition)"
    assert cli.main(["export", str(path), "-o", str(tmp_path / name)]) == 0
    assert said in capsys.readouterr().err
    path.write_bytes(profile(known=False))
    assert cli.main(["export", str(path), "-o", str(tmp_path / name)]) == 0
    assert said not in capsys.readouterr().err


def test_time_samples_have_no_executed_lines(tmp_path: Path) -> None:
    log = Log()
    log.settings(lines=1, period="0.001")
    main, work = log.function("main", 1), log.function("work", 4)
    for number in range(40):
        log.allocation([main, (8, 31), work, (8, 29)], size=24, time=number)
        log.tick([main, work], time=number)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    assert places(path) == ["app.py:29", "app.py:31"]
    assert places(path, "--of", "time") == ["app.py:4", "app.py:1"]
    assert places(path, "--of", "time", "--by", "line") == [
        "app.py:4 (def)", "app.py:1 (def)"]
    assert remark(path, "--of", "time", "--by", "line") == [
        "lines: CPU samples have no executed lines; these are the first lines of the "
        "functions"]
