"""The addresses of PyPy's code and data in this process, for the hook engine.

A *layout* is the list of the addresses in one build of PyPy.  Runs on PyPy 2.7.
"""
import os
import struct
import sys

#: ELF's type of a segment with notes, and the type of a note with a build ID
PT_NOTE, NT_GNU_BUILD_ID = 4, 3
#: a function that each libpypy exports, by which its address is found
MAIN = "pypy_main_startup"
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engines",
                       "hook")

_filler = "x" * 10000
#: the JIT cannot remove the allocation of an object that is stored here
_sink = [None]


class Refused(Exception):
    """The reason why the program cannot be sampled, or its profile is not complete."""


class Process(object):
    """This process, in which PyPy's library is loaded.

    Addresses are relative to the address at which the library is loaded, as in a
    Layout.
    """

    def __init__(self):
        """Find the loaded library of PyPy.  Raises Refused."""
        if not hasattr(sys, "pypy_version_info") or sys.version_info[0] != 2:
            raise Refused("this command needs PyPy 2.7, but %s is another interpreter"
                          % sys.executable)
        try:
            abi = {}
            # execute the file, so that sys.modules gets no further module
            with open(os.path.join(PACKAGE, "_hook_abi.py")) as file:
                exec(file.read(), abi)
            self.ffi = abi["ffi"]
            with open("/proc/self/maps") as file:
                maps = [line.split(None, 5) for line in file]
        except EnvironmentError as e:
            raise Refused("sampling a stock PyPy needs %s: %s" % (
                e.filename, e.strerror))
        try:
            inside = int(self.ffi.cast("uintptr_t", self.ffi.addressof(
                self.ffi.dlopen(None), MAIN)))
        except AttributeError:
            raise Refused("cannot sample %s: a stock PyPy needs a library with PyPy's "
                          "code. Translate it with --shared, or with all "
                          "patches" % sys.executable)
        starts = {}
        for fields in maps:
            start, end = (int(part, 16) for part in fields[0].split("-"))
            path = fields[5].rstrip("\n") if len(fields) > 5 else ""
            starts.setdefault(path, start)      # /proc/self/maps is sorted by address
            if start <= inside < end:
                self.path, self.base = path, starts[path]

    def bytes_at(self, address, size):
        """Return a copy of the bytes at an address."""
        return self.ffi.buffer(
            self.ffi.cast("char *", self.base + address), size)[:]

    def word(self, address):
        """Return a pointer to the word at an address.

        A store through this pointer takes one instruction, and happens with the GIL.
        """
        return self.ffi.cast("uint64_t *", self.base + address)

    def notes(self):
        """Yield the segments of the loaded library that contain ELF notes.

        The segments are read from memory, because the file may have been replaced.
        Raises Refused.
        """
        head = self.bytes_at(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise Refused("%s has no 64-bit ELF header in memory" % self.path)
        table, = struct.unpack_from("<Q", head, 32)
        entry_size, entries = struct.unpack_from("<HH", head, 54)
        for i in range(entries):
            kind, _, _, address, _, size = struct.unpack_from(
                "<IIQQQQ", self.bytes_at(table + i * entry_size, 56))
            if kind == PT_NOTE:
                yield self.bytes_at(address, size)


class Layout(object):
    """The layout of a build of PyPy: addresses of the GC's code and data.

    The package for Python 3 finds the layout, and passes it as text
    (vmprof_allocation.engines.hook.discovery.layout).
    """

    #: names of the addresses; they are relative, and place() makes all but 0 absolute
    ADDRESSES = ("nursery_free", "nursery_top", "entry", "slot", "type_info")
    #: names of other numbers
    OTHERS = ("moved", "slots_read_only", "type_fixed_size", "type_item_size")

    def __init__(self, text):
        """Parse the text of a layout.  Raises Refused."""
        try:
            fields = dict(line.split("=", 1) for line in text.splitlines())
            self.build_id = bytearray.fromhex(fields["build_id"])
            self.code = [bytearray.fromhex(code)
                         for code in fields["code"].split(",")]
            self.numbers = {name: [int(number)
                                   for number in fields[name].split(",")]
                            for name in self.ADDRESSES + self.OTHERS}
            self.entry = self.numbers["entry"]
            self.nursery_free, = self.numbers["nursery_free"]
            self.nursery_top, = self.numbers["nursery_top"]
            if fields["machine"] != "x86_64":
                raise ValueError("it is for " + fields["machine"])
            if len(self.entry) != 3 or map(len, self.code) != [16] * 3:
                raise ValueError("it needs 16 bytes of code of 3 functions")
        except (ValueError, KeyError) as e:
            raise Refused("the build profile of this PyPy is invalid: %r" % (e,))

    def check(self, process):
        """Raise Refused unless this is the layout of `process`."""
        note = struct.pack("<III", 4, len(self.build_id), NT_GNU_BUILD_ID)
        if not any(note + b"GNU\0" + self.build_id in found
                   for found in process.notes()):
            raise Refused("the build profile is for another build than %s"
                          % process.path)
        for address, code in zip(self.entry, self.code):
            if process.bytes_at(address, len(code)) != code:
                raise Refused("the code at 0x%x in %s differs from the build profile "
                              "(does another tool patch this process?)"
                              % (address, process.path))
        free = process.word(self.nursery_free)
        top = process.word(self.nursery_top)
        # The two allocations differ only in the size of their objects.  They are
        # repeated, because a collection may happen between them.
        if not (self.nursery_free < self.nursery_top and free[0] <= top[0]
                and any(_moved(free, 8016) - _moved(free, 16) == 8000
                        for _ in range(20))):
            raise Refused("the word at 0x%x in %s is nursery_free in the build "
                          "profile, but allocations do not move it towards the word at "
                          "0x%x" % (self.nursery_free, process.path,
                                            self.nursery_top))

    def place(self, process):
        """Return the layout as the struct hook_place of native/hook/hook.h."""
        place = process.ffi.new("struct hook_place *")
        place.base = process.base
        # the layouts of types and of the GC's state are unknown in PyPy 2.7
        place.gc_state = place.type_info_bits = place.type_length = -1
        for name, numbers in self.numbers.items():
            if name in self.ADDRESSES:
                numbers = [number and process.base + number
                           for number in numbers]
            setattr(place, name, numbers if len(numbers) > 1 else numbers[0])
        return place


def _moved(free, size):
    """Return by how many bytes an allocation of 'size' bytes moves nursery_free."""
    before = free[0]
    _sink[0] = _filler[:size]
    return free[0] - before
