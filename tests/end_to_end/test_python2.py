"""Test the package in vmprof-integration/python2, which samples PyPy 2.7.

The samples are right, the program behaves as without the sampler, and an unknown PyPy
is refused.

To test another PyPy than `make .build/pypy27` installs, for example a build with the
patches, set PYPY27=path/to/environment/bin/pypy. The tests of the hook engine are then
skipped.
"""
from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from conftest import PYPY, ROOT
from rpython_tree import PYTHON2
from truth import bytes_by_function
from vmprof_allocation.launch.begin import VARIABLE
from vmprof_allocation.settings.settings import Settings
from vmprof_convert import readers

pytestmark = pytest.mark.python2

#: A PyPy 2.7 with the package in vmprof-integration/python2.
SAMPLED = Path(os.environ.get("PYPY27", ROOT / ".venv-pypy27" / "bin" / "pypy")
               ).absolute()
FLAG = ("-m", "vmprof", "--allocation-sampling")

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

#: A program that reads the memory that the sampler changes, during sampling and after.
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
          any(mapping(word(slot))[1].endswith("/_hook.so") for slot in slots),
          handled(),
          word(addresses("nursery_top")[0]) %% 8 == 0)

# the last of all: ours was the first to be registered
atexit._exithandlers.insert(0, (look, (), {}))
garbage = [str(i) for i in range(100000)]
look()
"""


def run(folder: Path, *command: str | Path, **environment: str
        ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, text=True, capture_output=True,
                          timeout=300, env={**os.environ, **environment})


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the PyPy 3 that finds the addresses in a PyPy 2.7, and return its output."""
    return run(ROOT, PYPY, "-I", "-m", "vmprof_allocation.launch.python2", *arguments)


@pytest.fixture(scope="module")
def engine() -> str:
    done = run(ROOT, SAMPLED, "-c", "from vmprof_allocation import choose\n"
               "print choose.library()")
    assert done.returncode == 0, done.stderr
    return "hook" if done.stdout.strip() else "builtin"


@pytest.fixture(scope="module")
def library(engine: str) -> str:
    if engine == "builtin":
        pytest.skip("%s samples on its own: nothing is hooked" % SAMPLED)
    done = run(ROOT, SAMPLED, "-c", "from vmprof_allocation import process\n"
               "print process.Process().path")
    return done.stdout.rstrip("\n")


@pytest.fixture(scope="module")
def layout(library: str) -> str:
    done = asked("settings", library, "16k", "", "exponential", "", "True")
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\t", 5)[4]


class Starter:
    def __init__(self, folder: Path, layout: str = ""):
        self.folder = folder
        self.layout = layout
        self.profile = folder / "out.vmprof"

    def script(self, source: str) -> str:
        (self.folder / "app.py").write_text(textwrap.dedent(source))
        return "app.py"

    def __call__(self, source: str, *arguments: str, rate: str = "16k",
                 flags: tuple[str, ...] = ()
                 ) -> subprocess.CompletedProcess[str]:
        return run(self.folder, SAMPLED, *FLAG, rate, *flags, "-o",
                   self.profile, self.script(source), *arguments)

    def told(self, source: str) -> subprocess.CompletedProcess[str]:
        """Sample a program with the addresses in self.layout, which may be invalid."""
        fields = "\t".join(("%d", "-1", "-1", Settings(16384, 1).text(),
                            self.layout.replace("%", "%%"), str(self.profile)))
        script = 'value=$(printf %s "$$"); export %s="$value"; exec %s %s' % (
            shlex.quote(fields), VARIABLE, SAMPLED, self.script(source))
        return run(self.folder, "sh", "-c", script)


@pytest.fixture
def starter(tmp_path: Path) -> Starter:
    return Starter(tmp_path)


@pytest.fixture
def hooked(tmp_path: Path, layout: str) -> Starter:
    return Starter(tmp_path, layout)


