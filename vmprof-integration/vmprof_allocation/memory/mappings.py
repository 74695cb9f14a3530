"""Read the mappings of this process, and find out the kind of each mapping.

/proc/self/smaps contains the resident bytes of each mapping, the part of these bytes
that no other process has, and the swapped bytes. It does not contain the purpose of the
mapping. This module derives the purpose, the *kind*, from the name, the permissions,
the address, and the first words in the mapped memory.
"""
from __future__ import annotations

import os

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Kinds of mappings. PYPY, LIBRARIES and FILES are files. SHARED is memory that several
#: processes can write to. STACKS are stacks of threads. CODE is machine code that was
#: made in memory. ARENAS are heaps that malloc divides, and BLOCKS are malloc's blocks
#: with their own mapping. ANONYMOUS is the rest.
PYPY, LIBRARIES, FILES, SHARED, STACKS, CODE, ARENAS, BLOCKS, ANONYMOUS = KINDS = (
    "pypy", "libraries", "files", "shared", "stacks", "code", "arenas", "blocks",
    "anonymous")
PAGE = os.sysconf("SC_PAGE_SIZE")

#: bytes that are read at once, so that they fit into the nursery
_PIECE = 2**15
_WANTED = {b"Rss": "resident", b"Private_Clean": "private", b"Private_Dirty": "private",
           b"Swap": "swapped", b"Private_Hugetlb": "huge", b"Shared_Hugetlb": "huge",
           b"AnonHugePages": "transparent"}
#: beginnings of the names of files that processes map to share memory
_SHARED = ("/dev/zero", "/memfd:", "/dev/shm/", "/SYSV")
#: Alignment in bytes of a heap of glibc's malloc, except the main arena's heap. A heap
#: begins with a struct heap_info: the address of the arena, the previous heap, the
#: bytes in use, and the writable bytes. An arena's first heap also contains the arena,
#: after this struct.
_HEAP = 2**26
_BEHIND_HEAP_INFO = (0x20, 0x30)
#: size of a thread's stack in glibc if the stack size is not limited
_STACK = 2**21
#: maximum size in bytes of the inaccessible pages below a stack
_MOST_GUARD = 2**16
#: maximum number of bytes to read of an ELF file's program headers
_SEGMENTS = 56 * 64
#: maximum number of pages to search for blocks in mappings without a block at the start
_MOST_PAGES = 2**14
#: flag of glibc's malloc in the size of a block with its own mapping (IS_MMAPPED)
_HAS_MAPPING = 2
#: size in bytes of the header of a block with its own mapping
_BLOCK_HEAD = 16


class Mapping:
    """A mapping of this process; its sizes are in bytes."""

    __slots__ = ("device", "end", "huge", "inode", "name", "offset", "permissions",
                 "private", "resident", "start", "swapped", "transparent")

    def __init__(self, start: int, end: int, permissions: bytes, offset: int,
                 device: str, inode: int, name: str) -> None:
        """Set the values that /proc/self/maps contains; the sizes are 0."""
        self.start = start
        self.end = end
        self.permissions = permissions
        self.offset = offset
        #: device in the kernel's form, such as 08:01
        self.device = device
        self.inode = inode
        #: name of the file, or a name such as [stack]; empty for anonymous memory
        self.name = name
        self.resident = 0
        #: part of `resident` that no other process has
        self.private = 0
        self.swapped = 0
        #: size of reserved huge pages (hugetlbfs), which `resident` does not contain
        self.huge = 0
        #: part of `resident` in pages that the kernel made huge
        self.transparent = 0


class Amount:
    """Sums over mappings of one kind, in bytes.

    `size` is the sum of the address ranges.
    """

    __slots__ = ("private", "resident", "size", "swapped")

    def __init__(self) -> None:
        """Set all sums to 0."""
        self.resident = self.private = self.swapped = self.size = 0

    def add(self, mapping: Mapping) -> None:
        """Add the sizes of a mapping to the sums."""
        self.resident += mapping.resident
        self.private += mapping.private
        self.swapped += mapping.swapped
        self.size += mapping.end - mapping.start


def places() -> list[Mapping]:
    """Return the mappings of this process; their resident bytes are 0.

    Raises:
        OSError: /proc cannot be read.
    """
    return read("/proc/self/maps")


