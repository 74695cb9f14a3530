"""The suites of tests that `make hard` runs with and without sampling."""
from __future__ import annotations

import dataclasses

#: Modules of CPython's test suite that end within minutes on PyPy, and whose tests
#: unittest finds. Other modules have only doctests.
CPYTHON = """
    abc argparse array ast asyncgen asyncio.test_base_events
    asyncio.test_events asyncio.test_futures asyncio.test_locks
    asyncio.test_queues asyncio.test_streams asyncio.test_subprocess
    asyncio.test_tasks asyncio.test_unix_events atexit augassign base64 bdb
    binascii bisect bool builtin bytes bz2 calendar cmath cmd_line code codecs
    collections complex configparser contextlib contextlib_async copy
    coroutines csv ctypes dataclasses datetime decimal defaultdict deque descr
    dict difflib dynamic enum eof exception_variations exceptions faulthandler
    fcntl file fileio float fork1 format fractions fstring functools gc getopt
    glob grammar gzip hashlib heapq http_cookies httpservers inspect int io
    ipaddress isinstance iter itertools json largefile linecache list logging
    long lzma marshal math memoryio memoryview mmap multiprocessing_fork
    openpty operator ordered_dict os pathlib pickle poll
    popen posix pprint pty queue random range re resource richcmp runpy sched
    scope select selectors set shelve shlex shutil signal slice socket
    sort sqlite statistics strftime string struct
    subprocess super sys sys_setprofile sys_settrace tarfile tempfile textwrap
    thread threadedtempfile threading threading_local threadsignals time
    timeout tokenize traceback tuple types typing unicode unittest userdict
    userlist userstring uuid wait3 wait4 weakref weakset with wsgiref
    xml_etree xmlrpc yield_from zipfile zipimport zlib
"""

#: Modules of CPYTHON that Debian's packages have under another name than
#: test.test_NAME.
ELSEWHERE = {"ctypes": "ctypes.test", "unittest": "unittest.test"}

#: Suites that also run with a sample every 64 bytes: nearly every object is sampled.
OFTEN = """
    array asyncgen asyncio.test_locks asyncio.test_subprocess
    asyncio.test_unix_events atexit coroutines ctypes dict exceptions
    faulthandler fork1 functools gc iter list memoryview mmap
    multiprocessing_fork os pickle poll queue resource select signal socket
    subprocess sys sys_settrace thread threading threadsignals unittest wait4
    weakref weakset yield_from zlib greenlet simplejson more-itertools
"""

#: Packages from PyPI by name: the requirement of the source distribution, and the
#: modules with tests. The tests run in the unpacked folder.
PYPI = {
    # PyPy contains greenlet in this version
    "greenlet": ("greenlet==0.4.17", """
        tests.test_contextvars tests.test_gc tests.test_generator
        tests.test_generator_nested tests.test_greenlet tests.test_stack_saved
        tests.test_throw tests.test_tracing tests.test_weakref"""),
    "simplejson": ("simplejson==3.20.2", "simplejson.tests.all_tests_suite"),
    "more-itertools": ("more-itertools==10.8.0",
                       "tests.test_more tests.test_recipes"),
    "pyparsing": ("pyparsing==3.2.5", "tests.test_unit"),
    "gevent": ("gevent==26.7.0", """
        gevent.tests.test__event gevent.tests.test__events
        gevent.tests.test__fileobject gevent.tests.test__greenlet
        gevent.tests.test__hub gevent.tests.test__lock
        gevent.tests.test__local gevent.tests.test__order
        gevent.tests.test__os gevent.tests.test__pool
        gevent.tests.test__queue gevent.tests.test__select
        gevent.tests.test__semaphore gevent.tests.test__server
        gevent.tests.test__signal gevent.tests.test__sleep0
        gevent.tests.test__socket gevent.tests.test__subprocess
        gevent.tests.test__timeout"""),
}

#: Tests that are left out, because on some PyPy they never end even without sampling,
#: or leave threads that never end.
HANGS = {
    "threading": ("test_4_daemon_threads",),
    "greenlet": ("test_dealloc_other_thread", "test_threaded_reparent",
                 "test_threaded_updatecurrent"),
}

#: Tests whose outcome is known to differ, and why this is not a fault of the sampler.
EXPLAINED = {
    "test.test_exceptions.ExceptionTests.test_badisinstance":
        "PyPy itself raises this TypeError when the stack runs out in certain "
        "places: 8 of 60 programs that differ only in the number of frames "
        "around, sampled or not",
    "test.test_int.IntStrDigitLimitsTests."
    "test_denial_of_service_prevented_int_to_str":
        "it skips itself if its work takes less than 1/64 s of the processor, and "
        "it takes about as long",
    "test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected":
        "it asks a sampled program for all its descriptors; the sampler's begin "
        "at 512",
}


@dataclasses.dataclass(frozen=True)
class Suite:
    """A suite of tests that runs in one process."""

    name: str
    modules: tuple[str, ...]
    #: requirement of the suite's source distribution, or "" for the standard library
    source: str = ""

    @property
    def arguments(self) -> list[str]:
        """The arguments of run_module.py for this suite."""
        return ["--without=" + test for test in HANGS.get(self.name, ())
                ] + list(self.modules)

    @property
    def intervals(self) -> tuple[str, ...]:
        return ("4k", "64") if self.name in OFTEN.split() else ("4k",)


def suites(names: list[str]) -> list[Suite]:
    """Return the suites with these names, or all suites.

    Raises KeyError with the name of an unknown suite.
    """
    found = {}
    for name in CPYTHON.split():
        # a name may have a dot, for a module of the package test.test_asyncio
        found[name] = Suite(name, (ELSEWHERE.get(name, "test.test_" + name),))
    for name, (source, modules) in PYPI.items():
        found[name] = Suite(name, tuple(modules.split()), source)
    return [found[name] for name in names or found]
