"""Test that --lines gives each function of a stack the line that Python reports."""
from __future__ import annotations

import collections
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import EMULATED, PyPy
from vmprof_convert import readers
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.profile.model import Function, Profile
from vmprof_convert.readers.pypy_stacks import LOG

#: A program whose calls `make(N)` each allocate N * 8 characters.  The size identifies
#: the call.  (Objects that the JIT could delay would be allocated at another line.)
PROGRAM = """
    import sys
    from given import *
    ring = [None] * 64
    def keep(x, i):
        ring[i % 64] = x
        return x
    def straight(i):
        keep(make(100), i)
        keep(make(113), i)
        if i % 3:
            keep(make(126), i)
        else:
            keep(make(139), i)
    def inner(i): return keep(make(152), i)
    def outer(i):
        x = inner(i)
        y = make(165); keep(y, i)
        return len(x) + len(y)
    def numbers(n):
        for k in range(n):
            yield keep(make(178), k)
        keep(make(191), n)
    def uses(i):
        for x in numbers(3):
            keep(make(204), i)
    def catches(i):
        try:
            keep(make(217), i)
            if i % 2:
                raise ValueError(make(230))
            keep(make(243), i)
        except ValueError as e:
            keep(
                make(256), i)
        finally:
            keep(make(269), i)
    def comprehension(i):
        return [keep(make(282), k)
                for k in range(2)]
    def recurses(n):
        if n:
            keep(make(295), n)
            recurses(n - 1)
            keep(make(308), n)
    class Thing:
        def __init__(self, i):
            self.x = make(321)
        @property
        def part(self):
            return keep(make(334), 1)
    def things(i):
        thing = Thing(i)
        thing.part
    exec(compile("def made(i):\\n"
                 "    keep(make(347), i)\\n\\n\\n"
                 "    keep(make(360), i)\\n", "made.py", "exec"), globals())
    async def waits(i):
        keep(make(373), i)
        await waited(i)
        keep(make(386), i)
    async def waited(i):
        keep(make(399), i)
    def coroutine(i):
        try:
            waits(i).send(None)
        except StopIteration:
            pass
    def decorated(function):
        def wrapper(*args):
            keep(make(412), 1)
            return function(*args)
        return wrapper
    @decorated
    def plain(i):
        keep(make(425), i)
    def far(i):
        keep(make(438), i)
    FAR
        keep(make(451), i)
    def after_a_loop(i):
        for k in range(2):
            keep(make(477), k)
        keep(make(490), i)
        for x in numbers(2):
            pass
        inner(i)
        keep(make(503), i)
    def all_of_it(i):
        straight(i); outer(i)
        uses(i)
        catches(i)
        comprehension(i)
        recurses(4)
        things(i)
        made(i)
        coroutine(i)
        plain(i)
        far(i)
        after_a_loop(i)
    for i in range(int(sys.argv[1])):
        all_of_it(i)
        keep(make(464), i)
""".replace("FAR", "\n" * 300)
#: A program with functions that call themselves.  Their stacks are difficult in two
#: cases: PyPy's table of compiled code lists too many calls in bridges, and the JIT
#: still has some frames when the interpreter continues.
RECURSIVE = """
    import sys
    from given import *
    ring = [None] * 64
    def keep(x, i):
        ring[i % 64] = x
        return x
    def straight(i, deep):
        if deep > 0:
            straight(i + 1, deep - 1)
            keep(make(100), i)
        else:
            keep(make(113), i)
        return i
    def calls(i):
        straight(i, i % 4)
        keep(make(126), i)
    def loops(i, deep):
        keep(make(139), i)
        if deep:
            for k in range(2):
                loops(i, deep - 1)
                keep(make(152), i)
        keep(make(165), i)
    def catches(i, deep):
        keep(make(178), i)
        for k in range(2):
            keep(make(191), i)
            try:
                [keep(make(204), k) for k in range(1)]
                if i % 3 == 0:
                    raise KeyError
            except KeyError:
                keep(make(217), i)
            finally:
                [keep(make(230), k) for k in range(3)]
        if deep:
            catches(i, deep - 1)
            keep(make(243), i)
            if i % 4:
                keep(make(256), i)
    def all_of_it(i):
        calls(i)
        loops(i, i % 3)
        catches(i, i % 4)
    for i in range(int(sys.argv[1])):
        all_of_it(i)
"""
SIZES = range(100, 504, 13)
#: The number N of a call `make(N)` by the size of its string in bytes.  The string has
#: a header, a hash, a length, N words of characters, and a word with a final zero.
BYTES = {(n + 4) * 8: n for n in SIZES}
#: The module that PROGRAM imports from: ASKED has a make() that records its callers,
#: and SAMPLED has the texts for the sampled program.
ASKED = """
    import atexit, collections, json, sys
    seen = collections.defaultdict(set)
    def make(n):
        frame, lines = sys._getframe(1), []
        while frame is not None:
            if frame.f_code.co_filename.endswith(("traced.py", "made.py")):
                lines.append((frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        seen[n].add(tuple(reversed(lines)))
        return b"x" * (n * 8)
    def tell():
        print(json.dumps({n: sorted(stacks) for n, stacks in seen.items()}))
    atexit.register(tell)
"""
SAMPLED = "one, several = b'x', [b'x', b'y']\n"

