"""Check the imports and includes between folders (see ARCHITECTURE.rst)."""
from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import ROOT

PACKAGES = {"vmprof_allocation": ROOT / "vmprof-integration",
            "vmprof_push": ROOT / "vmprof-integration",
            "vmprof_convert": ROOT / "converter"}


class Rule(NamedTuple):
    #: modules, including all their submodules, that must not import `imported`
    importers: tuple[str, ...]
    imported: tuple[str, ...]
    #: importers to which the rule does not apply
    excepted: tuple[str, ...] = ()
    #: modules of `imported` that importers may import nevertheless
    allowed: tuple[str, ...] = ()
    #: whether imports of `imported` inside functions are allowed
    is_lazy: bool = False


CONVERT = "vmprof_convert"
#: folders of the converter; each imports only itself and the folders before it
ROOMS = ("errors", "text", "profile", "readers", "meaning", "analysis", "report",
         "writers", "cli")
READERS, MODEL, ERRORS, WRITERS, REPORT = (
    CONVERT + "." + name
    for name in ("readers", "profile.model", "errors", "writers", "report"))
#: modules of the command line for files, the terminal and the browser, which convert
#: nothing
AROUND = tuple(CONVERT + ".cli." + name for name in (
    "launch", "output", "progress", "serve", "streams"))
FIREFOX = WRITERS + ".firefox"
FORMAT = FIREFOX + ".format"
#: modules that both writers with protocol buffers share
PROTOBUF = (WRITERS + ".protobuf", WRITERS + ".pprof_values")
SAMPLER = "vmprof_allocation"
ENGINES = SAMPLER + ".engines"
REMOTE = SAMPLER + ".remote"
ENTRY = REMOTE + ".entry"
HOOK, BUILTIN = ENGINES + ".hook", ENGINES + ".builtin"
MACHINES = HOOK + ".discovery.machines"
#: modules of the discovery that know the instructions of one machine
OF_MACHINES = tuple(
    MACHINES + "." + path.stem
    for path in sorted(PACKAGES[SAMPLER].joinpath(*MACHINES.split(".")).glob("*.py"))
    if path.stem not in ("__init__", "machine"))
#: the pusher is a separate process; a sampled program loads only its modules in STARTS
PUSHER = "vmprof_push"
CONTROL = REMOTE + ".control"
STARTS = tuple(PUSHER + "." + name for name in (
    "folder", "messages", "start", "target", "credentials"))
#: folders of the sampler; each imports only itself and the folders before it
SAMPLER_ROOMS = ("errors", "memory", "critical", "settings", "engines", "session",
                 "remote", "launch", "commands", "tracemalloc", "pytest_plugin")

