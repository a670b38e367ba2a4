"""Engines that differ in packaging alone are made of one plan, which is compiled once."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from engine_build.build import build
from engine_build.errors import InputRefused
from engine_build.packaging.reused_plan import find_plan
from engine_build.steps.package import OF_THE_PLAN
from engine_build.store import FolderStore, sha256_of
from onboarding.names import engine_archive_path
from onboarding.plan_source import PlanSource
from tests.fixtures.signer import Signer
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tensorrt.gpu_machine import GpuMachine, install_runtime
from tests.unit.engine_build.test_gpu_pipeline import Both
from tests.unit.engine_build.tiny import model, sample_texts, write_tree


@pytest.fixture
def packaging(tiny_build, tmp_path):
    """A build of the fixture's model with other batching; its store has the fixture's engine."""
    shutil.copytree(tiny_build.store, tmp_path / "store")
    serving = {"dynamic_batching": {"max_queue_delay_us": 7}}
    return context(
        write_tree(tmp_path / "root", model(serving=serving)),
        tmp_path / "out",
        store=FolderStore(tmp_path / "store"),
        runner=StandInRunner(),
    )


def with_source(tools, engine_key, sha256=None, **changes):
    request = dataclasses.replace(tools.request, **changes)
    source = PlanSource(engine_key=engine_key, sha256=sha256)
    return dataclasses.replace(tools, plan_source=source, request=request)


def test_named_engine_s_plan_is_packaged_with_its_own_measurements(packaging, tiny_build):
    entry = tiny_build.result.entry
    tools = with_source(packaging, entry.manifest.engine_key, entry.archive.sha256)
    with tools.work:
        built = build(tools).entry
    assert built.manifest.benchmark == entry.manifest.benchmark
    assert built.manifest.quantization == entry.manifest.quantization
    record = built.repackaged
    assert (record.engine_key, record.archive_sha256) == (
        entry.manifest.engine_key,
        entry.archive.sha256,
    )
    for name in OF_THE_PLAN:
        assert getattr(built.manifest, name) == getattr(entry.manifest, name)
    # A server of before plan keys reads the manifest too: no field is new.
    fields = [set(json.loads(item.manifest.to_bytes())) for item in (built, entry)]
    assert fields[0] == fields[1] and "repackaged" not in fields[0]
    assert built.plan_key == entry.plan_key and entry.repackaged is None
    assert tools.runner.commands == []


def test_refuses_an_engine_that_is_not_there_or_not_the_lock_s(packaging, tiny_build):
    key = tiny_build.result.entry.manifest.engine_key
    for source, fault in (
        (("0" * 20,), "0{20} is not reused: that engine is not in .*store"),
        ((key, "0" * 64), "is not reused: .* is not the archive that its lock names"),
    ):
        tools = with_source(packaging, *source)
        with tools.work, pytest.raises(InputRefused, match=fault):
            build(tools)


def test_refuses_a_plan_whose_archive_is_unsigned_or_another_s(packaging, tiny_build):
    key = tiny_build.result.entry.manifest.engine_key
    for changes, fault in (
        ({"trusted_signers": (Signer().public,)}, "is not reused: .*nobody signed it"),
        # What a lock of a pull request calls the same plan.
        ({"plan_key": "0" * 20}, "names another plan than 0{20}, or none"),
    ):
        tools = with_source(packaging, key, **changes)
        with tools.work, pytest.raises(InputRefused, match=fault):
            find_plan(tools)
    archive = packaging.destination.path(engine_archive_path(key))
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    tools = with_source(packaging, key, sha256_of(archive))
    with (
        tools.work,
        pytest.raises(InputRefused, match=r"not reused: .*publish the engine again"),
    ):
        find_plan(tools)
    with packaging.work:
        assert find_plan(packaging) is None, "no engine is named"


PROMPTS = {"query": "find: ", "passage": "text: "}
PROFILE = {"batch": [1, 2, 4], "sequence": [4, 8, 12]}


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"source": {"prompts": PROMPTS, "default_prompt_name": "query"}}, False),
        ({"accuracy": {"budget": {"mean": 0.98, "worst": 0.91}}}, False),
        ({"accuracy": {"budget": {"mean": 0.98, "worst": 0.9, "neighbours": 0.1}}}, False),
        ({"accuracy": {"dataset": "models/data/other.txt"}}, False),
        ({"engine": {"optimization_profiles": [PROFILE]}}, False),
        ({"name": "renamed"}, True),
    ],
)
def test_plan_is_of_the_same_key_whatever_a_lock_says(tiny_build, tmp_path, change, is_same):
    """The source is named, as a lock that somebody changed would name it."""
    spec = model()
    for key, value in change.items():
        spec[key] = {**spec[key], **value} if isinstance(value, dict) else value
    root = write_tree(tmp_path / "root", spec)
    (root / "models/data/other.txt").write_text("\n".join(sample_texts(120, seed=3)))
    tools = context(
        root,
        tmp_path / "out",
        store=FolderStore(tiny_build.store),
        runner=StandInRunner(),
        model=spec["name"],
    )
    tools = with_source(tools, tiny_build.result.entry.manifest.engine_key)
    with tools.work:
        if is_same:
            assert find_plan(tools) is not None
        else:
            with pytest.raises(InputRefused, match="names another plan than"):
                find_plan(tools)


def test_plan_of_a_gpu_is_packaged_where_there_is_none(tiny_build, wheel, tmp_path, monkeypatch):
    install_runtime(monkeypatch)
    shutil.copytree(tiny_build.store / "networks", tmp_path / "store/networks")
    store, machine = FolderStore(tmp_path / "store"), GpuMachine(tmp_path, monkeypatch)
    tools = machine.context("fp16", store=store)
    tools = dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner(wheel)))
    with tools.work:
        first = build(tools).entry
    serving = {"dynamic_batching": {"max_queue_delay_us": 7}}
    tools = machine.context("fp16", store=store, out="again", changes={"serving": serving})
    source = PlanSource(engine_key=first.manifest.engine_key)
    tools = dataclasses.replace(tools, runner=StandInRunner(), plan_source=source)
    with tools.work:
        again = build(tools).entry
    assert tools.runner.commands == []
    assert again.manifest.engine_key != first.manifest.engine_key
    assert again.manifest.builder == first.manifest.builder
    file = again.manifest.engine_file
    assert again.manifest.files[file] == first.manifest.files[first.manifest.engine_file]
    assert again.manifest.builder.gpu == "NVIDIA A10G"
