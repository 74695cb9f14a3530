"""Check that a thread can be injected into a process, and find the needed addresses.

The process runs the same files of PyPy and libc as this process. So the addresses in
this process determine the addresses in the other one.
"""
from __future__ import annotations

import ctypes
import os
import re
import sys

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry import gil, gil_code, maps, ticker
from vmprof_allocation.remote.entry.maps import Mapping
from vmprof_allocation.remote.process_info import (
    executable,
    has_descriptors,
    read_status,
)

#: Functions that native/attach calls in the process, in the order of tracer.h. They are
#: functions of libc and libpypy. libpypy exports all but RPyGilAllocate() (gil.py).
FUNCTIONS = {
    "create": "pthread_create", "self": "pthread_self", "detach": "pthread_detach",
    "sleep": "usleep", "unmap": "munmap", "errno_location": "__errno_location",
    "allocate": "", "ensure": "PyPyGILState_Ensure",
    "release": "PyPyGILState_Release", "run": "PyPyRun_SimpleString"}
#: other allocators, whose locks native/attach/safe_place.c does not know
_OTHER_MALLOC = re.compile(
    r"jemalloc|tcmalloc|mimalloc|hoard|scudo|heaptrack|vgpreload|libc_malloc_debug|"
    r"libmemusage|lib(?:a|t|l|m|hwa)san\.so")
#: Numbers of system calls that end with EINTR, and are not repeated, if a thread is
#: stopped in the call: epoll_wait (x86-64), epoll_pwait, epoll_pwait2, rt_sigtimedwait.
_ENDING = {"x86_64": {"232", "281", "441", "128"},
           "aarch64": {"22", "441", "137"}}


#: file that shows who may trace processes, if the system restricts this
YAMA = "/proc/sys/kernel/yama/ptrace_scope"