def read(path: str = "/proc/self/smaps") -> list[Mapping]:
    """Return the mappings of this process, with their resident bytes.

    The kernel examines each resident page. During a part of this time, threads that map
    memory have to wait.

    Args:
        path: smaps, or maps, which has no resident bytes.

    Raises:
        OSError: the file cannot be read.
    """
    found: list[Mapping] = []
    for line in _lines(path):
        if line[:1].isupper():
            name, _, value = line.partition(b":")
            field = _WANTED.get(name)
            if field is not None:
                mapping = found[-1]
                setattr(mapping, field, getattr(mapping, field)
                        + int(value.split()[0]) * 1024)
            continue
        words = line.split(None, 5)
        start, _, end = words[0].partition(b"-")
        mapping = Mapping(
            int(start, 16), int(end, 16), words[1], int(words[2], 16),
            words[3].decode("ascii"), int(words[4]),
            os.fsdecode(words[5]).strip() if len(words) > 5 else "")
        # the file is read in pieces, so a mapping that grows meanwhile may occur twice
        while found and found[-1].end > mapping.start:
            found.pop()
        found.append(mapping)
    return found


def _lines(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        rest = b""
        while piece := os.read(fd, _PIECE):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            yield from lines
    finally:
        os.close(fd)


def file_at(mappings: list[Mapping], address: int) -> Mapping | None:
    """Return the first mapping of the file that is mapped at an address.

    Returns:
        None if no file is mapped at the address.
    """
    for mapping in mappings:
        if mapping.start <= address < mapping.end and mapping.inode:
            return next(m for m in mappings
                        if (m.device, m.inode) == (mapping.device, mapping.inode))
    return None


class Kinds:
    """The amount of memory of each kind."""

    def __init__(self, mappings: list[Mapping], pypy: int) -> None:
        """Find out the kind of each mapping.

        Args:
            mappings: the mappings, from read().
            pypy: an address in PyPy's code.

        Raises:
            OSError: /proc cannot be read.
        """
        self.amounts = {kind: Amount() for kind in KINDS}
        #: addresses of malloc's arenas; 0 for the main arena
        self.arenas: set[int] = set()
        library = file_at(mappings, pypy)
        self._pypy = {os.path.realpath("/proc/self/exe"),
                      library.name if library is not None else ""}
        self._pages_left = _MOST_PAGES
        #: end address of the last block, and end address of the adjacent mappings over
        #: which a block may extend
        self._block_end = self._run_end = 0
        #: address and bytes of malloc's blocks with their own mapping
        self._found: list[tuple[int, int]] = []
        self._stack_pointers = _stack_pointers()
        self._stack_size = _stack_size()
        self._memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._sort(mappings)
        finally:
            os.close(self._memory)

    def _sort(self, mappings: list[Mapping]) -> None:
        ends = _ends_of_runs(mappings)
        before: Mapping | None = None
        #: kind of the last file, and end of the addresses that were mapped for the file
        of_file, end_of_file = FILES, 0
        for mapping, self._run_end in zip(mappings, ends):
            if mapping.inode:
                kind = self._kind_of_file(mapping)
                if kind != of_file or mapping.offset == 0:
                    end_of_file = 0
                of_file = kind
                if kind in (PYPY, LIBRARIES) and mapping.offset == 0:
                    end_of_file = self._end_of_library(mapping.start)
                self.amounts[kind].add(mapping)
            elif mapping.start < end_of_file:
                # data of a library that begin as zeros (.bss)
                self._anonymous(mapping, end_of_file, of_file)
            elif before is not None and self._is_stack(mapping, before):
                self._anonymous(mapping, mapping.start + self._stack_size, STACKS)
            else:
                self._anonymous(mapping, mapping.start, ANONYMOUS)
            before = mapping

    def _anonymous(self, mapping: Mapping, at: int, below: str) -> None:
        """Add an anonymous mapping.

        The kernel merges adjacent mappings with the same permissions. So a mapping may
        contain memory of two kinds.

        Args:
            mapping: the mapping.
            at: address up to which the memory is of the kind `below`.
            below: the kind of the memory below `at`.
        """
        parts: list[tuple[int, int, str]] = []
        if at > mapping.start:
            parts.append((mapping.start, min(at, mapping.end), below))
        if at < mapping.end:
            kind = self._kind_of_anonymous(mapping, at)
            if kind == ANONYMOUS and (mapping.resident + mapping.swapped
                                      or at < self._block_end):
                parts += self._blocks(at, mapping.end)
            else:
                parts.append((at, mapping.end, kind))
        left = mapping
        for _, end, kind in parts[:-1]:
            part, left = _divided(left, end)
            self.amounts[kind].add(part)
        self.amounts[parts[-1][2]].add(left)

    def _kind_of_file(self, mapping: Mapping) -> str:
        name = mapping.name
        if name.startswith(_SHARED):
            return SHARED
        if name in self._pypy:
            return PYPY
        base = os.path.basename(name)
        return LIBRARIES if base.endswith(".so") or ".so." in base else FILES

    def _kind_of_anonymous(self, mapping: Mapping, address: int) -> str:
        name = mapping.name
        if name == "[heap]":
            self.arenas.add(0)
            return ARENAS
        if name == "[stack]":
            return STACKS
        if name and not name.startswith("[anon"):
            return LIBRARIES        # memory of the kernel, such as [vdso]
        if b"x" in mapping.permissions:
            return CODE
        arena, end = self._heap_around(address)
        if b"w" in mapping.permissions and address < end:
            self.arenas.add(arena)
            return ARENAS
        return ANONYMOUS

    def _is_stack(self, mapping: Mapping, before: Mapping) -> bool:
        if mapping.name.startswith("[") and not mapping.name.startswith("[anon"):
            return False
        if b"x" in mapping.permissions or b"w" not in mapping.permissions:
            return False
        if any(mapping.start <= pointer < mapping.end
               for pointer in self._stack_pointers):
            return True
        # glibc keeps the stacks of ended threads for new threads. Inaccessible pages
        # below a mapping show such a stack, unless the pages are the unused rest of a
        # heap.
        return (before.end == mapping.start and before.permissions == b"---p"
                and before.end - before.start <= _MOST_GUARD and not before.inode
                and self._heap_around(before.start)[1] != before.start
                and self._heap_around(mapping.start)[1] <= mapping.start)

    def _blocks(self, start: int, end: int) -> list[tuple[int, int, str]]:
        """Find malloc's blocks with their own mapping in a range of anonymous memory.

        Such a block begins at a page, with a word that is 0. The next word is the size
        of the block.

        Returns:
            The parts of the range, (start, end, kind). The kind of a part is BLOCKS or
            ANONYMOUS.
        """
        parts: list[tuple[int, int, str]] = []
        at = start
        while at < end:
            size = (min(self._block_end, end) - at if at < self._block_end
                    else self._block(at, end))
            kind = BLOCKS
            if not size:
                kind, size = ANONYMOUS, PAGE
                self._pages_left -= 1
                if self._pages_left < 0:
                    size = end - at
            if parts and parts[-1][2] == kind:
                parts[-1] = parts[-1][0], at + size, kind
            else:
                parts.append((at, at + size, kind))
            at += size
        return parts

    def _block(self, address: int, end: int) -> int:
        """Return the bytes of the block at an address that are before `end`.

        The result is 0 if no block with its own mapping begins there.
        """
        size = self._word(address + 8)
        if size % PAGE == _HAS_MAPPING and self._word(address) == 0:
            size -= _HAS_MAPPING
            if 0 < size <= self._run_end - address:
                # the block may extend over several mappings, because madvise() divides
                # mappings
                self._block_end = address + size
                self._found.append((address, size))
                return min(size, end - address)
        return 0

    def written(self, requested: int) -> int | None:
        """Return how many bytes of a block with its own mapping have been written to.

        Args:
            requested: The bytes that the caller requested from malloc.

        Returns:
            The bytes of the block that are resident or swapped out. None if no block,
            or more than one, has the requested size.

        Raises:
            OSError: The kernel does not tell which pages are resident.
        """
        size = (requested + _BLOCK_HEAD + PAGE - 1) & ~(PAGE - 1)
        found = [address for address, of_block in self._found if of_block == size]
        if len(found) != 1:
            return None
        return sum(_pages(found[0], found[0] + size)) * PAGE

    def _word(self, address: int) -> int:
        """Return the word at an address, or 0 if the address is not mapped."""
        try:
            return int.from_bytes(os.pread(self._memory, 8, address), "little")
        except (OSError, OverflowError):
            return 0

    def _heap_around(self, address: int) -> tuple[int, int]:
        """Find the heap of malloc that contains an address.

        Returns:
            The address of the heap's arena, and the end of its writable memory. Both
            are 0 if no heap contains the address.
        """
        base = address & ~(_HEAP - 1)
        arena, before, size, writable = (self._word(base + 8 * i) for i in range(4))
        if (0 < size <= writable <= _HEAP and size % PAGE == writable % PAGE == 0
                and arena % _HEAP in _BEHIND_HEAP_INFO
                and (arena - base in _BEHIND_HEAP_INFO if before == 0
                     else before % _HEAP == 0)):
            return arena, base + writable
        return 0, 0

    def _end_of_library(self, start: int) -> int:
        """Return the end of a library's memory, according to its ELF header.

        The end is rounded up to a page. It is 0 if no ELF header is at `start`.
        """
        try:
            head = os.pread(self._memory, 64, start)
            if head[:6] != b"\x7fELF\x02\x01":
                return 0
            table = int.from_bytes(head[32:40], "little")
            count = int.from_bytes(head[56:58], "little")
            entries = os.pread(self._memory, min(56 * count, _SEGMENTS),
                               start + table)
        except (OSError, OverflowError):
            return 0
        first, end = None, 0
        for at in range(0, len(entries) - 55, 56):
            if int.from_bytes(entries[at:at + 4], "little") == 1:       # PT_LOAD
                address = int.from_bytes(entries[at + 16:at + 24], "little")
                first = address if first is None else first
                end = max(end, address + int.from_bytes(
                    entries[at + 40:at + 48], "little"))
        if first is None:
            return 0
        end += start - (first & ~(PAGE - 1))
        return (end + PAGE - 1) & ~(PAGE - 1)


def _ends_of_runs(mappings: list[Mapping]) -> list[int]:
    """Return, for each mapping, the end address of the run that it belongs to.

    A run is a sequence of anonymous mappings with equal permissions and without gaps.
    """
    ends: list[int] = []
    behind: Mapping | None = None
    for mapping in reversed(mappings):
        is_one = (behind is not None and mapping.end == behind.start
                  and not mapping.name and not behind.name
                  and mapping.permissions == behind.permissions)
        ends.append(ends[-1] if is_one else mapping.end)
        behind = mapping
    return ends[::-1]


def _stack_pointers() -> list[int]:
    """Return the stack pointers of those threads that wait in a system call."""
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/syscall" % thread, "rb") as file:
                words = file.read().split()
            if len(words) >= 3:
                found.append(int(words[-2], 16))
        except (OSError, ValueError):
            pass            # the thread has ended, or the kernel has no such file
    return found


def _stack_size() -> int:
    """Return the default size of a thread's stack in bytes."""
    try:
        with open("/proc/self/limits", "rb") as file:
            for line in file:
                if line.startswith(b"Max stack size"):
                    return int(line.split()[3])
    except (OSError, ValueError, IndexError):
        pass                # the stack size is not limited
    return _STACK


def _divided(mapping: Mapping, at: int) -> tuple[Mapping, Mapping]:
    """Divide a mapping into the parts below and above an address.

    Sizes that are unknown for the parts are estimated from the sizes of the mapping.

    Raises:
        OSError: /proc cannot be read.
    """
    parts = []
    for start, end in ((mapping.start, at), (at, mapping.end)):
        parts.append(Mapping(start, end, mapping.permissions, mapping.offset,
                             mapping.device, mapping.inode, mapping.name))
    first, second = parts
    pages = [_pages(part.start, part.end) for part in parts]
    for number, name in enumerate(("resident", "swapped")):
        whole = getattr(mapping, name)
        of_first = pages[0][number]
        both = of_first + pages[1][number]
        of_first = whole * of_first // both // PAGE * PAGE if both else 0
        setattr(first, name, of_first)
        setattr(second, name, whole - of_first)
    if mapping.resident:
        first.private = mapping.private * first.resident // mapping.resident
        second.private = mapping.private - first.private
    return first, second


def _pages(start: int, end: int) -> tuple[int, int]:
    """Return how many pages of a range are resident, and how many are swapped out.

    Raises:
        OSError: /proc cannot be read.
    """
    fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        resident, swapped, at, last = 0, 0, start // PAGE, end // PAGE
        while at < last:
            told = os.pread(fd, 8 * min(last - at, _PIECE // 8), 8 * at)
            if not told:
                break
            # the two highest bits are in the highest byte
            for byte in told[7::8]:
                if byte & 0x80:
                    resident += 1
                elif byte & 0x40:
                    swapped += 1
            at += len(told) // 8
        return resident, swapped
    finally:
        os.close(fd)
