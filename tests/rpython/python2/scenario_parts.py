"""Scenarios of targetscenarios.py about segments of a profile and live objects."""
import os

from rpython.rlib import rgc, rgil, rthread, rvmprof
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, lltype, rffi

from scenario_nodes import (SETTINGS, Node, allocate, keep, new_code,
                            open_profile, state, thread, work)


@rgc.no_collect
def class_of(address):
    node = rgc.try_cast_gcref_to_instance(
        Node, llmemory.cast_adr_to_ptr(address, llmemory.GCREF))
    return 0 if node is None else 1


def enable_part(fd, period=0.0):
    rvmprof.enable(fd, period, class_of=llhelper(rvmprof.CLASS_OF, class_of),
                   allocations=SETTINGS + ";gaps=fixed;run=abc")
    rvmprof.name_class(1, "Node")


def begin_part(filename, number):
    fd = open_profile(filename)
    try:
        why = rvmprof.rotate_allocations(fd, "run=abc;part=%d" % number)
        if why:
            print "part %d: the one before is not complete: %s" % (number, why)
    except rvmprof.VMProfError as e:
        print "part %d: %s" % (number, e.msg)
    return fd


def print_statistics():
    print " ".join([str(count) for count in rvmprof.allocation_statistics()])


def rotates(files):
    """Keep objects in segment 1, and drop them in segment 3."""
    fd = open_profile(files[0])
    enable_part(fd)
    keep(new_code("kept"), 100000)
    kept = state.node
    for i in range(1, len(files)):
        next = begin_part(files[i], i + 1)
        os.close(fd)
        fd = next
        allocate(new_code("part%d" % (i + 1)), 100000)
        if i == 2:
            kept = None
            rgc.collect()
            rgc.collect()
    state.node = kept
    rvmprof.disable()
    print_statistics()
    os.close(fd)


def rotates_without_lifetimes(files):
    fd = open_profile(files[0])
    rvmprof.enable(fd, 0.0, allocations=SETTINGS + ";lifetimes=0")
    keep(new_code("kept"), 100000)
    next = begin_part(files[1], 2)
    os.close(fd)
    allocate(new_code("part2"), 100000)
    rvmprof.disable()
    os.close(next)


def rotates_often(files):
    """Rotate while threads allocate and CPU samples are taken."""
    rgil.allocate()
    fd = open_profile(files[0])
    enable_part(fd, 0.001)
    state.threads = 3
    for i in range(3):
        rthread.start_new_thread(thread, ())
    main = new_code("main")
    for i in range(1, len(files)):
        rgil.yield_thread()
        keep(main, 1000)
        work(main, 1)
        next = begin_part(files[i], i + 1)
        os.close(fd)
        fd = next
    while state.threads > 0:
        allocate(main, 1000)
        rgil.yield_thread()
    rvmprof.disable()
    print_statistics()
    os.close(fd)


def rotates_into_nothing(files):
    """Try to rotate where no segment can begin, and continue the present segment."""
    os.close(begin_part("/dev/null", 2))
    fd = open_profile(files[0])
    rvmprof.enable(fd, 0.001)
    os.close(begin_part("/dev/null", 2))
    rvmprof.disable()
    os.close(fd)
    fd = open_profile(files[0])
    enable_part(fd)
    allocate(new_code("first"), 100000)
    try:
        rvmprof.rotate_allocations(fd, "a=" + "b" * 5000)
    except rvmprof.VMProfError as e:
        print e.msg
    try:
        rvmprof.rotate_allocations(1000, "part=2")
    except rvmprof.VMProfError as e:
        print e.msg
    os.close(begin_part("/dev/full", 2))
    allocate(new_code("second"), 100000)
    os.close(fd)
    fd = begin_part(files[1], 2)
    allocate(new_code("third"), 100000)
    rvmprof.disable()
    os.close(fd)


def print_alive(what):
    """Print the live nodes, the right addresses among them, and the estimated bytes."""
    now, most = rvmprof.alive_allocation_bytes()
    words = rvmprof.alive_allocations()
    addresses = {}
    node = state.node
    while node is not None:
        addresses[rffi.cast(lltype.Signed,
                            rgc.cast_instance_to_gcref(node))] = None
        node = node.next
    nodes = 0
    right = 0
    for i in range(0, len(words), 7):
        if words[i + 3] == 16:
            nodes += 1
            right += words[i] in addresses
    print "%s: %d nodes, %d right, %d bytes, %d at most" % (
        what, nodes, right, int(now), int(most))


def says_what_is_alive(files):
    fd = open_profile(files[0])
    rvmprof.enable(fd, 0.0, allocations=SETTINGS + ";gaps=fixed;in_memory=1")
    print_alive("begun")
    keep(new_code("kept"), 100000)
    print_alive("kept")
    allocate(new_code("garbage"), 0)
    print "ignored: %d" % rvmprof.ignore_allocations(True)
    keep(new_code("ignored"), 100000)
    print "ignored: %d" % rvmprof.ignore_allocations(False)
    print_alive("more, ignored")
    state.node = None
    rgc.collect()
    rgc.collect()
    print_alive("dropped")
    rvmprof.alive_allocation_bytes(reset_peak=True)
    print_alive("peak reset")
    keep(new_code("again"), 100000)
    kept = state.node
    print "%d words" % len(rvmprof.alive_allocations(forget=True))
    print_alive("forgotten")
    keep(new_code("new"), 100000)
    print_alive("new")
    state.node = kept
    rgc.collect()
    rgc.collect()
    print_alive("old ones")
    rvmprof.disable()
    print_alive("off")
    print_statistics()
    os.close(fd)
