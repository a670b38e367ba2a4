"""Which layers become INT8: the search, its budget, and roles that go back to float."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.datasets.dataset import Shape
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import NothingForInt8, SourceFault
from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import quantize_layers
from engine_build.quantization.sensitivity import (
    FIRST,
    STEPS,
    Point,
    Search,
    Split,
    best_point,
    holds_budget,
)
from engine_build.steps.placement import layer_roles, restore_layers
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantization.graphs import (
    KINDS,
    TEXT,
    Graph,
    constants,
    feed,
    images,
    layer,
    ranges,
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


@pytest.mark.parametrize(("kind", "behind"), [("transformer", 1), ("vit", 1), ("cnn", 0)])
def test_without_a_search_samples_decide_on_smoothing_and_on_what_follows_activation_functions(
    tmp_path, kind, behind
):
    written, layers = [], quantizable_layers(KINDS[kind][0]())
    follows = {
        layer.node
        for layer in layers
        if layer.follows_activation_function and layer.operator == "MatMul"
    }
    chosen = quantization(tmp_path, kind)
    last = chosen.confirm(run(chosen)[0], lambda network: written.append(network.facts))
    assert last.facts is written[-1] and len(follows) == behind
    every = [len(layers)] * (len(written) - behind)
    assert [facts["int8_layers"] for facts in written] == every + [len(layers) - behind] * behind
    smoothed = [any(facts["smoothing"].values()) for facts in written]
    assert smoothed == [False, True, *[True] * behind]
    assert follows <= set(written[-1]["float_layers"])
    assert {layer["node"] for layer in written[-1]["layers"] if not layer["int8"]} == follows


def test_product_of_one_row_stays_in_float_where_the_engine_is_tuned_for_one_sample(tmp_path):
    facts = run(quantization(tmp_path, shape=Shape(batch=1, sequence=6)))[0].facts
    scores = facts["float_layers"][-1]
    why = {layer["node"]: layer["why"] for layer in facts["layers"]}
    assert why[scores].startswith("one row of output")


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
        (relu_network, "misses the accuracy budget.*ask for a sensitivity_search"),
        (
            small_convolutions,
            r"no weighted layer of the network gains from INT8 \(t0 is a convolution of 3 channels "
            r"to 5: TensorRT has no faster INT8 kernel for it\); ask for precision auto or fp32\.",
        ),
        (nothing_weighted, r"no MatMul, Gemm or Conv with a constant float32 weight; INT8 needs"),
    ],
)
def test_refuses_a_network_that_int8_has_no_layer_of(tmp_path, nodes, words):
    graph = Graph()
    output, columns = nodes(graph)
    model = graph.model({"x": (TensorProto.FLOAT, ["batch", 3, 8, 8])}, output, columns)
    made = quantization(tmp_path, "cnn", model=model)
    with pytest.raises(NothingForInt8, match=words):
        made.confirm(run(made)[0], lambda network: False)


def test_refuses_calibration_samples_that_make_nan(tmp_path):
    broken = images(8, seed=1)
    broken[3]["x"][0, 0, 0] = np.inf
    with pytest.raises(SourceFault, match="NaN or Inf"):
        run(quantization(tmp_path, "cnn", calibration=broken))


def point(share, mean, worst=0.99, low=None, **changes):
    record = AccuracyRecord(
        subject="search split",
        metric="cosine",
        mean=mean,
        mean_interval=(mean if low is None else low, 1.0),
        worst=worst,
        samples=128,
        nearest_neighbour_agreement=0.9,
        budget_mean=0.99,
        budget_worst=0.95,
        verdict="pass",
    ).model_copy(update=changes)
    return Point(int8=tuple(map(str, range(round(share * 10)))), share=share, accuracy=record)


WIDE = {"nearest_neighbour_interval": (0.8, 0.95), "budget_neighbours": 0.9}


@pytest.mark.parametrize(
    ("largest", "share"),
    [
        ({"mean": 0.995}, 0.9),
        ({"mean": 0.98}, 0.7),
        ({"mean": 0.995, "worst": 0.94}, 0.7),
        ({"mean": 0.991, "low": 0.989}, 0.7),
        ({"mean": 0.995, "nearest_neighbour_agreement": 0.89, **WIDE}, 0.7),
        ({"mean": 0.995, "nearest_neighbour_agreement": 0.91, **WIDE}, 0.9),
    ],
)
def test_choice_is_the_largest_share_inside_every_budget(largest, share):
    points = [point(0.3, 0.999), point(0.9, **largest), point(0.7, 0.995)]
    assert best_point(points).share == share


def test_a_choice_is_confirmed_by_the_lower_end_of_the_neighbours():
    record = point(0.9, 0.995, budget_neighbours=0.9).accuracy
    assert holds_budget(record, confirms=True)
    unsure = record.model_copy(update={"nearest_neighbour_interval": (0.89, 0.95)})
    assert holds_budget(unsure) and not holds_budget(unsure, confirms=True)


REFERENCE = np.random.default_rng(0).standard_normal((128, 64))


def search(errors, *, mean):
    """The result of a search where each layer adds its own error, and the layers of every run."""
    random, runs = np.random.default_rng(1), []
    noise = {node: size * random.standard_normal(REFERENCE.shape) for node, size in errors.items()}

    def rows(int8):
        runs.append(tuple(int8))
        return REFERENCE + sum((noise[node] for node in int8), np.zeros_like(REFERENCE))

    budget = BudgetSpec(mean=mean)
    standard = Standard(reference=REFERENCE, metric="cosine", budget=budget)
    result = Search(
        layers=tuple(map(layer, errors)),
        shares=dict.fromkeys(errors, 1 / len(errors)),
        reference=REFERENCE,
        rows=rows,
        score=lambda rows: accuracy("search split", rows, standard),
    ).run(lambda text: None)
    return result, runs


@pytest.mark.parametrize(
    ("errors", "mean", "int8", "leaving"),
    [
        ({"a": 0.001, "b": 0.002}, 0.99, ("a", "b"), ("b", "a")),
        (
            {"a": 0.001, "expensive": 0.5, "b": 0.002},
            0.99,
            ("a", "b"),
            ("expensive", "b", "a"),
        ),
        # Nothing holds the budget: the closest point.
        ({"a": 0.5, "b": 0.6}, 0.99999, ("a",), ("b", "a")),
    ],
)
def test_the_expensive_layers_leave_until_the_budget_holds(errors, mean, int8, leaving):
    result, _ = search(errors, mean=mean)
    assert (result.chosen.int8, result.leaving) == (int8, leaving)
    assert result.chosen.share == pytest.approx(len(int8) / len(errors))
    assert result.chosen.holds == (mean == 0.99)


def test_the_budget_edge_is_found_in_a_run_for_each_layer_and_few_times_more():
    errors = {f"l{index}": 0.05 for index in range(60)}
    errors |= {f"expensive{index}": 0.3 + index / 100 for index in range(7)}
    result, runs = search(errors, mean=0.92)
    holds = {len(point.int8): point.holds for point in result.points}
    chosen = len(result.chosen.int8)
    assert holds[chosen] and not holds[chosen + 1]
    assert sum(len(run) == 1 for run in runs) <= len(errors) + 1
    assert len(runs) <= len(errors) + STEPS + 1 + FIRST + 4


@pytest.fixture(params=KINDS)
def kind(request):
    """A network, its ranges and a feed."""
    make, samples, _ = KINDS[request.param]
    model = make()
    return model, ranges(model, samples(64, seed=1)), feed(samples(64, seed=2))


def rows(model, samples):
    return OrtNetwork(model.SerializeToString()).rows(samples)


def test_layers_in_float_answer_as_if_the_others_alone_were_quantized(kind):
    model, limits, samples = kind
    layers = quantizable_layers(model)
    whole = quantize_layers(model, layers, limits)
    for place in (0, 1, -1):
        left = [layer for layer in layers if layer != layers[place]]
        expected = rows(quantize_layers(model, left, limits), samples)
        restored = restore_layers(whole, model, [layers[place]])
        assert rows(restored, samples) == pytest.approx(expected, abs=1e-4)
    restored = restore_layers(whole, model, layers)
    onnx.checker.check_model(restored, full_check=True)
    assert rows(restored, samples) == pytest.approx(rows(model, samples), abs=1e-5)
    assert len(restored.graph.node) == len(model.graph.node)
    assert set(constants(restored)) == set(constants(model))


def test_layers_in_float_have_their_biases_where_these_are_copies_of_others():
    make, samples, _ = KINDS["transformer"]
    model, source = make(), make()
    layers = quantizable_layers(model)
    whole = quantize_layers(model, layers, ranges(model, samples(64, seed=1)))
    weights = {weight.name: weight for weight in source.graph.initializer}
    adds = [node for node in whole.graph.node if node.op_type == "Add"]
    biases = sorted({node.input[1] for node in adds if node.input[1] in weights})
    for name in biases:
        weights[name].name += ".other"
        source.graph.node.insert(0, onnx.helper.make_node("Identity", [name + ".other"], [name]))
        for node in adds:
            node.input[1] += ".smoothed" * (node.input[1] == name)
        for weight in whole.graph.initializer:
            weight.name += ".smoothed" * (weight.name == name)
    restored = restore_layers(whole, source, layers)
    onnx.checker.check_model(restored, full_check=True)
    taken = feed(samples(64, seed=2))
    assert biases and rows(restored, taken) == pytest.approx(rows(model, taken), abs=1e-5)


def test_a_role_is_the_same_layer_of_every_block_or_stage_and_what_reads_its_activation():
    read = {"query": "hidden", "key": "hidden", "output": "context", "inner": "normal"}
    roles = layer_roles(
        [
            layer(f"/layer.{block}/{name}", f"{activation}.{block}")
            for block in range(12)
            for name, activation in read.items()
        ]
    )
    assert {name: len(members) for name, members in roles.items()} == {
        "/layer.*/query": 24,
        "/layer.*/output": 12,
        "/layer.*/inner": 12,
    }
    first = [item.node for item in roles["/layer.*/query"]][:3]
    assert first == ["/layer.0/query", "/layer.0/key", "/layer.1/query"]
    layers = [
        layer(f"/stages.{stage}/layers.{index}/convolution", f"{stage}.{index}", "Conv")
        for stage in range(2)
        for index in range(3)
    ]
    layers.append(layer("/stages.1/shortcut", "1.0", "Conv"))
    sizes = {name: len(members) for name, members in layer_roles(layers).items()}
    assert sizes == {"/stages.0/layers.*/convolution": 3, "/stages.1/layers.*/convolution": 4}
