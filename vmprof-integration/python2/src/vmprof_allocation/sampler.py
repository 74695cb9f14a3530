"""The hook engine's Python half, from the beginning of a profile to its end.
Runs on PyPy 2.7.

All that must not be torn is in native/: see hook.h there.
"""
import errno
import fcntl
import os
import stat

from vmprof_allocation.process import PACKAGE, Layout, Process, Refused

#: bytes of an object that PyPy makes with external_malloc(): native/hook/hook.h
SAFEPOINT_SIZE = 2**18
#: Linux's; it has no name in Python
F_DUPFD_CLOEXEC = 1030
CAPABILITIES = "limits,marks,resident-memory,time-samples"
PROBLEMS = {
    errno.EBADF: "the program closed its file",
    errno.EPIPE: "its reader has left",
    errno.ETIMEDOUT: "its reader reads no more",
}

#: what is stored here was really allocated, whatever the JIT thinks
_sink = [None]
_running = []


def reach_safepoint(size):
    _sink[0] = bytearray(SAFEPOINT_SIZE + size)
    _sink[0] = None


def check(error, what):
    if error:
        raise Refused("%s failed: %s" % (what, os.strerror(error)))


def mark(name):
    if not isinstance(name, (bytes, unicode)):  # noqa: F821
        raise Refused('the mark %r is no text; write for example "warm"'
                      % (name,))
    if not isinstance(name, bytes):
        name = name.encode("utf-8")
    for run in _running:
        run.mark(name)


def file_id(fd):
    """Which file it leads to; None if it is closed.  The program may have closed
    ours, and have patch one of its own under the same number."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_output(path):
    """Under a number that is out of the program's way."""
    if not isinstance(path, (bytes, unicode)):  # noqa: F821
        raise Refused("the output %r is no path; write for example \"app.vmprof\""
                      % (path,))
    try:
        try:
            is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
        except OSError:
            is_pipe = False         # not there yet
        fd = os.open(path, os.O_WRONLY if is_pipe
                     else os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        for lowest in 512, 3:
            try:
                high = fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
            except (EnvironmentError, ValueError):
                continue            # there are not so many
            os.close(fd)
            return high
        return fd
    except OSError as e:
        raise Refused("can't write the profile to %r: %s" % (path, e.strerror))


class Run(object):
    """As `fields` say, those of Python 3's package (begin.py)."""

    def __init__(self, fields, output):
        if _running:
            raise Refused("allocations are being sampled already")
        self.pid = os.getpid()
        self.process, layout = Process(), Layout(fields["knowledge"])
        layout.check(self.process)
        self.lib = self.process.ffi.dlopen(os.path.join(PACKAGE, "_hook.so"))
        for name in dir(self.lib):
            if name.startswith("hook_"):
                getattr(self.lib, name)     # made on first use: not later
        check(self.lib.hook_prepare(layout.place(self.process)),
              "preparing the hooks")
        fd = open_output(output)
        try:
            self._start(fd, dict(pair.split("=", 1)
                                 for pair in fields["settings"].split(";")), layout)
        except BaseException:
            self._undo()
            os.close(fd)
            raise
        self.fd, self.file = fd, file_id(fd)
        _running.append(self)

    def _start(self, fd, settings, layout):
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
        check(-min(decoy, 0), "taking vmprof's output over")
        try:
            # the longest period; hook_enabled() stops the timer
            _vmprof.enable(decoy, period or 0.99, int(settings["memory"]),
                           0, 0, 0)
        except _vmprof.VMProfError as e:
            raise Refused("vmprof refuses: %s" % e)
        check(self.lib.hook_watch_forks(), "watching for forks")
        check(self.lib.hook_enabled(described.encode("ascii"),
                                    period is not None),
              "beginning the profile")
        if limit:
            is_rate = limit.endswith("/s")
            self.lib.hook_limit(int(limit[:-2]) if is_rate else 0,
                                0 if is_rate else int(limit[:-3]))
        patch = self.lib.hook_entry_patch()
        for _ in range(10):
            check(self.lib.hook_hook(interval, seed,
                                     settings["gaps"] == "fixed", 0),
                  "hooking the garbage collector")
            self.process.word(layout.entry[2])[0] = patch
            reach_safepoint(0)
            if self.lib.hook_is_sampling():
                return
            self._unhook()
        raise Refused("hooking the garbage collector failed: it does not come "
                      "by")

    def _unhook(self):
        for size in range(100):
            self.lib.hook_unhook()
            if not self.lib.hook_is_hooked():
                return
            try:
                reach_safepoint(size)
            except MemoryError:
                pass        # whatever else enters the GC will do

    def _undo(self):
        """Put everything back, however far the start came.  Returns 0 or the
        errno of what the profile lacks."""
        import _vmprof
        self._unhook()
        is_disabled = False
        if self.lib.hook_disabling():
            try:
                _vmprof.disable()
                is_disabled = True
            except _vmprof.VMProfError:
                pass            # it was not enabled
        if not is_disabled:
            self.lib.hook_await_end()
        return self.lib.hook_close()

    def mark(self, name):
        if os.getpid() == self.pid:
            check(self.lib.hook_mark(name), "marking this moment")

    def stop(self):
        """Raises Refused if the profile is not complete."""
        if self not in _running:
            return
        _running.remove(self)
        if os.getpid() != self.pid:
            return              # a forked child is not sampled
        error = self._undo()
        if file_id(self.fd) == self.file:
            os.close(self.fd)
        if error:
            raise Refused("the profile is not complete: %s" % PROBLEMS.get(
                error, os.strerror(error)))
        ended = self.process.ffi.string(self.lib.hook_ended())
        if ended:
            raise Refused("the profile ends before the program does: " + ended)