def test_samples_name_the_programs_functions(starter: Starter, engine: str) -> None:
    done = starter(PROGRAM)
    assert done.returncode == 0, done.stderr
    profile = readers.read(starter.profile)
    # At most one stack is lost: no function runs between the program's last line and
    # its exit functions.
    assert profile.end_time is not None and profile.lost_stacks <= 1
    assert profile.settings["engine"] == engine
    assert profile.settings["interval"] == "16384"
    found = bytes_by_function(profile)
    total, moment = sum(found.values()), profile.moments[-1]
    assert len(profile.samples) > 2500 and moment.surprises == 0
    # The tolerance is at least ten standard deviations.
    assert abs(total / moment.allocated - 1) < 0.2
    # The strings have 1000 and 1001 characters, and a header.
    assert 40000 * 1032 * 0.8 < found["large"] < 40000 * 1100 * 1.2
    assert found["large"] + found["small"] > 0.9 * total


@pytest.mark.parametrize("rate,limit", [("auto:1000/s", "1000/s"),
                                        ("auto:0.5%", "5000ppm")])
def test_interval_follows_a_limit(starter: Starter, rate: str,
                                  limit: str) -> None:
    assert starter(PROGRAM, rate=rate).returncode == 0
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
    sampled = starter(source, "a", "-o", rate="1k")
    plain = run(starter.folder, SAMPLED, starter.script(source), "a", "-o")
    assert (sampled.returncode, sampled.stdout, sampled.stderr) == (
        plain.returncode, plain.stdout, plain.stderr)
    profile = readers.read(starter.profile)
    assert profile.end_time is not None and len(profile.samples) > 10000


@pytest.mark.parametrize("end", ["", "1 / 0", "sys.exit(1)"])
def test_every_byte_is_put_back(hooked: Starter, library: str, layout: str,
                                end: str) -> None:
    done = hooked(PEEK % {"library": library, "layout": layout} + end)
    assert done.stdout.splitlines() == [
        "([False, False, False], True, True, False, False)",
        "([True, True, True], True, False, False, True)"], done.stderr


def assert_refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("vmprof: ")
    assert said in done.stderr


def refuses(starter: Starter, pattern: str, new: str, said: str) -> None:
    starter.layout, count = re.subn(pattern, new, starter.layout, count=1)
    assert count == 1
    assert_refused(starter.told(PROGRAM), said)
    assert not starter.profile.exists()


def test_given_layout_is_used(hooked: Starter) -> None:
    assert hooked.told(PROGRAM).returncode == 0
    assert len(readers.read(hooked.profile).samples) > 2500


def test_layout_of_another_build_is_refused(hooked: Starter) -> None:
    refuses(hooked, "build_id=..", "build_id=00", "another build")


@pytest.mark.parametrize("before", ["", "[0-9a-f]+,", "[0-9a-f]+,[0-9a-f]+,"])
def test_other_code_in_memory_is_refused(hooked: Starter,
                                         before: str) -> None:
    refuses(hooked, "code=(%s).." % before, r"code=\g<1>00",
            "differs from the build profile")


def test_word_that_is_not_nursery_free_is_refused(hooked: Starter) -> None:
    top = re.findall("nursery_top=([0-9]+)", hooked.layout)[0]
    refuses(hooked, "nursery_free=[0-9]+", "nursery_free=" + top,
            "is nursery_free in the build profile")


def test_nursery_top_below_nursery_free_is_refused(hooked: Starter) -> None:
    refuses(hooked, "nursery_top=[0-9]+", "nursery_top=8",
            "is nursery_free in the build profile")


@pytest.mark.parametrize("pattern,new", [
    ("entry=.*\n", ""), ("type_info=.*\n", ""), ("nursery_top=.", "nursery_top=x"),
    ("build_id=.", "build_id="), ("code=.*", "code="), ("code=[0-9a-f]*,", "code="),
    ("machine=x86_64", "machine=aarch64"), ("(.*\n)*", "{}")])
def test_damaged_layout_is_refused(hooked: Starter, pattern: str,
                                   new: str) -> None:
    refuses(hooked, pattern, new, "is invalid")


def test_pypy_without_a_library_is_refused(starter: Starter) -> None:
    done = run(starter.folder, SAMPLED, "-c", "from vmprof_allocation import process\n"
               "process.MAIN = 'not_exported'\n"
               "try:\n    process.Process()\n"
               "except process.Refused as e:\n    print(e)")
    assert "Translate it with --shared" in done.stdout, done.stderr