class Target:
    """A process into which a thread can be injected."""

    def __init__(self, pid: int, despite_seccomp: bool = False):
        """Check the process, and find the addresses of its functions.

        Args:
            pid: the process.
            despite_seccomp: accept the process even if it has a seccomp filter that
                this process does not have.

        Raises:
            AllocationSamplingError: no thread can be injected into the process.
        """
        _check_here()
        self.pid = pid
        self._check_process(despite_seccomp)
        self._ours = maps.of("self")
        self._theirs = self._read_maps()
        self._libpypy = self._find_libpypy()
        self._check_malloc()
        #: for each of FUNCTIONS, its address in the process and in this process
        self.functions = {name: self._find(symbol) if symbol else self._find_allocate()
                          for name, symbol in FUNCTIONS.items()}
        #: address of libc's syscall() in the process
        self.syscall = self._find("syscall")[0]
        #: address of PyPy's ticker in the process; 0 if it is unknown
        self.ticker = self._find_ticker()

    @property
    def has_lock(self) -> bool:
        """Whether the process has a GIL; a program that never used threads lacks it."""
        return not self.functions["allocate"][0]

    def _fail(self, why: str, what_to_do: str) -> AllocationSamplingError:
        return AllocationSamplingError(
            "process %d %s; %s" % (self.pid, why, what_to_do))

    def _check_process(self, despite_seccomp: bool) -> None:
        if self.pid == os.getpid():
            raise self._fail("is the process of this command", "write another PID")
        try:
            status = read_status(self.pid)
        except OSError as e:
            raise AllocationSamplingError(refusal(self.pid, e.errno)) from None
        if status["TracerPid"] != "0":
            raise self._fail(
                "is traced by process %s (a debugger, or another command of "
                "vmprof-allocation)"
                % status["TracerPid"], "end that process first")
        if status["State"][:1] in "Tt":
            raise self._fail("is stopped",
                             "continue it first with kill -CONT %d" % self.pid)
        if "shstk" in status.get("x86_Thread_features", ""):
            raise self._fail("has a shadow stack", "attaching does not support shadow "
                                                   "stacks")
        self._check_seccomp(status, despite_seccomp)
        self.check_descriptors()

    def check_descriptors(self) -> None:
        """Check that the process can open one more descriptor.

        Raises:
            AllocationSamplingError: the process has reached its limit (ulimit -n).
        """
        if not has_descriptors(self.pid):
            raise self._fail(
                "has reached its limit of open descriptors",
                "close some, or raise the limit (prlimit --nofile)")

    def _check_seccomp(self, status: dict[str, str], despite_seccomp: bool) -> None:
        """Check that no seccomp filter forbids the necessary system calls.

        A filter that this process also has allows these calls, because this process
        runs PyPy and makes threads.
        """
        mode, ours = status.get("Seccomp", "0"), read_status("self")
        filters, ours_filters = (int(s.get("Seccomp_filters", "0"))
                                 for s in (status, ours))
        if mode == "1" or (mode == "2" and not despite_seccomp and (
                filters > ours_filters or ours.get("Seccomp") != "2")):
            raise self._fail(
                "may make only few system calls (seccomp), and another call could kill "
                "it", "run this command in its container" + (
                    "" if mode == "1" else ", or with --despite-seccomp if its filter "
                                           "refuses calls without killing the process"))

    def _read_maps(self) -> list[Mapping]:
        try:
            found = maps.of(self.pid)
        except OSError as e:
            raise AllocationSamplingError(refusal(self.pid, e.errno)) from None
        if not found:
            raise self._fail("is not a "
                             "program", "threads of the kernel cannot be sampled")
        return found

    def _find_libpypy(self) -> Mapping:
        ours = maps.holding(self._ours, _here("pypy_main_startup"))
        if any(m.file == ours.file for m in self._theirs):
            return ours
        others = [m.path for m in self._theirs if "pypy" in m.name]
        if not others:
            raise self._fail(
                "is not a PyPy: it runs %s" % (
                    executable(self.pid) or "another program"),
                "only programs of PyPy can be sampled")
        raise self._fail(
            "runs the PyPy %s, but this command runs %s" % (
                others[0], ours.path),
            "install vmprof-allocation for the program's own interpreter, and run this "
            "command with that interpreter (attaching to PyPy 2.7 is not possible)")

    def _check_malloc(self) -> None:
        for mapping in self._theirs:
            if _OTHER_MALLOC.search(mapping.name):
                raise self._fail(
                    "uses the allocator of %s" % mapping.path,
                    "attaching does not know where to stop it. Start the program with "
                    "vmprof")

    def _find(self, name: str) -> tuple[int, int]:
        here = _here(name)
        return self._there(here), here

    def _there(self, here: int) -> int:
        """Convert an address in this process to the corresponding one in the target."""
        mapping = maps.holding(self._ours, here)
        try:
            return here - maps.base(self._ours, mapping.file) + maps.base(
                self._theirs, mapping.file)
        except AllocationSamplingError:
            raise self._fail(
                "does not have this command's %s" % mapping.path,
                "run this command in its container, or start the program "
                "again") from None

    def _find_allocate(self) -> tuple[int, int]:
        """Return the addresses of RPyGilAllocate() in the target and in this process.

        Returns:
            The addresses; (0, 0) if the target has a GIL already.
        """
        try:
            places = gil.find(self._ours, self._libpypy)
        except AllocationSamplingError as e:
            raise self._fail("cannot be sampled: %s" % e,
                             "start the program with vmprof") from None
        try:
            with open("/proc/%d/mem" % self.pid, "rb", 0) as memory:
                memory.seek(self._there(places.waiting))
                waiting = int.from_bytes(memory.read(8), "little", signed=True)
        except OSError as e:
            raise AllocationSamplingError(refusal(self.pid, e.errno)) from None
        if waiting >= 0:
            return 0, 0
        return self._there(places.allocate), places.allocate

    def _find_ticker(self) -> int:
        here = ticker.find(self._ours, self._libpypy)
        if here is None:
            return 0
        # the last part of libpypy's data (.bss) is an anonymous mapping
        return (here - maps.base(self._ours, self._libpypy.file)
                + maps.base(self._theirs, self._libpypy.file))

    def describe(self, address: int) -> str:
        """Return the file and the offset of an instruction at an address, as text."""
        try:
            mapping = maps.holding(maps.of(self.pid), address)
        except (OSError, AllocationSamplingError):
            return "0x%x" % address
        return "%s+0x%x" % (mapping.path or "anonymous memory",
                            address - mapping.start + mapping.offset)

    def tracer(self, tid: int) -> int:
        """Return the process that traces the thread `tid`; 0 if no process does."""
        try:
            return int(read_status("%d/task/%d" % (self.pid, tid))["TracerPid"])
        except (OSError, KeyError):
            return 0

    def check_sees(self, path: str) -> None:
        """Check that `path` is the same file for the process and for this process.

        Raises:
            AllocationSamplingError: the process sees another file, or has ended.
        """
        try:
            theirs = os.stat("/proc/%d/root%s" % (self.pid, path))
            ours = os.stat(path)
            same = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
        except PermissionError as e:
            raise AllocationSamplingError(refusal(self.pid, e.errno)) from None
        except OSError:
            if not os.path.exists("/proc/%d/root" % self.pid):
                raise self._fail("has ended", "it was not sampled") from None
            same = False
        if not same:
            raise self._fail(
                "does not see %s: it has another root or other mounts" % path,
                "run this command in its container")

    def threads(self) -> list[int]:
        """Return the threads of the process that may be stopped, the best ones first.

        The program notices least if the best ones are stopped. If the GIL does not
        exist yet, the result is the main thread, which alone may create the GIL.

        Raises:
            AllocationSamplingError: the process has ended.
        """
        try:
            found = sorted(map(int, os.listdir("/proc/%d/task" % self.pid)))
        except OSError:
            raise self._fail("has ended", "it was not sampled") from None
        if not self.has_lock:
            return [self.pid]
        return sorted(found, key=self._notice)

    def _notice(self, tid: int) -> int:
        try:
            with open("/proc/%d/task/%d/syscall" % (self.pid, tid),
                      encoding="ascii") as file:
                number = file.read().partition(" ")[0].strip()
        except OSError:
            number = "running"
        # a thread that waits in another system call does not notice that it is stopped
        ending = _ENDING[os.uname().machine]
        return 2 if number in ending else 1 if number == "running" else 0