#: the name of a function, and an executed line
Place = tuple[str, int]


@pytest.fixture
def program(stock_pypy: PyPy) -> PyPy:
    stock_pypy.script(re.sub(r"make\((\d+)\)", r"(one * (\1 * 8))", PROGRAM),
                      "traced.py")
    stock_pypy.script(SAMPLED, "given.py")
    return stock_pypy


def truth(pypy: PyPy, folder: Path,
          program: str = PROGRAM) -> dict[int, set[tuple[Place, ...]]]:
    """Return the stacks of each call `make(N)` by N, as Python's own frames show them.

    The outermost function is first.
    """
    for name, text in (("traced", program), ("given", ASKED),
                       ("app", "import traced")):
        (folder / (name + ".py")).write_text(textwrap.dedent(text))
    run = pypy.command("--jit", "off", str(folder / "app.py"), "20")
    return {int(n): {tuple((name, line) for name, line in stack) for stack in stacks}
            for n, stacks in json.loads(run.out).items()}


def places(profile: Profile) -> Iterator[tuple[int, tuple[Place, ...]]]:
    """Yield N and the stack of each sampled call `make(N)`."""
    for number, size, type_ in zip(profile.samples.stack, profile.samples.size,
                                   profile.samples.type):
        if (size not in BYTES or number < 0
                or not profile.types[type_].layout.startswith("GcStruct rpy_string")):
            continue
        stack = [(profile.function(frame.address), frame.line)
                 for frame in profile.stacks[number]]
        if stack[-1][0].file.endswith(("traced.py", "made.py")):
            yield BYTES[size], tuple(
                (function.name, line) for function, line in stack
                if function.file.endswith(("traced.py", "made.py")))


def agrees(stack: tuple[Place, ...], true: tuple[Place, ...]) -> bool:
    """Return whether a sampled stack is compatible with the true one.

    An unknown line is 0, and stacks of compiled code may lack functions.
    """
    rest = iter(true)
    return all(any(name == other and line in (0, at) for other, at in rest)
               for name, line in stack)


@pytest.mark.parametrize("jit,rounds", [
    ("off", 300), ("threshold=100000,function_threshold=100000", 300), ("", 6000),
    ("threshold=30,function_threshold=30,trace_eagerness=10", 3000),
    ("inlining=0", 3000)])
