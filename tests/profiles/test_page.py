"""Tests that the HTML page is complete, and that names in it cannot inject code."""
from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import hostile_names
import made_held
from made_heap import Heap
from made_profiles import Log
from opened_page import Json, opened
from report_runs import lines
from stack_files import a_heap
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import FUNCTION, TYPE, Choice, summarize
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers import html
from vmprof_convert.writers.html import table

Page = Callable[..., Json]


def test_tables_have_the_sums_of_the_report() -> None:
    profile = a_heap()
    data = table.make(profile)
    sums: dict[tuple[str, str], list[int]] = {}
    for node, type_, *values in zip(data["node"], data["type"], data["bytes"],
                                    data["objects"], data["alive"]):
        name = data["frames"][data["frame"][node]][0]
        row = sums.setdefault((name, data["types"][type_][0]), [0, 0, 0])
        for number, value in enumerate(values):
            row[number] += value
    rows = {(row.function.name, row.subject.type.name): row.own
            for row in summarize(profile, choice=Choice((FUNCTION, TYPE))).rows
            if row.subject.type is not None and row.own.sum().samples}
    # frames that are too small to be visible count for their callers
    assert sums.keys() == rows.keys()
    total = summarize(profile).figures
    assert [sum(row[number] for row in sums.values()) for number in range(3)] == [
        pytest.approx(value, abs=0.5) for value in (
            total.bytes().value, total.objects().value, total.bytes("alive").value)]
    for key, figures in rows.items():
        assert sums[key][0] == pytest.approx(figures.bytes().value, rel=0.02,
                                             abs=len(data["node"]))


def test_parents_come_first_and_indices_are_valid() -> None:
    data = table.make(a_heap())
    assert data["parent"][0] == -1
    assert all(0 <= parent < node for node, parent in enumerate(data["parent"]) if node)
    assert all(0 <= frame < len(data["frames"]) for frame in data["frame"])
    assert all(0 <= step < data["steps"] for step in data["step"])
    assert all(0 <= type_ < len(data["types"]) for type_ in data["type"])


def test_invisible_frames_count_for_their_callers() -> None:
    log = Log()
    main, small, large = map(log.function, ("main", "small", "large"))
    log.settings()
    for _ in range(8000):
        log.allocation([main, large], size=24)
    log.allocation([main, small], size=24)
    profile = readers.read_bytes(log.data())
    data = table.make(profile)
    assert [data["frames"][frame][0] for frame in data["frame"]] == [
        "all", "main", "large"]
    assert sum(data["bytes"]) == pytest.approx(summarize(profile).bytes.value, abs=1)


