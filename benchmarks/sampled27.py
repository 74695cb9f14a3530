"""Run a program with allocation sampling.  Runs on PyPy 2.7.

    sampled27.py PACKAGE LAYOUT INTERVAL LIMIT OUTPUT PROGRAM [ARGUMENTS]
    sampled27.py PACKAGE

What the hook engine's Python half does, which needs Python 3, for a program that
needs Python 2: RPython's toolchain.  PACKAGE is the folder of an installed
vmprof_allocation, LAYOUT what its find.py has left of the file that holds
this PyPy's code; which one that is, the second form prints.  INTERVAL is the
mean number of bytes between two samples; LIMIT is empty, or as the profile
has it (1000/s, 5000ppm).  The profile goes to OUTPUT.

Ends as the program does; or with exit code 2 if it can't be sampled, and
nothing has run then; or with 1 if the profile is not complete.
"""
import os
import struct
import sys
import types

#: the loader's kind of a segment with notes, and the kind of a build id
PT_NOTE, NT_GNU_BUILD_ID = 4, 3
#: bytes of an object that PyPy makes with external_malloc(): native/hook/hook.h
KNOCK = 2**18

_filler = "x" * 10000
#: what is stored here was really allocated, whatever the JIT thinks
_sink = [None]


class Refused(Exception):
    """The program can't be sampled; nothing was changed."""


class Process(object):
    """PyPy's code and data in this process.  Addresses are relative to where
    it is loaded, as in a layout."""

    def __init__(self, package):
        if not hasattr(sys, "pypy_version_info") or sys.version_info[0] != 2:
            raise Refused("this needs PyPy 2.7, and %s is not one"
                          % sys.executable)
        abi = {}
        # not an import: it would need PACKAGE's modules on the program's path
        with open(os.path.join(package, "_hook_abi.py")) as file:
            exec(file.read(), abi)
        self.ffi = abi["ffi"]
        with open("/proc/self/maps") as file:
            maps = [line.split(None, 5) for line in file]
        inside = int(self.ffi.cast("uintptr_t", self.ffi.addressof(
            self.ffi.dlopen(None), "pypy_main_startup")))
        starts = {}
        for fields in maps:
            start, end = (int(part, 16) for part in fields[0].split("-"))
            path = fields[5].rstrip("\n") if len(fields) > 5 else ""
            starts.setdefault(path, start)      # the maps are in order
            if start <= inside < end:
                self.path, self.base = path, starts[path]

    def bytes_at(self, address, size):
        return self.ffi.buffer(
            self.ffi.cast("char *", self.base + address), size)[:]

    def word(self, address):
        """A pointer: a store through it is one instruction, made while the
        interpreter holds the GIL."""
        return self.ffi.cast("uint64_t *", self.base + address)

    def notes(self):
        """From the ELF header in memory: this is what runs, whatever the file
        holds by now."""
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
    """vmprof_allocation.engines.hook.layout, from its text."""

    #: in struct hook_place these become addresses of the process; 0 stays 0
    ADDRESSES = ("nursery_free", "nursery_top", "entry", "slot", "type_info")
    OTHERS = ("moved", "slots_read_only", "type_fixed_size", "type_item_size")

    def __init__(self, path):
        try:
            with open(path) as file:
                fields = dict(line.rstrip("\n").split("=") for line in file
                              if not line.startswith("check="))
            self.build_id = bytearray.fromhex(fields["build_id"])
            self.code = [bytearray.fromhex(code)
                         for code in fields["code"].split(",")]
            self.numbers = {name: [int(number)
                                   for number in fields[name].split(",")]
                            for name in self.ADDRESSES + self.OTHERS}
            self.entry = self.numbers["entry"]
            self.nursery_free, = self.numbers["nursery_free"]
            self.nursery_top, = self.numbers["nursery_top"]
            if len(self.entry) != 3 or map(len, self.code) != [16] * 3:
                raise ValueError("it needs 16 bytes of code of 3 functions")
        except (EnvironmentError, ValueError, KeyError) as e:
            raise Refused("the layout %s can't be used: %s; make it with "
                          "vmprof_allocation.engines.hook.find" % (path, e))

    def check(self, process):
        """Raise Refused unless this is the layout of `process`."""
        note = struct.pack("<III", 4, len(self.build_id), NT_GNU_BUILD_ID)
        if not any(note + b"GNU\0" + self.build_id in found
                   for found in process.notes()):
            raise Refused("the layout is that of another build than %s; make "
                          "it with vmprof_allocation.engines.hook.find" % process.path)
        for address, code in zip(self.entry, self.code):
            if process.bytes_at(address, len(code)) != code:
                raise Refused("the code at 0x%x in %s is not what the layout "
                              "says (does another tool patch this process?)"
                              % (address, process.path))
        free = process.word(self.nursery_free)
        top = process.word(self.nursery_top)
        # the only difference between the two is the size of one object;
        # again, if a collection came between
        if not (self.nursery_free < self.nursery_top and free[0] <= top[0]
                and any(_moved(free, 8016) - _moved(free, 16) == 8000
                        for _ in range(20))):
            raise Refused("allocating does not move the word at 0x%x in %s, "
                          "which the layout takes for nursery_free, towards "
                          "that at 0x%x" % (self.nursery_free, process.path,
                                            self.nursery_top))

    def place(self, process):
        """As native/hook/hook.h has it."""
        place = process.ffi.new("struct hook_place *")
        place.base = process.base
        for name, numbers in self.numbers.items():
            if name in self.ADDRESSES:
                numbers = [number and process.base + number
                           for number in numbers]
            setattr(place, name, numbers if len(numbers) > 1 else numbers[0])
        return place