# the command line -------------------------------------------------------------

def test_profile_that_cannot_be_written_is_refused(starter: Starter) -> None:
    starter.profile = starter.folder / "none" / "out.vmprof"
    assert_refused(starter(PROGRAM), "cannot write the profile")


@pytest.mark.parametrize("rate,said", [
    ("none", "invalid sample interval 'none': write a number of bytes"),
    ("auto:x", "auto:x")])
def test_bad_rate_is_refused(starter: Starter, rate: str, said: str) -> None:
    assert_refused(starter(PROGRAM, rate=rate), said)
    assert not starter.profile.exists()


def test_program_that_is_not_there_is_refused(starter: Starter) -> None:
    assert_refused(run(starter.folder, SAMPLED, *FLAG, "1M", "nosuch.py"),
                   "cannot open the program 'nosuch.py'")


def test_report_comes_at_the_end_without_an_output(starter: Starter) -> None:
    done = run(starter.folder, SAMPLED, *FLAG, "16k", starter.script(PROGRAM),
               TMPDIR=str(starter.folder))
    assert done.returncode == 0 and done.stdout.startswith("(['app.py'], ")
    said, _, report = done.stderr.partition("\n")
    assert said == "to stderr" and "the GC itself counted" in report
    assert re.search(r" large +app\.py:6", report)
    assert [path.name for path in starter.folder.iterdir()] == ["app.py"]


def test_report_comes_after_a_signal(starter: Starter) -> None:
    source = PROGRAM + "os.kill(os.getpid(), 15)\n"
    done = run(starter.folder, SAMPLED, *FLAG, "16k", starter.script(source),
               TMPDIR=str(starter.folder))
    assert done.returncode == -15
    for _ in range(300):        # Wait for another process, which writes the report.
        if [path.name for path in starter.folder.iterdir()] == ["app.py"]:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the temporary profile is still there")


def test_modules_and_the_interpreters_flags(starter: Starter) -> None:
    starter.script("import sys\nprint(__name__, sys.argv[1:], sys.flags.optimize,"
                   " [str(i) for i in range(100000)][-1])")
    done = run(starter.folder, SAMPLED, "-O", "-mvmprof", "--allocation-sampling",
               "16k", "-o", starter.profile, "-m", "app", "-x")
    assert done.stdout == "('__main__', ['-x'], 1, '99999')\n", done.stderr
    assert len(readers.read(starter.profile).samples) > 50


def test_time_samples(starter: Starter) -> None:
    assert starter(PROGRAM, flags=("--period", "0.001")).returncode == 0
    assert any(size == 0 for size in readers.read(starter.profile).samples.size)


def test_flags_after_the_program_belong_to_the_program(starter: Starter) -> None:
    """Flags of allocation sampling after the program's name do not start the sampler.
    So vmprof itself has to run the program, and is not installed here.
    """
    done = run(starter.folder, SAMPLED, "-m", "vmprof", starter.script(PROGRAM),
               "--allocation-sampling", "1M")
    assert done.returncode == 1
    assert done.stderr.endswith(": No module named vmprof\n")


def test_variable_of_another_process_is_left_alone(starter: Starter) -> None:
    done = run(starter.folder, SAMPLED, starter.script(
        "import os\nprint(os.environ.get(%r))" % VARIABLE), **{VARIABLE: "1\t2"})
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_without_a_python_3_the_error_has_a_remedy(starter: Starter) -> None:
    command = (SAMPLED, "-c", "import os, sys; del os.environ"
               "['VMPROF_ALLOCATION_PYTHON3']; os.execv(sys.executable, "
               "[sys.executable] + %r)" % [*FLAG, "1M", "app.py"])
    starter.script(PROGRAM)
    path = starter.folder / "bin"
    path.mkdir()
    for name in "sh", "dirname", "readlink":
        (path / name).symlink_to("/usr/bin/" + name)
    assert_refused(run(starter.folder, *command, PATH=str(path)),
                   "needs a pypy3 on PATH that has vmprof-allocation")


