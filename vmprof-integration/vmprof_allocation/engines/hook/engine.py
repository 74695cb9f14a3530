"""The live carrier: sampling in a PyPy that nobody patched.

native/live.c does the work.  This side finds the place (:mod:`find`), checks
it against the running process, and opens the door to the GC (native/live.h):
that is one store through a cffi pointer, one machine instruction, made by the
interpreter while it holds the GIL.  Code that holds no GIL can't be inside
the GC.
"""
from __future__ import annotations

import errno
import os
import struct
import sys

from vmprof_allocation.carrier import (
    Carrier,
    Settings,
    Statistics,
    empty,
    refuse_second,
)
from vmprof_allocation.errors import (
    AllocationSamplingError,
    Evidence,
    Finding,
    UnknownBuild,
)
from vmprof_allocation.interrupts import Lock, Section
from vmprof_allocation.layout import ENTRIES, IMPORTS, Layout

# nothing that is not needed: see carrier.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIBRARY = os.path.join(os.path.dirname(__file__), "_live.so")
#: of ELF: kinds of segments, and their flags
PT_LOAD, PT_NOTE = 1, 4
PF_X, PF_W = 1, 2
#: bytes of an object that PyPy makes with external_malloc(), whatever its
#: version: more than fit into any nursery's share for one object
KNOCK = 2**18

#: for the command line: called before a search, which takes a second or more,
#: with the path where its answer will be remembered, if there is one
searching: Callable[[str | None], None] | None = None


def unsupported() -> str | None:
    """Why this interpreter can't be sampled at all, or None."""
    if sys.implementation.name != "pypy":
        name = {"cpython": "CPython"}.get(sys.implementation.name,
                                          sys.implementation.name)
        return ("allocation sampling works on PyPy; this is %s %d.%d. Run it "
                "with pypy3" % (name, *sys.version_info[:2]))
    if sys.platform != "linux":
        return ("sampling an unpatched PyPy works on Linux; this is %s"
                % sys.platform)
    machine = os.uname().machine
    if machine != "x86_64" or sys.maxsize < 2**32:
        return ("sampling an unpatched PyPy works on x86-64; this is %s"
                % machine)
    return None


# ____________________________________________________________
# where it is

class Mapping:
    """A line of /proc/self/maps."""

    __slots__ = ("end", "path", "permissions", "start")

    def __init__(self, line: str):
        fields = line.split(None, 5)
        start, _, end = fields[0].partition("-")
        self.start, self.end = int(start, 16), int(end, 16)
        self.permissions = fields[1]
        self.path = fields[5].rstrip("\n") if len(fields) > 5 else ""


def read_maps() -> list[Mapping]:
    try:
        with open("/proc/self/maps") as file:
            return [Mapping(line) for line in file]
    except OSError as e:
        raise AllocationSamplingError(
            "sampling an unpatched PyPy needs /proc/self/maps: %s"
            % e.strerror) from None