def test_each_function_is_at_its_line(program: PyPy, tmp_path_factory:
                                      pytest.TempPathFactory, jit: str,
                                      rounds: int) -> None:
    true = truth(program, tmp_path_factory.mktemp("asked"))
    assert set(true) == set(SIZES)
    run = program.sample("import traced", "4k", "--lines", arguments=(str(rounds),),
                         jit=jit)
    known, allocates = collections.Counter[bool](), collections.Counter[bool]()
    numbers = set()
    for number, stack in places(run.profile()):
        assert any(agrees(stack, one) for one in true[number]), (number, stack)
        known.update(line > 0 for _, line in stack)
        if stack[-1][0] in {one[-1][0] for one in true[number]}:
            allocates[stack[-1][1] > 0] += 1
        numbers.add(number)
    assert numbers == set(SIZES)
    assert known[True] > 0.95 * known.total()
    # Some samples lack the allocating function, because PyPy's stacks of generators do.
    assert allocates.total() > 0.8 * sum(1 for _ in places(run.profile()))
    assert allocates[True] > 0.95 * allocates.total()
    if jit == "off":
        assert known[False] == 0


@pytest.mark.parametrize("jit", [
    "", "threshold=30,function_threshold=30,trace_eagerness=10",
    "threshold=30,function_threshold=20,trace_eagerness=5,trace_limit=1500"])
def test_functions_that_call_themselves(
        stock_pypy: PyPy, tmp_path_factory: pytest.TempPathFactory, jit: str) -> None:
    """Without the log of compiled code, a third of these stacks have a wrong function.

    A line must not belong to another call of the same function, either.
    """
    true = truth(stock_pypy, tmp_path_factory.mktemp("asked"), RECURSIVE)
    # (With a constant text, the JIT might allocate an object only once.)
    stock_pypy.script(re.sub(r"make\((\d+)\)", r"(several[-1] * (\1 * 8))", RECURSIVE),
                      "traced.py")
    stock_pypy.script(SAMPLED, "given.py")
    run = stock_pypy.sample("import traced", "4k", "--lines", arguments=("3000",),
                            jit=jit)
    agreeing, known = collections.Counter[bool](), collections.Counter[bool]()
    differing = None
    for number, stack in places(run.profile()):
        agreeing[any(agrees(stack, one) for one in true[number])] += 1
        if not any(agrees(stack, one) for one in true[number]):
            differing = differing or (number, stack)
        known.update(line > 0 for _, line in stack)
    assert agreeing[False] <= 0.001 * agreeing.total(), (agreeing, differing)
    assert agreeing.total() > 5000
    assert known[True] > (0.75 if EMULATED else 0.85) * known.total(), known


@pytest.mark.skipif(EMULATED, reason="on AArch64, there are always some")
def test_without_the_flag_there_are_no_lines(program: PyPy) -> None:
    run = program.sample("import traced", "4k", arguments=("300",))
    assert {line for _, stack in places(run.profile()) for _, line in stack} == {0}


def test_the_report_shows_them(program: PyPy) -> None:
    run = program.sample("import traced", "4k", "--lines", arguments=("3000",))
    told = program.command("-m", "vmprof_allocation", "report", "--by", "line",
                           str(run.path)).out
    line = 1 + PROGRAM[:PROGRAM.index("make(178)")].count("\n")
    assert re.search(r"numbers +traced\.py:%d$" % line, told, re.MULTILINE), told


def test_the_logs_text_is_not_attributed_to_the_compiler(program: PyPy) -> None:
    """PyPy allocates the texts of the JIT's log while it compiles. They are attributed
    to the function LOG.
    """
    profile = program.sample("import traced", "4k", "--lines",
                             arguments=("3000",)).profile()
    bytes_ = collections.Counter[Function]()
    for stack, size, type_, interval in zip(
            profile.samples.stack, profile.samples.size, profile.samples.type,
            profile.samples.interval):
        # Texts of this size belong to the log: the program's own strings are larger.
        if size < min(BYTES) and type_ >= 0 and profile.types[
                type_].layout.startswith("GcStruct rpy_string"):
            bytes_[profile.function(profile.stacks[stack][-1].address)] += int(
                weight_bytes(size, interval, profile.gaps))
    assert bytes_[LOG] > 2**20, bytes_
    assert bytes_.total() - bytes_[LOG] < 0.1 * bytes_[LOG], bytes_.most_common(5)


