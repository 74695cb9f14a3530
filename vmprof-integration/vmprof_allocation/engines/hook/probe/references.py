"""Compare the walk of native/held with gc.dump_rpy_heap(), object by object.

The GC dumps the heap before and after the walk.  An object that is the same in both
dumps has not changed.  If the walk finds other references in such an object, the walk
is wrong, and heap snapshots are disabled.
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

#: The type with the references of each thread.
_THREADS = "GcStruct TRACETLREF"
#: The maximum number of objects that may differ because they have changed.
_MOST = 1024
#: The minimum number of objects in a dump.
_LEAST = 10000
_END = struct.pack("<q", -1)


#: The negated errnos if the system refuses to fork the process that walks the heap
#: (bare_fork.c), as an emulator does.
_REFUSED = {-errno.EINVAL, -errno.ENOSYS, -errno.EPERM}


class RefusedError(Exception):
    """The system always refuses to fork the process that walks the heap."""


def row_of_threads(types: Types) -> int:
    """Return the row of the type with the references of each thread.

    Raises:
        NotCertain: no type, or more than one, has this name.
    """
    found = [row for row, name in enumerate(types.names[:len(types.numbers)])
             if types.numbers[row] and name.startswith(_THREADS)]
    if len(found) != 1:
        raise NotCertain("%d types have the name of the type with the references of "
                         "threads" % len(found))
    return found[0]


def _specimens() -> Any:
    """Return objects with a custom trace function, namely stacks that do not run."""
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
        pass            # some builds do not have this module

    def generate() -> Iterator[list[int]]:
        only_here = [1, 2]
        yield only_here
        yield only_here

    generator = generate()
    next(generator)
    return [*kept, generator]


def _file() -> int:
    """Return the descriptor of a temporary file.

    A file object has a finalizer, and would be a new root.
    """
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


def _dump(fd: int) -> bytes:
    """Dump the heap to the file `fd`, and return the dump.

    A pipe is unsuitable: after an incomplete write, the GC's flags would be wrong.
    """
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    gc.dump_rpy_heap(fd)
    size = os.fstat(fd).st_size
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as whole:
        return whole[:]


def _record(dump: bytes, address: int) -> bytes:
    """Return the record of the object at an address in a dump, or b""."""
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
    """Compare the walk of native/held with the GC's dump.

    Args:
        memory: the memory of this process.
        types: the type table.
        text: the text for native/held.

    Returns:
        A description of the result, for a finding.

    Raises:
        NotCertain: the walk differs from the dump.
        RefusedError: the system refuses the forked process.
    """
    kept, fd = _specimens(), _file()
    encoded = text.encode("utf-8", "replace")
    asked = question(row_of_threads(types))
    gc.collect()                # the list `asked` becomes old, and does not move
    gc.collect()
    asked[0] = question(row_of_threads(types))[0]
    gc.collect_step()           # a minor collection
    before = _dump(fd)
    differ = memory.held_compare(encoded, id(asked), before, _MOST)
    after = _dump(fd)
    if differ.found in _REFUSED:
        raise RefusedError(problem(-differ.found))
    if differ.found < 0:
        raise NotCertain("%s" % problem(-differ.found))
    words = len(before) // 8
    if words < 4 * _LEAST:
        raise NotCertain("the GC dumped only %d words" % words)
    if differ.found > _MOST:
        raise NotCertain("%d objects differ from the GC's dump" % differ.found)
    changed = 0
    for address in differ.addresses:
        record = _record(before, address)
        if record and record == _record(after, address):
            row = struct.unpack_from("<q", record, 8)[0]
            raise NotCertain("an object differs from the GC's dump: %s"
                             % types.names[row][:80])
        changed += 1
    kept[0].set()
    os.close(fd)
    return "%d objects agree with the GC's dump; %d changed meanwhile" % (
        before.count(_END), changed)
