"""The quantize step on small networks, by the fixed recipe and by a search."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.datasets.dataset import Shape
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused, NothingForInt8, SourceFault
from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.sensitivity import Split
from onboarding.manifest import QuantizationRecord
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantization.graphs import (
    KINDS,
    TEXT,
    Graph,
    cnn,
    constants,
    images,
    texts,
    transformer,
)


def judge(budget, reference):
    standard = Standard(reference=reference, metric="cosine", budget=budget)
    return lambda rows: accuracy("search split", rows, standard)


def quantization(folder, kind="transformer", *, mean=None, model=None, **changes):
    make, samples, inputs = KINDS[kind]
    (folder / "out").mkdir(parents=True, exist_ok=True)
    path = folder / "float.onnx"
    onnx.save(make() if model is None else model, path)
    search = None
    if mean is not None:
        score = partial(judge, BudgetSpec(mean=mean))
        search = Split(samples=samples(100, seed=3), score=score)
    settings = {
        "network": graphs.network(path, inputs, (graphs.record("y", -1, 5),)),
        "encoder": TensorEncoder(inputs),
        "method": "max",
        "calibration": samples(48, seed=1),
        "shape": Shape(batch=4, sequence=6),
        "folder": folder / "out",
        "search": search,
    }
    return Quantization(**settings | changes)


def run(quantization):
    log = []
    return quantization.run(log.append), log


@pytest.mark.parametrize(("kind", "int8"), [("transformer", 6), ("vit", 7), ("cnn", 3)])
def test_without_a_search_all_but_products_behind_activation_functions_are_int8(
    tmp_path, kind, int8
):
    facts = run(quantization(tmp_path, kind))[0].facts
    layers = quantizable_layers(KINDS[kind][0]())
    behind = {
        layer.node
        for layer in layers
        if layer.follows_activation_function and layer.operator == "MatMul"
    }
    assert facts["int8_layers"] == int8
    assert behind <= set(facts["float_layers"]) and (kind != "cnn" or not facts["float_layers"])
    assert {layer["node"] for layer in facts["layers"] if not layer["int8"]} == behind


@pytest.mark.parametrize("mean", [None, 0.5], ids=["no search", "search"])
def test_small_convolutions_stay_in_float_and_count_in_the_share(tmp_path, mean):
    facts = run(quantization(tmp_path, "cnn", mean=mean, model=cnn(channels=8)))[0].facts
    layers = {layer["node"]: layer for layer in facts["layers"]}
    (small,) = facts["float_layers"]
    assert layers[small]["why"].startswith("a convolution of 8 channels to 8")
    shares = [layer["share"] for layer in layers.values()]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert facts["int8_share_of_matmul_macs"] == pytest.approx(1 - layers[small]["share"], abs=1e-3)


def test_product_of_one_row_stays_in_float_where_the_engine_is_tuned_for_one_sample(tmp_path):
    facts = run(quantization(tmp_path, shape=Shape(batch=1, sequence=6)))[0].facts
    scores = facts["float_layers"][-1]
    why = {layer["node"]: layer["why"] for layer in facts["layers"]}
    assert why[scores].startswith("one row of output")


@pytest.mark.parametrize("kind", KINDS)
def test_search_puts_everything_in_int8_where_the_budget_allows_it(tmp_path, kind):
    result, log = run(quantization(tmp_path, kind, mean=0.5))
    assert result.facts["int8_layers"] == len(quantizable_layers(KINDS[kind][0]()))
    assert result.facts["frontier"][0]["chosen"]
    assert "<- chosen" in log[0]


def test_search_leaves_the_expensive_layers_out_and_says_why(tmp_path):
    frontier = run(quantization(tmp_path, mean=0.5))[0].facts["frontier"]
    middle = (frontier[-1]["mean"] + frontier[0]["mean"]) / 2
    result, _ = run(quantization(tmp_path, mean=middle))
    left = [layer for layer in result.facts["layers"] if not layer["int8"]]
    nodes = {layer["node"] for layer in left}
    assert 0 < len(left) < 7
    assert nodes == set(result.facts["leaving"][: len(left)])
    assert all("the budget breaks on the search split" in layer["why"] for layer in left)
    weights = constants(onnx.load(result.path))
    layers = quantizable_layers(transformer())
    assert nodes == {layer.node for layer in layers if layer.weight in weights}


def test_facts_fit_the_manifest_and_the_same_order_gives_the_same_bytes(tmp_path):
    first, second = (run(quantization(tmp_path / name, mean=0.5))[0] for name in ("a", "b"))
    assert first.path.read_bytes() == second.path.read_bytes()
    facts = first.facts
    record = QuantizationRecord.model_validate_json(
        json.dumps({name: facts[name] for name in QuantizationRecord.model_fields if name in facts})
    )
    assert record.int8_share_of_matmul_macs == pytest.approx(
        sum(layer["share"] for layer in facts["layers"]), abs=1e-3
    )
    assert record.float_layers == ("t7", "t9")
    assert json.loads(json.dumps(facts)) == facts


def steps(folder, count):
    """The networks of a search of which the validation split refuses all but one."""
    seen = []

    def holds(network):
        seen.append(network)
        return len(seen) == count

    search = quantization(folder, mean=0.5)
    assert search.confirm(run(search)[0], holds) is seen[-1]
    return seen


def test_a_refused_network_steps_back_to_the_next_smaller_share_until_samples_agree(tmp_path):
    refused, smaller, smallest = steps(tmp_path, 3)
    before, after = refused.facts["frontier"], smaller.facts["frontier"]
    assert [point["chosen"] for point in after[:2]] == [False, True]
    layers = smaller.facts["int8_layers"]
    assert layers == after[1]["int8_layers"] == refused.facts["int8_layers"] - 1
    share = smaller.facts["int8_share_of_matmul_macs"]
    assert share == pytest.approx(after[1]["share"], abs=1e-4) != before[0]["share"]
    node = refused.facts["leaving"][0]
    left = next(layer for layer in smaller.facts["layers"] if layer["node"] == node)
    assert "the validation split refused" in left["why"]
    assert node in smaller.facts["float_layers"]
    rows = TensorEncoder(TEXT).feed(texts(20, seed=9))
    assert np.isfinite(OrtNetwork(smaller.path).rows(rows)).all()
    assert smallest.facts["int8_share_of_matmul_macs"] < share
    refusals = [point.get("refused_by_validation", False) for point in smallest.facts["frontier"]]
    assert refusals[:3] == [True, True, False]


def test_confirmation_ends_at_the_last_point_and_the_fixed_recipe_has_one(tmp_path):
    networks = steps(tmp_path, None)
    assert len(networks) == len(networks[0].facts["frontier"])
    assert networks[-1].facts["int8_layers"] == 1
    fixed = quantization(tmp_path)
    network, _ = run(fixed)
    assert fixed.confirm(network, lambda _: False) is network


def relu_network(graph):
    product = graph.node("MatMul", graph.node("Relu", "x"), graph.weight(8, 8))
    return graph.node("Flatten", product), 192


def small_convolutions(graph):
    first = graph.node("Conv", "x", graph.weight(5, 3, 3, 3))
    second = graph.node("Conv", first, graph.weight(5, 5, 3, 3))
    return graph.node("ReduceMean", second, axes=[2, 3], keepdims=0), 5


def nothing_weighted(graph):
    return graph.node("Flatten", graph.node("Relu", "x")), 192


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (relu_network, "ask for a sensitivity_search"),
        (
            small_convolutions,
            r"no weighted layer of the network gains from INT8 \(t0 is a convolution of 3 channels "
            r"to 5: TensorRT has no faster INT8 kernel for it\); ask for precision auto or fp32\.",
        ),
        (nothing_weighted, r"no MatMul, Gemm or Conv with a constant float32 weight; INT8 needs"),
    ],
)
def test_refuses_a_network_that_int8_has_no_layer_of(tmp_path, nodes, words):
    graph = Graph(0)
    output, columns = nodes(graph)
    model = graph.model({"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])}, output, columns)
    with pytest.raises(NothingForInt8, match=words):
        run(quantization(tmp_path, "cnn", model=model))


def test_refuses_no_calibration_samples_and_those_that_make_nan(tmp_path):
    with pytest.raises(InputRefused, match="no samples"):
        run(quantization(tmp_path, calibration=()))
    broken = images(8, seed=1)
    broken[3]["x"][0, 0, 0] = np.inf
    with pytest.raises(SourceFault, match="NaN or Inf"):
        run(quantization(tmp_path, "cnn", calibration=broken))
