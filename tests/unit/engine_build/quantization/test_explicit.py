"""The quantize step on small networks, by the fixed recipe and by a search."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.datasets.dataset import Shape
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused, SourceFault
from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.range_cache import RangeCache
from engine_build.quantization.sensitivity import Split
from engine_build.store import FolderStore
from onboarding.manifest import QuantizationRecord, TensorRecord
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.quantization.graphs import (
    WIDTH,
    Graph,
    cnn,
    images,
    texts,
    transformer,
    vit,
)

IMAGE = (TensorRecord(name="x", datatype="FP32", shape=(-1, 3, 8, 8)),)
TEXT = (
    TensorRecord(name="x", datatype="FP32", shape=(-1, -1, WIDTH)),
    TensorRecord(name="attention_mask", datatype="INT64", shape=(-1, -1)),
)
KINDS = {
    "transformer": (transformer, texts, TEXT),
    "cnn": (cnn, images, IMAGE),
    "vit": (vit, images, IMAGE),
}


def judge(budget, reference):
    standard = Standard(reference=reference, metric="cosine", budget=budget)
    return lambda rows: accuracy("search split", rows, standard)


def quantization(folder, kind="transformer", *, mean=None, model=None, **changes):
    make, samples, inputs = KINDS[kind]
    (folder / "out").mkdir(exist_ok=True)
    onnx.save(make() if model is None else model, folder / "float.onnx")
    outputs = (TensorRecord(name="y", datatype="FP32", shape=(-1, 5)),)
    split = Split(
        samples=samples(100, seed=3),
        score=partial(judge, BudgetSpec(mean=0.5 if mean is None else mean)),
    )
    wanted = Quantization(
        network=Network(
            precision="float", path=folder / "float.onnx", inputs=inputs, outputs=outputs, facts={}
        ),
        encoder=TensorEncoder(inputs),
        method="max",
        calibration=samples(48, seed=1),
        shape=Shape(batch=4, sequence=6),
        cache=RangeCache((FolderStore(folder / "store"),), folder),
        folder=folder / "out",
        search=None if mean is None else split,
    )
    return dataclasses.replace(wanted, **changes)


def run(wanted):
    said = []
    return wanted.run(said.append), said


@pytest.mark.parametrize(("kind", "int8"), [("transformer", 6), ("vit", 7)])
def test_without_a_search_layers_behind_activation_functions_stay_in_float(tmp_path, kind, int8):
    result, _ = run(quantization(tmp_path, kind))
    behind = {
        layer.node
        for layer in quantizable_layers(KINDS[kind][0]())
        if layer.follows_activation_function
    }
    assert result.facts["int8_layers"] == int8
    assert behind < set(result.facts["float_layers"])
    assert {layer["node"] for layer in result.facts["layers"] if not layer["int8"]} == behind


@pytest.mark.parametrize("kind", KINDS)
def test_search_puts_everything_in_int8_where_the_budget_allows_it(tmp_path, kind):
    result, said = run(quantization(tmp_path, kind, mean=0.5))
    assert result.facts["int8_layers"] == len(quantizable_layers(KINDS[kind][0]()))
    assert result.facts["frontier"][0]["chosen"]
    assert "<- chosen" in said[0]


def test_search_leaves_the_dear_layers_out_and_says_why(tmp_path):
    every, _ = run(quantization(tmp_path, mean=0.5))
    best, worst = (
        point["mean"] for point in (every.facts["frontier"][-1], every.facts["frontier"][0])
    )
    result, _ = run(quantization(tmp_path, mean=(best + worst) / 2))
    left = [layer for layer in result.facts["layers"] if not layer["int8"]]
    assert 0 < len(left) < 7
    assert {layer["node"] for layer in left} == set(result.facts["leaving"][: len(left)])
    assert all("the budget breaks on the search split" in layer["why"] for layer in left)
    weights = {each.name for each in onnx.load(result.path).graph.initializer}
    named = {layer.node: layer.weight for layer in quantizable_layers(transformer())}
    assert {layer["node"] for layer in left} == {
        node for node, weight in named.items() if weight in weights
    }


def test_facts_fit_the_manifest_and_are_json(tmp_path):
    facts = run(quantization(tmp_path, mean=0.5))[0].facts
    record = QuantizationRecord.model_validate_json(
        json.dumps({name: facts[name] for name in QuantizationRecord.model_fields})
    )
    assert record.int8_share_of_matmul_macs == pytest.approx(
        sum(layer["share"] for layer in facts["layers"]), abs=1e-3
    )
    assert record.float_layers == ("t7", "t9")
    assert json.loads(json.dumps(facts)) == facts


def test_a_second_run_does_not_calibrate_again(tmp_path):
    run(quantization(tmp_path))

    class Blind(TensorEncoder):
        def feeds(self, samples, batch):
            raise AssertionError("calibrated again")

    again, _ = run(quantization(tmp_path, encoder=Blind(TEXT)))
    assert again.facts["int8_layers"] == 6


def test_the_same_order_gives_the_same_bytes(tmp_path):
    first = run(quantization(tmp_path, mean=0.5))[0].path.read_bytes()
    (tmp_path / "other").mkdir()
    assert run(quantization(tmp_path / "other", mean=0.5))[0].path.read_bytes() == first


def test_a_refused_network_steps_back_to_the_next_smaller_share(tmp_path):
    wanted = quantization(tmp_path, mean=0.5)
    refused, _ = run(wanted)
    safer = wanted.next_smaller(refused)
    before, after = refused.facts["frontier"], safer.facts["frontier"]
    assert [point["chosen"] for point in after[:2]] == [False, True]
    assert safer.facts["int8_layers"] == after[1]["int8_layers"] == refused.facts["int8_layers"] - 1
    assert (
        safer.facts["int8_share_of_matmul_macs"]
        == pytest.approx(after[1]["share"], abs=1e-4)
        != before[0]["share"]
    )
    dear = next(
        layer for layer in safer.facts["layers"] if layer["node"] == refused.facts["leaving"][0]
    )
    assert "the validation split refused" in dear["why"]
    assert dear["node"] in safer.facts["float_layers"]
    rows = wanted.encoder.feed(texts(20, seed=9))
    assert np.isfinite(OrtNetwork(safer.path).rows(rows)).all()


def test_the_last_point_has_no_safer_one(tmp_path):
    wanted = quantization(tmp_path, mean=0.5)
    network, _ = run(wanted)
    steps = 0
    while (safer := wanted.next_smaller(network)) is not None:
        network, steps = safer, steps + 1
    assert steps == len(network.facts["frontier"]) - 1
    assert network.facts["int8_layers"] == 1


def test_confirmation_steps_back_until_fresh_samples_agree(tmp_path):
    wanted = quantization(tmp_path, mean=0.5)
    shares = []

    def holds(network):
        shares.append(network.facts["int8_share_of_matmul_macs"])
        return len(shares) == 3

    confirmed = wanted.confirm(run(wanted)[0], holds)
    assert (
        shares == sorted(shares, reverse=True)
        and confirmed.facts["int8_share_of_matmul_macs"] == shares[2]
    )
    assert [
        point.get("refused_by_validation", False) for point in confirmed.facts["frontier"][:3]
    ] == [True, True, False]


def test_confirmation_ends_at_the_last_point(tmp_path):
    wanted = quantization(tmp_path, mean=0.5)
    assert wanted.confirm(run(wanted)[0], lambda _: False).facts["int8_layers"] == 1


def test_the_fixed_recipe_has_no_safer_network(tmp_path):
    wanted = quantization(tmp_path)
    assert wanted.next_smaller(run(wanted)[0]) is None


def test_refuses_a_network_without_constant_weights(tmp_path):
    graph = Graph(0)
    model = graph.model(
        {"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])}, graph.node("Flatten", "x"), 192
    )
    with pytest.raises(SourceFault, match="no MatMul, Gemm or Conv with a constant float32 weight"):
        run(quantization(tmp_path, "cnn", model=model))


def test_refuses_a_network_whose_layers_all_follow_activation_functions(tmp_path):
    graph = Graph(0)
    product = graph.node("Conv", graph.node("Relu", "x"), graph.weight(4, 3, 3, 3))
    model = graph.model(
        {"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])}, graph.node("Flatten", product), 144
    )
    with pytest.raises(SourceFault, match="ask for a sensitivity_search"):
        run(quantization(tmp_path, "cnn", model=model))


def test_refuses_no_calibration_samples(tmp_path):
    with pytest.raises(InputRefused, match="no samples"):
        run(quantization(tmp_path, calibration=()))


def test_refuses_samples_that_make_nan(tmp_path):
    broken = images(8, seed=1)
    broken[3]["x"][0, 0, 0] = np.inf
    with pytest.raises(SourceFault, match="NaN or Inf"):
        run(quantization(tmp_path, "cnn", calibration=broken))
