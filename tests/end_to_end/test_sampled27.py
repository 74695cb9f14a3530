"""benchmarks/sampled27.py, which hooks a PyPy 2.7: what it samples is right,
the program doesn't notice, and what it doesn't know it leaves alone."""
from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conftest import PYPY, ROOT
from rpython_tree import PYTHON2
from truth import bytes_by_function
from vmprof_allocation import live
from vmprof_convert import readers

SAMPLED = ROOT / "benchmarks" / "sampled27.py"
PACKAGE = Path(live.LIBRARY).parent

PROGRAM = """\
import os, sys

def small(count):
    return [str(i) for i in range(count)]

def large(count):
    return ["x" * (1000 + i % 2) for i in range(count)]

for i in range(20):
    small(20000)
    large(2000)
print(sys.argv, __name__, __file__, sys.path[0],
      sys.modules["__main__"].small is small)
sys.stderr.write("to stderr\\n")
"""

#: a program that looks at its own memory, during the run and behind it
PEEK = """\
import atexit, ctypes, sys

fields = dict(line.split("=") for line in %(layout)r.splitlines())

def maps():
    with open("/proc/self/maps") as file:
        for line in file:
            words = line.split(None, 5) + [""]
            start, end = [int(word, 16) for word in words[0].split("-")]
            yield start, end, words[1], words[5].strip()

base = min(start for start, _, _, path in maps() if path == %(library)r)

def addresses(name):
    return [base + int(word) for word in fields[name].split(",")]

def word(address):
    return ctypes.c_uint64.from_address(address).value

def mapping(address):
    return [(permissions, path) for start, end, permissions, path in maps()
            if start <= address < end][0]

def handled():
    "Whether SIGPROF, the 27th, is caught or ignored"
    with open("/proc/self/status") as file:
        return any(int(line.split()[1], 16) >> 26 & 1 for line in file
                   if line.startswith(("SigCgt", "SigIgn")))

def look():
    codes = fields["code"].split(",")
    slots = [slot for slot in addresses("slot") if slot != base]
    print([ctypes.string_at(entry, len(code) // 2).encode("hex") == code
           for entry, code in zip(addresses("entry"), codes)],
          set(mapping(entry) for entry in addresses("entry"))
              == set([("r-xp", %(library)r)]),
          any(mapping(word(slot))[1].endswith("/_live.so") for slot in slots),
          handled(),
          word(addresses("nursery_top")[0]) %% 8 == 0)

atexit.register(look)
garbage = [str(i) for i in range(100000)]
look()
"""


def python2(folder: Path, *arguments: str | Path
            ) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON2, *arguments], cwd=folder, text=True,
                          capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def library() -> str:
    return python2(ROOT, SAMPLED, PACKAGE).stdout.rstrip("\n")


