"""Builds of sources that are quantized, and of plans of other engines."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.build import build
from engine_build.errors import BuildError, InputRefused
from engine_build.ort import OrtNetwork
from engine_build.packaging.reused_plan import find_plan
from engine_build.pipeline import EXPORT, FETCH
from engine_build.steps.package import OF_THE_PLAN
from engine_build.steps.step import BuildState
from engine_build.store import FolderStore, sha256_of
from onboarding.names import engine_archive_path
from onboarding.plan_source import PlanSource
from tests.fixtures.signer import Signer
from tests.unit.engine_build.quantized import write_float, write_quantized
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_tensors_tree, write_tree


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


INT8, UINT8, E4M3 = TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT8E4M3FN
RANDOM = np.random.default_rng(1)
ROWS = RANDOM.standard_normal((120, 16)).astype(np.float32)


def tools(tmp_path, network, **settings):
    settings = {"precision": "auto", "calibrated": False, "mean": 0.9} | settings
    datasets = {"validation": {"x": ROWS}}
    if settings["calibrated"]:
        datasets["calibration"] = {"x": ROWS[:48] + 1}
    root = write_tensors_tree(tmp_path / "root", network, datasets, **settings)
    return context(root, tmp_path / "out", store=None, runner=StandInRunner())


def build_entry(tools):
    with tools.work:
        return build(tools).entry


def export(tools):
    """The state after the network is read."""
    with tools.work:
        state = BuildState(tools)
        for step in (FETCH, EXPORT):
            step.run(tools, state)
        return state


@pytest.mark.parametrize(
    ("kind", "value", "requested", "precision"),
    [
        (INT8, 0, "auto", "int8"),
        (INT8, 0, "int8", "int8"),
        (UINT8, 128, "auto", "int8"),
        (E4M3, 0, "fp8", "fp8"),
    ],
    ids=["auto", "int8", "asymmetric", "fp8"],
)
def test_nodes_of_the_source_are_kept_and_recorded(kind, value, requested, precision, tmp_path):
    source = write_quantized(tmp_path / "qdq.onnx", kind, value)
    entry = build_entry(tools(tmp_path, source, precision=requested))
    manifest, record = entry.manifest, entry.manifest.quantization
    assert (manifest.precision, manifest.requested_precision) == (precision, requested)
    assert (record.mode, record.precision, record.method) == ("source", precision, None)
    assert record.int8_share_of_matmul_macs == round(256 / 384, 4)
    assert "its own Q/DQ nodes" not in manifest.decision
    assert "source's own Q/DQ nodes, quantized no further" in manifest.decision
    assert "names no float network" in manifest.reference and manifest.accuracy[-1].mean == 1.0
    assert set(manifest.network_keys) == {"float"}
    kept = next((tmp_path / "out").rglob("*-model.onnx"))
    assert kept.read_bytes() == source.read_bytes()


def test_a_float_reference_judges_the_nodes(tmp_path):
    network, reference = write_quantized(tmp_path / "q.onnx"), write_float(tmp_path / "f.onnx")
    manifest = build_entry(tools(tmp_path, network, reference=reference)).manifest
    expected = OrtNetwork(reference).rows({"x": ROWS})
    answers = OrtNetwork(network).rows({"x": ROWS})
    errors = np.linalg.norm(answers - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert manifest.reference.startswith("networks/float.onnx (sha256 ")
    assert {record.subject for record in manifest.accuracy} == {"int8 Q/DQ network", "int8 engine"}
    assert manifest.accuracy[-1].mean == pytest.approx(1 - errors.mean(), abs=1e-3)


def test_a_float_network_is_quantized_to_fp8_and_served_on_a_cpu(tmp_path):
    source = write_float(tmp_path / "f.onnx")
    entry = build_entry(tools(tmp_path, source, precision="fp8", calibrated=True))
    manifest, record = entry.manifest, entry.manifest.quantization
    assert (manifest.precision, record.mode, record.precision) == ("fp8", "explicit", "fp8")
    assert (record.method, record.samples) == ("max", 48)
    assert record.int8_share_of_matmul_macs == round(256 / 384, 4) and manifest.reference is None
    assert {item.subject for item in manifest.accuracy} == {"fp8 Q/DQ network", "fp8 engine"}
    means = [item.mean for item in manifest.accuracy]
    assert 0.9 < means[0] < 0.999 and means[0] == pytest.approx(means[1], abs=1e-4)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (write_quantized, "holds QuantizeLinear and DequantizeLinear nodes itself"),
        (None, r"answers with shape \[2, 16\], and the source with \[2, 8\]"),
    ],
    ids=["quantized", "other outputs"],
)
def test_refuses_a_reference_that_cannot_judge(reference, words, tmp_path):
    path = tmp_path / "f.onnx"
    if reference is None:
        model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 19]>
g (float[batch, 16] x) => (float[batch, 16] y) { y = Relu(x) }""")
        onnx.save(model, path)
    else:
        reference(path)
    network = write_quantized(tmp_path / "q.onnx")
    with pytest.raises(BuildError, match=words):
        build_entry(tools(tmp_path, network, reference=path))


def test_auto_leaves_int8_out_of_a_network_below_opset_13(tmp_path):
    source = write_float(tmp_path / "f.onnx", opset=11)
    manifest = build_entry(tools(tmp_path, source, calibrated=True)).manifest
    assert manifest.precision == "fp32" and manifest.quantization is None
    reason = "int8 was not tried, since the network has opset 11, and INT8 needs 13 or newer"
    assert reason in manifest.decision


@pytest.mark.parametrize(
    ("source", "settings", "words"),
    [
        (
            (E4M3, 0),
            {"precision": "int8"},
            "computes in fp8, so it is no network of precision int8; allowed: auto, fp8",
        ),
        (
            (INT8, 0),
            {"precision": "fp8"},
            "computes in int8, so it is no network of precision fp8; allowed: auto, int8",
        ),
        ((UINT8, 128), {"gpu": "ml.g5.xlarge"}, "asymmetrically"),
        (
            (E4M3, 0),
            {"gpu": "ml.g5.xlarge"},
            r"needs compute capability 8\.9, and this engine's is 8\.6",
        ),
    ],
)
def test_refuses_nodes_of_another_precision(source, settings, words, tmp_path):
    path = write_quantized(tmp_path / "q.onnx", *source)
    with pytest.raises(BuildError, match=words):
        export(tools(tmp_path, path, **settings))