def test_steps_are_coarser_if_there_are_too_many_rows(
        monkeypatch: pytest.MonkeyPatch) -> None:
    profile = a_heap()
    fine = table.make(profile)
    monkeypatch.setattr(table, "MAX_ROWS", len(fine["node"]) // 2)
    coarse = table.make(profile)
    assert coarse["steps"] < fine["steps"] == 120
    assert sum(coarse["bytes"]) == pytest.approx(sum(fine["bytes"]), abs=1)


def written(profile: Profile) -> str:
    out = io.BytesIO()
    html.write(profile, out)
    return out.getvalue().decode("utf-8")


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        key = attributes.get("id") or tag
        self.texts[key] = self.texts.get(key, "") + data


def test_only_the_script_of_the_page_can_run() -> None:
    log = hostile_names.log()
    log.command("</title><script>alert(1)</script>")
    text = written(readers.read_bytes(log.data()))
    page = Parsed(text)
    assert [tag for tag, _ in page.tags] == [
        "html", "head", "meta", "meta", "meta", "meta", "title", "style",
        "body", "noscript", "script", "script"]
    policy, = (attributes["content"] for _, attributes in page.tags
               if attributes.get("http-equiv"))
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == ("default-src 'none'; style-src 'unsafe-inline'; "
                      "script-src 'sha256-%s'" % digest)
    # a browser cannot read a name in the file as HTML
    data = page.texts["profile"]
    assert not re.search("[<>&]", data)
    assert page.texts["title"].strip() == "</title><script>alert(1)</script>"


def test_page_has_all_names() -> None:
    profile = readers.read_bytes(hostile_names.log().data())
    data = json.loads(Parsed(written(profile)).texts["profile"])
    shown = TypeNames(profile)
    assert {name for name, _ in data["types"]} == {
        shown.shown(number).name for number in range(len(profile.types))}
    assert all(text.isprintable() for frame in data["frames"] for text in frame[:2])


def test_time_samples_alone_make_no_page() -> None:
    log = Log(interpreter="cpython")
    log.raw_stack([log.function("f")], thread=5)
    with pytest.raises(ProfileError, match="no allocation samples"):
        written(readers.read_bytes(log.data()))


# ____________________________________________________________
# the opened page


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """Return a function that writes a page with vmprof-convert, and opens this page.

    The function also performs actions such as `press BUTTON` and `write TEXT`.
    """
    def open_(log: bytes, *actions: str) -> Json:
        (tmp_path / "app.vmprof").write_bytes(log)
        target = tmp_path / "app.html"
        assert cli.main(["export", str(tmp_path / "app.vmprof"), "-o",
                         str(target)]) == 0
        return opened(target, *actions)
    return open_


def a_log() -> bytes:
    heap = Heap(interval=1)
    for _ in range(10):
        heap.allocate("main f", ("list", 1024, 10))
        heap.allocate("main g", ("str", 2048, 1e12))
    heap.collect()
    heap.log.command("app.py x")
    return heap.data()


def test_frames_and_rows(page: Page) -> None:
    found = page(a_log())
    assert found["title"] == "app.py x"
    assert sorted(found["frames"]) == ["all", "f", "g", "main"]
    assert found["said"] == "30 KiB allocated"
    assert found["rows"] == [["g", "20 KiB", "20 KiB"], ["f", "10 KiB", "10 KiB"],
                             ["main", "-", "30 KiB"]]


@pytest.mark.parametrize("actions, said, rows, frames", [
    (["press Alive"], "20 KiB still alive", [["g", "20 KiB", "20 KiB"],
                                               ["main", "-", "20 KiB"]], 3),
    (["press Objects", "press Types"], "20 objects allocated",
     [["list", "10"], ["str", "10"]], 4),
    (["press By type", "press Flame graph"], "30 KiB allocated",
     [["g", "20 KiB", "20 KiB"], ["f", "10 KiB", "10 KiB"],
      ["main", "-", "30 KiB"]], 7),
    (["press … and types", "write app.py:2"],
     "30 KiB allocated · found: 10 KiB (33.3 %)", None, 6),
    (["write ("], "30 KiB allocated · found: 0 B (0.0 %)", None, 4),
])
def test_buttons_and_search_change_the_view(
        page: Page, actions: list[str], said: str, rows: list[list[str]] | None,
        frames: int) -> None:
    found = page(a_log(), *actions)
    assert found["said"] == said
    assert len(found["frames"]) == frames
    assert rows is None or found["rows"] == rows


# ________________________________________
# retainers


def test_retainers_are_those_of_the_report(page: Page, tmp_path: Path) -> None:
    """The title, the cells and the notes are the same as in the text of `retainers`."""
    found, = page(made_held.a_log().data())["held"]
    title, _, *text = lines(tmp_path / "app.vmprof", "retainers")
    assert found["texts"][:2] == ["Retainers", title]
    assert [" ".join(" ".join(row).split()) for row in found["rows"]] == [
        " ".join(row.split()) for row in text[:len(found["rows"])]]
    assert [row for row in found["rows"] if row[0]][1:3] == [
        ["68.4 KiB", "700", "68.4 ±0.002 KiB", "shop._seen (dict), also web.seen"],
        ["29.3 KiB", "300", "29.3 ±0.002 KiB", "shop.price -> variable cache (dict)"]]
    assert found["texts"][2:] == text[len(found["rows"]) + 1:]


def test_number_of_retainers_is_limited(page: Page) -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=1000)
    log.held(1, 0, objects=10, size=30_000)
    for bit in range(30):
        log.holder(1, 1 << bit, 1000, 1, "m.x%d" % bit, "list")
    found, = page(log.data())["held"]
    assert len(found["rows"]) == 1 + 25
    assert "... and 5 more" in found["texts"]


