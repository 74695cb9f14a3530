"""Who held what was alive, as a tree in files for other viewers: each byte once, and
each holder with the bytes that the report has."""
from __future__ import annotations

import collections
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest

import hostile_names
from made_held import a_log, written
from made_profiles import Log
from report_runs import as_json, refused, report
from stack_files import Json, text_of
from vmprof_convert import readers
from vmprof_convert.analysis.holder_tree import OTHERWISE, reached
from vmprof_convert.profile import held as how
from vmprof_convert.profile.held import ALONE, INTERPRETER, NO_PATH, TOGETHER

Stacks = dict[tuple[str, ...], int]


def folded(path: Path, *options: str) -> Stacks:
    """By flamegraph.pl's rules."""
    out = path.with_suffix(".folded")
    done = report(path, "--held", "-o", str(out), *options)
    assert done.returncode == 0, done.stderr
    found: Stacks = {}
    for line in out.read_text().splitlines():
        match = re.fullmatch(r"(.*) (\d+)", line)
        assert match, line
        found[tuple(match[1].split(";"))] = int(match[2])
    return found


def through(stacks: Stacks, name: str) -> int:
    """Bytes of all stacks that this is in."""
    return sum(number for stack, number in stacks.items() if name in stack)


def test_each_byte_once(tmp_path: Path) -> None:
    """What they are, and where they were allocated, below their holder; few samples
    tell nothing."""
    assert folded(written(tmp_path, a_log())) == {
        ("shop", "shop._seen (dict)", "str", "make (app.py:9)"): 45_000,
        ("shop", "shop._seen (dict)", "shop.Visit", "main (app.py:3)"): 25_000,
        ("shop", "shop.price", "shop.price -> variable cache (dict)"): 30_000,
        ("shop", "shop.small (list)"): 100,
        ("shop._seen (dict) and shop.price -> variable cache (dict), together",):
            30_000,
        (OTHERWISE,): 200_000 - 70_000 - 30_000 - 100 - 30_000}


def test_what_nothing_leads_to_is_told_apart(tmp_path: Path) -> None:
    done = report(written(tmp_path, a_log()), "--held", "--to", "collapsed")
    assert done.stderr.endswith(
        "not in there, as nothing led to it: 1000 ±2 B; it is garbage that was not "
        "collected, or held by C code\n")


def a_nest() -> Log:
    """A dict with a list in it, and four more whose paths lead through that dict."""
    log = Log()
    log.settings(gaps="fixed")
    main, type_ = log.function("main", 3), log.type("str")
    log.allocation([main], size=1000, interval=1)
    log.held(1, 0, objects=1000, size=300_000)
    for bit, size, path in enumerate_bits(
            (100_000, "shop.all"), (60_000, 'shop.all["a.b[0]"]'),
            (50_000, 'shop.all["c"].items'), (20_000, 'shop.all["a.b[0]"][3]'),
            (30_000, "shop.all.also"), (15_000, "shop.all.more"),
            (90_000, "shop.alliance")):
        log.holder(1, bit, size, 10, path, "list")
    for set_, size in ((1, 10_000), (3, 40_000), (4, 50_000)):
        for _ in range(20):
            log.held_object(1, [main], type_, size=size // 20, set_=set_, how=ALONE)
    return log


def enumerate_bits(*holders: tuple[int, str]) -> list[tuple[int, int, str]]:
    return [(1 << bit, size, path) for bit, (size, path) in enumerate(holders)]


def test_holders_within_each_other(tmp_path: Path) -> None:
    """Samples say that the second is in the first, and the third is not; of the others,
    paths do, as long as there is room: 100,000 less 60,000 and 30,000."""
    leaf = ("str", "main (app.py:3)")
    outer = ("shop", "shop.all (list)")
    inner = (*outer, 'shop.all["a.b[0]"] (list)')
    stacks = folded(written(tmp_path, a_nest()))
    assert stacks == {
        (*outer, *leaf): 10_000, (*inner, *leaf): 40_000,
        (*inner, 'shop.all["a.b[0]"][3] (list)'): 20_000,
        (*outer, "shop.all.also (list)"): 30_000,
        ("shop", "shop.all", 'shop.all["c"]', 'shop.all["c"].items (list)', *leaf):
            50_000,
        ("shop", "shop.all", "shop.all.more (list)"): 15_000,
        ("shop", "shop.alliance (list)"): 90_000,
        (OTHERWISE,): 45_000}
    assert sum(stacks.values()) == 300_000


@pytest.mark.parametrize("path, pieces", [
    ("shop._seen", ["shop"]),
    ('shop.by_key["eu"][3].items', [
        "shop", "shop.by_key", 'shop.by_key["eu"]', 'shop.by_key["eu"][3]']),
    ('shop.x["a.b[\\"c -> d"]', ["shop", "shop.x"]),
    ('shop.x[b"\\x00."][1.5]', ["shop", "shop.x", 'shop.x[b"\\x00."]']),
    ("shop.Prices.price -> variable cache", [
        "shop", "shop.Prices", "shop.Prices.price"]),
    ("in f.<locals>.g() a/b.c.py:3 -> local big", ["in f.<locals>.g() a/b.c.py:3"]),
    ("shop.tasks -> in run() b.py:7 -> local x", [
        "shop", "shop.tasks", "shop.tasks -> in run() b.py:7"])])
def test_pieces_of_a_path(tmp_path: Path, path: str, pieces: list[str]) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=900)
    log.holder(1, 1, 900, 9, path, "dict")
    profile = readers.read_bytes(log.data())
    (stack,) = reached(profile, profile.held[0]).stacks
    assert stack.holders == (*pieces, path + " (dict)")