def test_children_have_lines(program: PyPy, tmp_path: Path) -> None:
    """Forked children, and children that become this interpreter by exec, have lines in
    the code that they compile themselves.
    """
    true = truth(program, tmp_path)
    program.sample("""
        import os, subprocess, sys
        sys.argv[1:] = ["3000"]
        child = os.fork()
        import traced
        if child:
            assert os.waitpid(child, 0)[1] == 0
            subprocess.run([sys.executable, "traced.py", "3000"], check=True)
    """, "4k", "--lines")
    paths = list(program.folder.glob("out*.vmprof"))
    assert len(paths) == 3
    for path in paths:
        profile = readers.read(path)
        known = collections.Counter[bool]()
        for number, stack in places(profile):
            assert any(agrees(stack, one) for one in true[number]), (number, stack)
        for number in profile.samples.stack:
            if profile.stacks[number][-1].kind == "jit":
                known[profile.stacks[number][-1].line > 0] += 1
        assert known.total() > 100, path
        assert known[True] > (0.75 if EMULATED else 0.9) * known.total(), (path, known)


@pytest.mark.parametrize("follow", [True, False])
def test_a_child_that_is_not_sampled_has_no_log(stock_pypy: PyPy, follow: bool) -> None:
    """A child without sampling does not write PyPy's log, which costs time. Ending the
    log in the child does not end it in the parent.
    """
    run = stock_pypy.run("""
        import os, _jitlog
        ended, disable = [], _jitlog.disable
        def disabled():
            ended.append(os.getpid())
            disable()
        _jitlog.disable = disabled
        import vmprof_allocation
        vmprof_allocation.start("app.vmprof", "64k", lines=True, follow=%s)
        if os.fork() == 0:
            os._exit(ended != %s)
        print(os.wait()[1], ended)
        vmprof_allocation.stop()
        print(ended == [os.getpid()])
    """ % (follow, "[]" if follow else "[os.getpid()]"))
    assert (run.out, run.err) == ("0 []\nTrue\n", "")


@pytest.mark.parametrize("flags", [(), ("--no-follow",)])
def test_an_unsampled_child_of_the_command_line_has_no_log(
        stock_pypy: PyPy, flags: tuple[str, ...]) -> None:
    run = stock_pypy.sample("""
        import os
        from vmprof_allocation.session import resident
        ending, ended = resident._suspended.ending, []
        ending._end_log = lambda: ended.append(os.getpid())
        if os.fork() == 0:
            os._exit(len(ended))
        print(os.waitstatus_to_exitcode(os.wait()[1]), ended)
    """, "64k", "--lines", *flags)
    assert run.out == "%d []\n" % len(flags)


def test_the_log_uses_no_descriptor(stock_pypy: PyPy) -> None:
    run = stock_pypy.run("""
        import os
        import vmprof_allocation
        def descriptors():
            return {name: os.readlink("/proc/self/fd/" + name)
                    for name in os.listdir("/proc/self/fd")
                    if os.path.exists("/proc/self/fd/" + name)}
        def compiled(number):
            space = {}
            exec("def f(n):\\n for i in range(n):\\n  found = str(i + %d)" % number,
                 space)
            space["f"](3000)
        before = descriptors()
        with vmprof_allocation.sample("app.vmprof", "16k"):
            without = len(descriptors())
        for _ in range(3):
            with vmprof_allocation.sample("app.vmprof", "16k", lines=True):
                for i in range(40):
                    compiled(i)
                assert len(descriptors()) == without, descriptors()
            assert descriptors() == before, (before, descriptors())
        compiled(1)
    """)
    assert (run.code, run.err) == (0, "")


def test_one_log_for_two(stock_pypy: PyPy) -> None:
    run = stock_pypy.command(
        "-m", "vmprof", "--allocation-sampling", "128k", "--lines", "--jitlog", "-o",
        "out.vmprof", str(stock_pypy.script("pass")))
    assert run.code == 2 and "omit one of them" in run.err
    assert not (stock_pypy.folder / "out.vmprof").exists()