@pytest.fixture(scope="module")
def layout(library: str) -> str:
    done = subprocess.run([PYPY, "-m", "vmprof_allocation.find", library],
                          capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["layout"], found["problem"]
    return str(found["layout"])


class Starter:
    def __init__(self, folder: Path, layout: str):
        self.folder = folder
        self.layout = folder / "layout"
        self.layout.write_text(layout)
        self.profile = folder / "out.vmprof"

    def script(self, source: str) -> str:
        (self.folder / "app.py").write_text(textwrap.dedent(source))
        return "app.py"

    def __call__(self, source: str, *arguments: str, interval: int = 16384,
                 limit: str = "") -> subprocess.CompletedProcess[str]:
        return python2(self.folder, SAMPLED, PACKAGE, self.layout,
                       "%d" % interval, limit, self.profile,
                       self.script(source), *arguments)


@pytest.fixture
def starter(tmp_path: Path, layout: str) -> Starter:
    return Starter(tmp_path, layout)


def test_samples_name_the_programs_functions(starter: Starter) -> None:
    done = starter(PROGRAM)
    assert done.returncode == 0, done.stderr
    profile = readers.read(starter.profile)
    assert profile.end_time is not None and profile.lost_stacks == 0
    assert profile.settings["engine"] == "hook"
    assert profile.settings["interval"] == "16384"
    found = bytes_by_function(profile)
    total, moment = sum(found.values()), profile.moments[-1]
    assert len(profile.samples) > 2500 and moment.surprises == 0
    # ten standard deviations or more
    assert abs(total / moment.allocated - 1) < 0.2
    # strings of 1000 and 1001 characters, with what is around them
    assert 40000 * 1032 * 0.8 < found["large"] < 40000 * 1100 * 1.2
    assert found["large"] + found["small"] > 0.9 * total


@pytest.mark.parametrize("limit", ["1000/s", "5000ppm"])
def test_interval_follows_a_limit(starter: Starter, limit: str) -> None:
    assert starter(PROGRAM, interval=65536, limit=limit).returncode == 0
    profile = readers.read(starter.profile)
    assert profile.settings["limit"] == limit
    assert len(set(profile.samples.interval)) > 1


ENDS = {
    "end": "",
    "sys.exit(3)": "sys.exit(3)",
    "sys.exit with a message": "sys.exit('message')",
    "exception": "1 / 0",
    "forked child": "child = os.fork()\n"
                    "if not child:\n"
                    "    small(100000); print('child'); sys.exit(4)\n"
                    "print(os.waitpid(child, 0)[1])\n"
                    "small(10000)\n",
    "other program": "import subprocess\n"
                     "print(subprocess.call(['sh', '-c', 'exit 6']))\n",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_output_and_exit_code_are_the_programs(starter: Starter,
                                               end: str) -> None:
    source = PROGRAM + end
    sampled = starter(source, "a", "-o", interval=1024)
    plain = python2(starter.folder, starter.script(source), "a", "-o")
    assert (sampled.returncode, sampled.stdout) == (
        plain.returncode, plain.stdout)
    # tracebacks begin in the starter
    assert sampled.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    profile = readers.read(starter.profile)
    assert profile.end_time is not None and len(profile.samples) > 10000


@pytest.mark.parametrize("end", ["", "1 / 0", "sys.exit(1)"])
def test_every_byte_is_put_back(starter: Starter, library: str, layout: str,
                                end: str) -> None:
    done = starter(PEEK % {"library": library, "layout": layout} + end)
    assert done.stdout.splitlines() == [
        "([False, False, False], True, True, False, False)",
        "([True, True, True], True, False, False, True)"], done.stderr


def assert_refused(starter: Starter, said: str) -> None:
    done = starter(PROGRAM)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not starter.profile.exists()


def change(starter: Starter, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, starter.layout.read_text())
    assert count == 1
    starter.layout.write_text(text)


@pytest.mark.parametrize("interpreter", [sys.executable, PYPY])
def test_other_interpreter_is_refused(interpreter: str) -> None:
    done = subprocess.run([interpreter, SAMPLED, PACKAGE], capture_output=True,
                          text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert "needs PyPy 2.7" in done.stderr and "Traceback" not in done.stderr


def test_layout_of_another_build_is_refused(starter: Starter) -> None:
    change(starter, "build_id=..", "build_id=00")
    assert_refused(starter, "another build")


@pytest.mark.parametrize("before", ["", "[0-9a-f]+,", "[0-9a-f]+,[0-9a-f]+,"])
def test_other_code_in_memory_is_refused(starter: Starter,
                                         before: str) -> None:
    change(starter, "code=(%s).." % before, r"code=\g<1>00")
    assert_refused(starter, "is not what the layout says")


def test_word_that_is_not_nursery_free_is_refused(starter: Starter,
                                                  layout: str) -> None:
    top = re.findall("nursery_top=([0-9]+)", layout)[0]
    change(starter, "nursery_free=[0-9]+", "nursery_free=" + top)
    assert_refused(starter, "takes for nursery_free")


def test_nursery_top_below_nursery_free_is_refused(starter: Starter) -> None:
    change(starter, "nursery_top=[0-9]+", "nursery_top=8")
    assert_refused(starter, "takes for nursery_free")


@pytest.mark.parametrize("pattern,new", [
    ("entry=.*\n", ""), ("type_info=.*\n", ""), ("nursery_top=.", "nursery_top=x"),
    ("build_id=.", "build_id="), ("code=.*", "code="), ("code=[0-9a-f]*,", "code="),
    ("(.*\n)*", "{}")])
def test_damaged_layout_is_refused(starter: Starter, pattern: str,
                                   new: str) -> None:
    starter.layout.write_text(
        re.sub(pattern, new, starter.layout.read_text(), count=1))
    assert_refused(starter, "can't be used")


def test_profile_that_cannot_be_written_is_refused(starter: Starter) -> None:
    starter.profile = starter.folder / "none" / "out.vmprof"
    assert_refused(starter, "can't write the profile")


def test_profile_whose_file_the_program_closed_is_reported(
        starter: Starter) -> None:
    done = starter(PROGRAM + "os.closerange(3, 100)\n")
    assert done.returncode == 1
    assert "is not complete" in done.stderr.splitlines()[-1]