class Forest:
    """Holders within each other, as dominators of a heap are, at random."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.log = log = Log()
        log.settings(gaps="fixed")
        main, type_ = log.function("main", 3), log.type("str")
        log.allocation([main], size=1000, interval=1)
        #: of each holder, the one that it is within, and its path
        outer: list[int] = []
        self.paths: list[str] = []
        #: of each, what no inner one holds
        self.own: list[int] = []
        for number in range(12):
            outer.append(rng.randrange(-1, number) if number else -1)
            path = "m.x%d" % number
            if outer[-1] >= 0 and rng.random() < 0.8:
                path = self.paths[outer[-1]] + ".x%d" % number
            elif outer[-1] < 0 and number and rng.random() < 0.5:
                # there is another way, too
                path = rng.choice(self.paths) + ".x%d" % number
            self.paths.append(path)
            self.own.append(16 + 8 * rng.randrange(1000))
        self.bytes = list(self.own)
        for number in reversed(range(12)):
            if outer[number] >= 0:
                self.bytes[outer[number]] += self.bytes[number]
        self.sets = [1 << number for number in range(12)]
        for number in range(12):
            if outer[number] >= 0:
                self.sets[number] |= self.sets[outer[number]]
        self.group = 8 * rng.randrange(100) + 8
        rest = 8 * rng.randrange(1000)
        self.reached = sum(self.own) + self.group + rest
        log.held(1, 0, objects=12, size=self.reached)
        for number in rng.sample(range(12), 12):
            log.holder(1, 1 << number, self.bytes[number], 1, self.paths[number],
                       "list")
        log.holder(1, 2**11 | 1, self.group, 1)
        for number in range(12):
            for _ in range(rng.choice([1, 30])):
                log.held_object(1, [main], type_, size=self.own[number],
                                set_=self.sets[number], how=ALONE)
        for set_, how_ in ((2**11 | 1, TOGETHER), (2**10 | 1, TOGETHER),
                           (0, how.OTHERWISE), (0, INTERPRETER), (0, NO_PATH)):
            log.held_object(1, [main], type_, size=8, set_=set_, how=how_)


@pytest.mark.parametrize("seed", range(20))
def test_random_holders_have_what_they_hold(tmp_path: Path, seed: int) -> None:
    """Each with all that is within it, and nothing twice."""
    forest = Forest(seed)
    path = written(tmp_path, forest.log)
    stacks = folded(path)
    assert sum(stacks.values()) == forest.reached
    for holder, size, own in zip(forest.paths, forest.bytes, forest.own):
        name = holder + " (list)"
        assert through(stacks, name) == size
        assert sum(number for stack, number in stacks.items() if [
            part for part in stack if part.endswith(" (list)")][-1:] == [name]) == own
    answer = as_json(path, "--held")["processes"][0]["answers"][0]
    assert answer["bytes"] == forest.reached
    for row in answer["holders"]:
        names = ["%s (%s)" % (one["path"], one["type"]) for one in row["holders"]]
        assert through(stacks, names[0] if len(names) == 1 else
                       " and ".join(names) + ", together") == row["bytes"]


def test_nothing_sampled_counts_nothing_twice(tmp_path: Path) -> None:
    """An interval of 1G will do for the sums: then paths alone say what is in what."""
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=100_000)
    log.holder(1, 1, 70_000, 9, "shop.all", "dict")
    log.holder(1, 2, 60_000, 8, 'shop.all["x"]', "list")
    log.holder(1, 4, 20_000, 8, "shop.rest", "list")
    assert folded(written(tmp_path, log)) == {
        ("shop", "shop.all (dict)"): 10_000,
        ("shop", "shop.all (dict)", 'shop.all["x"] (list)'): 60_000,
        ("shop", "shop.rest (list)"): 20_000, (OTHERWISE,): 10_000}


def test_speedscope(tmp_path: Path, speedscope_schema: Json) -> None:
    path = written(tmp_path, a_log())
    out = tmp_path / "x.speedscope.json"
    assert report(path, "--held", "-o", str(out)).returncode == 0
    found = json.loads(out.read_text())
    jsonschema.validate(found, speedscope_schema)
    (shown,) = found["profiles"]
    assert (shown["name"], shown["unit"], shown["endValue"]) == (
        "held bytes", "bytes", 200_000)
    frames = found["shared"]["frames"]
    assert {tuple(text_of(frames[frame]) for frame in stack): weight for stack, weight
            in zip(shown["samples"], shown["weights"])} == folded(path)


def test_group_storage(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=900)
    log.holder(1, 1, 900, 9, "shop.all", "list")
    of_list = log.type(owner="list")
    for _ in range(20):
        log.held_object(1, [log.function("f")], of_list, size=45, set_=1, how=ALONE)
    path = written(tmp_path, log)
    assert [stack[2] for stack in folded(path)] == ["list (storage)"]
    assert [stack[2] for stack in folded(path, "--group-storage")] == ["list"]


@pytest.mark.parametrize("size, known", [(10, 400), (30, 900)])
def test_what_no_sample_accounts_for(tmp_path: Path, size: int, known: int) -> None:
    """It may have been there before; and samples that account for more than there is
    are some more by chance."""
    log = Log()
    log.settings(gaps="fixed")
    log.held(1, 0, objects=50, size=3000)
    log.holder(1, 1, 900, 9, "shop.all", "list")
    f, g = log.function("f"), log.function("g")
    for how_ in ALONE, how.OTHERWISE:
        for function in f, g, g, g:
            for _ in range(10):
                log.held_object(1, [function], log.type("str"), size=size,
                                set_=how_ == ALONE, how=how_)
    stacks = folded(written(tmp_path, log))
    assert sum(stacks.values()) == 3000
    holder = ("shop", "shop.all (list)")
    assert {stack: number for stack, number in stacks.items()
            if stack[0] == "shop"} == {
        stack: number for stack, number in (
            ((*holder, "str", "f (app.py:1)"), known // 4),
            ((*holder, "str", "g (app.py:1)"), known - known // 4),
            (holder, 900 - known)) if number}
    assert stacks[OTHERWISE,] == 2100 - 40 * size


# ________________________________________
# what is refused, and several processes


@pytest.mark.parametrize("options, said", [
    (("-o", "x.json.gz"),
     "--held is for reports, and for pprof, speedscope, collapsed, and not for"),
    (("-o", "x.html"), "--held is for reports"), (("--view",), "--held is for reports"),
    (("-o", "x.heapprofile"), "--held is for reports"),
    (("-o", "x.pb.gz", "--by", "type"), "--by: this is for reports"),
    (("-o", "x.pb.gz", "--leaks"), "--leaks: this is for reports"),
    (("-o", "x.folded", "--weight", "objects"), "leave out --weight objects"),
    (("-o", "x.pb.gz", "--samples", "3"), "--samples is for samples"),
    (("-o", "x.pb.gz", "--mine"), "--held is about all that was alive"),
    (("-o", "x.pb.gz", "--type", "str"), "--held is about all that was alive")])
def test_what_does_not_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   options: Sequence[str], said: str) -> None:
    path = written(tmp_path, a_log())
    monkeypatch.chdir(tmp_path)
    assert said in refused(path, "--held", *options)
    assert [file.name for file in tmp_path.iterdir()] == ["app.vmprof"]


def test_why_there_is_nothing_to_write(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    path = written(tmp_path, log)
    assert "nothing in this profile says who holds what" in refused(
        path, "--held", "--to", "pprof", "-o", str(tmp_path / "x.pb"))
    log = Log()
    log.settings()
    log.held(1, 1_000_000_000, 1001)
    path = written(tmp_path, log)
    assert ("who held what at 1 s is not known: there was not enough memory for the "
            "process that looked" in refused(path, "--held", "--to", "collapsed"))


def test_the_last_answer_of_each_process(tmp_path: Path) -> None:
    """Below its name; of one that has none it is said."""
    first = a_log(run="abc", pid=1)
    first.held(2, 3_000_000_000, objects=10, size=1000)
    first.holder(2, 1, 900, 9, "shop.other", "list")
    first.command("serve.py")
    (tmp_path / "app.vmprof").write_bytes(first.data())
    second = a_log(run="abc", pid=2, parent=1)
    (tmp_path / "app.2.vmprof").write_bytes(second.data())
    third = Log()
    third.settings(run="abc", pid=3, parent=1)
    third.held(1, 1_000_000_000, 2011)
    (tmp_path / "app.3.vmprof").write_bytes(third.data())
    stacks = folded(tmp_path / "app.vmprof")
    by_process = collections.Counter[str]()
    for stack, number in stacks.items():
        by_process[stack[0]] += number
    assert by_process == {"process 1 serve.py": 1000, "process 2": 200_000}
    assert stacks["process 1 serve.py", "shop", "shop.other (list)"] == 900
    done = report(tmp_path / "app.vmprof", "--held", "--to", "collapsed")
    assert ("who held what in process 3 at 1 s is not known: signal 11 ended the "
            "process that looked" in done.stderr)
    assert "1000 ±2 B of process 2" in done.stderr
    assert set(folded(tmp_path / "app.vmprof", "--process", "2")) == {
        stack[1:] for stack in stacks if stack[0] == "process 2"}


@pytest.mark.parametrize("name", hostile_names.HOSTILE)
def test_names_are_data(tmp_path: Path, name: str) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=1000)
    log.holder(1, 1, 900, 9, "shop[\"%s\"]" % name.replace("\x1f", ""), name)
    stacks = folded(written(tmp_path, log))
    assert sum(stacks.values()) == 1000
    assert all(part.isprintable() for stack in stacks for part in stack)


@pytest.mark.parametrize("row", [
    (0, 1000, 10, "shop.a", "list"), (2, -1, 10, "shop.a", "list"),
    (3, 1000, 10, "shop.a", "list"), (1, 1000, 10, "shop.a", "list"), (2, 1000, 10),
    (6, 1000, 10)],
    ids=["no bit", "size", "several, named", "again", "one, no name", "unknown"])
def test_damage(tmp_path: Path, row: tuple[int, int, int, str]) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=1000)
    log.holder(1, 1, 900, 9, "shop.all", "list")
    log.holder(1, *row)
    assert "damaged profile" in refused(written(tmp_path, log), "--held")
