"""Tests of the origin of a function, such as a library, which its file determines."""
from __future__ import annotations

import pytest

from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.meaning.origins import (
    BUILT_IN,
    IMPORTING,
    LIBRARY,
    NOWHERE,
    PACKAGES,
    PROGRAM,
    Origins,
)
from vmprof_convert.profile.model import LABEL, NATIVE, PYTHON, Function

MAIN = "/home/me/shop/app.py"
PACKAGE = "/home/me/env/lib/pypy3.9/site-packages/gunicorn/app.py"


def origins(*files: str, main: str = MAIN) -> Origins:
    """Return the origins for a program `main` that calls functions of `files`."""
    log = Log()
    start = log.function("run_toplevel", 131, "<builtin>/app_main.py")
    module = log.function("<module>", 1, main)
    log.settings()
    for file in (main, *files):
        function = log.function("f", 2, file)
        log.allocation([start, module, function], size=24)
    return Origins(readers.read_bytes(log.data()))


def place(file: str, kind: str = PYTHON) -> tuple[str, str]:
    found = origins(file)
    return found.of(Function("f", 2, file, kind)), found.path(file)


@pytest.mark.parametrize("file, origin, path", [
    # installed packages
    ("/home/me/venv/lib/pypy3.9/site-packages/django/db/models/base.py",
     PACKAGES, "django/db/models/base.py"),
    ("/home/me/.local/lib/pypy3.9/site-packages/six.py", PACKAGES, "six.py"),
    ("/usr/lib/python3/dist-packages/yaml/nodes.py", PACKAGES, "yaml/nodes.py"),
    ("/usr/local/lib/pypy3.9/dist-packages/a.py", PACKAGES, "a.py"),
    ("/opt/conda/envs/x/lib/python3.11/site-packages/flask/app.py",
     PACKAGES, "flask/app.py"),
    ("/home/u/.pyenv/versions/pypy3.10-7.3.12/lib/pypy3.10/site-packages/a/b.py",
     PACKAGES, "a/b.py"),
    ("/home/me/env/site-packages/old_virtualenv.py", PACKAGES,
     "old_virtualenv.py"),
    ("/v/lib/pypy3.9/site-packages/x/site-packages/y.py", PACKAGES, "y.py"),
    ("/home/me/shop/__pypackages__/3.9/lib/a.py", PACKAGES, "a.py"),
    ("C:\\venv\\Lib\\site-packages\\flask\\app.py", PACKAGES, "flask/app.py"),
    # the standard library
    ("/usr/lib/pypy3.9/json/encoder.py", LIBRARY, "json/encoder.py"),
    ("/usr/lib/pypy3.9/_sqlite3.py", LIBRARY, "_sqlite3.py"),
    ("/usr/lib/pypy/lib-python/2.7/json/encoder.py", LIBRARY, "json/encoder.py"),
    ("/opt/pypy3.6-v7.3.3-linux64/lib-python/3/abc.py", LIBRARY, "abc.py"),
    ("/opt/pypy3.6-v7.3.3-linux64/lib_pypy/datetime.py", LIBRARY, "datetime.py"),
    ("/opt/pypy3.11-v7.3.19-linux64/lib/pypy3.11/os.py", LIBRARY, "os.py"),
    ("/home/u/.pyenv/versions/3.11.7/lib/python3.11/os.py", LIBRARY, "os.py"),
    ("/opt/conda/lib/python3.13t/os.py", LIBRARY, "os.py"),
    ("/usr/lib64/python3.9/os.py", LIBRARY, "os.py"),
    ("/usr/lib/python311.zip/os.py", LIBRARY, "os.py"),
    ("/usr/lib/python3.9/lib-dynload/x.py", LIBRARY, "x.py"),
    ("C:\\Users\\me\\AppData\\Local\\Programs\\Python\\Python311\\Lib\\os.py",
     LIBRARY, "os.py"),
    ("C:\\Python27\\Lib\\os.py", LIBRARY, "os.py"),
    ("C:\\Python311-32\\Lib\\os.py", LIBRARY, "os.py"),
    ("C:\\Python313t\\Lib\\os.py", LIBRARY, "os.py"),
    ("D:\\WPy64\\python-3.11.1.amd64\\Lib\\os.py", LIBRARY, "os.py"),
    ("C:\\pypy3.9-v7.3.13-win64\\Lib\\os.py", LIBRARY, "os.py"),
    ("C:\\Program Files\\WindowsApps\\PythonSoftwareFoundation.Python.3.11_3.11."
     "1520.0_x64__qbz5n2kfra8p0\\Lib\\os.py", LIBRARY, "os.py"),
    ("/usr/lib/pypy3.9/importlib/metadata.py", LIBRARY, "importlib/metadata.py"),
    ("/usr/lib/pypy3.9/importlib/resources/abc.py", LIBRARY,
     "importlib/resources/abc.py"),
    ("<frozen os>", LIBRARY, "<frozen os>"),
    # the import machinery
    ("<frozen importlib._bootstrap>", IMPORTING, "<frozen importlib._bootstrap>"),
    ("<builtin>/frozen importlib._bootstrap_external", IMPORTING,
     "<frozen importlib._bootstrap_external>"),
    ("<builtin>/frozen zipimport", IMPORTING, "<frozen zipimport>"),
    ("/usr/lib/pypy3.9/importlib/__init__.py", IMPORTING,
     "importlib/__init__.py"),
    ("/usr/lib/pypy3.9/importlib/_bootstrap.py", IMPORTING,
     "importlib/_bootstrap.py"),
    ("/usr/lib/pypy3.9/zipimport.py", IMPORTING, "zipimport.py"),
    # built-in code
    ("", BUILT_IN, ""),
    ("<builtin>/?", BUILT_IN, "<builtin>/?"),
    ("<builtin>/std/util.py", BUILT_IN, "<builtin>/std/util.py"),
    ("<builtin>/frozen _structseq", BUILT_IN, "<frozen _structseq>"),
    ("<string>", BUILT_IN, "<string>"),
    ("<template>", BUILT_IN, "<template>"),
    # the program
    (MAIN, PROGRAM, "app.py"),
    ("/home/me/shop/views/cart.py", PROGRAM, "views/cart.py"),
    ("/home/me/lib/tools.py", PROGRAM, "../lib/tools.py"),
    ("/srv/plugins/lib/python/x.py", PROGRAM, "/srv/plugins/lib/python/x.py"),
    ("/home/other/x.py", PROGRAM, "../../other/x.py"),
    ("/home/me/lib/python3/app.py", PROGRAM, "../lib/python3/app.py"),
    ("/home/me/lib/pypy3/app.py", PROGRAM, "../lib/pypy3/app.py"),
    ("C:\\made\\pypy-work\\lib\\x.py", PROGRAM, "C:/made/pypy-work/lib/x.py"),
    ("C:\\pythonic\\Lib\\x.py", PROGRAM, "C:/pythonic/Lib/x.py"),
    ("C:\\python-3rd-party\\lib\\x.py", PROGRAM, "C:/python-3rd-party/lib/x.py"),
    ("./relative.py", PROGRAM, "relative.py"),
    ("/home/me/shop/importlib/__init__.py", PROGRAM, "importlib/__init__.py"),
    ("/home/me/shop/site-packages.py", PROGRAM, "site-packages.py"),
    ("/home/me/shop/mylib/python3.9/x.py", PROGRAM, "mylib/python3.9/x.py"),
])
def test_origin_and_displayed_path_of_a_file(file: str, origin: str, path: str) -> None:
    assert place(file) == (origin, path)


