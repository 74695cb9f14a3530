"""The search for the nursery in PyPy's code, which finds one answer or refuses."""
from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import PyPy
from vmprof_allocation.engines.hook.discovery import cache, lookup
from vmprof_allocation.engines.searching import SEARCHING
from vmprof_allocation.errors import Evidence

WHERE = """
    from vmprof_allocation.engines.hook import engine as hook
    engine = hook.engine()
    engine.prepare()
    print(engine._place.path)
"""


@pytest.fixture
def library(pypy: PyPy) -> Path:
    """Return the file that contains PyPy's code."""
    return Path(pypy.command(str(pypy.script(WHERE, "where.py"))).out.strip())


def fields(text: str) -> dict[str, list[str]]:
    return {name: value.split(",") for name, value in (
        line.split("=", 1) for line in text.splitlines())}


def search(pypy: PyPy, path: Path) -> dict[str, list[str]] | str:
    """Search a library, and return the layout, or the text of the refusal."""
    run = pypy.command(
        "-m", "vmprof_allocation.engines.hook.discovery.search", str(path))
    assert run.code == 0, run.err
    answer = json.loads(run.out)
    assert (answer["layout"] is None) == bool(answer["problem"])
    assert all(good for _, _, good in answer["findings"]) == (
        not answer["problem"])
    if answer["layout"] is None:
        return str(answer["problem"])
    return fields(answer["layout"])


def changed(pypy: PyPy, library: Path, layout: dict[str, list[str]],
            name: str, code: bytes) -> Path:
    """Return a copy of the library with other code at the beginning of a function."""
    index = ("collect_and_reserve", "_minor_collection",
             "external_malloc").index(name)
    data = bytearray(library.read_bytes())
    old = bytes.fromhex(layout["code"][index])
    position = int(layout["entry"][index])      # the address is also the file offset
    assert data[position:position + len(old)] == old
    data[position:position + len(code)] = code
    copy = pypy.folder / "changed.so"
    copy.write_bytes(data)
    return copy


def test_second_search_finds_the_same(pypy: PyPy, library: Path) -> None:
    """The search decodes few places, and none twice.

    Decoding with capstone under ctypes on PyPy once took most of the search's time.
    """
    script = pypy.script("""
        import sys
        import capstone
        from vmprof_allocation.engines.hook.discovery import search
        decoded = []
        disasm = capstone.Cs.disasm
        def counting(self, code, address):
            decoded.append(address)
            return disasm(self, code, address)
        capstone.Cs.disasm = counting
        search.main(sys.argv[1:])
        print()
        print(0 < len(decoded) < 10, len(decoded) == len(set(decoded)))
    """)
    again = pypy.folder / "again" / "vmprof-allocation" / "build"
    run = pypy.command(str(script), str(library), str(again))
    answer, decoded = run.out.splitlines()
    assert decoded == "True True"
    assert json.loads(answer)["problem"] == ""
    (_, layout), (_, types) = first_use().left
    assert again.read_bytes() == layout
    assert Path(cache.types_path(str(again))).read_bytes() == types
    gc, free, top = (int(fields(layout.decode())[name][0]) for name in (
        "gc", "nursery_free", "nursery_top"))
    assert gc < free < top


@pytest.mark.parametrize("name,code", [
    # mov rax, [rip+x] depends on its address
    ("collect_and_reserve", b"\x48\x8b\x05\x00\x01\x00\x00"),
    # jmp does not return to the rest
    ("collect_and_reserve", b"\xe9\x00\x01\x00\x00"),
    # ret is within the first five bytes
    ("collect_and_reserve", b"\x90\x90\xc3"),
    # movabs rax, imm64 is too long to be replaced in one store
    ("_minor_collection", b"\x48\xb8" + bytes(8)),
])
def test_entry_that_cannot_be_moved_is_refused(
        pypy: PyPy, library: Path, name: str, code: bytes) -> None:
    layout = fields(remembered(pypy).read_text())
    refusal = search(pypy, changed(pypy, library, layout, name, code))
    assert "entry of %s: its first instructions cannot be moved" % name in str(
        refusal)


def test_library_that_is_not_pypy_is_refused(pypy: PyPy) -> None:
    libraries = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    candidates = [*Path("/usr/lib").glob("*/libm.so.6"),
                  *libraries.glob("libm.so.6")]
    assert "this build of PyPy is not known" in str(search(pypy, candidates[0]))


@pytest.mark.parametrize("size", [0, 3, 64, 100000, 20000000])
def test_file_that_is_cut_off_is_refused(
        pypy: PyPy, library: Path, size: int) -> None:
    copy = pypy.folder / "cut.so"
    copy.write_bytes(library.read_bytes()[:size])
    assert "this build of PyPy is not known" in str(search(pypy, copy))


def test_text_file_is_refused(pypy: PyPy) -> None:
    path = pypy.folder / "text"
    path.write_text("not a program " * 1000)
    assert "this build of PyPy is not known" in str(search(pypy, path))


