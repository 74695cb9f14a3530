"""What stays of us on the program's heap while it runs: this module.

Every major collection walks all that is on the heap; some ten thousand objects of
ours were there, and a program that collects much took 5 % longer for them (the
study's `fresh`).  The native half needs none of them.  So put_away.py makes bytes of
what our objects know, and of our modules' code, beside the heap, and forgets the
modules.  They wake as soon as the program imports `session`, with which all begins that
has to do with a run; or when the process ends, if there is more to do then than to end
the profile, and to tell who makes the report.

PyPy remembers with a call which method it was that was called: what has to go is not
called from here before.

Nothing of that needs the file system: the program may have gone to another root by
then, or be another user, without a descriptor that is free.  And it is none of the
program's imports: what it has put into `sys.meta_path` or in place of `__import__`
does not see it.
"""
from __future__ import annotations

import atexit
import builtins
import marshal
import os
import sys
from _thread import get_ident

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

#: the part of PyPy that runs a program
_PYPY = "<builtin>/app_main.py"

#: whatever the program does to sys.modules, sys.meta_path and builtins
_this = sys.modules[__name__]
_finders = tuple(sys.meta_path)
_import = builtins.__import__
#: recursion that waking is sure to get by with
_DEPTH = 1000
#: the module `session`; None: it was not imported, or it rests
_session: Any = None
#: begin.Run, of a process that the command line began; None: there is none, or it rests
_run: Any = None
#: what was put away, of which loads() makes the modules, what `session` knows, and
#: what Run does, of which None says that there is none; None: nothing rests, or did
_asleep: array[int] | None = None
#: of this process, and of those that it was forked from since it rests
_pids: list[int] = []
#: Engine.bare()
_ends: tuple[Callable[..., Any], ...] = ()
#: the profile's descriptor, and which file that is; None: nothing ends without waking
_file: tuple[int, tuple[int, int] | None] | None = None
#: what tells of threads
_NAMES = "vmprof_allocation.engines.hook.names"
#: how a profile begins
GZIP = b"\x1f\x8b"
#: bytes of an object that PyPy makes with external_malloc(): hook/engine.py
_KNOCK = 2**18
#: of a forked child, the id() of its parent's threads
_inherited: set[int] = set()
#: who makes the report, if somebody does
watcher: Watcher | None = None