def test_page_has_the_reason_for_missing_retainers(page: Page) -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=1000)
    log.held(1, 1_000_000_000, 1001)
    found, = page(log.data())["held"]
    assert found["rows"] == [] and found["texts"][1] == (
        "the retainers at 1 s are unknown: there was not enough memory for the process "
        "that examined the heap")


@pytest.mark.parametrize("options, has_it", [
    ((), True), (("--user-code",), True), (("--function", "main"), False)])
def test_page_has_no_retainers_if_the_samples_are_filtered(
        tmp_path: Path, options: tuple[str, ...], has_it: bool) -> None:
    """The retainers keep all live objects, and cannot be filtered."""
    assert table.make(a_heap())["held"] == []
    path, target = tmp_path / "app.vmprof", tmp_path / "app.html"
    path.write_bytes(made_held.a_log().data())
    assert cli.main(["export", str(path), "-o", str(target), *options]) == 0
    assert bool(json.loads(Parsed(target.read_text("utf-8")).texts["profile"])[
        "held"]) == has_it


def test_hostile_names_of_retainers_are_escaped(page: Page) -> None:
    log = made_held.a_log()
    for bit, name in enumerate(("<script>alert(1)</script>", "<img src=x>"), 5):
        log.holder(1, 1 << bit, 20_000, 9, "m.x[%r]" % name, name)
    plain = page(made_held.a_log().data())
    found = page(log.data())
    assert found["elements"] == plain["elements"]
    (held,) = found["held"]
    assert any("<script>alert(1)</script>" in row[3] for row in held["rows"])


def test_a_frame_fills_the_width_and_its_callers_stay(page: Page) -> None:
    found = page(a_log(), "zoom: g")
    assert sorted(found["frames"]) == ["all", "g", "main"]
    assert sorted(found["callers"]) == ["all", "main"]
    back = page(a_log(), "zoom: g", "press Zoom out")
    assert (sorted(back["frames"]), back["callers"]) == (["all", "f", "g", "main"], [])


def test_bytes_found_by_the_search_count_once(page: Page) -> None:
    found = page(a_log(), "write app.py")
    assert sorted(found["found"]) == ["f", "g", "main"]
    assert found["said"].endswith("found: 30 KiB (100.0 %)")


@pytest.mark.parametrize("actions, functions", [
    (["drag: 0 80"], ["f"]),
    # from right to left, starting past the end
    (["drag: 500 120"], ["g"]),
    # the second drag moves the selection, or clears it
    (["drag: 0 80", "drag: 40 160"], ["g"]),
    (["drag: 0 80", "drag: 40 40"], ["f", "g"]),
])
def test_selection_of_a_part_of_the_time(page: Page, actions: list[str],
                                         functions: list[str]) -> None:
    heap = Heap(interval=1)
    for name in "f", "g":
        for _ in range(10):
            heap.allocate("main " + name, ("list", 1024, math.inf))
    heap.collect()
    found = page(heap.data(), *actions)
    assert sorted(found["frames"]) == ["all", *functions, "main"]
    assert (" from " in found["said"]) == (len(functions) == 1)


def test_a_stack_of_many_frames_is_drawn(page: Page) -> None:
    log = Log()
    log.settings()
    functions = [log.function("f%d" % depth) for depth in range(3000)]
    log.allocation(functions, size=24)
    assert {"f0", "f2999"} <= set(page(log.data())["frames"])


def test_hostile_names_are_drawn_as_names(page: Page) -> None:
    found = page(hostile_names.log().data(), "press … and types", "write <script>")
    plain = page(a_log(), "press … and types")
    assert set(found["elements"]) <= {*plain["elements"], "details", "summary", "ul",
                                      "li", "line"}
    assert "<script>alert(1)</script>" in found["frames"]
    assert "<img src=x onerror=alert(1)>" in found["frames"]
