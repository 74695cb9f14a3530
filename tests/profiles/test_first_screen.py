"""Tests of the default report's choice of all code or user code, and of its notes."""
from __future__ import annotations

from pathlib import Path

import pytest

import calls
from made_profiles import Log
from report_runs import as_json, lines

TITLE = "user code, with the libraries that it calls"


def profile(folder: Path, stacks: dict[str, int]) -> Path:
    """Write the profile of a service whose `main` calls a server that calls back."""
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
    # all bytes are in main, which is obvious; the library's read allocates most
    ({"main run read": 600, "main run": 250, "main run view": 150},
     "all code (--user-code shows user code: 85 % in main):"),
    # most bytes have the user function `view` on their stack
    ({"main run view read": 880, "main run": 120},
     TITLE + " (--by function shows all code: 88 % in read):"),
    # no function dominates
    ({"main run view": 400, "main run save read": 310, "main run save": 290},
     TITLE + " (--by function shows all code: 40 % in view):"),
    # both views show the same
    ({"main": 1000, "main run": 1}, TITLE + ":"),
    # most bytes have no user function on their stack
    ({"run read": 800, "main view": 200},
     "all code (--user-code shows user code: 80 % in [libraries alone]):"),
    # only the view of all code shows which function of the server allocates
    ({"main run": 990, "main view": 10},
     "all code (--user-code shows user code: 99 % in main):"),
])
def test_the_more_informative_view_is_shown(
        tmp_path: Path, stacks: dict[str, int], found: str) -> None:
    assert title(profile(tmp_path, stacks)) == found


def test_options_and_json_override_the_choice_of_the_view(tmp_path: Path) -> None:
    path = profile(tmp_path, {"main run read": 600, "main run": 250,
                              "main run view": 150})
    assert title(path, "--user-code") == TITLE + ":"
    assert "function" in lines(path, "--by", "function")[2].split()
    assert as_json(path)["mine"] is True
    # the rows are those that the title announces
    assert any("  read " in line for line in lines(path))


# ________________________________________
# notes


def full(folder: Path) -> Path:
    """Write a profile with more notes than fit below the table."""
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
    """Return the lines below the table."""
    return found[max(i for i, line in enumerate(found) if not line) + 1:]


def test_at_most_five_lines_are_below_a_table(tmp_path: Path) -> None:
    path = full(tmp_path)
    found = below(lines(path))
    assert len(found) == 5
    assert found[0].startswith("estimated total: ")
    assert found[-1] == "(more about these figures: --notes)"
    # this note is shown, because missing callers have the largest effect
    assert any(line.startswith("cut: ") for line in found)
    everything = below(lines(path, "--notes"))
    assert len(everything) > 5 and everything[0] == found[0]
    assert not [line for line in everything if "--notes" in line]
    words = [line.partition(":")[0] for line in everything]
    assert len(set(words)) == len(words), "said twice"
    assert set(as_json(path)["remarks"]) >= set(everything[1:])


def test_no_hint_to_remarks_if_all_notes_are_shown(tmp_path: Path) -> None:
    path = profile(tmp_path, {"main": 1000})
    assert below(lines(path)) == below(lines(path, "--notes"))
    assert not [line for line in lines(path) if "--notes" in line]


def test_the_more_informative_view_of_time_is_shown(tmp_path: Path) -> None:
    """A former report of time always showed user code, here with 100 % in main.

    It compared the bytes of all code and of user code, and CPU samples have no bytes.
    """
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
    assert "--user-code shows user code: 100 % in main" in "\n".join(found)
