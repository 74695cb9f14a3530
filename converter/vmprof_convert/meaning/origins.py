"""Determine the origin of a function, such as user code or the standard library.

Only the file names in the profile decide, and nothing on this machine, which may not be
the machine of the program. All reports and writers use this module, so that they show
the same origins.
"""
from __future__ import annotations

import collections
import posixpath
import re

from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import LABEL, NATIVE, Function, Profile

PROGRAM = "program"
PACKAGES = "installed packages"
LIBRARY = "standard library"
IMPORTING = "import machinery"
#: the origin of functions that belong to the interpreter or have no file, and the
#: origin of labels
BUILT_IN, NOWHERE = "built-in", "nowhere"

ORIGINS = (PROGRAM, PACKAGES, LIBRARY, IMPORTING, BUILT_IN)

#: the number of stacks that are examined to find the program's file
_STACKS = 2000
#: the largest number of ".." in a shown path relative to the program's folder
_STEPS_UP = 2

# The last such folder in a path counts, because a package may contain copies of other
# packages. The folder __pypackages__ is from PEP 582.
_PACKAGE = re.compile(
    r".*/(?:(?:site|dist)-packages|__pypackages__/[\d.]+/lib)/(.*)", re.DOTALL)
#: The first group is the environment in which a package is installed. The commands of
#: its packages are in bin/: bin/black belongs to lib/python3.11/site-packages/black/.
_PREFIX = re.compile(
    r"(.*)/lib(?:32|64)?/(?:pypy|python)\d[\d.]*t?/(?:site|dist)-packages/", re.DOTALL)
# lib/pypy3.9/ and lib/python3.11/ are the usual names. PyPy before 3.8 has
# lib-python/3/ (or 2.7) and lib_pypy/. A zip file is called lib/python311.zip/. The
# names on Windows are in _WINDOWS_LIBRARY.
_LIBRARY = re.compile(
    r".*?/(?:lib(?:32|64)?/(?:pypy|python)\d+\.\d+t?/"
    r"|lib(?:32|64)?/(?:pypy|python)\d+\.zip/"
    r"|lib-python/(?:modified-)?\d+(?:\.\d+)*/|lib_pypy/)"
    r"(?:lib-dynload/)?(.*)", re.DOTALL)
_WINDOWS = re.compile(r"[A-Za-z]:\\")
# The interpreter's folder is called Python311, Python311-32, python-3.11.1.amd64 or
# pypy3.9-v7.3.13-win64, or has a name from Microsoft's store.
_WINDOWS_LIBRARY = re.compile(
    r".*?/(?:(?:python|pypy)(?:-?\d+(?:\.\d+)*t?)?"
    r"(?:[-.](?:32|64|amd64|arm64|win32|win64|v\d[\w.]*))*"
    r"|PythonSoftwareFoundation\.Python\.[^/]*)/lib/(.*)",
    re.DOTALL | re.IGNORECASE)
_FROZEN = re.compile(r"<frozen ([^>]*)>|<builtin>/frozen (.*)", re.DOTALL)
#: modules of the standard library that import other modules; `importlib.metadata` and
#: `importlib.resources` search for files and are no import machinery
_IMPORTERS = re.compile(
    r"(?:importlib(?:[./](?:__init__|_?abc|_bootstrap(?:_external)?|machinery|"
    r"simple|util))?|zipimport|_?imp)(?:\.py)?")
#: the file names of code that the interpreter got from its input or its command line
_GIVEN = ("<stdin>", "<string>")


def _slashes(file: str) -> str:
    return file.replace("\\", "/") if _WINDOWS.match(file) else file


def _classify(file: str) -> tuple[str, str]:
    """Return the origin and the short path of a Python file.

    The path of a file of user code is only normalized; Origins shortens the path.
    """
    if not file:
        return BUILT_IN, ""
    frozen = _FROZEN.fullmatch(file)
    if frozen:
        module = frozen[1] or frozen[2] or ""
        if _IMPORTERS.fullmatch(module):
            origin = IMPORTING
        else:
            # All frozen modules of PyPy belong to PyPy. CPython freezes modules of the
            # standard library that it needs at its start.
            origin = LIBRARY if frozen[1] else BUILT_IN
        return origin, "<frozen %s>" % module
    if file.startswith("<"):
        return BUILT_IN, file
    path = _slashes(file)
    inside = _PACKAGE.fullmatch("/" + path)
    if inside:
        return PACKAGES, inside[1]
    inside = _LIBRARY.fullmatch("/" + path)
    if not inside and _WINDOWS.match(file):
        inside = _WINDOWS_LIBRARY.fullmatch(path)
    if inside:
        is_importer = _IMPORTERS.fullmatch(inside[1])
        return IMPORTING if is_importer else LIBRARY, inside[1]
    return PROGRAM, posixpath.normpath(path)


