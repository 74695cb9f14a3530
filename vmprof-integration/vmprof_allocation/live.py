"""The live carrier: sampling in a PyPy that nobody patched.

native/live.c does the work.  This side finds the place (:mod:`find`), checks
it against the running process, and makes the few stores into PyPy's own
memory that have to be made while nobody else runs: a store through a cffi
pointer is one machine instruction, made by the interpreter while it holds
the GIL.  Code that holds no GIL can't be inside the GC.
"""
from __future__ import annotations

import dataclasses
import errno
import json
import os
import platform
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from vmprof_allocation.carrier import Settings, Statistics
from vmprof_allocation.errors import (
    AllocationSamplingError,
    Finding,
    UnknownBuild,
)

NATIVE = Path(__file__).parent / "native"
LIBRARY = Path(__file__).parent / "_live.so"
#: what nursery.h calls NURSERY_POKE: the next allocation enters the hook
POKE = 1
#: raise this when a change in find.py makes older answers worthless
CACHE_VERSION = 1


def unsupported() -> str | None:
    """Why this interpreter can't be sampled at all, or None."""
    if platform.python_implementation() != "PyPy":
        return ("allocation sampling works on PyPy; this is %s %s. Run it "
                "with pypy3" % (platform.python_implementation(),
                                platform.python_version()))
    if not sys.platform.startswith("linux"):
        return ("sampling an unpatched PyPy works on Linux; this is %s"
                % sys.platform)
    if platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return ("sampling an unpatched PyPy works on x86-64; this is %s"
                % platform.machine())
    return None


# ____________________________________________________________
# where it is

@dataclasses.dataclass(frozen=True)
class Mapping:
    """A line of /proc/self/maps."""

    start: int
    end: int
    permissions: str
    path: str


def read_maps() -> list[Mapping]:
    result = []
    with open("/proc/self/maps") as file:
        for line in file:
            fields = line.split(None, 5)
            start, _, end = fields[0].partition("-")
            result.append(Mapping(int(start, 16), int(end, 16), fields[1],
                                  fields[5].rstrip("\n") if len(fields) > 5
                                  else ""))
    return result


