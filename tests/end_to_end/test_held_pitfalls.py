"""Test known pitfalls of the search for retainers, one per test.

Other pitfalls are tested in test_held.py, test_held_meanwhile.py, test_held_native.py
and test_bare_fork.py.
"""
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from test_held_meanwhile import ASKED, GO_ON, IN_A_THREAD, LOOKS

from c_extension import build_boxes, build_holder
from conftest import PyPy
from native_build import NATIVE, compiled
from vmprof_convert import readers
from vmprof_convert.profile.held import FINALIZER, INTERPRETER, NO_PATH, Held

pytestmark = pytest.mark.nurseries("4M", "240M")

ASK = """
    from vmprof_allocation.session.session import current
    current().retainers()
"""
#: The functions of the C library that the forked process may call.  They take no lock,
#: allocate nothing, and do not use stdio.
MAY_CALL = {
    "_exit", "clock_gettime", "memchr", "memcmp", "memcpy", "memset", "mmap", "mremap",
    "munmap", "strchr", "strcmp", "strcspn", "strlen", "strncmp", "strstr"}


def answers(path: Path) -> list[Held]:
    found = readers.read_events(path).held
    assert found and not any(held.problem for held in found)
    return found


def paths(held: Held) -> list[str]:
    return [held.path(step) for step in range(len(held.steps))]


