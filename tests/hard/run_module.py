"""Run the unit tests of some modules, and write each test's outcome to a file.

    run_module.py OUTCOMES [--without=TEST...] MODULE...

This program runs on PyPy, in the process that is sampled. Each line of OUTCOMES has an
outcome and a test's id. The line is written at the end of the test, so the file is
useful even if the process crashes. The exit code is 0 whether tests fail or not, so
another exit code shows a fault of the process.
"""
from __future__ import annotations

import importlib.util
import os
import pkgutil
import random
import re
import sys
import traceback
import unittest
from collections.abc import Iterator
from typing import Any


class Outcomes(unittest.TestResult):
    """A test result that writes each outcome to a file at once."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path

    def write(self, outcome: str, test: Any, why: str = "") -> None:
        # remove addresses of objects, which ids of subtests may contain
        name = re.sub("0x[0-9a-f]+", "0x", " ".join(test.id().split()))
        # open the file for each line, because some tests count the open files
        with open(self.path, "a") as file:
            file.write("%s %s\n" % (outcome, name))
        if why:
            print("%s: %s\n%s" % (name, outcome, why), file=sys.stderr)

    @staticmethod
    def why(error: Any) -> str:
        try:
            return "".join(traceback.format_exception(*error))
        except Exception as e:
            # some tests raise exceptions whose text cannot be formatted
            return repr(e)

    def addSuccess(self, test: Any) -> None:
        self.write("ok", test)

    def addError(self, test: Any, error: Any) -> None:
        self.write("error", test, self.why(error))

    def addFailure(self, test: Any, error: Any) -> None:
        self.write("failed", test, self.why(error))

    def addSkip(self, test: Any, reason: str) -> None:
        self.write("skipped", test)

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        self.write("failed-as-expected", test)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.write("unexpectedly-ok", test)

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
        if error is not None:
            self.write("failed", subtest, self.why(error))


def load(loader: unittest.TestLoader, name: str) -> Iterator[Any]:
    """Yield the tests of a module.

    If the module is a folder without __init__.py, yield the tests of its modules
    (Debian's ctypes.test).
    """
    try:
        yield loader.loadTestsFromName(name)
        folder: Any = getattr(sys.modules.get(name), "__path__", ())
        if getattr(sys.modules.get(name), "__file__", "") is None:
            for info in pkgutil.iter_modules(folder, name + "."):
                if ".test_" in info.name:
                    yield from load(loader, info.name)
    except Exception:
        # report an error of a module as a failed test, and continue with the next
        # module
        why = traceback.format_exc()

        def load_module() -> None:
            raise ImportError(why)
        yield unittest.FunctionTestCase(load_module)


def load_multiprocessing() -> None:
    """Load the tests of multiprocessing without the line by which Debian skips them.

    Debian skips them because their processes stay; compare.py ends these processes.
    """
    name = "test._test_multiprocessing"
    spec: Any = importlib.util.find_spec(name)
    source = re.sub(r"^raise unittest\.SkipTest\(.*?\)$", "",
                    spec.loader.get_source(name), count=1, flags=re.M | re.S)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.modules["test"]._test_multiprocessing = module  # type: ignore
    exec(compile(source, spec.origin, "exec"), module.__dict__)


def main() -> None:
    path, *modules = sys.argv[1:]
    without = {name.partition("=")[2] for name in modules
               if name.startswith("--without=")}
    # remove the arguments, because some test modules read them
    del sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    # Importing this module would raise FileNotFoundError, because Debian omits its
    # source. With None, the import raises ImportError, which the tests expect.
    sys.modules["_testcapi"] = None     # type: ignore[assignment]
    try:
        from test import support  # type: ignore[import,unused-ignore]
        # skip the tests that need the network, gigabytes, or minutes
        support.use_resources = []
    except ImportError:
        pass
    random.seed(1)
    result = Outcomes(path)
    loader = unittest.TestLoader()
    find = loader.getTestCaseNames
    loader.getTestCaseNames = lambda case: [        # type: ignore
        name for name in find(case) if name not in without]
    if "test.test_multiprocessing_fork" in modules:
        load_multiprocessing()
    for name in modules:
        if not name.startswith("--"):
            for test in load(loader, name):
                test.run(result)


if __name__ == "__main__":
    main()
