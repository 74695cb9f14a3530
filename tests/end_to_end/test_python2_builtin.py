"""Test how the package for PyPy 2.7 calls the builtin engine, which a module replaces.

The package is in vmprof-integration/python2. With PYPY27=path/to/a/patched/pypy,
test_python2.py tests the samples of a real builtin engine.
"""
from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from conftest import PYPY, ROOT
from rpython_tree import PYTHON2

pytestmark = pytest.mark.python2

INSTALLED = ROOT / ".venv-pypy27" / "lib" / "pypy2.7" / "site-packages"

#: A replacement for `_vmprof` that writes the arguments of each call into the profile.
STAND_IN = '''\
import os, sys, types

class VMProfError(Exception):
    pass

def enable(fd, *arguments, **keywords):
    if "REFUSES" in os.environ:
        raise VMProfError(os.environ["REFUSES"])
    module.fd = fd
    write("enable", arguments, keywords)

def disable():
    fd, module.fd = module.fd, None
    if "INCOMPLETE" in os.environ:
        raise VMProfError(os.environ["INCOMPLETE"])
    os.write(fd, "disable\\n")

def write(*what):
    if module.fd is not None:
        os.write(module.fd, "%s\\n" % " ".join(map(str, what)))

def mark(name):
    write("mark", name)

module = types.ModuleType("_vmprof")
module.fd = None
module.is_enabled = lambda: module.fd is not None
module.alive_allocations = list
for function in enable, disable, mark, VMProfError:
    setattr(module, function.__name__, function)
sys.modules["_vmprof"] = module
'''

PROGRAM = """\
import os
with open("/proc/self/maps") as file:
    print("_hook" in file.read())
"""


class Starter:
    def __init__(self, folder: Path):
        self.folder = folder
        packages = folder / "base" / "lib" / "pypy2.7" / "site-packages"
        packages.mkdir(parents=True)
        for name in "vmprof_allocation", "vmprof_allocation.pth":
            (packages / name).symlink_to(INSTALLED / name)
        # The name sorts before the sampler's .pth file, so that the replacement is
        # loaded before the sampler.
        (packages / "a.pth").write_text("import stand_in\n")
        (packages / "stand_in.py").write_text(STAND_IN)

    def run(self, *arguments: str, source: str = PROGRAM, **environment: str
            ) -> subprocess.CompletedProcess[str]:
        (self.folder / "app.py").write_text(textwrap.dedent(source))
        return subprocess.run(
            [PYTHON2, *arguments], cwd=self.folder, text=True, capture_output=True,
            timeout=300, env={
                **os.environ, "PYTHONUSERBASE": str(self.folder / "base"),
                "VMPROF_ALLOCATION_PYTHON3": PYPY, **environment})

    def sample(self, *flags: str, source: str = PROGRAM, **environment: str
               ) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "vmprof", "--allocation-sampling", "16k", *flags, "-o",
                        "out.vmprof", "app.py", source=source, **environment)

    def written(self) -> list[str]:
        return (self.folder / "out.vmprof").read_text().splitlines()


@pytest.fixture
def starter(tmp_path: Path) -> Starter:
    return Starter(tmp_path)


def asked(text: str, period: float = 0.0, memory: int = 0) -> str:
    return "enable (%r, %d, 0, 0, 0) {'allocations': '%s'}" % (period, memory, text)


@pytest.mark.parametrize("flags, said", [
    (("--allocation-seed", "7"),
     asked("interval=16384;gaps=exponential;seed=7;limit=;lifetimes=1")),
    (("--allocation-seed", "18446744073709551615", "--no-lifetimes", "--period", "0.25",
      "--allocation-distribution", "fixed", "--mem"),
     asked("interval=16384;gaps=fixed;seed=18446744073709551615;limit=;lifetimes=0",
           0.25, 1)),
])
def test_the_users_settings_are_passed_on(starter: Starter, flags: tuple[str, ...],
                                          said: str) -> None:
    done = starter.sample(*flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    assert starter.written() == [said, "disable"]


def test_builtin_engine_needs_no_build_profile(starter: Starter) -> None:
    done = starter.run("app.py", source="""\
        from vmprof_allocation import choose, starter
        print(repr(choose.library()))
        print(repr(starter.settings("1k", 1, "fixed", None, True)["knowledge"]))
        """)
    assert (done.stdout, done.stderr) == ("''\n''\n", "")


def test_limit_is_passed_on(starter: Starter) -> None:
    done = starter.sample("--allocation-sampling", "auto:0.5%")
    assert done.returncode == 0, done.stderr
    assert ";limit=5000ppm;" in starter.written()[0]


def test_a_refusal_ends_the_process(starter: Starter) -> None:
    done = starter.sample(REFUSES="no SIGPROF")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "vmprof: cannot start the sampling: vmprof reports: no SIGPROF\n")


@pytest.mark.parametrize("why, said", [
    ("Bad file descriptor", "the program closed its file"),
    ("No space left on device", "No space left on device")])
def test_profile_that_is_not_complete_is_reported(
        starter: Starter, why: str, said: str) -> None:
    done = starter.sample(INCOMPLETE=why)
    assert done.returncode == 0
    assert done.stderr == "vmprof: the profile is not complete: %s\n" % said


@pytest.mark.parametrize("source", [
    "import _vmprof\n_vmprof.disable()\n",
    "import os, sys\nif not os.fork():\n    sys.exit()\nos.wait()\n"])
def test_profile_ends_once(starter: Starter, source: str) -> None:
    """The profile ends once even if the program itself disables `_vmprof`, or if a
    forked child ends before the program.
    """
    done = starter.sample(source=source)
    assert (done.returncode, done.stderr) == (0, "")
    assert starter.written()[1:] == ["disable"]


def test_from_code(starter: Starter) -> None:
    done = starter.run("app.py", source="""\
        import _vmprof
        import vmprof_allocation
        with vmprof_allocation.sample("out.vmprof", "1k", seed=3, period=0.5):
            vmprof_allocation.mark(u"middl\\xe9")
        _vmprof.fd = 1
        try:
            vmprof_allocation.start("another.vmprof")
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("vmprof is already enabled in this process; call "
                           "vmprof.disable() first\n")
    assert starter.written() == [
        asked("interval=1024;gaps=exponential;seed=3;limit=;lifetimes=1", 0.5),
        "mark middl\xe9", "disable"]
    assert not (starter.folder / "another.vmprof").exists()
