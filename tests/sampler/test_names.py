"""The names of threads, the command and functions in the profile."""
from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import PyPy
from log_lines import START, build_harness, new_log
from made_profiles import NAMES
from run_profiles import functions
from vmprof_allocation.engines import thread_names
from vmprof_convert import readers

PROGRAM = """
    import sys, threading

    class Odd(threading.Thread):
        @property
        def name(self):
            print("the program's own code ran")
            return "odd"
        @name.setter
        def name(self, name):
            self.kept = name

    def work():
        for _ in range(20000):
            [str(_)] * 10

    threads = [threading.Thread(target=work, name="w\\u00f6rker \\x1b\\0%d" % i)
               for i in range(3)] + [Odd(target=work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
"""


def test_threads_and_the_command_are_named(pypy: PyPy) -> None:
    script = str(pypy.script(PROGRAM))
    run = pypy.command(
        "-X", "utf8", "-m", "vmprof", "--allocation-sampling", "16k",
        "-o", "out.vmprof", script, "a b", "", "it's")
    assert (run.code, run.out) == (0, ""), run.err
    profile = run.profile()
    assert profile.command.endswith(" 'a b' '' 'it'\"'\"'s'")
    assert profile.command.startswith(script)
    assert set(profile.threads.values()) >= {
        "MainThread", *("w\u00f6rker \x1b?%d" % i for i in range(3))}
    assert "odd" not in profile.threads.values()
    pid = int(profile.settings["pid"])
    assert profile.threads[pid] == "MainThread"
    # the samples have the numbers of these threads
    sampled = {profile.threads.get(tid, "") for tid in profile.samples.thread}
    assert sampled >= {"w\u00f6rker \x1b?0", "MainThread"}


def test_sampler_does_not_import_threading(pypy: PyPy) -> None:
    source = """
        import sys
        for _ in range(20000):
            [str(_)] * 10
        print("threading" in sys.modules)
    """
    run = pypy.sample(source, "16k")
    assert run.out == pypy.run(source).out
    assert bool(run.profile().threads) == (run.out == "True\n")


def test_a_program_that_breaks_threading_has_no_names(
        monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (None, object(), sys):
        monkeypatch.setitem(sys.modules, "threading", broken)
        assert thread_names.of_threads() == []


def test_present_thread_follows_an_ended_thread_of_that_number() -> None:
    ended = threading.Thread(target=time.sleep, args=(0,), name="ended")
    ended.start()
    ended.join()
    assert ended.native_id is not None
    found = thread_names.of_threads()
    assert (ended.native_id, "ended") in found
    here = threading.current_thread()
    alive = [at for at, name in enumerate(found)
             if name == (here.native_id, here.name)]
    assert found.index((ended.native_id, "ended")) < alive[-1]


@pytest.mark.parametrize("line, command", [
    ("pypy3 app.py 1", "app.py 1"), ("pypy3 -u -W ignore -X utf8 app.py", "app.py"),
    ("pypy3 -m flask run", "-m flask run"), ("pypy3 -", "-"), ("pypy3", ""),
    ("pypy3 --jit off app.py --jit on", "app.py --jit on")])
def test_the_interpreter_s_options_are_not_the_command_s(
        line: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "\0".join([*line.split(" "), ""]).encode()
    monkeypatch.setattr("builtins.open", lambda *_: io.BytesIO(data))
    assert thread_names.of_command() == command


def test_names_of_any_number_and_length(tmp_path: Path) -> None:
    """Names of more than 1024 bytes are cut, but not within a character."""
    log, file = new_log(tmp_path)
    log.settings("engine=hook;interval=4096;gaps=fixed;period=")
    given = {0: "app.py 'a;b:c'", 7: "\u00e4" * 700, 8: "x" * 1024, 9: "again",
             **{thread: "thread %d" % thread for thread in range(10, 1000)}}
    for thread, text in [(9, "worker\n"), *given.items()]:
        log.lines.append("text %d %d %s %d %d" % (
            NAMES, START, text.encode().hex(), 1 if thread else 2, thread))
    log.lines += ["flush %d" % (START + 30), "close"]
    log.answers.append(0)
    log.run(build_harness())
    profile = readers.read_bytes(file.read_bytes())
    assert profile.command == given.pop(0)
    assert profile.threads == {**given, 7: "\u00e4" * 512}


def test_functions_of_an_earlier_profile_have_names(pypy: PyPy) -> None:
    """vmprof writes a function's name only once, when the program makes the function.

    Later profiles get the name from the sampler.
    """
    run = pypy.run("""
        import vmprof_allocation
        made = {}
        for i in range(3):
            with vmprof_allocation.sample("%d.vmprof" % i, "4k"):
                exec("def made_%d(n): return [[i] for i in range(n)]" % i, made)
                for j in range(i + 1):
                    kept = made["made_%d" % j](20000)
    """)
    assert (run.code, run.err) == (0, "")
    for i in range(3):
        found = functions(readers.read(pypy.folder / ("%d.vmprof" % i)))
        assert {"made_%d" % j for j in range(i + 1)} <= found
        assert [name for name in found if name.startswith("<unknown")] == []