RULES = {
    "the converter does not import the sampler": Rule((CONVERT,), (SAMPLER, PUSHER)),
    **{"%s imports only layers below it" % room: Rule(
        (CONVERT + "." + room,), (CONVERT,),
        allowed=tuple(CONVERT + "." + name for name in ROOMS[:number + 1]))
       for number, room in enumerate(ROOMS)},
    # a rule for each file in the folder, so that a new writer has a rule, too
    **{"the writer %s imports no other writer" % path.stem: Rule(
        (WRITERS + "." + path.stem,), (WRITERS,),
        allowed=(WRITERS + "." + path.stem, *PROTOBUF))
       for path in sorted((PACKAGES[CONVERT] / CONVERT / "writers").iterdir())
       if not path.name.startswith(("_", "."))},
    "the Firefox builder imports the format only": Rule(
        (FORMAT,), (CONVERT,), allowed=(FORMAT,)),
    "the viewer imports no profile": Rule(AROUND, (CONVERT,), allowed=AROUND),
    **{"%s of the sampler imports only layers below it" % room: Rule(
        (SAMPLER + "." + room,), (SAMPLER,),
        allowed=tuple(SAMPLER + "." + name for name in SAMPLER_ROOMS[:number + 1]))
       for number, room in enumerate(SAMPLER_ROOMS)},
    "the search is the same for all processors": Rule(
        (HOOK + ".discovery",), OF_MACHINES, excepted=(MACHINES,)),
    "the hook engine does not import the builtin engine": Rule((HOOK,), (BUILTIN,)),
    "the builtin engine does not import the hook engine": Rule((BUILTIN,), (HOOK,)),
    "an engine is imported when it is needed": Rule(
        (SAMPLER,), (HOOK, BUILTIN), excepted=(HOOK, BUILTIN), is_lazy=True),
    "an attached program imports only the server of requests": Rule(
        (ENTRY + ".inside",), (SAMPLER,), allowed=(CONTROL + ".serve",)),
    "the entry into a process does not depend on requests": Rule(
        (ENTRY,), (REMOTE,), excepted=(ENTRY + ".inside",),
        allowed=(ENTRY, REMOTE + ".process_info")),
    # the command `doctor` is excepted, because it names the hook engine
    "only the choice and the searches name an engine": Rule(
        (SAMPLER,), (HOOK, BUILTIN),
        excepted=(HOOK, BUILTIN, ENGINES + ".choose", ENGINES + ".searching",
                  SAMPLER + ".commands.doctor", SAMPLER + ".launch.python2")),
    "a sampled program does not import the pusher": Rule(
        (SAMPLER,), (PUSHER,), allowed=STARTS),
    "the start of the pusher is imported when it is needed": Rule(
        (SAMPLER,), (PUSHER,), is_lazy=True),
    "the pusher does not import the sampler": Rule(
        (PUSHER,), (SAMPLER,), allowed=(SAMPLER + ".errors", SAMPLER + ".settings")),
    "the start of the pusher imports no sender": Rule(
        STARTS, (PUSHER, CONVERT), allowed=STARTS),
    "a prepared process imports only its signal handler": Rule(
        (CONTROL + ".prepared",), (SAMPLER,),
        allowed=(SAMPLER + ".errors", SAMPLER + ".critical.forks"),
        is_lazy=True),
    "the server of requests does not import their client": Rule(
        (CONTROL + ".serve", CONTROL + ".meeting"), (REMOTE,),
        allowed=(CONTROL + ".meeting", REMOTE + ".peers")),
    # the pytest plugin is excepted, because it imports readers only for types, which
    # test_pytest_plugin.py checks
    "a sampled program imports no reader": Rule(
        (SAMPLER,), (CONVERT,), excepted=(SAMPLER + ".pytest_plugin",),
        is_lazy=True),
    "only commands that show reports import the converter": Rule(
        (SAMPLER,), (CONVERT,), excepted=(
            # tracemalloc reads snapshots while the program runs
            SAMPLER + ".tracemalloc",
            # the pytest plugin reads the profile of a test after its end
            SAMPLER + ".pytest_plugin",
            # these commands show profiles, or counts of another process
            SAMPLER + ".commands.reading", SAMPLER + ".commands.live",
            SAMPLER + ".commands.memory",
            # this module checks that the report is possible before the program runs
            SAMPLER + ".launch.cli")),
}

class Import(NamedTuple):
    module: str
    line: int
    is_lazy: bool