def test_folder_that_is_called_pypy3_is_passed_over(starter: Starter) -> None:
    path = starter.folder / "bin"
    (path / "pypy3").mkdir(parents=True)
    words = (str(PYTHON2), *FLAG, "16k", "-o", "out.vmprof", starter.script(PROGRAM))
    done = run(
        starter.folder, "sh", "-c",
        "unset VMPROF_ALLOCATION_PYTHON3; exec " + " ".join(words),
        PYTHONUSERBASE=str(SAMPLED.parents[1]),
        PATH="%s:%s:%s" % (path, Path(PYPY).parent, os.environ["PATH"]))
    assert done.returncode == 0, done.stderr
    assert starter.profile.exists()


def test_flag_that_needs_another_is_refused(starter: Starter) -> None:
    assert_refused(run(starter.folder, SAMPLED, "-m", "vmprof", "--no-follow",
                       starter.script(PROGRAM)), "need --allocation-sampling")


def test_profile_whose_file_the_program_closed_is_reported(
        starter: Starter) -> None:
    done = starter(PROGRAM + "os.closerange(3, 2000)\n")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] \
        == "vmprof: the profile is not complete: the program closed its file"


# from code -------------------------------------------------------------------

API = """\
import sys
import vmprof_allocation

def work():
    return [str(i) for i in range(100000)]

%s
"""


def test_stop_leaves_the_programs_file_alone(starter: Starter) -> None:
    done = run(starter.folder, SAMPLED, starter.script(API % """
import os
session = vmprof_allocation.start("a.vmprof", "16k")
number = session._run.fd
os.close(number)
mine = os.open("mine", os.O_RDWR | os.O_CREAT)
os.dup2(mine, number)
try:
    vmprof_allocation.stop()
except vmprof_allocation.AllocationSamplingError:
    pass
os.write(number, "still open")
"""))
    assert (done.returncode, done.stderr) == (0, "")
    assert (starter.folder / "mine").read_text() == "still open"


def test_profiles_from_code(starter: Starter) -> None:
    done = run(starter.folder, SAMPLED, starter.script(API % """
with vmprof_allocation.sample("a.vmprof", "16k", seed=1):
    work()
    vmprof_allocation.mark("middle")
vmprof_allocation.start("b.vmprof", 16384, period=0.001)
work()
vmprof_allocation.stop()
"""))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    first, second = (readers.read(starter.folder / name)
                     for name in ("a.vmprof", "b.vmprof"))
    assert first.settings["seed"] == "1" and len(first.samples) > 50
    assert [mark.name for mark in first.marks] == ["middle"]
    assert second.end_time is not None
    assert sum(bytes_by_function(second).values()) > 1e6


@pytest.mark.parametrize("code,said", [
    ('vmprof_allocation.stop()', "is not on"),
    ('vmprof_allocation.start("x", "bad")', "invalid sample interval 'bad'"),
    ('vmprof_allocation.start("none/x")', "cannot write the profile"),
    ('vmprof_allocation.mark(5)', "invalid mark 5"),
    ('vmprof_allocation.start(None)', "invalid output None"),
    ('vmprof_allocation.start("x"); vmprof_allocation.start("y")', "already"),
])
def test_errors_from_code(starter: Starter, code: str, said: str) -> None:
    done = run(starter.folder, SAMPLED, starter.script(
        API % ("try:\n    %s\nexcept vmprof_allocation.AllocationSamplingError "
               "as e:\n    print(e)" % code)))
    assert said in done.stdout, done.stderr
    assert done.returncode == 0


# environments ----------------------------------------------------------------

def test_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    (tmp_path / "a.whl").write_text("")
    done = run(tmp_path, sys.executable, ROOT / "vmprof-integration" / "python2"
               / "make_environment.py", PYTHON2, "a.whl", PYPY, tmp_path)
    assert done.returncode == 2 and "is not such an environment" in done.stderr
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize("name", ["app-0.1.0-py3-none-any.whl", "app.zip"])
def test_file_that_is_no_wheel_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    done = run(tmp_path, sys.executable, ROOT / "vmprof-integration" / "python2"
               / "make_wheel.py", name)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]
