"""Tests of OTLP profiles, the format of the OpenTelemetry collector."""
from __future__ import annotations

import collections
import gzip
import io
from pathlib import Path

import pytest

import hostile_names
import made_held
import otlp_request
from made_profiles import Log, jit
from otlp_request import Request
from stack_files import a_heap, label, labelled_log
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import FUNCTION, TYPE, Choice, Figures, summarize
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers import otlp
from vmprof_convert.writers.pprof_values import SampleTypes


def written(profile: Profile,
            attributes: dict[str, str | int] | None = None) -> Request:
    out = io.BytesIO()
    otlp.write(profile, out, attributes)
    return otlp_request.read(out.getvalue())


def figures(own: Figures) -> dict[str, float]:
    return {"alloc_space": own.bytes().value, "alloc_objects": own.objects().value,
            "inuse_space": own.bytes("alive").value,
            "inuse_objects": own.objects("alive").value}


def test_bytes_and_objects_of_each_function() -> None:
    profile = a_heap()
    heap = summarize(profile, choice=Choice((FUNCTION, TYPE)))
    request = written(profile)
    assert {name: one.unit for name, one in request.types.items()} == {
        "alloc_objects": "count", "alloc_space": "bytes",
        "inuse_objects": "count", "inuse_space": "bytes"}
    rows = {(label(row.function), row.subject.type.name): row.own
            for row in heap.rows
            if row.subject.type is not None and row.own.sum().samples}
    for name, one in request.types.items():
        sums: dict[tuple[str, str], int] = collections.defaultdict(int)
        for sample in one.samples:
            assert sample.attributes["thread.name"] == "MainThread"
            sums[sample.stack[-1][0], sample.attributes["type"]] += sample.value
        assert sums.keys() <= rows.keys() and len(rows) == 9
        for key, own in rows.items():
            assert sums[key] == pytest.approx(
                figures(own)[name], abs=len(one.samples))
    assert request.types["alloc_space"].sum == pytest.approx(heap.bytes.value, abs=0.5)


def test_retainers_are_one_sample_type(tmp_path: Path) -> None:
    """The tree of retainers is the same as in other formats."""
    out = tmp_path / "held.otlp.pb"
    path = made_held.written(tmp_path, made_held.a_tree())
    assert cli.main(["export", str(path), "-o", str(out), "--retainers"]) == 0
    (name, one), = otlp_request.read(out.read_bytes()).types.items()
    assert (name, one.unit) == ("held_space", "bytes")
    assert {tuple(function for function, _, _ in sample.stack): sample.value
            for sample in one.samples} == made_held.TREE


def test_samples_in_use_omit_dead_objects() -> None:
    request = written(a_heap())
    in_use = request.types["inuse_space"].samples
    assert all(sample.value for sample in in_use)
    assert 0 < len(in_use) < len(request.types["alloc_space"].samples)


def test_labels_lines_and_time_samples() -> None:
    request = written(readers.read_bytes(labelled_log().data()))
    assert {name: one.sum for name, one in request.types.items()} == {
        "alloc_objects": 4, "alloc_space": 190_000, "samples": 2, "cpu": 20_000_000}
    assert [(sample.stack, sample.attributes["thread.name"], sample.value)
            for sample in request.types["alloc_space"].samples
            if sample.attributes["thread.name"] != "MainThread"] == [
        ((("main (main.py:1)", "/srv/app/main.py", 1),
          ("work (work.py:11)", "/srv/app/work.py", 11)), "worker;1", 40_000)]


def test_start_duration_and_period() -> None:
    log = Log()
    log.settings(interval=4096)
    log.allocation([log.function("f")], size=24, time=3_000_000_000)
    profile = readers.read_bytes(log.data())
    profile.start_time = 1_700_000_000.25
    one = written(profile).types["alloc_space"]
    assert (one.start, one.period) == (1_700_000_000_250_000_000, 4096)
    assert one.duration == profile.end > 0


def test_resource_has_the_given_attributes() -> None:
    request = written(a_heap(), {"service.name": "shop", "process.pid": 4711})
    assert request.resource == {"service.name": "shop", "process.pid": 4711}


def test_ids_depend_on_the_profile() -> None:
    def ids(pid: int) -> list[bytes]:
        log = Log()
        log.settings(pid=pid, run="r")
        log.allocation([log.function("f")], size=24)
        return [one.id for one in written(
            readers.read_bytes(log.data())).types.values()]
    assert ids(1) == ids(1)
    assert not set(ids(1)) & set(ids(2))


def test_interpreted_and_compiled_frames_of_a_function_are_one() -> None:
    log = Log(flags=4)
    f = log.function("f")
    log.settings()
    log.allocation([f], size=24)
    log.allocation([jit(f)], size=24)
    sample, = written(readers.read_bytes(log.data())).types["alloc_objects"].samples
    assert len(sample.stack) == 1


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = Log()
    log.settings(pid=12, run="r")
    log.command("/srv/worker.py --token=hidden")
    log.allocation([log.function("f")], size=5000)
    Path("app.vmprof").write_bytes(log.data())
    assert cli.main(["export", "app.vmprof", "--format", "otlp"]) == 0
    data = gzip.decompress(Path("app.vmprof.otlp.pb.gz").read_bytes())
    assert b"hidden" not in data
    request = otlp_request.read(data)
    assert request.resource == {"service.name": "worker", "process.pid": 12,
                                "process.runtime.name": "pypy"}
    assert cli.main(["export", "app.vmprof", "-o", "app.otlp.pb"]) == 0
    assert Path("app.otlp.pb").read_bytes() == data


def test_hostile_names_are_escaped() -> None:
    request = written(readers.read_bytes(hostile_names.log().data()))
    assert all(name.isprintable() for one in request.types.values()
               for sample in one.samples
               for name in [*sample.attributes.values(),
                            *(part for frame in sample.stack for part in frame[:2])])


def test_comments_name_missing_data() -> None:
    log = Log()
    log.settings(ended="vmprof.disable()")
    log.allocation([log.function("f")], size=24)
    one = written(readers.read_bytes(log.data())).types["alloc_space"]
    assert any("ends before the program did" in line
               for line in one.attributes["pprof.profile.comment"])


@pytest.mark.parametrize("command, name", [
    ("/srv/my shop.py", "my"), ("shop.py a b", "shop"),
    ("-m gunicorn -w 2", "gunicorn"),
    ("-m", "-m"), ("", "unknown_service"), ("run\x1b[1m", "run?[1m")])
def test_service_name_is_the_name_of_the_program(command: str, name: str) -> None:
    profile = a_heap()
    profile.command = command
    assert written(profile).resource["service.name"] == name


def test_time_samples_have_a_period_of_time() -> None:
    """A request has a profile per sample type, each with its own period."""
    log = Log()
    log.settings(period="0.01", interval=4096)
    function = log.function("f")
    log.allocation([function], size=100, interval=4096)
    log.tick([function], time=5)
    types = SampleTypes(profile := readers.read_bytes(log.data()))
    periods = {type_.name: types.period(profile, type_)[0].name
               for type_ in types.types}
    assert periods["samples"] == periods["cpu"] == "cpu"
    assert periods["alloc_space"] == "space"