class FirstUse(NamedTuple):
    """The messages of a first run, and the modes and contents of the cache after it."""

    err: str
    modes: list[int]
    left: list[tuple[str, bytes]]


@functools.cache
def first_use() -> FirstUse:
    """Return the results of a run with an invalid cache.

    The program's folder has modules with the names of modules that the search imports.
    The result is cached, because a search takes longer than the tests of its result.
    """
    with tempfile.TemporaryDirectory() as folder:
        pypy = PyPy(Path(folder))
        place = pypy.folder / "cache" / "vmprof-allocation"
        place.mkdir(parents=True, mode=0o755)
        (usual,) = re.findall("stored in: (.*)", pypy.command(
            "-m", "vmprof_allocation", "doctor").out)
        path = place / Path(usual).name
        path.write_text("build_id=x")
        for name in "capstone", "elftools":
            (pypy.folder / ("%s.py" % name)).write_text("1 / 0\n")
        run = pypy.sample("print('ran')", "128k", XDG_CACHE_HOME=str(place.parent))
        assert run.out == "ran\n"
        assert sorted(place.iterdir()) == [path, path.with_name(path.name + ".types")]
        return FirstUse(
            run.err, [file.stat().st_mode & 0o777 for file in (
                place, *sorted(place.iterdir()))],
            [(file.name, file.read_bytes()) for file in sorted(place.iterdir())])


def remembered(pypy: PyPy, **other: str) -> Path:
    """Make a cache as after a first run, with `other` values of fields.

    Returns:
        The file of the layout.
    """
    pypy.environment["XDG_CACHE_HOME"] = str(pypy.folder / "cache")
    place = pypy.folder / "cache" / "vmprof-allocation"
    place.mkdir(parents=True)
    place.chmod(0o700)
    for name, content in first_use().left:
        (place / name).write_bytes(content)
        (place / name).chmod(0o600)
    path = place / first_use().left[0][0]
    if other:
        layout = dict(line.split("=", 1) for line in (
            cache.load(str(path)) or "").splitlines())
        assert not cache.save(str(path), "".join(
            "%s=%s\n" % field for field in {**layout, **other}.items()))
    return path


def known(path: Path) -> bool:
    """Return whether the cache has the build whose layout is in this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(path.parent.parent))
        build_id = path.name.partition("-")[0]
        return lookup.known(Evidence(), build_id, "") is not None


def test_first_use_reports_why_it_takes_long(stock_pypy: PyPy) -> None:
    """A damaged cache is replaced, and only the user can access the new cache."""
    first = first_use()
    assert first.err == "vmprof: %s\n" % SEARCHING
    assert first.modes == [0o700, 0o600, 0o600]
    path = remembered(stock_pypy)
    assert known(path)
    assert stock_pypy.sample("print('ran')", "128k").err == ""


def test_answer_is_remembered_by_build_id(pypy: PyPy) -> None:
    path = remembered(pypy)
    (build_id,) = fields(path.read_text())["build_id"]
    assert path.name.startswith(build_id)
    assert "stored in: %s\n" % path in pypy.command(
        "-m", "vmprof_allocation", "doctor").out


def test_unknown_references_are_reported_from_the_cache(stock_pypy: PyPy) -> None:
    told = "references: not known, so --retainers is not possible: "
    doctor = "-m", "vmprof_allocation", "doctor"
    assert told not in stock_pypy.command(*doctor).out
    remembered(stock_pypy, references="0")
    assert told in stock_pypy.command(*doctor).out


@pytest.mark.parametrize("damage", [
    "", "{}", "=", "build_id", "build_id=x", "\0\0", "gc=1\nentry=x"])
def test_damaged_cache_is_not_used(pypy: PyPy, damage: str) -> None:
    path = remembered(pypy)
    path.write_text(damage)
    assert not known(path)
    # a file with a correct checksum is refused, too
    assert not cache.save(str(path), damage)
    assert not known(path)


@pytest.mark.parametrize("python,said", [
    ("/bin/false", "it ended with code 1"), ("/missing", "No such file")])
def test_search_that_fails_is_a_refusal(
        pypy: PyPy, python: str, said: str) -> None:
    pypy.environment["XDG_CACHE_HOME"] = str(pypy.folder / "cache")
    run = pypy.command(str(pypy.script("""
        import sys
        import vmprof_allocation
        sys.executable = %r
        try:
            vmprof_allocation.start("out.vmprof")
        except vmprof_allocation.UnknownBuild as e:
            print(e)
    """ % python)))
    assert "not known: the search: " in run.out and said in run.out
    assert not (pypy.folder / "out.vmprof").exists()


def test_sampled_program_has_no_decoder(pypy: PyPy) -> None:
    """Each major collection would have to walk the decoder's objects."""
    remembered(pypy)
    run = pypy.command(str(pypy.script("""
        import sys
        import vmprof_allocation
        before = set(sys.modules)
        with vmprof_allocation.sample("out.vmprof"):
            pass
        print([m for m in sys.modules if m.partition(".")[0] in (
            "capstone", "elftools", "ctypes", "cffi", "pycparser", "vmprof",
            "typing", "dataclasses", "json", "re")])
    """)))
    assert run.out == "[]\n", run.err