class Origins:
    """The origins of a profile's functions."""

    def __init__(self, profile: Profile):
        """Find the program's file and folder, and the commands of packages."""
        self._known: dict[str, tuple[str, str]] = {}
        #: the folders with the commands of installed packages
        self._commands = {match[1] + "/bin" for match in (
            _PREFIX.match(function.file) for function in profile.functions.values())
            if match}
        #: the file with which the program begins; empty if it is unknown
        self.main = main = _main_file(profile)
        if main in _GIVEN:
            self._known[main] = PROGRAM, main
        #: the folder of the user code; empty if it is unknown
        self.folder = _folder("" if self._is_command(main) else main, profile)

    def of(self, function: Function) -> str:
        """Return the origin of a function: one of ORIGINS, or NOWHERE for a label."""
        if function.kind == LABEL:
            return NOWHERE
        if function.kind == NATIVE:
            # The file belongs to an extension of a package, or to the interpreter or
            # the system.
            inside = _PACKAGE.fullmatch("/" + _slashes(function.file))
            return PACKAGES if inside else BUILT_IN
        return self._file(function.file)[0]

    def path(self, file: str) -> str:
        """Return the short path of a file, to be shown to users.

        The path is relative to the folder of the user code, of the packages or of the
        standard library. Different files may have the same short path.
        """
        return self._file(file)[1]

    def _file(self, file: str) -> tuple[str, str]:
        found = self._known.get(file)
        if found is None:
            origin, path = _classify(file)
            if origin == PROGRAM and self._is_command(path):
                origin, path = PACKAGES, posixpath.basename(path)
            elif origin == PROGRAM:
                path = self._from_folder(path)
            found = self._known[file] = origin, path
        return found

    def _is_command(self, path: str) -> bool:
        """Return whether `path` is a script that pip created for a package."""
        folder, name = posixpath.split(path)
        return folder in self._commands and not name.endswith(".py")

    def _from_folder(self, path: str) -> str:
        # A relative path, or a path on another drive, is not below the folder.
        if not self.folder or path[:1] != self.folder[:1]:
            return path
        short = posixpath.relpath(path, self.folder)
        # A path that shares only the root with the folder, such as /lib, is shown
        # completely.
        root = path[:2] if path[1:3] == ":/" else "/"
        if (short.startswith("../" * (_STEPS_UP + 1))
                or posixpath.commonpath([path, self.folder]) == root):
            return path
        return short


def _main_file(profile: Profile) -> str:
    """Return the file with which the program begins; empty if it is unknown.

    It is the file of user code that most stacks have as their outermost module.
    """
    program = Program(profile)
    counts: collections.Counter[str] = collections.Counter()
    step = len(profile.stacks) // _STACKS + 1
    for number in range(0, len(profile.stacks), step):
        function = program.function(program.stack(number)[0])
        if function.name == "<module>" and (
                function.file in _GIVEN
                or _classify(function.file)[0] == PROGRAM):
            counts[function.file] += 1
    return counts.most_common(1)[0][0] if counts else ""


def _folder(main: str, profile: Profile) -> str:
    if main and main not in _GIVEN:
        return _absolute(posixpath.dirname(_classify(main)[1]))
    folders = {posixpath.dirname(path) for origin, path in (
        _classify(file) for file in {
            function.file for function in profile.functions.values()
            if function.kind not in (LABEL, NATIVE)})
        if origin == PROGRAM and _absolute(path)}
    if len({folder[:1] for folder in folders}) != 1:
        return ""
    common = posixpath.commonpath(folders)
    # The root and the folders directly below it belong to no program.
    return common if common.count("/") > 1 else ""


def _absolute(path: str) -> str:
    """Return the path if it is absolute, or else an empty string."""
    return path if path.startswith("/") or path[1:3] == ":/" else ""