def _here(name: str) -> int:
    """Return the address of a function of libpypy or libc in this process.

    Raises:
        AllocationSamplingError: neither library exports this function.
    """
    try:
        function = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        raise AllocationSamplingError(
            "this PyPy cannot attach to a running program: it exports no %s (it may "
            "lack libpypy or the module cpyext). Start the program with vmprof, and "
            "with --control" % name) from None
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def refusal(pid: int, number: int | None) -> str:
    """Return the message for an errno of the injection, with the remedy.

    Args:
        pid: the process.
        number: the errno of ptrace, /proc or native/attach/tracer.h.
    """
    import errno
    if number in (errno.EPERM, errno.EACCES):
        return ("no permission to trace process %d (ptrace): %s" % (
            pid, _why_not()))
    if number in (errno.ESRCH, errno.ENOENT):
        return "process %d has ended; it was not sampled" % pid
    if number == errno.ENOEXEC:
        return ("process %d has become another program meanwhile; try again" % pid)
    if number == errno.ETIMEDOUT:
        return ("process %d did not stop in time (it may wait for a disk); it was not "
                "sampled" % pid)
    if number == errno.ENOTSUP:
        return ("cannot attach to process %d: its processor has unknown state for each "
                "thread (a shadow stack, GCS, or more registers). The process is "
                "unchanged. Start the program with vmprof" % pid)
    if number == errno.ENOSYS:
        return ("cannot attach to process %d: this kernel or sandbox lacks "
                "PTRACE_GET_SYSCALL_INFO (Linux 5.3). The process is unchanged. Start "
                "the program with vmprof" % pid)
    return "cannot attach to process %d: %s. Start the program with vmprof" % (
        pid, os.strerror(number or 0))


def _why_not() -> str:
    try:
        with open(YAMA, encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        scope = "0"
    if scope == "3":
        return "kernel.yama.ptrace_scope is 3, and only a reboot can change it"
    if os.geteuid() == 0:
        return ("root has no permission, either. Give the container SYS_PTRACE (docker "
                "run --cap-add=SYS_PTRACE)")
    if scope != "0":
        return ("kernel.yama.ptrace_scope is %s. Run this command as root, or run "
                "sysctl kernel.yama.ptrace_scope=0" % scope)
    return ("run this command as root (the program may be a setuid program, or may "
            "have forbidden tracing)")


def _check_here() -> None:
    """Check that this interpreter can inject threads into other processes.

    Raises:
        AllocationSamplingError: this is not PyPy, or the system is not supported.
    """
    if sys.implementation.name != "pypy" or not sys.platform.startswith("linux"):
        raise AllocationSamplingError(
            "cannot attach to a program that is not control-enabled with %s: run this "
            "command with the program's own pypy3, on Linux" % sys.implementation.name)
    machine = os.uname().machine
    if machine not in gil_code.MACHINES:
        raise AllocationSamplingError(
            "cannot attach to a program that is not control-enabled on %s, but only on "
            "x86-64 and AArch64. Start the program with VMPROF_CONTROL=1 in its "
            "environment" % machine)