def test_one_wrong_digit_in_the_cache_is_noticed(pypy: PyPy) -> None:
    """Most fields are addresses, and the sampler writes to these addresses."""
    path = remembered(pypy)
    good = path.read_text()
    assert cache.load(str(path)) == good[:good.rindex("check=")]
    for i, character in enumerate(good):
        if character in "0123456789abcdef":
            path.write_text(good[:i] + "%x" % (int(character, 16) ^ 1)
                            + good[i + 1:])
            assert cache.load(str(path)) is None
    path.write_text(good[:-1])
    assert cache.load(str(path)) is None


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_cache_that_others_may_write_to_is_not_used(pypy: PyPy, mode: int) -> None:
    path = remembered(pypy)
    for target, good in (path, 0o600), (path.parent, 0o700):
        target.chmod(mode | good)
        assert cache.load(str(path)) is None
        assert not known(path)
        target.chmod(good)
    assert known(path)


def test_cache_of_another_user_is_not_used(
        pypy: PyPy, monkeypatch: pytest.MonkeyPatch) -> None:
    path = remembered(pypy)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert cache.load(str(path)) is None


def test_link_in_place_of_the_cache_is_not_followed(pypy: PyPy) -> None:
    path = remembered(pypy)
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))
    assert cache.load(str(path)) is None


@pytest.mark.parametrize("folder", ["cache", ""])
def test_relative_cache_folder_is_not_used(
        monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Another user may have made such a folder in the current folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.path("1a2b") == "/home/me/.cache/vmprof-allocation/1a2b-%d" % (
        cache.VERSION)
    monkeypatch.setenv("HOME", "me")
    assert cache.path("1a2b") is None


@pytest.mark.parametrize("field,value,said", [
    ("nursery_free", "8", "the address of data"),
    ("entry", "0,0,0", "the address of code"),
    ("type_info", "1099511627776", "the address of the type table"),
    ("slot", ",".join(["8"] * 11), "the address of data"),
    ("slot", "0", "the layout"),
    ("machine", "aarch64", "the machine: this is x86_64, but the build profile is for "
                           "aarch64"),
    ("type_fixed_size", "4096", "the layout"),
])
def test_address_outside_of_its_segment_is_refused(
        pypy: PyPy, field: str, value: str, said: str) -> None:
    remembered(pypy, **{field: value})
    doctor = pypy.command("-m", "vmprof_allocation", "doctor")
    assert doctor.code == 1
    assert "BAD  " + said in doctor.out


@pytest.mark.parametrize("field,other,said", [
    ("code", "", "collect_and_reserve in memory"),
    ("nursery_top", "nursery_free", "the nursery"),
    ("nursery_free", "gc", "the nursery"),
])
def test_wrong_answer_is_refused_before_memory_is_changed(
        pypy: PyPy, field: str, other: str, said: str) -> None:
    """If the search is wrong, the check in the process itself refuses the layout."""
    layout = fields(first_use().left[0][1].decode())
    value = layout[other][0] if other else ",".join(["00" * 16] * 3)
    remembered(pypy, **{field: value})
    doctor = pypy.command("-m", "vmprof_allocation", "doctor")
    assert doctor.code == 1
    assert "BAD  " + said in doctor.out
    assert doctor.out.splitlines()[-2].startswith("please report this: send all of "
                                                  "these lines")
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "1k", "-o",
                       "out.vmprof", str(pypy.script("print('ran')")))
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1
    assert "this build of PyPy is not known" in run.err
    assert not (pypy.folder / "out.vmprof").exists()


def test_a_pypy_that_is_one_file_is_refused(stock_pypy: PyPy) -> None:
    """A PyPy that is translated without --shared does not export its main function."""
    run = stock_pypy.run("""
        from vmprof_allocation.engines.hook.discovery.process import Process
        from vmprof_allocation.errors import AllocationSamplingError, Evidence
        class Ffi:
            error = OSError
            def dlopen(self, file):
                raise OSError(file)
        process = Process.__new__(Process)
        Evidence.__init__(process)
        process._ffi = Ffi()
        try:
            process._find_library()
        except AllocationSamplingError as e:
            print(e)
    """)
    assert "the hook engine needs a PyPy with the library libpypy" in run.out, run
    assert run.err == ""


def test_limit_of_files_does_not_end_the_process_that_saves(tmp_path: Path) -> None:
    """The default action for SIGXFSZ would end the process."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import resource, signal, sys
        from vmprof_allocation.engines.hook.discovery import cache
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
        print(cache.save(sys.argv[1], "x" * 100), cache.load(sys.argv[1]))
    """), str(tmp_path / "folder" / "build")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "File too large None\n"
    assert not [*(tmp_path / "folder").iterdir()]
