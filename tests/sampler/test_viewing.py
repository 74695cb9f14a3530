"""The option --view, which opens the converted profile in the Firefox Profiler."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import firefox_rules
from conftest import PYPY, PyPy

#: Program that `webbrowser` starts in its own session.  It fetches the profile, and
#: then sends the signal of Ctrl-C to the command's process group.
BROWSER = """\
import os, re, signal, sys, urllib.parse, urllib.request
place = sys.argv[1].partition("/from-url/")[2]
address = urllib.parse.unquote(re.split("[/?]", place)[0])
request = urllib.request.Request(address, headers={
    "Origin": "https://profiler.firefox.com"})
data = urllib.request.urlopen(request).read()
with open(sys.argv[2], "wb") as file:
    file.write(data)
os.killpg(os.getpgid(os.getppid()), signal.SIGINT)
"""


class Done:
    def __init__(self, code: int, out: str, err: str, shown: Path) -> None:
        self.code = code
        self.out = out
        self.err = err
        self.is_shown = shown.exists()
        self.profile = json.loads(shown.read_bytes()) if shown.exists() else {}


def view(pypy: PyPy, source: str, *flags: str, kill: int = 0) -> Done:
    """Run a program with --view.

    Args:
        pypy: the interpreter, and its folder.
        source: the program.
        flags: further options.
        kill: signal for the command when the program prints "ready"; 0 for none.
    """
    script = pypy.script(source)
    browser = pypy.folder / "browser.py"
    browser.write_text(BROWSER)
    shown = pypy.folder / "shown.json"
    temporary = pypy.folder / "tmp"
    temporary.mkdir()
    command = [str(PYPY), "-m", "vmprof", "--allocation-sampling", "4k",
               "--view", *flags, str(script)]
    with subprocess.Popen(
            command, cwd=pypy.folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, env={
                **pypy.environment, "TMPDIR": str(temporary), "BROWSER":
                "%s %s %%s %s &" % (sys.executable, browser, shown)}) as process:
        if kill:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            os.kill(process.pid, kill)
        out, err = process.communicate(timeout=300)
    # no temporary file remains
    assert list(temporary.iterdir()) == []
    return Done(process.returncode, out, err, shown)


def test_program_runs_and_its_profile_opens(pypy: PyPy) -> None:
    done = view(pypy, """
        import sys
        def make():
            return [str(i) for i in range(20000)]
        print("the program", len(make()))
        sys.exit(7)
    """)
    assert done.code == 7, done.err
    assert done.out.startswith("the program 20000\n")
    assert "https://profiler.firefox.com/from-url/" in done.out
    assert firefox_rules.violations(done.profile) == []
    assert "make" in done.profile["shared"]["stringArray"]


def test_profile_with_a_name_is_kept(pypy: PyPy) -> None:
    done = view(pypy, "x = [str(i) for i in range(20000)]", "-o", "kept.vmprof")
    assert done.code == 0 and done.is_shown
    assert (pypy.folder / "kept.vmprof").stat().st_size


def test_signal_to_the_command_ends_the_program(pypy: PyPy) -> None:
    """The browser shows the profile up to the signal."""
    done = view(pypy, """
        import time
        kept = [str(i) for i in range(20000)]
        time.sleep(3)
        print("ready", flush=True)
        time.sleep(300)
    """, kill=signal.SIGTERM)
    assert done.code == -signal.SIGTERM
    assert done.is_shown


@pytest.mark.parametrize("arguments,why", [
    (("--view", "app.py"), "--view and --quiet need --allocation-sampling"),
    (("--allocation-sampling", "4k", "--view", "-o", "pipe", "app.py"),
     "--view cannot show a profile that is written into the pipe 'pipe'")])
def test_profiles_that_cannot_be_viewed(
        pypy: PyPy, arguments: tuple[str, ...], why: str) -> None:
    pypy.script("pass")
    os.mkfifo(pypy.folder / "pipe")
    reader = os.open(pypy.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    run = pypy.command("-m", "vmprof", *arguments)
    os.close(reader)
    assert (run.code, run.out) == (2, "")
    assert why in run.err and run.err.count("\n") == 1
