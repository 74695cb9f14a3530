"""What a report says if nothing is asked: which of the views, and few remarks."""
from __future__ import annotations

from pathlib import Path

import pytest

import calls
from made_profiles import Log
from report_runs import as_json, lines

TITLE = "user code, with the libraries that it calls"


def profile(folder: Path, stacks: dict[str, int]) -> Path:
    """Of a service whose `main` calls a server that calls back."""
    log = Log()
    log.settings(interval=1)
    functions = {
        "main": log.function("main", 10, calls.APP),
        "view": log.function("view", 20, calls.APP),
        "save": log.function("save", 30, calls.APP),
        "run": log.function("run", 5, calls.PACKAGES + "server/loop.py"),
        "read": log.function("read", 9, calls.PACKAGES + "server/stream.py")}
    for stack, size in stacks.items():
        log.allocation([functions[word] for word in stack.split()], size=size,
                       interval=1)
    path = folder / "service.vmprof"
    path.write_bytes(log.data())
    return path


def title(path: Path, *options: str) -> str:
    return lines(path, *options)[2]


@pytest.mark.parametrize("stacks, found", [
    # everything goes through main, which says nothing; the library's read is the place
    ({"main run read": 600, "main run": 250, "main run view": 150},
     "all code (--mine shows user code: 85 % in main):"),
    # a view of the program's that most goes through is where to look
    ({"main run view read": 880, "main run": 120},
     TITLE + " (--by function shows all code: 88 % in read):"),
    # none is above the others
    ({"main run view": 400, "main run save read": 310, "main run save": 290},
     TITLE + " (--by function shows all code: 40 % in view):"),
    # both views say the same
    ({"main": 1000, "main run": 1}, TITLE + ":"),
    # what is of no function of the program's
    ({"run read": 800, "main view": 200},
     "all code (--mine shows user code: 80 % in [libraries alone]):"),
    # which of the server's functions, all code tells
    ({"main run": 990, "main view": 10},
     "all code (--mine shows user code: 99 % in main):"),
])
def test_the_view_that_says_most(
        tmp_path: Path, stacks: dict[str, int], found: str) -> None:
    assert title(profile(tmp_path, stacks)) == found


def test_programs_and_those_who_ask_get_what_they_asked_for(tmp_path: Path) -> None:
    path = profile(tmp_path, {"main run read": 600, "main run": 250,
                              "main run view": 150})
    assert title(path, "--mine") == TITLE + ":"
    assert "function" in lines(path, "--by", "function")[2].split()
    assert as_json(path)["mine"] is True
    # what is in the table is what its title says
    assert any("  read " in line for line in lines(path))


# ________________________________________
# remarks


def full(folder: Path) -> Path:
    """A profile with more to remark than fits."""
    log = Log()
    log.settings(interval=1, facts="types lifetimes")
    deep = log.function("deep", 1, calls.APP)
    for number in range(3):
        log.allocation([deep] * 509, size=300, interval=1, time=number)
    log.allocation(None, size=300, interval=1)
    for kind in 1, 2, 3:
        log.figure(kind, 50, 2**30)
    log.collection(100)
    log.young(1, 1)
    log.young(2, 3)
    log.collection(200)
    log.tick([deep], time=300)
    path = folder / "full.vmprof"
    path.write_bytes(log.data())
    return path


def below(found: list[str]) -> list[str]:
    """The lines below the table."""
    return found[max(i for i, line in enumerate(found) if not line) + 1:]


def test_five_lines_at_most_stand_below_a_table(tmp_path: Path) -> None:
    path = full(tmp_path)
    found = below(lines(path))
    assert len(found) == 5
    assert found[0].startswith("estimated total: ")
    assert found[-1] == "(more about these figures: --remarks)"
    # what changes most: where callers are missing
    assert any(line.startswith("cut: ") for line in found)
    everything = below(lines(path, "--remarks"))
    assert len(everything) > 5 and everything[0] == found[0]
    assert not [line for line in everything if "--remarks" in line]
    words = [line.partition(":")[0] for line in everything]
    assert len(set(words)) == len(words), "said twice"
    assert set(as_json(path)["remarks"]) >= set(everything[1:])


def test_nothing_is_left_to_be_asked_where_all_is_said(tmp_path: Path) -> None:
    path = profile(tmp_path, {"main": 1000})
    assert below(lines(path)) == below(lines(path, "--remarks"))
    assert not [line for line in lines(path) if "--remarks" in line]


def test_the_view_that_says_most_of_time(tmp_path: Path) -> None:
    """Time samples allocate nothing, and were not compared: main had 100 %."""
    log = Log()
    main = log.function("main", 10, calls.APP)
    run = log.function("run", 5, calls.PACKAGES + "server/loop.py")
    read = log.function("read", 9, calls.PACKAGES + "server/stream.py")
    for function in [run] * 2 + [read] * 7:
        log.raw_stack(log.words([main, function]), 1)
    path = tmp_path / "service.vmprof"
    path.write_bytes(log.data())
    found = lines(path)
    assert any(" read " in line for line in found), found
    assert "--mine shows user code: 100 % in main" in "\n".join(found)