class Watcher:
    """The program's end of the socket at whose other end the report is made:
    watcher.py."""

    __slots__ = ("_id", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._id = file_id(fd)

    def is_ours(self) -> bool:
        """Unless the program has closed it."""
        return self._id is not None and file_id(self.fd) == self._id

    def is_there(self) -> bool:
        """Writing to one that was killed could be the program's end: it may
        have asked for SIGPIPE."""
        os.set_blocking(self.fd, False)
        try:
            os.read(self.fd, 1)
        except BlockingIOError:
            return True
        return False

    def forget(self) -> None:
        """In a forked child: the end of the run is that of its parent."""
        if self.is_ours():
            os.close(self.fd)
        self._id = None


def file_id(fd: int) -> tuple[int, int] | None:
    """Which file a descriptor leads to; None if it is closed.  The program may
    have closed ours, and have opened one of its own under the same number."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _Shelf:
    """Where modules are found that were put away, by the thread that wakes us.  What
    they import is found where Python finds it: other finders are the program's."""

    __slots__ = ("_modules", "_thread")

    def __init__(self, modules: dict[str, tuple[bytes, str, bool]]) -> None:
        self._modules = modules
        self._thread = get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if get_ident() != self._thread:
            return None
        if name not in self._modules:
            for finder in _finders:
                found = finder.find_spec(name, path, target)    # type: ignore[arg-type]
                if found is not None:
                    return found
            raise ModuleNotFoundError("no module named %r" % name, name=name)
        _, origin, is_package = self._modules[name]
        make: Any = type(__spec__)
        spec = make(name, self, origin=origin, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations.append(os.path.dirname(origin))
        return spec

    def create_module(self, spec: object) -> None:
        """As modules are made by default."""

    def exec_module(self, module: ModuleType) -> None:
        exec(marshal.loads(self._modules[module.__name__][0]), module.__dict__)


def awake(session: ModuleType) -> None:
    """`session` was imported: what rests wakes."""
    global _session
    if _asleep is not None and _session is None:
        session.wake(_loads()[1], _pids)
    _session = session


def stay(run: Any, fd: int) -> None:
    """From now on `run` hears of this process's end.  `fd` leads to who makes the
    report; negative: to nobody."""
    global _run, watcher
    _run = run
    watcher = Watcher(fd) if fd >= 0 else None
    _end_at_interrupt()


def is_of_command_line() -> bool:
    """This process is sampled for a profile, because the command line began that."""
    return _asleep is not None or _run is not None


def rests(asleep: array[int], ends: tuple[Callable[..., Any], ...],
          file: tuple[int, tuple[int, int] | None] | None) -> None:
    """put_away.py has done its work; `ends` is of Engine.bare().  `file`: this process
    can end without waking (_end_bare)."""
    global _asleep, _session, _run, _ends, _file
    _pids[:] = [os.getpid()]
    _asleep, _ends, _file, _session, _run = asleep, ends, file, None, None


def _loads() -> Any:
    assert _asleep is not None
    return marshal.loads(_asleep)


def _knock() -> None:
    b"\0" * (_KNOCK + len(_pids))


def _while_awake(do: Callable[[], None]) -> None:
    """`do` what needs what rests."""
    if _asleep is None:
        return _while_found({}, do)
    if _session is None and _ends:
        # what wakes is not the program's, and would look as if it were alive
        _ends[1]()
        _knock()
    modules, _, run = _loads()
    if _session is None:
        # a program that emptied sys.modules may have others of these names
        for name in modules:
            if not _is_importing(sys.modules.get(name)):
                sys.modules.pop(name, None)

    def wake() -> None:
        _wake(run)
        do()

    return _while_found(modules, wake)


def _while_found(modules: dict[str, tuple[bytes, str, bool]],
                 do: Callable[[], None]) -> None:
    """`do` what imports: `modules` come from there, and others from where Python finds
    them."""
    sys.modules[__name__] = _this
    depth = sys.getrecursionlimit()
    meta_path: Any = getattr(sys, "meta_path", None)
    if depth < _DEPTH:
        sys.setrecursionlimit(_DEPTH)
    shelf: Any = _Shelf(modules)
    # a list of its own: other threads may be in the middle of the one that is there
    programs = meta_path if isinstance(meta_path, (list, tuple)) else []
    ours = sys.meta_path = [shelf, *programs]
    try:
        do()
    finally:
        # but for what another thread did to it meanwhile
        if sys.meta_path is ours and ours == [shelf, *programs]:
            sys.meta_path = meta_path
        elif isinstance(now := getattr(sys, "meta_path", None), list) and shelf in now:
            now.remove(shelf)
        if depth < _DEPTH:
            sys.setrecursionlimit(depth)


def _is_importing(module: object) -> bool:
    """Another thread does it just now, and wakes us."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _wake(run: tuple[Any, ...] | None) -> None:
    global _run
    from vmprof_allocation.interrupts import Uninterrupted
    with Uninterrupted():
        # this is what wakes it, if it rests
        from vmprof_allocation import session  # noqa: F401
        if _run is None and run is not None:
            from vmprof_allocation import begin
            _run = begin.Run.wake(*run)


class _ImportIsPythons:
    """A context manager: what the program put in place of `__import__` does not see
    what this thread imports."""

    __slots__ = ("_ours", "_programs")

    def __enter__(self) -> None:
        programs = self._programs = getattr(builtins, "__import__", _import)
        if programs is _import:
            self._ours = _import
            return
        thread = get_ident()

        def ours(*arguments: Any, **more: Any) -> Any:
            import_ = _import if get_ident() == thread else programs
            return import_(*arguments, **more)

        builtins.__import__ = self._ours = ours

    def __exit__(self, *exception: object) -> None:
        if getattr(builtins, "__import__", None) is self._ours:
            builtins.__import__ = self._programs


# ____________________________________________________________
# what the interpreter tells

def _threads() -> set[int]:
    """The id() of all that have names."""
    try:
        return set(map(id, sys.modules["threading"]._dangling))
    except Exception:
        return set()        # there are none, or it is not what it was


@atexit.register
def _end() -> None:
    problem: BaseException | None = None
    try:
        if _session is None and len(_pids) > 1 and _threads() <= _inherited:
            # a forked child, of which nobody asks for more: that is over in no time
            if _ends:
                _ends[0]()
            return
        try:
            _end_all(at_once=False)
        except BaseException as e:
            # a handler of the program's may have raised it, which can't end anything
            # of the program's any more
            _end_all(at_once=True)
            if _is_ours(e):
                problem = e
    except BaseException as e:
        problem = e
    if problem is not None and _is_ours(problem):
        # of a session that the program began, and left to us
        say(str(problem))
    elif not isinstance(problem, (KeyboardInterrupt, SystemExit, type(None))):
        # the native half ends the profile, at the very end of the process
        say("the profile is whole, but for names of threads, which could not be "
            "written at the program's end (%r)" % problem)


def _is_ours(problem: BaseException) -> bool:
    """Its module may rest, and is not imported for this."""
    return type(problem).__name__ == "AllocationSamplingError"


def _end_all(at_once: bool) -> None:
    def end() -> None:
        if _run is not None:
            _run.end(at_once)
        if _session is not None:
            _session.stop_all()

    def end_bare() -> None:
        assert _file is not None
        ended.append(_end_bare(_file, at_once))

    ended: list[bool] = []
    with _ImportIsPythons():
        if (_asleep is not None and _session is None and _ends and _file is not None
                and len(_pids) == 1):
            _while_found({}, end_bare)
        if ended != [True]:
            _while_awake(end)


def _end_bare(file: tuple[int, tuple[int, int] | None], at_once: bool) -> bool:
    """The profile ends in one knock, and nothing wakes: threads of the program that
    compute would take the GIL each time that we let go of it, for a second and more.
    Returns False if there is more to be done, or said."""
    global _asleep
    _, _, end, error, named, wait_at_exit = _ends
    if error() < 0:
        end(0)
        _knock()
        names: dict[str, Any] = {"__name__": _NAMES}
        exec(marshal.loads(_loads()[0][_NAMES][0]), names)
        for thread, name in names["of_threads"]():
            # it ends with its first zero
            named(thread, name.replace("\0", "?").encode("utf-8", "replace"))
        end(1)
        _knock()
    if error() != 0 or not _close(*file):
        return False
    if watcher is not None:
        try:
            if not has_reported(lambda fd: wait_at_exit(fd) == 0, at_once):
                return False
        except BaseException:
            pass        # the user is in a hurry, or there is nobody to tell
    _asleep = None
    return True


def _close(fd: int, identity: tuple[int, int] | None) -> bool:
    """The profile.  Returns False if somebody did something to it: see
    ProfileFile.check()."""
    if file_id(fd) != identity:
        return True     # the program closed it
    status = os.fstat(fd)
    if status.st_mode & 0o170000 == 0o100000 and (
            status.st_nlink == 0 or status.st_size != os.lseek(fd, 0, os.SEEK_CUR)
            or os.pread(fd, 2, 0) != GZIP):
        return False
    close_profile(fd)
    return True


def close_profile(fd: int) -> None:
    import fcntl
    try:
        # a child that was forked meanwhile has it open, and would hold the lock
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass            # not all file systems can, nor what is no file
    os.close(fd)


def has_reported(wait_at_exit: Callable[[int], bool], at_once: bool) -> bool:
    """Have the watcher print its report; `wait_at_exit` is the engine's.  Returns False
    if it is not there."""
    stdout = sys.__stdout__
    if stdout is not None and stdout is sys.stdout:
        try:
            stdout.flush()      # as the interpreter would, next
        except (OSError, ValueError):
            pass                # it will say so
    if watcher is None:
        return False
    if not watcher.is_ours():
        return True     # the program closed it: that was its end for it
    if not watcher.is_there():
        return False
    os.set_blocking(watcher.fd, True)
    if at_once or not wait_at_exit(watcher.fd):
        os.write(watcher.fd, b"\n")
        os.read(watcher.fd, 1)          # it never writes: its end
    return True


def _forked() -> None:
    global _inherited
    _inherited = _threads()
    if _session is not None:
        _session.go_on()
    elif _asleep is not None:
        _pids.append(os.getpid())
    if watcher is not None:
        watcher.forget()


os.register_at_fork(after_in_child=_forked)


def _end_at_interrupt() -> None:
    """KeyboardInterrupt ends PyPy without exit handlers: it is shown, and
    then the process kills itself.  Between the two there is nothing but
    the function that shows it, unless the program has one of its own."""
    shown = sys.__excepthook__

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        shown(kind, value, traceback)
        if kind is KeyboardInterrupt and get_ident() == main_thread:
            caller = sys._getframe().f_back
            if caller is None or caller.f_code.co_filename == _PYPY:
                try:
                    _end_all(at_once=True)
                except BaseException:
                    pass            # the native half ends the profile

    main_thread = get_ident()
    if sys.excepthook is shown:
        sys.excepthook = excepthook
        # they are the same, as programs may ask
        sys.__excepthook__ = excepthook


def say(message: str) -> None:
    """One line for the user.  sys.stderr may be something of the program's."""
    if sys.__stderr__ is not None:
        try:
            sys.__stderr__.write("vmprof: %s\n" % message)
            sys.__stderr__.flush()
        except (OSError, ValueError):
            pass        # it is closed