def _moved(free, size):
    before = free[0]
    _sink[0] = _filler[:size]
    return free[0] - before


class Sampler(object):
    """HookEngine, for one run."""

    def __init__(self, process, layout, package):
        self.process, self.layout = process, layout
        self.lib = process.ffi.dlopen(os.path.join(package, "_hook.so"))
        for name in dir(self.lib):
            if name.startswith("hook_"):
                getattr(self.lib, name)     # made on first use: not later
        self.check(self.lib.hook_prepare(layout.place(process)),
                   "preparing the hooks")

    @staticmethod
    def check(error, what):
        if error:
            raise Refused("%s failed: %s" % (what, os.strerror(error)))

    def start(self, fd, interval, limit):
        import _vmprof
        seed, = struct.unpack("<Q", os.urandom(8))
        settings = ("engine=hook;interval=%d;gaps=exponential;seed=%d;"
                    "period=;pid=%d;limit=%s;capabilities=limits" % (
                        interval, seed, os.getpid(), limit))
        try:
            decoy = self.lib.hook_open(fd)
            self.check(-min(decoy, 0), "taking vmprof's output over")
            # the longest period; hook_enabled() stops the timer
            _vmprof.enable(decoy, 0.99, 0, 0, 0, 0)
            self.check(self.lib.hook_enabled(settings.encode("ascii"), 0),
                       "beginning the profile")
            if limit.endswith("/s"):
                self.lib.hook_limit(int(limit[:-2]), 0)
            elif limit:
                self.lib.hook_limit(0, int(limit[:-3]))
            self.check(self.lib.hook_hook(interval, seed, 0, 0),
                       "hooking the garbage collector")
            self.process.word(self.layout.entry[2])[0] = self.lib.hook_door()
            knock(0)
            if not self.lib.hook_is_sampling():
                raise Refused("the garbage collector can't be hooked")
        except BaseException:
            self.stop()
            raise

    def stop(self):
        """Put everything back, however far start() came.  Returns 0 or the
        errno of what the profile lacks."""
        import _vmprof
        for size in range(100):
            self.lib.hook_unhook()
            if not self.lib.hook_is_hooked():
                break
            knock(size)
        if self.lib.hook_disabling():
            try:
                _vmprof.disable()
            except _vmprof.VMProfError:
                pass            # it was not enabled
        return self.lib.hook_close()


def knock(size):
    _sink[0] = bytearray(KNOCK + size)
    _sink[0] = None


def run(path):
    """As `pypy path` would."""
    import __builtin__
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtin__)
    sys.modules["__main__"] = main
    with open(path) as file:
        code = compile(file.read(), path, "exec", 0, True)
    exec(code, main.__dict__)


def main(package, layout, interval, limit, output, *program):
    process, layout = Process(package), Layout(layout)
    layout.check(process)
    sampler = Sampler(process, layout, package)
    try:
        fd = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as e:
        raise Refused("can't write the profile to %s: %s" % (
            output, e.strerror))
    sampler.start(fd, int(interval), limit)
    pid, error = os.getpid(), 0
    sys.argv[:] = program
    try:
        run(program[0])
    finally:
        if os.getpid() == pid:          # a forked child is not sampled
            error = sampler.stop()
        if error:
            sys.exit("sampled27.py: the profile %s is not complete: %s" % (
                output, os.strerror(error)))


if __name__ == "__main__":
    try:
        if len(sys.argv) == 2:
            print(Process(sys.argv[1]).path)
        else:
            main(*sys.argv[1:])
    except Refused as e:
        sys.stderr.write("sampled27.py: %s; nothing was run\n" % e)
        sys.exit(2)