@pytest.mark.parametrize("main,file", [
    ("/tmp/srv/app.py", "/lib/x86_64-linux-gnu/libffi.so.8"),
    ("/app/app.py", "/srv/plugins.py"), ("C:\\app\\app.py", "C:\\plugins\\x.py")])
def test_paths_that_share_only_the_root_stay_absolute(main: str, file: str) -> None:
    """In containers, programs are often in a folder of the root."""
    assert origins(file, main=main).path(file) == file.replace("\\", "/")
    assert origins(main, main=main).path(main) == "app.py"


def test_native_code_is_built_in_unless_a_package_brings_it() -> None:
    assert place("-", NATIVE)[0] == BUILT_IN
    assert place("/usr/lib/x86_64-linux-gnu/libc.so.6", NATIVE)[0] == BUILT_IN
    assert place("/v/lib/pypy3.9/site-packages/numpy/core.so",
                 NATIVE)[0] == PACKAGES


def test_a_label_has_no_origin() -> None:
    assert place("", LABEL)[0] == NOWHERE


@pytest.mark.parametrize("main", ["<stdin>", "<string>"])
def test_code_of_standard_input_or_a_string_is_the_program(main: str) -> None:
    found = origins("/srv/a/b.py", main=main)
    assert found.of(Function("f", 2, main, PYTHON)) == PROGRAM
    assert found.path(main) == main