def is_in(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


def modules(packages: dict[str, Path]) -> Iterator[tuple[str, Path]]:
    for name, folder in packages.items():
        for path in sorted((folder / name).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join(parts), path


@functools.cache
def imports(importer: str, text: str, names: frozenset[str]) -> tuple[Import, ...]:
    """Return the imports of a module.

    `from x import y` is an import of x.y if this module exists. The results are cached,
    because every rule needs the same files.
    """
    parents = importer.split(".")

    def walk(node: ast.AST, is_lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, is_lazy)
            elif isinstance(child, ast.ImportFrom):
                module = ".".join(
                    (parents[:-child.level] if child.level else [])
                    + ([child.module] if child.module else []))
                for alias in child.names:
                    inner = module + "." + alias.name
                    yield Import(inner if inner in names else module,
                                 child.lineno, is_lazy)
            else:
                yield from walk(child, is_lazy or isinstance(
                    child, (ast.FunctionDef, ast.AsyncFunctionDef)))

    return tuple(walk(ast.parse(text), False))


def violations(rule: Rule, packages: dict[str, Path]) -> list[str]:
    found = list(modules(packages))
    names = frozenset(name.removesuffix(".__init__") for name, _ in found)
    # each module of a rule must exist, because a renamed module would evade the rule
    for wanted in rule.importers + rule.imported + rule.excepted + rule.allowed:
        assert any(is_in(name, (wanted.removesuffix(".__init__"),))
                   for name in names), wanted
    return ["%s:%d imports %s" % (importer, line, module)
            for importer, path in found
            if is_in(importer, rule.importers) and not is_in(importer, rule.excepted)
            for module, line, is_lazy in imports(
                importer, path.read_text(encoding="utf-8"), names)
            if is_in(module, rule.imported) and not is_in(module, rule.allowed)
            and not (rule.is_lazy and is_lazy)]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rule(rule: Rule) -> None:
    assert violations(rule, PACKAGES) == []


def test_each_folder_has_a_rule() -> None:
    there = {path.stem for path in (PACKAGES[CONVERT] / CONVERT).iterdir()
             if not path.name.startswith("_") and path.name != "py.typed"}
    assert there == set(ROOMS)
    assert {path.name for path in (PACKAGES[SAMPLER] / SAMPLER).iterdir()
            if path.is_dir() and not path.name.startswith("_")
            } == {*SAMPLER_ROOMS[1:], "native"}


def test_architecture_page_names_the_folders() -> None:
    page = (ROOT / "ARCHITECTURE.rst").read_text(encoding="utf-8")
    assert [room for room in ROOMS + SAMPLER_ROOMS
            if room + "/" not in page and room != "errors"] == []


def circles(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the part of an import graph with the modules in cycles.

    Modules that depend on a cycle are included.
    """
    while leaves := {name for name, needed in graph.items()
                     if not needed & graph.keys() - {name}}:
        graph = {name: needed for name, needed in graph.items() if name not in leaves}
    return graph


def test_modules_form_no_cycle() -> None:
    found = dict(modules(PACKAGES))
    names = frozenset(name.removesuffix(".__init__") for name in found)
    graph = {name.removesuffix(".__init__"): {
        imported.module for imported in imports(
            name, path.read_text(encoding="utf-8"), names)
        if imported.module in names} for name, path in found.items()}
    assert len(graph) > 150
    assert circles(graph) == {}


@pytest.mark.parametrize("text, found", [
    ("import low\n", []),
    ("import high.inner\n", ["low.part:1 imports high.inner"]),
    ("from high import inner, name\n",
     ["low.part:1 imports high.inner", "low.part:1 imports high"]),
    ("if True:\n    from high.inner import x\n",
     ["low.part:2 imports high.inner"]),
    ("def f():\n    import high\n", ["low.part:2 imports high"]),
    ("from high import allowed\n", []),
    ("from ..high import inner\n", ["low.part:1 imports high.inner"]),
    ("from . import other\n", []),
])
def test_a_violation_is_found(tmp_path: Path, text: str,
                              found: list[str]) -> None:
    packages = {"low": tmp_path, "high": tmp_path}
    for name in packages:
        (tmp_path / name).mkdir()
    for name in "low/__init__", "high/__init__", "high/inner", "high/allowed":
        (tmp_path / (name + ".py")).write_text("")
    (tmp_path / "low" / "part.py").write_text(text)
    rule = Rule(("low",), ("high",), allowed=("high.allowed",))
    assert violations(rule, packages) == found
    assert violations(rule._replace(excepted=("low.part",)), packages) == []
    lazily = [] if text.startswith("def") else found
    assert violations(rule._replace(is_lazy=True), packages) == lazily


def test_rule_about_a_missing_module_fails(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    (tmp_path / "low" / "__init__.py").write_text("")
    with pytest.raises(AssertionError, match="high"):
        violations(Rule(("low",), ("high",)), {"low": tmp_path})


NATIVE = PACKAGES[SAMPLER] / SAMPLER / "native"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


def included(text: str) -> list[str]:
    """Return the names of included files, without folders and headers in sys/."""
    return [name.rpartition("/")[2] for name in INCLUDE.findall(text)
            if not name.startswith("sys/")]


def native(folder: str) -> dict[str, list[str]]:
    """Return the included names of each C file in a folder, by the file's name."""
    pattern = "**/*.[ch]" if folder == "hook" else "*.[ch]"
    return {path.name: included(path.read_text(encoding="utf-8"))
            for path in sorted((NATIVE / folder).glob(pattern))}


def test_shared_c_includes_nothing_of_the_hook_engine() -> None:
    of_hook, shared = set(native("hook")), native("shared")
    assert "recorder.h" in shared and "profile_log.h" in shared["recorder.h"]
    assert "walk.h" in of_hook and of_hook.isdisjoint(shared)
    assert {name: headers for name, headers in shared.items()
            if of_hook.intersection(headers)} == {}


#: folders of the hook engine, from the highest to the lowest
HOOK_FOLDERS = ("process", "snapshots", "stacks", "vmprof", "lines", "jit", "gc",
                "patches")


def test_folders_of_the_hook_engine_include_only_those_below() -> None:
    folder_of = {path.name: path.parent.name
                 for path in (NATIVE / "hook").glob("*/*.[ch]")}
    assert set(folder_of.values()) == set(HOOK_FOLDERS)
    page = (ROOT / "ARCHITECTURE.rst").read_text(encoding="utf-8")
    assert [folder for folder in HOOK_FOLDERS if folder + "/ " not in page] == []
    assert {
        "%s includes %s" % (name, header)
        for name, headers in native("hook").items() for header in headers
        if name in folder_of and header in folder_of
        and HOOK_FOLDERS.index(folder_of[header]) < HOOK_FOLDERS.index(folder_of[name])
    } == set()


def test_heap_walker_includes_no_other_folder() -> None:
    ours = native("held")
    others = set(native("hook")) | set(native("shared")) | set(native("attach"))
    assert "holders.h" in ours["held.c"]
    assert {name: headers for name, headers in ours.items()
            if others.intersection(headers)} == {}


def test_machine_code_includes_no_folder_but_the_log() -> None:
    folders = "machines", "machines/x86_64", "machines/aarch64"
    ours = {name: headers for folder in folders
            for name, headers in native(folder).items()}
    others = {name for folder in ("hook", "held", "malloc", "sampler", "attach")
              for name in native(folder)}
    assert "unwind.h" in ours["jit_returns.c"]
    assert {name: headers for name, headers in ours.items()
            if others.intersection(headers)} == {}


def test_each_machine_implements_the_common_headers() -> None:
    """Each machine's folder implements every header that is common to all machines,
    except the headers that common C code implements.
    """
    declared = {path.stem for path in (NATIVE / "machines").glob("*.h")}
    common = {path.stem for path in (NATIVE / "machines").glob("*.c")}
    folders = [path for path in (NATIVE / "machines").iterdir() if path.is_dir()]
    assert len(folders) == 2
    for folder in folders:
        text = "".join(path.read_text() for path in folder.glob("*.c"))
        assert {name for name in declared - common
                if '#include "../%s.h"' % name not in text} == set()


def test_malloc_code_includes_only_the_log_and_the_sampler() -> None:
    ours = native("malloc")
    others = set(native("hook")) | set(native("held")) | set(native("attach"))
    assert "sampler.h" in ours["raw_memory.c"]
    assert {name: headers for name, headers in ours.items()
            if others.intersection(headers)} == {}
    assert {name for headers in native("sampler").values() for name in headers} <= {
        "sampler.h", "invariant.h", "math.h", "stdint.h"}


def test_attach_code_includes_no_other_folder() -> None:
    ours = {"%s/%s" % (folder, name): headers
            for folder in ("attach", "attach/x86_64", "attach/aarch64")
            for name, headers in native(folder).items()}
    assert "frame.h" in ours["attach/aarch64/stub.c"]
    others = set(native("hook")) | set(native("shared"))
    assert {name: headers for name, headers in ours.items()
            if others.intersection(headers)} == {}


def test_c_does_not_know_python() -> None:
    assert [path.name for path in NATIVE.rglob("*.[ch]")
            if "Python.h" in included(path.read_text(encoding="utf-8"))] == []


def test_c_files_form_no_cycle() -> None:
    """A source and its header count as one module, which includes the headers of both.
    """
    graph: dict[str, set[str]] = {}
    for path in (*NATIVE.rglob("*.c"), *NATIVE.rglob("*.h")):
        graph.setdefault(path.stem, set()).update(
            Path(name).stem for name in included(path.read_text(encoding="utf-8")))
    assert len(graph) > 50 and "nursery" in graph["sampled_child"]
    assert circles(graph) == {}


def test_finds_all_includes() -> None:
    assert included('#include "../hook/stacks/walk.h"\n#include <Python.h>\n'
                    '  # include "sampler.h" /* why */\n// #include "no.h"\n'
                    ) == ["walk.h", "Python.h", "sampler.h"]
