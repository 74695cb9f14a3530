"""The live carrier: sampling in a PyPy that nobody patched.

native/live.c does the work.  This side finds the place (:mod:`find`), checks
it against the running process, and makes the few stores into PyPy's own
memory that have to be made while nobody else runs: a store through a cffi
pointer is one machine instruction, made by the interpreter while it holds
the GIL.  Code that holds no GIL can't be inside the GC.
"""
from __future__ import annotations

import errno
import os
import struct
import sys
from _thread import RLock

from vmprof_allocation.carrier import (
    Carrier,
    Settings,
    Statistics,
    refuse_second,
)
from vmprof_allocation.errors import (
    AllocationSamplingError,
    Evidence,
    Finding,
    UnknownBuild,
)
from vmprof_allocation.layout import ENTRIES, Layout

# nothing that is not needed: see carrier.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIBRARY = os.path.join(os.path.dirname(__file__), "_live.so")
#: what nursery.h calls NURSERY_POKE: the next allocation enters the hook
POKE = 1
#: raise this when a change in find.py makes older answers worthless
CACHE_VERSION = 2

#: for the command line: called before a search, which takes a second or more,
#: with the path where its answer will be remembered
searching: Callable[[str], None] | None = None


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
    with open("/proc/self/maps") as file:
        return [Mapping(line) for line in file]


