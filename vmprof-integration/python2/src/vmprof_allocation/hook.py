"""The Python half of the hook engine, which samples a stock PyPy.  Runs on PyPy 2.7.

All steps that must be atomic are in native/: see hook.h there.
"""
import os

from vmprof_allocation.process import PACKAGE, Layout, Process, Refused
from vmprof_allocation.sampler import Run, incomplete

#: size in bytes of an object that PyPy allocates with external_malloc(), as in
#: native/hook/hook.h
SAFEPOINT_SIZE = 2**18
CAPABILITIES = "limits,marks,resident-memory,time-samples"

#: the JIT cannot remove the allocation of an object that is stored here
_sink = [None]


def reach_safepoint(size):
    """Allocate a large object, so that the GC's slow path runs.

    Args:
        size: a number of bytes that the object has in addition to SAFEPOINT_SIZE.
    """
    _sink[0] = bytearray(SAFEPOINT_SIZE + size)
    _sink[0] = None


def check(error, what):
    """Raise Refused if 'error', the errno of the operation 'what', is not 0."""
    if error:
        raise Refused("%s failed: %s" % (what, os.strerror(error)))


class HookRun(Run):
    """A run with the hook engine."""

    def prepare(self, knowledge):
        """Check the build's layout, and load the native library; see Run.prepare()."""
        self.process, self.layout = Process(), Layout(knowledge)
        self.layout.check(self.process)
        self.lib = self.process.ffi.dlopen(os.path.join(PACKAGE, "_hook.so"))
        for name in dir(self.lib):
            if name.startswith("hook_"):
                getattr(self.lib, name)     # cffi makes a function at the first access
        check(self.lib.hook_prepare(self.layout.place(self.process)),
              "preparing the hooks")

    def begin(self, fd, settings):
        """Enable vmprof, and hook the GC.  Raises Refused."""
        import _vmprof
        interval, seed = int(settings["interval"]), int(settings["seed"])
        limit = settings["limit"]       # "1000/s", "5000ppm" or ""
        period = float(settings["period"]) if settings["period"] else None
        described = ";".join("%s=%s" % pair for pair in (
            ("engine", "hook"), ("interval", interval),
            ("gaps", settings["gaps"]), ("seed", seed),
            ("period", settings["period"]), ("pid", self.pid),
            ("limit", limit),
            ("capabilities", CAPABILITIES), ("facts", "")))
        decoy = self.lib.hook_open(fd)
        check(-min(decoy, 0), "redirecting vmprof's output")
        try:
            # Without CPU samples, pass the longest period, and hook_enabled() stops the
            # timer.
            _vmprof.enable(decoy, period or 0.99, int(settings["memory"]),
                           0, 0, 0)
        except _vmprof.VMProfError as e:
            raise Refused("cannot start the sampling: vmprof reports: %s" % e)
        check(self.lib.hook_watch_forks(), "watching for forks")
        check(self.lib.hook_enabled(described.encode("ascii"),
                                    period is not None),
              "starting the profile")
        if limit:
            is_rate = limit.endswith("/s")
            self.lib.hook_limit(int(limit[:-2]) if is_rate else 0,
                                0 if is_rate else int(limit[:-3]))
        patch = self.lib.hook_entry_patch()
        for _ in range(10):
            check(self.lib.hook_hook(interval, seed,
                                     settings["gaps"] == "fixed", 0),
                  "hooking the garbage collector")
            self.process.word(self.layout.entry[2])[0] = patch
            reach_safepoint(0)
            if self.lib.hook_is_sampling():
                return
            self._unhook()
        raise Refused("hooking the garbage collector failed: its slow path did not run")

    def _unhook(self):
        for size in range(100):
            self.lib.hook_unhook()
            if not self.lib.hook_is_hooked():
                return
            try:
                reach_safepoint(size)
            except MemoryError:
                pass        # wait for another entry into the GC

    def end(self):
        """Unhook the GC, and disable vmprof; see Run.end()."""
        import _vmprof
        self._unhook()
        is_disabled = False
        if self.lib.hook_disabling():
            try:
                _vmprof.disable()
                is_disabled = True
            except _vmprof.VMProfError:
                pass            # vmprof was not enabled
        if not is_disabled:
            self.lib.hook_await_end()
        problem = incomplete(self.lib.hook_close())
        ended = self.process.ffi.string(self.lib.hook_ended())
        if ended and not problem:
            problem = "the profile ends before the program does: " + ended
        return problem

    def mark(self, name):
        """Record a mark in the profile; see Run.mark()."""
        check(self.lib.hook_mark(name), "marking this moment")
