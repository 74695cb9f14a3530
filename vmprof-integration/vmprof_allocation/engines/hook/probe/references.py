"""Whether the heap looks to us as it does to the GC: the walk of native/held beside
gc.dump_rpy_heap(), object by object.

The GC writes twice what there is, and in between we look.  What it says the same of
both times, nobody has changed; if we see something else there, our walk is wrong, and
nothing is said of who holds what.
"""
from __future__ import annotations

import errno
import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from vmprof_allocation.engines.hook.heap_snapshot import question
from vmprof_allocation.engines.hook.held import problem
from vmprof_allocation.engines.hook.probe.memory import (
    Memory,
    NotCertain,
    Types,
    gc,
)

#: through this type the GC has what each thread has of its own
_THREADS = "GcStruct TRACETLREF"
#: so many objects are looked at that may have changed
_MOST = 1024
_LEAST = 10000
_END = struct.pack("<q", -1)


#: how the system says that it makes no such process (bare_fork.c): as an emulator does
_REFUSED = {-errno.EINVAL, -errno.ENOSYS, -errno.EPERM}


class RefusedError(Exception):
    """The system lets nobody look; it would say the same another time."""


def row_of_threads(types: Types) -> int:
    found = [row for row, name in enumerate(types.names[:len(types.numbers)])
             if types.numbers[row] and name.startswith(_THREADS)]
    if len(found) != 1:
        raise NotCertain("%d types are of what threads have of their own" % len(found))
    return found[0]


def _specimens() -> Any:
    """What has a trace of its own: stacks that do not run."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    kept: list[Any] = [end, thread]
    try:
        import greenlet
        switched = greenlet.greenlet(lambda kept: greenlet.getcurrent().parent.switch())
        switched.switch([[1], "on its stack alone"])
        kept.append(switched)
    except ImportError:
        pass            # not all builds have it

    def generate() -> Iterator[list[int]]:
        only_here = [1, 2]
        yield only_here
        yield only_here

    generator = generate()
    next(generator)
    return [*kept, generator]


def _file() -> int:
    """A descriptor: a file has a finalizer, and would be a root that is new."""
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


def _dump(fd: int) -> bytes:
    """Into a file: where a write may be short, the GC would be left in disorder."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    gc.dump_rpy_heap(fd)
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as whole:
        return whole[:]


def _record(dump: bytes, address: int) -> bytes:
    """What it says of the object; nothing: it is not in there."""
    start = _END + struct.pack("<Q", address)
    at = -1
    while True:
        at = dump.find(start, at + 1)
        if at < 0:
            return b""
        if at % 8 == 0:
            end = at + 24
            while dump[end:end + 8] not in (_END, b""):
                end += 8
            return dump[at + 8:end]


def check(memory: Memory, types: Types, text: str) -> str:
    """Returns what was compared.  `text`: for native/held.  Raises NotCertain or
    RefusedError."""
    kept, fd = _specimens(), _file()
    encoded = text.encode("utf-8", "replace")
    asked = question(row_of_threads(types))
    gc.collect()                # it is old, then
    gc.collect()
    asked[0] = question(row_of_threads(types))[0]
    gc.collect_step()           # a minor one
    before = _dump(fd)
    differ = memory.held_compare(encoded, id(asked), before, _MOST)
    after = _dump(fd)
    if differ.found in _REFUSED:
        raise RefusedError(problem(-differ.found))
    if differ.found < 0:
        raise NotCertain("%s" % problem(-differ.found))
    words = len(before) // 8
    if words < 4 * _LEAST:
        raise NotCertain("the GC has dumped %d words alone" % words)
    if differ.found > _MOST:
        raise NotCertain("%d objects look different to the GC" % differ.found)
    changed = 0
    for address in differ.addresses:
        record = _record(before, address)
        if record and record == _record(after, address):
            row = struct.unpack_from("<q", record, 8)[0]
            raise NotCertain("an object looks different to the GC: %s"
                             % types.names[row][:80])
        changed += 1
    kept[0].set()
    os.close(fd)
    return "%d objects are as the GC has them; %d changed meanwhile" % (
        before.count(_END), changed)