def cache_path(build_id: str) -> str:
    base = (os.environ.get("XDG_CACHE_HOME")
            or os.path.expanduser(os.path.join("~", ".cache")))
    return os.path.join(os.path.abspath(base), "vmprof-allocation",
                        "%s-%d" % (build_id, CACHE_VERSION))


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
        except ImportError:
            raise AllocationSamplingError(
                "the native part of vmprof-allocation is missing in %s: "
                "install the package with pip where there is a C compiler"
                % os.path.dirname(__file__)) from None
        self.ffi: Any = _live_abi.ffi
        self.path, self.base = self._find_library()
        self.layout = self._load_layout(knowledge)
        self._check_memory()

    def _find_library(self) -> tuple[str, int]:
        """The file that holds PyPy's code, and where it is loaded."""
        maps = read_maps()
        try:
            symbol = self.ffi.addressof(self.ffi.dlopen(None),
                                        "pypy_main_startup")
        except (AttributeError, OSError) as e:
            raise self.refuse("pypy_main_startup", str(e)) from e
        inside = int(self.ffi.cast("uintptr_t", symbol))
        for mapping in maps:
            if mapping.start <= inside < mapping.end:
                path = mapping.path
                break
        else:
            raise self.refuse("PyPy's code", "not mapped")
        if not path.startswith("/") or path.endswith(" (deleted)"):
            raise self.refuse(
                "PyPy's code", "its file %r is gone; start PyPy again" % path)
        base = min(m.start for m in maps if m.path == path)
        self.found("PyPy's code", "%s at 0x%x" % (path, base))
        return path, base

    def bytes_at(self, address: int, size: int) -> bytes:
        """Memory of the library; `address` relative to where it is loaded."""
        return bytes(self.ffi.buffer(
            self.ffi.cast("char *", self.base + address), size))

    def word(self, address: int) -> Any:
        """A cffi pointer to a word in memory; `address` likewise."""
        return self.ffi.cast("uint64_t *", self.base + address)

    def _build_id(self) -> str:
        """From the ELF header in memory: this is what runs, whatever the
        file holds by now."""
        head = self.bytes_at(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise self.refuse("PyPy's code", "it has no 64-bit ELF header")
        table, = struct.unpack_from("<Q", head, 32)
        entry_size, entries = struct.unpack_from("<HH", head, 54)
        for i in range(entries):
            kind, _, _, address, _, size = struct.unpack_from(
                "<IIQQQQ", self.bytes_at(table + i * entry_size, 56))
            note = self.bytes_at(address, size) if kind == 4 else b""
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
            pass        # nobody knew
        cached = cache_path(build_id)
        try:
            with open(cached) as file:
                layout = Layout.parse(file.read())
            if layout.build_id == build_id:
                self.found("remembered in", cached)
                return layout
        except (OSError, ValueError):
            pass        # not there, or damaged
        if searching is not None:
            searching(cached)
        import json
        import subprocess
        # not in the program's folder, where it may have an elftools.py
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        try:
            done = subprocess.run(
                [os.path.abspath(sys.executable), "-m",
                 "vmprof_allocation.find", self.path, cached],
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


_filler = b"x" * 10000
#: what is stored here was really allocated, whatever the JIT thinks
_sink: list[object] = [None]


# ____________________________________________________________
# the carrier

class LiveCarrier(Carrier):
    """See :class:`vmprof_allocation.carrier.Carrier`."""

    name = "live"

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lib: Any = None
        self._pid = 0
        self._lock = RLock()

    @property
    def findings(self) -> list[Finding]:
        return self._process.findings if self._process is not None else []

    def knowledge(self) -> str:
        return self._process.layout.text() if self._process is not None else ""

    def prepare(self, knowledge: str = "") -> None:
        was_forked = self._pid not in (0, os.getpid())
        if was_forked:
            self._lock = RLock()        # held by nobody who is still there
        with self._lock:
            if self._process is None:
                self._process = Process(knowledge)
            if was_forked:
                self._undo()            # the parent's sampling
            refuse_second(self._pid)

    def _load(self) -> None:
        """Load the native half; once, as its trampolines stay."""
        if self._lib is not None:
            return
        assert self._process is not None
        ffi, base = self._process.ffi, self._process.base
        layout = self._process.layout
        place = ffi.new("struct live_place *")
        place.base = base
        place.nursery_free = base + layout.nursery_free
        place.nursery_top = base + layout.nursery_top
        place.entry = [base + entry for entry in layout.entry]
        place.moved = layout.moved
        place.write_slot = base + layout.write_slot
        place.mmap_slot = [slot and base + slot for slot in layout.mmap_slot]
        place.seek_slot = [slot and base + slot for slot in layout.seek_slot]
        place.slots_read_only = layout.slots_read_only
        place.type_info = base + layout.type_info
        place.type_fixed_size = layout.type_fixed_size
        place.type_item_size = layout.type_item_size
        lib = ffi.dlopen(LIBRARY)
        for name in dir(lib):
            if name.startswith("live_"):
                getattr(lib, name)      # made on first use: not later
        self._check(lib.live_prepare(place), "preparing the hooks")
        self._lib = lib

    @staticmethod
    def _check(error: int, what: str) -> None:
        if error:
            raise AllocationSamplingError(
                "%s failed: %s; nothing is being sampled" % (
                    what, os.strerror(error)))

    def start(self, fd: int, settings: Settings) -> None:
        import _vmprof
        with self._lock:
            self.prepare()
            self._load()
            self._check(self._lib.live_open(fd), "taking vmprof's output over")
            try:
                # Not vmprof.enable(), which prints to stdout.  It has no "no
                # time samples": the longest period it takes, and
                # live_enabled() stops the timer.  The rest: no lines, no
                # native frames (which can't be walked from here), CPU time.
                _vmprof.enable(fd, settings.period or 0.99,
                               int(settings.memory), 0, 0, 0)
                self._check(self._lib.live_enabled(
                    self._describe(settings).encode("ascii"),
                    settings.period is not None), "beginning the profile")
                if settings.limit is not None:
                    self._lib.live_limit(settings.limit.per_second,
                                         settings.limit.share)
                self._lib.live_start(settings.interval, settings.seed,
                                     settings.gaps == "fixed")
                self._pid = os.getpid()
                self._check(self._patch(self._lib.live_patched_word),
                            "hooking the garbage collector")
                self._poke(first=True)
            except _vmprof.VMProfError as e:
                self._undo()
                raise AllocationSamplingError("vmprof refuses: %s" % e) from e
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> int:
        """Put everything back, however far start() came.  Returns 0 or the
        errno of what went wrong."""
        error = 0
        self._lib.live_stop()
        if self._is_patched():
            while self._lib.live_is_active():
                self._poke()
                self._lib.live_stop()
            error = self._patch(self._lib.live_original_word)
        error = self._finish() or error
        self._pid = 0       # at last: what was interrupted can be done again
        return error

    def _is_patched(self) -> bool:
        assert self._process is not None
        first = self._process.word(self._process.layout.entry[0])
        return bool(first[0] == self._lib.live_patched_word(0))

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

    def _patch(self, word: Any) -> int:
        """Store `word(i)` at each of the three entries."""
        assert self._process is not None
        layout = self._process.layout
        error = int(self._lib.live_writable(1))
        if not error:
            for i, address in enumerate(layout.entry):
                self._process.word(address)[0] = word(i)
        return int(self._lib.live_writable(0)) or error

    def _poke(self, first: bool = False) -> None:
        """Make the next allocation enter the hook, which knows what to do,
        and make that allocation."""
        assert self._process is not None
        top = self._process.word(self._process.layout.nursery_top)
        if first:
            self._lib.live_set_first_top(top[0])
        top[0] = POKE
        while top[0] == POKE:
            _sink[0] = [len(_filler)]

    def set_interval(self, interval: int) -> None:
        with self._lock:
            if self._pid == os.getpid():
                self._lib.live_set_interval(interval)
                self._poke()

    def stop(self) -> None:
        with self._lock:
            if self._pid == 0:
                raise AllocationSamplingError("allocation sampling is not on")
            error = self._undo()
            if error:
                raise AllocationSamplingError(
                    "the profile is not complete: " + (
                        "the program closed its file"
                        if error == errno.EBADF else os.strerror(error)))

    def _finish(self) -> int:
        """Disable vmprof, write the rest, give everything back."""
        import _vmprof
        self._lib.live_disabling()
        try:
            # vmprof.disable() would read the whole profile again, to look
            # up the names of native frames, of which there are none
            _vmprof.disable()
        except _vmprof.VMProfError:
            pass            # it has no file: after a fork, or already
        return int(self._lib.live_close())

    def statistics(self) -> Statistics:
        result = Statistics()
        counted: Any = None
        if self._lib is not None and self._process is not None:
            counted = self._process.ffi.new("struct live_statistics *")
            self._lib.live_get_statistics(counted)
        for name in Statistics.__slots__:
            setattr(result, name, int(getattr(counted, name, 0)))
        return result


_carrier = LiveCarrier()


def carrier() -> LiveCarrier:
    """The one carrier of this process."""
    return _carrier