def test_the_walk_calls_nothing_that_may_wait() -> None:
    """If another thread held a lock of malloc or stdio at the fork, this lock stays
    locked in the forked process.
    """
    undefined: set[str] = set()
    defined: set[str] = set()
    for source in sorted((NATIVE / "held").glob("*.c")):
        found = subprocess.run(
            ["nm", "-P", compiled("pitfall_" + source.stem + ".o", "-c", "-O1",
                                  "-fno-stack-protector", "-U_FORTIFY_SOURCE",
                                  "-I", str(NATIVE / "shared"), str(source))],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        for name, kind in re.findall(r"^(\w+) (\w)", found, re.MULTILINE):
            (undefined if kind == "U" else defined).add(name)
    assert len(defined) > 30
    assert undefined - defined <= MAY_CALL


def test_the_list_of_roots_is_not_a_retainer(stock_pypy: PyPy) -> None:
    """The result of gc.get_rpy_roots() would itself be among the roots, with an object
    for each root. Later requests must not find the memory of a request, either.
    """
    run = stock_pypy.sample(
        "\n    kept = [str(i) for i in range(30000)]" + ASK * 5, "64k")
    found = answers(run.path)
    assert len(found) == 5
    # A list of roots would add at least 600 GcRefs.  The first request is not compared,
    # because it loads modules.
    counts = [held.objects for held in found[1:]]
    assert max(counts) - min(counts) < 300, counts
    for held in found:
        assert "__main__.kept" in paths(held)


def test_variables_of_the_sampler_hold_no_root(stock_pypy: PyPy) -> None:
    """Objects in a local variable of the calling function are attributed to its frame,
    and not to a frame of the sampler.
    """
    run = stock_pypy.sample("""
    def ask():
        from vmprof_allocation.session.session import current
        mine = [str(i) for i in range(30000)]
        current().retainers()
        current().retainers()
        del mine
        current().retainers()
    ask()
    """, "64k")
    has = ["in ask() app.py:2 -> local mine" in paths(held)
           for held in answers(run.path)]
    assert has == [True, True, False]
    assert not [path for held in answers(run.path) for path in paths(held)
                if path.startswith("in question() ")]


def test_numeric_keys_of_dicts_are_not_followed(stock_pypy: PyPy) -> None:
    """Integer keys that are equal to the addresses of objects are not taken for
    references.
    """
    run = stock_pypy.sample("""
    kept = [str(i) for i in range(1000)]
    numbers = {id(one) + at: [at] for one in kept for at in (0, 1, 2**40, -8)}
    """ + ASK, "64k")
    (held,) = answers(run.path)
    assert "__main__.numbers" in [holder.path for holder in held.holders]


def test_greenlets_do_not_retain_frames_by_their_list(stock_pypy: PyPy) -> None:
    """greenlet._tls refers to the thread's context, which refers to all frames of the
    thread. These frames must not be attributed to greenlet._tls.
    """
    run = stock_pypy.sample("""
    import greenlet
    from vmprof_allocation.session.session import current
    def inside():
        of_greenlet = [str(i) for i in range(30000)]
        back.switch()
        return of_greenlet
    def outside():
        of_main = [str(i) for i in range(30000)]
        greenlet.greenlet(inside).switch()
        current().retainers()
        return of_main
    back = greenlet.getcurrent()
    outside()
    """, "64k")
    (held,) = answers(run.path)
    assert any(path.startswith("in outside() ") and path.endswith("-> local of_main")
               for path in paths(held))
    assert not [path for path in paths(held) if "_tls" in path and "of_main" in path]


def test_references_of_the_interpreter_do_not_hide_a_retainer(stock_pypy: PyPy) -> None:
    """The interpreter may also refer to objects, by a cache of methods or compiled
    code. These references do not reduce the retained size of a retainer in the program.
    """
    run = stock_pypy.sample("""
    class Shape:
        def area(self, sides=[str(i) for i in range(30000)]):
            return sides
    class Other(Shape):
        pass
    for i in range(3000):
        Other().area()
    """ + ASK, "64k")
    (held,) = answers(run.path)
    holder, = [holder for holder in held.holders
               if holder.path == "__main__.Shape.area.__defaults__[0]"]
    assert holder.objects >= 30000
    assert INTERPRETER in held.hows


def test_all_live_objects_have_a_path(stock_pypy: PyPy) -> None:
    """If only the interpreter refers to an object, the object's path shows the reason.
    """
    run = stock_pypy.sample("""
    import gc, sys
    kept = [sys.intern("name%d" % i) for i in range(30000)]
    def run(n):
        return sum(len(str(i)) for i in range(n))
    for i in range(3000):
        run(i)
    gc.collect()
    gc.collect()
    """ + ASK, "4k")
    (held,) = answers(run.path)
    steps = [step for step in held.steps if step.before < 0]
    assert sum(step.bytes for step in steps) > 0.95 * held.bytes
    first = {step.label: step.bytes for step in steps}
    assert first["PyPy's own: interned names"] > 30000 * 16
    assert first["PyPy's own: compiled code"] > 10000
    assert first["PyPy's own: JIT compiler"] > 10**6
    assert {held.path(path).partition(":")[0]
            for path, how in zip(held.paths, held.hows) if how == INTERPRETER} == {
        "PyPy's own"}


def test_objects_that_wait_for_their_finalizer(stock_pypy: PyPy) -> None:
    """The GC has lists of all objects with a finalizer. Only objects without another
    reference are reported as waiting for their finalizer.
    """
    run = stock_pypy.sample("""
    class Closed:
        def __init__(self):
            self.data = [str(i) for i in range(1000)]
        def __del__(self):
            pass
    kept = [Closed() for _ in range(30)]
    for _ in range(30):
        Closed()
    """ + ASK, "4k")
    (held,) = answers(run.path)
    assert "__main__.kept" in [holder.path for holder in held.holders]
    assert held.hows.count(FINALIZER) > 50
    assert {held.path(path) for path, how in zip(held.paths, held.hows)
            if how == FINALIZER} == {"waits for its finalizer"}


def test_objects_that_c_code_holds_have_no_path(stock_pypy: PyPy) -> None:
    """References from C code are not among the GC's roots. The report says so."""
    build_holder(stock_pypy)
    run = stock_pypy.sample("""
    import gc, holder
    class Node:
        pass
    for _ in range(20000):
        holder.hold(Node())
    gc.collect()
    gc.collect()
    """ + ASK, "4k")
    (held,) = answers(run.path)
    types = run.profile().types
    nodes = [how for type_, how in zip(held.types, held.hows)
             if type_ >= 0 and types[type_].python == "__main__.Node"]
    assert len(nodes) > 100 and set(nodes) == {NO_PATH}
    done = stock_pypy.command("-m", "vmprof_allocation", "retainers", str(run.path))
    assert re.search(r"no path: .*\n +\d+ % __main__\.Node from <module>", done.out)


def test_objects_that_hpy_code_holds(stock_pypy: PyPy) -> None:
    """An object in a field of an HPy object has no path, because only HPy code can
    trace the field. Objects in handles and globals have a path from the interpreter's
    tables.
    """
    if not build_boxes(stock_pypy):
        pytest.skip("this PyPy has no HPy")
    run = stock_pypy.sample("""
    import gc, os, _hpy_universal
    boxes = _hpy_universal.load("boxes", os.path.abspath("boxes.hpy.so"))
    class InField:
        pass
    class InHandle:
        pass
    class InGlobal:
        pass
    kept = [boxes.Box() for _ in range(20000)]
    for box in kept:
        box.put(InField())
        boxes.in_handle(InHandle())
    boxes.in_global([InGlobal() for _ in range(20000)])
    gc.collect()
    gc.collect()
    """ + ASK, "4k")
    (held,) = answers(run.path)
    types = run.profile().types
    hows: dict[str, list[int]] = {}
    for type_, how in zip(held.types, held.hows):
        hows.setdefault(types[type_].python or "" if type_ >= 0 else "", []).append(how)
    for name, how in (("InField", NO_PATH), ("InHandle", INTERPRETER),
                      ("InGlobal", INTERPRETER)):
        of_class = hows["__main__." + name]
        assert len(of_class) > 100 and set(of_class) == {how}, name


def test_references_of_unknown_types(stock_pypy: PyPy) -> None:
    """The sampler does not know the fields of some types, such as cffi's. An object of
    such a type has a path, and the objects that it refers to are its parts. PyPy stores
    the last attributes of `many` in a separate object.
    """
    run = stock_pypy.sample("""
    import cffi
    ffi = cffi.FFI()
    class Client:
        pass
    def items():
        return [str(i) * 20 for i in range(5000)]
    clients = Client(), Client()
    for client, attributes in zip(clients, (2, 9)):
        for i in range(attributes):
            setattr(client, "a%d" % i, [i])
        client.handle = ffi.new_handle(items())
    few, many = clients
    alone = ffi.new_handle(items())
    """ + ASK, "64k")
    (held,) = answers(run.path)
    assert {"__main__.%s -> a part" % name for name in (
        "few.handle", "many.handle", "alone")} <= set(paths(held))


def test_the_id_of_a_text_is_no_address(stock_pypy: PyPy) -> None:
    """The id() of a list is the list's address, but a text's id() is not. In both
    cases, the report has the address.
    """
    run = stock_pypy.sample("""
    text, items = "the one text" * 20000, [str(i) for i in range(20000)]
    """ + ASK + """
    import os, struct
    from vmprof_convert import readers
    address = {holder.path: holder.address for holder in
               readers.read_events(current().where).held[-1].holders}
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    def at(address, size):
        try:
            return os.pread(memory, size, address)
        except (OSError, OverflowError):
            return b""          # nothing is there
    refers_to = struct.unpack("4Q", at(address["__main__.text"], 32))
    print(address["__main__.items"] == id(items), address["__main__.text"] == id(text),
          any(b"the one text" in at(to, 64) for to in refers_to))
    """, "64k")
    assert run.out == "True False True\n"


def test_no_handler_of_forks_is_called(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
    import os
    for when in "before", "after_in_parent", "after_in_child":
        os.register_at_fork(**{when: lambda when=when: os.write(1, when.encode())})
    """ + ASK, "64k")
    assert run.out == ""
    answers(run.path)


def test_a_reader_of_a_pipe_sees_the_programs_end(stock_pypy: PyPy) -> None:
    """The forked process, which runs longer than the program, must close the inherited
    pipe.
    """
    run = stock_pypy.sample(LOOKS + """
    import socket
    here, there = socket.socketpair()
    read_end, write_end = os.pipe()
    """ + ASKED + """
    # it closes them first of all; then it is told apart
    while os.listdir("/proc/%d/fd" % pid):
        os.kill(pid, signal.SIGCONT)
        pid = looking()
    here.close()
    os.close(write_end)
    print(there.recv(1), os.read(read_end, 1), state(pid))
    """ + GO_ON, "64k")
    assert run.out == "b'' b'' T\n"


def test_the_forked_process_has_the_lowest_priority(stock_pypy: PyPy) -> None:
    """If memory is short, Linux kills the forked process first. The process gets less
    processor time, writes no core, and has the working directory /.
    """
    run = stock_pypy.sample(IN_A_THREAD + """
    nice = str(max(10, os.getpriority(os.PRIO_PROCESS, 0)))
    def has_begun():
        return (read("/proc/%d/oom_score_adj" % pid) == "1000\\n" and
                read("/proc/%d/stat" % pid).rpartition(") ")[2].split()[16] == nice)
    while not has_begun():
        os.kill(pid, signal.SIGCONT)
        pid = looking()
    limits = read("/proc/%d/limits" % pid)
    print([line.split()[4:6] for line in limits.splitlines() if "core" in line],
          os.readlink("/proc/%d/cwd" % pid))
    """ + GO_ON, "64k")
    assert run.out == "[['0', '0']] /\n"


@pytest.mark.nurseries("4M")     # The program writes more pages of a larger nursery.
def test_it_writes_no_page_of_the_heap(stock_pypy: PyPy) -> None:
    """Linux would copy each page of the heap that the forked process writes."""
    run = stock_pypy.sample(LOOKS + """
    import gc
    kept += [[str(i)] for i in range(500000)]
    gc.collect()
    gc.disable()        # the program writes nothing there, either
    """ + ASKED + """
    most = 0
    os.kill(pid, signal.SIGCONT)
    while True:
        rollup = read("/proc/%d/smaps_rollup" % pid)
        if not rollup:
            break
        most = max([most] + [int(line.split()[1]) for line in rollup.splitlines()
                             if line.startswith("Private_Dirty:")])
    said.append("")
    thread.join()
    print(most)
    """, "64k")
    held = answers(run.path)[0]
    assert held.bytes > 80e6 and int(run.out) > 0
    # The private memory of the forked process is its own data, and the old copies of
    # pages that the program has written.
    assert int(run.out) * 1024 < held.memory + 20e6


def test_a_long_chain_is_walked_without_recursion(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
    chain = None
    for _ in range(100000):
        chain = [chain]
    """ + ASK, "64k")
    (held,) = answers(run.path)
    assert any(holder.path.startswith("__main__.chain") and holder.objects >= 99_990
               for holder in held.holders)


def test_a_failed_fork_is_reported(stock_pypy: PyPy) -> None:
    """If fork() fails, for example at a container's limit of processes, the caller gets
    the reason, and the sampling continues.
    """
    run = stock_pypy.command("-c", """if 1:
        import os, resource, vmprof_allocation
        session = vmprof_allocation.start("out.vmprof", "64k")
        kept = [str(i) for i in range(30000)]
        session.retainers()              # what it needs is loaded
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        if os.getuid() == 0:        # who may have as many as it likes
            os.setuid(65534)
        try:
            session.retainers()
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
        kept += [str(i) for i in range(30000)]
        session.stop()
    """)
    assert run.out == (
        "the heap snapshot failed: fork() failed: Resource temporarily unavailable\n"
    ), run
    assert len(answers(run.path)) == 1


def test_each_object_has_its_stack(stock_pypy: PyPy) -> None:
    """The forked process and the profile number stacks differently. Each sampled object
    of a retainer must have its own stack.
    """
    run = stock_pypy.sample("""
    def first():
        return [str(i) for i in range(20000)]
    def second():
        return [str(i) for i in range(20000)]
    one, other = first(), second()
    """ + ASK, "4k")
    done = stock_pypy.command("-m", "vmprof_allocation", "retainers", "--json",
                              str(run.path))
    (answer,) = json.loads(done.out)["processes"][0]["answers"]
    lines = {row["holders"][0]["path"]: {
        part["function"]["line"] for part in row["parts"] if part["function"]}
        for row in answer["holders"]}
    assert lines["__main__.one"] == {3}
    assert lines["__main__.other"] == {5}


@pytest.mark.nurseries("32k")    # A small nursery is often full.
def test_a_request_is_found_before_its_objects_move(stock_pypy: PyPy) -> None:
    """A request stores the address of a list, which a minor collection would move. So
    the list must be old before, even if the nursery is often full.
    """
    run = stock_pypy.sample("""
    import threading
    from vmprof_allocation.session.session import current
    kept, done = [str(i) for i in range(30000)], []
    def allocate():
        while not done:
            [str(i) for i in range(1000)]
    threads = [threading.Thread(target=allocate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        current().retainers()
    done.append(1)
    for thread in threads:
        thread.join()
    """, "64k")
    for held in answers(run.path):
        assert "__main__.kept" in paths(held)