def cache_path(build_id: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "vmprof-allocation" / (
        "%s-%d.json" % (build_id, CACHE_VERSION))


def load_layout(path: str, search: Any) -> Any:
    """find.find(), but remembered by build-id.  The file may be missing,
    damaged or read-only: then it is searched again."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    from vmprof_allocation import find
    try:
        with open(path, "rb") as file:
            note = ELFFile(file).get_section_by_name(".note.gnu.build-id")
            build_id = note.data()[-20:].hex() if note is not None else ""
    except (OSError, ELFError) as e:
        raise search.refuse("reading %s" % path, str(e)) from e
    cached = cache_path(build_id)
    try:
        layout = find.Layout(**json.loads(cached.read_text()))
        if layout.build_id == build_id:
            search.found("remembered in", str(cached))
            return layout
    except (OSError, ValueError, TypeError):
        pass
    layout = find.find(path, search)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=cached.parent)
        with os.fdopen(handle, "w") as out:
            json.dump(dataclasses.asdict(layout), out)
        os.replace(temporary, cached)
    except OSError:
        pass            # it takes a second each time, then
    return layout


class Process:
    """The nursery of this process: addresses, checked in memory."""

    def __init__(self) -> None:
        reason = unsupported()
        if reason is not None:
            raise AllocationSamplingError(reason)
        import cffi

        from vmprof_allocation import find
        self.search = find.Search()
        self.ffi: Any = cffi.FFI()
        self.path, self.base = self._find_library()
        self.layout = load_layout(self.path, self.search)
        self._check_memory()

    @property
    def findings(self) -> list[Finding]:
        return self.search.findings

    def _find_library(self) -> tuple[str, int]:
        """The file that holds PyPy's code, and where it is loaded."""
        maps = read_maps()
        self.ffi.cdef("int pypy_main_startup(int argc, char *argv[]);")
        try:
            program = self.ffi.dlopen(None)
            symbol = self.ffi.addressof(program, "pypy_main_startup")
            inside = int(self.ffi.cast("uintptr_t", symbol))
        except (AttributeError, OSError) as e:
            raise self.search.refuse("pypy_main_startup", str(e)) from e
        for mapping in maps:
            if mapping.start <= inside < mapping.end:
                path = mapping.path
                break
        else:
            raise self.search.refuse("PyPy's code", "not mapped from a file")
        if not path.startswith("/") or path.endswith(" (deleted)"):
            raise self.search.refuse(
                "PyPy's code", "its file %r is gone; start PyPy again" % path)
        base = min(m.start for m in maps if m.path == path)
        self.search.found("PyPy's code", "%s at 0x%x" % (path, base))
        return path, base

    def word(self, address: int) -> Any:
        """A cffi pointer to a word in memory."""
        return self.ffi.cast("uint64_t *", self.base + address)

    def _check_memory(self) -> None:
        """What was found in the file has to be true of this process."""
        layout, search = self.layout, self.search
        for name, address, code in zip(
                ("collect_and_reserve", "_minor_collection",
                 "external_malloc"), layout.entry, layout.code):
            there = bytes(self.ffi.buffer(
                self.ffi.cast("char *", self.base + address), len(code) // 2))
            if there.hex() != code:
                raise search.refuse(
                    "%s in memory" % name, "%s, but %s in the file (does "
                    "another tool patch this process?)" % (there.hex(), code))
        free, top = self.word(layout.nursery_free), self.word(layout.nursery_top)
        low, high = int(free[0]), int(top[0])
        if not (layout.gc < layout.nursery_free < layout.nursery_top
                and 0 < low <= high and low % 8 == 0):
            raise search.refuse(
                "the nursery", "nursery_free at 0x%x is 0x%x, nursery_top at "
                "0x%x is 0x%x" % (layout.nursery_free, low,
                                  layout.nursery_top, high))
        if not any(m.start <= low and high <= m.end and m.permissions[:2] == "rw"
                   for m in read_maps()):
            raise search.refuse("the nursery", "0x%x-0x%x is not one piece of "
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
            raise search.refuse(
                "allocating %d bytes more" % (large - small),
                "moved nursery_free by %d, and nursery_top by %d"
                % (moved, int(top[0]) - high))
        search.found("the nursery in memory", "0x%x-0x%x; allocating moves "
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

class LiveCarrier:
    """See :class:`vmprof_allocation.carrier.Carrier`."""

    name = "live"

    def __init__(self) -> None:
        self._process: Process | None = None
        self._lib: Any = None
        self._pid = 0
        self._lock = threading.RLock()

    @property
    def findings(self) -> list[Finding]:
        return self._process.findings if self._process is not None else []

    def prepare(self) -> None:
        with self._lock:
            if self._process is None:
                self._process = Process()
            if self._pid == os.getpid():
                raise AllocationSamplingError(
                    "allocation sampling is already on in this process; "
                    "stop it first")
            if self._is_vmprof_enabled():
                raise AllocationSamplingError(
                    "vmprof is already enabled in this process; call "
                    "vmprof.disable() first")

    def _load(self) -> None:
        """Load the native half; once, as its trampolines stay."""
        if self._lib is not None:
            return
        assert self._process is not None
        ffi, base = self._process.ffi, self._process.base
        if not LIBRARY.exists():
            raise AllocationSamplingError(
                "the native part of vmprof-allocation, %s, is missing: "
                "install the package with pip where there is a C compiler"
                % LIBRARY)
        header = (NATIVE / "live.h").read_text()
        ffi.cdef("\n".join(line for line in header.splitlines()
                           if not line.startswith("#")))
        layout = self._process.layout
        place = ffi.new("struct live_place *")
        place.base = base
        place.nursery_free = base + layout.nursery_free
        place.nursery_top = base + layout.nursery_top
        place.entry = [base + entry for entry in layout.entry]
        place.moved = layout.moved
        place.write_slot = base + layout.write_slot
        place.mmap_slot = [slot and base + slot for slot in layout.mmap_slot]
        place.slots_read_only = layout.slots_read_only
        place.type_info = base + layout.type_info
        place.type_fixed_size = layout.type_fixed_size
        place.type_item_size = layout.type_item_size
        lib = ffi.dlopen(str(LIBRARY))
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
                    settings.period is not None), "taking a first sample")
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
        self._pid = 0
        error = 0
        self._lib.live_stop()
        if self._is_patched():
            while self._lib.live_is_active():
                self._poke()
                self._lib.live_stop()
            error = self._patch(self._lib.live_original_word)
        return self._finish() or error

    def _is_patched(self) -> bool:
        assert self._process is not None
        first = self._process.word(self._process.layout.entry[0])
        return int(first[0]) == self._lib.live_patched_word(0)

    @staticmethod
    def _is_vmprof_enabled() -> bool:
        import _vmprof
        return hasattr(_vmprof, "is_enabled") and bool(_vmprof.is_enabled())

    def _describe(self, settings: Settings) -> str:
        """The settings as the profile holds them: PROFILE.rst."""
        return ";".join("%s=%s" % pair for pair in (
            ("carrier", self.name),
            ("interval", settings.interval),
            ("gaps", settings.gaps),
            ("seed", settings.seed),
            ("period", "" if settings.period is None else settings.period),
            ("pid", os.getpid()),
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
            was_forked = self._pid != os.getpid()
            error = self._undo()
            if error and not was_forked:
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
            pass            # after a fork it has no file any more
        return int(self._lib.live_close())

    def statistics(self) -> Statistics:
        with self._lock:
            if self._lib is None:
                return Statistics(0, 0, 0, 0, 0, 0, 0, 0)
            assert self._process is not None
            result = self._process.ffi.new("struct live_statistics *")
            self._lib.live_get_statistics(result)
            return Statistics(**{
                field.name: int(getattr(result, field.name))
                for field in dataclasses.fields(Statistics)})


_carrier = LiveCarrier()


def carrier() -> LiveCarrier:
    """The one carrier of this process."""
    return _carrier


__all__ = ["LiveCarrier", "Process", "UnknownBuild", "carrier", "unsupported"]