class Process(Evidence):
    """The nursery of this process: addresses, checked in memory."""

    def __init__(self, knowledge: str = "") -> None:
        super().__init__()
        reason = unsupported()
        if reason is not None:
            raise AllocationSamplingError(reason)
        try:
            # made by setup.py
            from vmprof_allocation import _live_abi  # type: ignore[attr-defined,unused-ignore]
            self.ffi: Any = _live_abi.ffi
            self.lib: Any = self.ffi.dlopen(LIBRARY)
        except ImportError:
            raise AllocationSamplingError(
                "the native part of vmprof-allocation is missing in %s: "
                "install the package with pip where there is a C compiler"
                % os.path.dirname(__file__)) from None
        except Exception as e:      # also cffi's own error
            raise AllocationSamplingError(
                "the native part of vmprof-allocation can't be loaded: %s; "
                "install the package with pip where there is a C compiler"
                % e) from None
        for name in dir(self.lib):
            if name.startswith("live_"):
                getattr(self.lib, name)     # made on first use: not later
        self.path, self.base = self._find_library()
        self.layout = self._load_layout(knowledge)
        self._check_layout()
        self._check_memory()

    def _find_library(self) -> tuple[str, int]:
        """The file that holds PyPy's code, and where it is loaded."""
        maps = read_maps()
        inside = self._main_function(maps)
        for mapping in maps:
            if mapping.start <= inside < mapping.end:
                path = mapping.path
                break
        else:
            raise self.refuse("PyPy's code", "not mapped")
        if not path.startswith("/") or path.endswith(" (deleted)"):
            raise self.refuse(
                "PyPy's code", "its file %r is gone; start PyPy again" % path)
        base = int(self.lib.live_base(inside))
        if not base:
            raise self.refuse("PyPy's code", "in no loaded file")
        self.found("PyPy's code", "%s at 0x%x" % (path, base))
        return path, base

    def _main_function(self, maps: list[Mapping]) -> int:
        """The address of a function that libpypy exports."""
        # None: of all files whose names are everybody's.  libpypy's are not
        # where a program has loaded it as a plug-in.
        files = [None] + [m.path for m in maps
                          if "x" in m.permissions and "pypy" in m.path]
        problem: Exception | None = None
        for file in files:
            try:
                symbol = self.ffi.addressof(self.ffi.dlopen(file),
                                            "pypy_main_startup")
                return int(self.ffi.cast("uintptr_t", symbol))
            except (AttributeError, OSError, self.ffi.error) as e:
                problem = e
        raise self.refuse("pypy_main_startup", str(problem))

    def bytes_at(self, address: int, size: int) -> bytes:
        """Memory of the library; `address` relative to where it is loaded."""
        return bytes(self.ffi.buffer(
            self.ffi.cast("char *", self.base + address), size))

    def word(self, address: int) -> Any:
        """A cffi pointer to a word in memory; `address` likewise."""
        return self.ffi.cast("uint64_t *", self.base + address)

    def _segments(self) -> list[tuple[int, int, int, int]]:
        """(kind, flags, address, size) of each, from the ELF header in memory:
        this is what runs, whatever the file holds by now."""
        head = self.bytes_at(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise self.refuse("PyPy's code", "it has no 64-bit ELF header")
        table, = struct.unpack_from("<Q", head, 32)
        entry_size, entries = struct.unpack_from("<HH", head, 54)
        segments = []
        for i in range(entries):
            kind, flags, _, address, _, _, size = struct.unpack_from(
                "<IIQQQQQ", self.bytes_at(table + i * entry_size, 56))
            segments.append((kind, flags, address, size))
        return segments

    def _build_id(self) -> str:
        for kind, _, address, size in self._segments():
            note = self.bytes_at(address, size) if kind == PT_NOTE else b""
            while len(note) >= 12:
                name_size, value_size, note_kind = struct.unpack_from(
                    "<III", note)
                value = 12 + (name_size + 3) // 4 * 4
                if note_kind == 3 and note[12:15] == b"GNU":
                    return note[value:value + value_size].hex()
                note = note[value + (value_size + 3) // 4 * 4:]
        raise self.refuse("build-id", "PyPy's code has none")

    def _load_layout(self, knowledge: str) -> Layout:
        """What find.py found, now or earlier."""
        build_id = self._build_id()
        self.found("build-id", build_id)
        try:
            layout = Layout.parse(knowledge)
            if layout.build_id == build_id:
                return layout
        except ValueError:
            pass            # nobody knew
        from vmprof_allocation import cache
        file = cache.path(build_id)
        text = cache.load(file) if file is not None else None
        if text is not None:
            try:
                layout = Layout.parse(text)
                if layout.build_id == build_id:
                    self.found("remembered in", str(file))
                    return layout
            except ValueError:
                pass        # of another version of ours
        if searching is not None:
            searching(file)
        import json
        import subprocess
        # not in the program's folder, where it may have an elftools.py
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        try:
            done = subprocess.run(
                [os.path.abspath(sys.executable), "-m",
                 "vmprof_allocation.find", self.path,
                 *([file] if file is not None else [])],
                stdin=subprocess.DEVNULL, capture_output=True, cwd=folder)
        except OSError as e:
            raise self.refuse("the search", str(e)) from e
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise self.refuse(
                "the search", "it ended with code %d: %s" % (
                    done.returncode,
                    done.stderr.decode("utf-8", "replace").strip()
                    .rpartition("\n")[2])) from None
        self.findings += [tuple(finding) for finding in answer["findings"]]
        if answer["layout"] is None:
            raise UnknownBuild(answer["problem"], self.findings)
        layout = Layout.parse(answer["layout"])
        if layout.build_id != build_id:
            raise self.refuse("build-id", "the file has another one, %s; start "
                              "PyPy again" % layout.build_id)
        return layout

    def _check_layout(self) -> None:
        """Each address has to lie in a segment that holds such things."""
        layout = self.layout
        loaded = [(address, address + size, flags) for kind, flags, address,
                  size in self._segments() if kind == PT_LOAD]
        for what, places, wanted in (
                ("code", layout.entry, PF_X), ("the type table",
                                               [layout.type_info], 0),
                ("data", [layout.gc, layout.nursery_free, layout.nursery_top]
                 + [slot for slot in layout.slot if slot], PF_W)):
            for place in places:
                if place % 8 or not any(
                        start <= place <= end - 16 and flags & wanted == wanted
                        for start, end, flags in loaded):
                    raise self.refuse("the address of %s" % what, "0x%x"
                                      % place)
        if not (len(layout.entry) == len(layout.moved) == len(layout.code)
                == len(ENTRIES) and len(layout.slot) == len(IMPORTS)
                and all(len(code) == 32 for code in layout.code)
                and 0 <= layout.type_fixed_size < 256
                and 0 <= layout.type_item_size < 256):
            raise self.refuse("the layout", layout.text().strip()
                              .replace("\n", " "))

    def _check_memory(self) -> None:
        """What was found in the file has to be true of this process."""
        layout = self.layout
        for name, address, code in zip(ENTRIES, layout.entry, layout.code):
            there = self.bytes_at(address, len(code) // 2).hex()
            if there != code:
                raise self.refuse(
                    "%s in memory" % name, "%s, but %s in the file (does "
                    "another tool patch this process?)" % (there, code))
        free, top = self.word(layout.nursery_free), self.word(layout.nursery_top)
        low, high = int(free[0]), int(top[0])
        if not (layout.gc < layout.nursery_free < layout.nursery_top
                and 0 < low <= high and low % 8 == 0):
            raise self.refuse(
                "the nursery", "nursery_free at 0x%x is 0x%x, nursery_top at "
                "0x%x is 0x%x" % (layout.nursery_free, low,
                                  layout.nursery_top, high))
        if not any(m.start <= low and high <= m.end and m.permissions[:2] == "rw"
                   for m in read_maps()):
            raise self.refuse("the nursery", "0x%x-0x%x is not one piece of "
                              "writable memory" % (low, high))
        small, large = 16, 8016
        for _ in range(20):
            # the only difference between the two is the size of one object;
            # again, if a collection came between
            high = int(top[0])
            moved = self._moved(free, large) - self._moved(free, small)
            if moved == large - small and high == int(top[0]):
                break
        else:
            raise self.refuse(
                "allocating %d bytes more" % (large - small),
                "moved nursery_free by %d, and nursery_top by %d"
                % (moved, int(top[0]) - high))
        self.found("the nursery in memory", "0x%x-0x%x; allocating moves "
                   "nursery_free as expected" % (low, high))

    @staticmethod
    def _moved(free: Any, size: int) -> int:
        before = int(free[0])
        _sink[0] = _filler[:size]
        return int(free[0]) - before


    def prepare_hooks(self) -> None:
        """See live_prepare().  One thread at a time."""
        place = self.ffi.new("struct live_place *")
        base, layout = self.base, self.layout
        place.base = base
        place.nursery_free = base + layout.nursery_free
        place.nursery_top = base + layout.nursery_top
        place.entry = [base + entry for entry in layout.entry]
        place.moved = layout.moved
        place.slot = [slot and base + slot for slot in layout.slot]
        place.slots_read_only = layout.slots_read_only
        place.type_info = base + layout.type_info
        place.type_fixed_size = layout.type_fixed_size
        place.type_item_size = layout.type_item_size
        error = self.lib.live_prepare(place)
        if error == errno.ENOMEM:
            raise self.refuse("a page for the hooks", "none is free within "
                              "2 GiB of PyPy's code; start the sampling before "
                              "the program maps its memory")
        if error:
            raise self.refuse("changing PyPy's code in memory",
                              os.strerror(error))
        self.found("PyPy's code", "can be hooked")


_filler = b"x" * 10000
#: what is stored here was really allocated, whatever the JIT thinks
_sink: list[Any] = [None, 0]


# ____________________________________________________________
# the carrier

class LiveCarrier(Carrier):
    """See :class:`vmprof_allocation.carrier.Carrier`."""

    name = "live"

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lib: Any = None
        self._pid = 0
        self._lock = Lock()
        self._was_forked = False
        #: False while what start() did has to be taken back
        self._is_on = False

    @property
    def findings(self) -> list[Finding]:
        return self._process.findings if self._process is not None else []

    def knowledge(self) -> str:
        return self._process.layout.text() if self._process is not None else ""

    def prepare(self, knowledge: str = "") -> None:
        # takes its time, and can be interrupted
        process = self._process or Process(knowledge)
        with self._section():
            if self._process is None:
                process.prepare_hooks()
                self._process, self._lib = process, process.lib
            self._prepare()

    def _section(self) -> Section:
        if self._lock.was_forked():
            self._was_forked = self._pid != 0
        return Section(self._lock)

    def _prepare(self) -> None:
        if self._was_forked:
            self._undo(True)            # the parent's sampling
            self._was_forked = False
        if self._pid and not self._is_on:
            self._undo()                # of a start that could not even do that
        refuse_second(self._pid)

    @staticmethod
    def _check(error: int, what: str) -> None:
        if error:
            raise AllocationSamplingError(
                "%s failed: %s; nothing is being sampled" % (
                    what, os.strerror(error)))

    def start(self, fd: int, settings: Settings) -> None:
        import _vmprof
        self.prepare()
        with self._section():
            self._prepare()
            empty(fd)
            try:
                self._pid = os.getpid()
                decoy = int(self._lib.live_open(fd))
                self._check(-min(decoy, 0), "taking vmprof's output over")
                # Not vmprof.enable(), which prints to stdout.  It has no "no
                # time samples": the longest period it takes, and
                # live_enabled() stops the timer.  The rest: no lines, no
                # native frames (which can't be walked from here), CPU time.
                _vmprof.enable(decoy, settings.period or 0.99,
                               int(settings.memory), 0, 0, 0)
                self._check(self._lib.live_enabled(
                    self._describe(settings).encode("ascii"),
                    settings.period is not None), "beginning the profile")
                if settings.limit is not None:
                    self._lib.live_limit(settings.limit.per_second,
                                         settings.limit.share)
                self._hook(settings)
            except _vmprof.VMProfError as e:
                self._undo()
                raise AllocationSamplingError("vmprof refuses: %s" % e) from e
            except BaseException:
                self._undo()
                raise

    def _hook(self, settings: Settings) -> None:
        assert self._process is not None
        door = self._process.word(self._process.layout.entry[2])
        opened = self._lib.live_door()
        for _ in range(10):
            self._check(self._lib.live_hook(
                settings.interval, settings.seed, settings.gaps == "fixed"),
                "hooking the garbage collector")
            door[0] = opened
            _knock()
            if self._lib.live_is_sampling():
                self._is_on = True
                return
            # it did not come by; or another thread has just disabled vmprof
            self._check(self._unhook(), "unhooking the garbage collector")
        raise AllocationSamplingError(
            "hooking the garbage collector failed: it does not come by; "
            "nothing is being sampled")

    def _unhook(self) -> int:
        """Returns 0 or an errno."""
        for _ in range(100):
            self._lib.live_unhook()
            if not self._lib.live_is_hooked():
                return 0
            try:
                _knock()
            except MemoryError:
                pass        # whatever else enters the GC will do
        return errno.EPERM

    def _undo(self, was_forked: bool = False) -> int:
        """Put everything back, however far start() came.  Returns 0 or the
        errno of what went wrong."""
        import _vmprof
        self._is_on = False
        error = self._unhook()
        is_disabled = False
        if self._lib.live_disabling() or was_forked:
            try:
                # vmprof.disable() would read the whole profile again, to look
                # up the names of native frames, of which there are none
                _vmprof.disable()
                is_disabled = True
            except _vmprof.VMProfError:
                pass            # it has no file: after a fork, or already
        if not is_disabled:
            self._lib.live_await_end()
        error = int(self._lib.live_close()) or error
        self._pid = 0       # at last: what was interrupted can be done again
        return error

    def _describe(self, settings: Settings) -> str:
        """The settings as the profile holds them: PROFILE.rst."""
        return ";".join("%s=%s" % pair for pair in (
            ("carrier", self.name),
            ("interval", settings.interval),
            ("gaps", settings.gaps),
            ("seed", settings.seed),
            ("period", "" if settings.period is None else settings.period),
            ("pid", os.getpid()),
            ("limit", settings.limit or ""),
        ))

    def set_interval(self, interval: int) -> None:
        with self._section():
            if self._pid == os.getpid() and self._lib.live_is_sampling():
                self._lib.live_set_interval(interval)
                _knock()

    def stop(self) -> None:
        with self._section():
            if self._pid == 0:
                return
            error = self._undo()
            if error:
                raise AllocationSamplingError(
                    "PyPy's code can't be put back, and does what it did"
                    if self._lib.live_is_hooked() else
                    "the profile is not complete: " + (
                        "the program closed its file"
                        if error == errno.EBADF else
                        "its reader has left"
                        if error == errno.EPIPE else
                        "its reader reads no more"
                        if error == errno.ETIMEDOUT else os.strerror(error)))
            assert self._process is not None
            ended = self._process.ffi.string(self._lib.live_ended())
            if ended:
                raise AllocationSamplingError(
                    "the profile ends before the program does: "
                    + ended.decode("ascii"))

    def wait_at_exit(self, fd: int) -> bool:
        assert self._lib is not None
        return bool(self._lib.live_wait_at_exit(fd) == 0)

    def statistics(self) -> Statistics:
        result = Statistics()
        counted: Any = None
        if self._lib is not None and self._process is not None:
            counted = self._process.ffi.new("struct live_statistics *")
            self._lib.live_get_statistics(counted)
        for name in Statistics.__slots__:
            setattr(result, name, int(getattr(counted, name, 0)))
        return result


_zero = b"\0"


def _knock() -> None:
    """Allocate what native/live.h says: one object, and each time of another
    size, as the JIT would work the same out beforehand."""
    _sink[1] = size = (_sink[1] + 1) % 1024
    _sink[0] = _zero * (KNOCK + size)
    _sink[0] = None


_carrier = LiveCarrier()


def carrier() -> LiveCarrier:
    """The one carrier of this process."""
    return _carrier
