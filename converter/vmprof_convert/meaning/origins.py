"""Where a function comes from: the user's own program, or whose code it calls.

All outputs ask here, so that they agree.  What is asked are the names of files
as the profile has them, and nothing of this machine: it may be another one.
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
#: the interpreter's own functions, and what has no file; and what is no code
BUILT_IN, NOWHERE = "built-in", "nowhere"

ORIGINS = (PROGRAM, PACKAGES, LIBRARY, IMPORTING, BUILT_IN)

#: so many stacks tell which file is the program
_STACKS = 2000
#: so many folders up, a path is shown from the program's folder
_STEPS_UP = 2

# Up to the last one that matches: a package may vendor another.  What pip
# installs for a folder (PEP 582) has its own name.
_PACKAGE = re.compile(
    r".*/(?:(?:site|dist)-packages|__pypackages__/[\d.]+/lib)/(.*)", re.DOTALL)
#: a command that came with a package, lib/python3.11/site-packages/black/: bin/black
_PREFIX = re.compile(
    r"(.*)/lib(?:32|64)?/(?:pypy|python)\d[\d.]*t?/(?:site|dist)-packages/", re.DOTALL)
# lib/pypy3.9/ and lib/python3.11/ everywhere but in PyPy before 3.8, which has
# lib-python/3/ (or 2.7) and lib_pypy/; lib/python311.zip/; Windows: see below.
_LIBRARY = re.compile(
    r".*?/(?:lib(?:32|64)?/(?:pypy|python)\d+\.\d+t?/"
    r"|lib(?:32|64)?/(?:pypy|python)\d+\.zip/"
    r"|lib-python/(?:modified-)?\d+(?:\.\d+)*/|lib_pypy/)"
    r"(?:lib-dynload/)?(.*)", re.DOTALL)
_WINDOWS = re.compile(r"[A-Za-z]:\\")
# Python311, Python311-32, python-3.11.1.amd64, pypy3.9-v7.3.13-win64; and that of
# Microsoft's store
_WINDOWS_LIBRARY = re.compile(
    r".*?/(?:(?:python|pypy)(?:-?\d+(?:\.\d+)*t?)?"
    r"(?:[-.](?:32|64|amd64|arm64|win32|win64|v\d[\w.]*))*"
    r"|PythonSoftwareFoundation\.Python\.[^/]*)/lib/(.*)",
    re.DOTALL | re.IGNORECASE)
_FROZEN = re.compile(r"<frozen ([^>]*)>|<builtin>/frozen (.*)", re.DOTALL)
#: modules of the standard library that import others: `importlib.metadata` and
#: `importlib.resources` look for files
_IMPORTERS = re.compile(
    r"(?:importlib(?:[./](?:__init__|_?abc|_bootstrap(?:_external)?|machinery|"
    r"simple|util))?|zipimport|_?imp)(?:\.py)?")
#: of what was given to the interpreter itself
_GIVEN = ("<stdin>", "<string>")


def _slashes(file: str) -> str:
    return file.replace("\\", "/") if _WINDOWS.match(file) else file


def _classify(file: str) -> tuple[str, str]:
    """Origin and short path of a Python file; that of the program's own files
    is not short yet."""
    if not file:
        return BUILT_IN, ""
    frozen = _FROZEN.fullmatch(file)
    if frozen:
        module = frozen[1] or frozen[2] or ""
        if _IMPORTERS.fullmatch(module):
            origin = IMPORTING
        else:
            # what PyPy freezes is its own; CPython does so with what it starts with
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
        self._known: dict[str, tuple[str, str]] = {}
        #: where environments and systems have the commands of their packages
        self._commands = {match[1] + "/bin" for match in (
            _PREFIX.match(function.file) for function in profile.functions.values())
            if match}
        #: the file that the program begins with; empty: not known
        self.main = main = _main_file(profile)
        if main in _GIVEN:
            self._known[main] = PROGRAM, main
        #: where the program's own files are, as far as that can be told; empty:
        #: it can't
        self.folder = _folder("" if self._is_command(main) else main, profile)

    def of(self, function: Function) -> str:
        """One of ORIGINS; NOWHERE if it is a label."""
        if function.kind == LABEL:
            return NOWHERE
        if function.kind == NATIVE:
            # an extension, or of the interpreter and the system
            inside = _PACKAGE.fullmatch("/" + _slashes(function.file))
            return PACKAGES if inside else BUILT_IN
        return self._file(function.file)[0]

    def path(self, file: str) -> str:
        """Short, for people: from the folder of the program, of the packages or
        of the standard library.  Not for telling files apart."""
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
        """Whether it came with a package: a script that pip made."""
        folder, name = posixpath.split(path)
        return folder in self._commands and not name.endswith(".py")

    def _from_folder(self, path: str) -> str:
        # a path that is not absolute, or on another drive, has no place there
        if not self.folder or path[:1] != self.folder[:1]:
            return path
        short = posixpath.relpath(path, self.folder)
        # what has nothing but the root in common with it, such as /lib, is no part of
        # its surroundings
        root = path[:2] if path[1:3] == ":/" else "/"
        if (short.startswith("../" * (_STEPS_UP + 1))
                or posixpath.commonpath([path, self.folder]) == root):
            return path
        return short


def _main_file(profile: Profile) -> str:
    """The file that most stacks begin in; empty: not known."""
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
    # the root is nobody's
    return common if common.count("/") > 1 else ""


def _absolute(path: str) -> str:
    """`path` if it is absolute, or nothing."""
    return path if path.startswith("/") or path[1:3] == ":/" else ""