def test_folder_of_an_installed_program_is_that_of_the_user_files() -> None:
    tool = "/v/lib/pypy3.9/site-packages/flask/__main__.py"
    found = origins("/srv/shop/app.py", "/srv/shop/views/cart.py", main=tool)
    assert found.folder == "/srv/shop"
    assert found.of(Function("f", 2, tool, PYTHON)) == PACKAGES
    assert found.path("/srv/shop/views/cart.py") == "views/cart.py"


def test_files_without_a_common_folder() -> None:
    tool = "/v/lib/pypy3.9/site-packages/flask/__main__.py"
    found = origins("/srv/shop/app.py", "/home/me/x.py", main=tool)
    assert found.folder == ""
    assert found.path("/srv/shop/app.py") == "/srv/shop/app.py"


def test_a_relative_program_leaves_paths_unchanged() -> None:
    found = origins("views/cart.py", "/srv/x.py", main="app.py")
    assert found.path("views/cart.py") == "views/cart.py"
    assert found.path("/srv/x.py") == "/srv/x.py"


def test_a_profile_without_functions_has_no_folder() -> None:
    log = Log()
    log.settings()
    log.allocation([], size=24)
    assert Origins(readers.read_bytes(log.data())).folder == ""


@pytest.mark.parametrize("command,package", [
    ("/home/me/env/bin/gunicorn", PACKAGE),
    ("/usr/bin/pip", "/usr/lib/python3/dist-packages/pip/__init__.py"),
    ("/home/me/.local/bin/black",
     "/home/me/.local/lib/python3.11/site-packages/black/__init__.py")])
def test_a_command_of_an_installed_package_is_not_user_code(
        command: str, package: str) -> None:
    found = origins(package, "/srv/shop/views.py", main=command)
    assert found.of(Function("<module>", 1, command, PYTHON)) == PACKAGES
    assert found.path(command) == command.rpartition("/")[2]
    assert found.main == command
    assert found.of(Function("f", 1, "/srv/shop/views.py", PYTHON)) == PROGRAM


@pytest.mark.parametrize("script", [
    "/home/me/bin/tool", "/home/me/env/bin/tool.py", "/home/me/env/bin/sub/tool",
    "/home/me/shop/bin/tool"])
def test_other_scripts_are_user_code(script: str) -> None:
    found = origins(PACKAGE, main=script)
    assert found.of(Function("<module>", 1, script, PYTHON)) == PROGRAM
    # without a package of the same environment, the script is user code
    assert origins(main="/home/me/env/bin/tool").of(
        Function("<module>", 1, "/home/me/env/bin/tool", PYTHON)) == PROGRAM
