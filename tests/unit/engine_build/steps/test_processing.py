"""A user's code on the first validation samples; roles that keep or lose eight bits by time."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.text import TextEncoder
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.evaluation.decision import Candidate
from engine_build.onnx_graph.network_store import Network
from engine_build.pipeline import NETWORK_STEPS, PROCESSING, run_steps, steps_of
from engine_build.quantization.calibration import calibrate
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import quantize_layers
from engine_build.steps.placement import LONGEST_SECONDS, place_layers
from engine_build.steps.processing import run
from engine_build.steps.quantize import quantization_of
from engine_build.steps.step import BuildState
from tests.fixtures.tiny_embedder.archive import CLASSIFIER, HERE, TOKENS
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sample_texts, write_tree

CLEAN = """
import numpy as np

def preprocess(inputs):
    ({name}, *_) = inputs.values()
    return {{"text": np.array([[text[0].decode().upper()] for text in {name}], object)}}
"""
LABEL = """
def postprocess(outputs):
    assert set(outputs) == {"logits", "labels", "scores"}, outputs
    return {"label": outputs["labels"][:, :1]}
"""
OUTPUT = [{"name": "label", "datatype": "BYTES", "dims": [1]}]


def section(root, function, source, **fields):
    """Write a file of code, and return its section of `serving`."""
    root.mkdir(exist_ok=True)
    file = f"models/code/{function}.py"
    (root / "models/code").mkdir(parents=True, exist_ok=True)
    (root / file).write_text(source)
    return {"file": file, "sha256": hashlib.sha256(source.encode()).hexdigest(), **fields}


def log_of(root, tmp_path, **serving):
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    spec = model("tiny", "fp32", task="text-classification", accuracy=accuracy, serving=serving)
    tools = context(
        write_tree(root, spec), tmp_path / "out", store=None, runner=StandInRunner(None)
    )
    assert PROCESSING.applies(tools)
    tools.log.path = tmp_path / "log"
    with tools.work:
        state = BuildState(tools)
        state.networks["float"] = graphs.network(
            HERE / "classifier.onnx",
            TOKENS,
            CLASSIFIER.served.outputs,
            facts={"activation": "softmax"},
            tokenizer=HERE / "tokenizer.json",
            labels=CLASSIFIER.labels,
        )
        names = [record.name for record in TOKENS]
        state.encoder = TextEncoder(HERE / "tokenizer.json", inputs=names, longest=16)
        run(tools, state)
    return (tmp_path / "log").read_text()


def test_both_are_run_one_behind_the_other(tmp_path):
    root = tmp_path / "root"
    html = [{"name": "html", "datatype": "BYTES", "dims": [1]}]
    log = log_of(
        root,
        tmp_path,
        preprocessing=section(root, "preprocess", CLEAN.format(name="html"), inputs=html),
        postprocessing=section(root, "postprocess", LABEL, outputs=OUTPUT),
    )
    assert "preprocess(): html BYTES -> text BYTES" in log
    assert "postprocess(): logits FP32, labels BYTES, scores FP32 -> label BYTES" in log


NUMBERS = {"name": "n", "datatype": "INT32", "dims": [1]}
DIVIDES = "def preprocess(x):\n    return 1 // 0\n"
DIGITS = "def preprocess(x):\n    return {'text': x['n'].astype(str).astype(object)[:, :1]}\n"


@pytest.mark.parametrize(
    ("source", "inputs", "words"),
    [
        (DIVIDES, [NUMBERS], "preprocess() is loaded and, without an example of its inputs, not"),
        (DIGITS, [NUMBERS | {"dims": [2], "example": [7, 8]}], "preprocess(): n INT32 -> text"),
    ],
    ids=["no example", "example"],
)
def test_code_is_run_on_its_example_or_loaded_alone(source, inputs, words, tmp_path):
    root = tmp_path / "root"
    log = log_of(root, tmp_path, preprocessing=section(root, "preprocess", source, inputs=inputs))
    assert words in log


@pytest.mark.parametrize(
    ("source", "sentence", "fields"),
    [
        ("def preprocess(x):\n    return {}\n", r"preprocess\(\) returned nothing", {}),
        ("def preprocess(x):\n    return x['n']\n", "no answer to the first 4 samples", {}),
        ("def preprocess(x):\n    while True: pass\n", r"more than 0.2 s and was stopped", {}),
        ("1 // 0\ndef preprocess(x):\n    return x\n", "be imported: ZeroDivisionError", {}),
        (
            DIVIDES,
            "gives no answer to the example of its inputs",
            {"inputs": [NUMBERS | {"example": 7}]},
        ),
    ],
)
def test_refuses_code_that_cannot_answer(source, sentence, fields, tmp_path):
    root = tmp_path / "root"
    code = section(root, "preprocess", source, timeout_ms=200, **fields)
    with pytest.raises(InputRefused, match=sentence):
        log_of(root, tmp_path, preprocessing=code)


WIDTH, BLOCKS = 16, 2
COMPILE_SECONDS = 30.0
ROLES = ("attention", "inner", "outer")


def float_network():
    """Blocks of three MatMuls, of which `outer` has the most work."""
    random, nodes, weights, tensor = np.random.default_rng(0), [], [], "x"
    sizes = {"attention": (16, 16), "inner": (16, 32), "outer": (32, 64), "back": (64, 16)}
    for block in range(BLOCKS):
        for role, shape in sizes.items():
            name = f"/layer.{block}/{role}"
            values = random.standard_normal(shape).astype(np.float32) / 4
            weights.append(numpy_helper.from_array(values, f"{name}.weight"))
            # What is no MatMul of a constant stays float: Einsum.
            operator, extra = ("MatMul", {})
            if role == "back":
                operator, extra = "Einsum", {"equation": "bi,io->bo"}
            nodes.append(
                helper.make_node(
                    operator, [tensor, f"{name}.weight"], [f"{name}.y"], name=name, **extra
                )
            )
            tensor = f"{name}.y"
    nodes.append(helper.make_node("Identity", [tensor], ["y"]))
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Encoder:
    """Rows of the network's one input, whatever the samples are."""

    def shaped(self, samples, shape):
        rows = np.random.default_rng(1).standard_normal((shape.batch, WIDTH))
        return {"x": rows.astype(np.float32)}


class Gpu:
    """Compiles in COMPILE_SECONDS on a clock of its own, and runs a plan of these roles in `run`.

    `milliseconds` maps a role to what its Q/DQ nodes cost (or gain, below 0) of 10.
    """

    def __init__(self, milliseconds, refuses=None):
        self.now, self.compiled, self.loaded = 0.0, [], []
        self._milliseconds, self._refuses = milliseconds, refuses

    def clock(self):
        return self.now

    def compile_plan(self, tools, precision, network):
        self.now += COMPILE_SECONDS
        roles = quantized_roles(network.path)
        if self._refuses is not None and self._refuses not in roles:
            raise NetworkRefused("trtexec gave no plan.")
        self.compiled.append(roles)
        return Candidate(precision=precision, path=network.path)

    def load(self, runtime, path, *, as_served=True):
        self.loaded.append(Plan(self, 10 + sum(map(self._milliseconds.get, quantized_roles(path)))))
        return self.loaded[-1]


class Plan:
    def __init__(self, gpu, milliseconds):
        self._gpu, self._milliseconds, self.closed = gpu, milliseconds, False

    def rows(self, feed):
        self._gpu.now += self._milliseconds / 1000

    def close(self):
        self.closed = True


def quantized_roles(path):
    """The roles whose first block reads a dequantized weight."""
    network = onnx.load(path)
    produced = {name: node.op_type for node in network.graph.node for name in node.output}
    return frozenset(
        node.name.split("/")[-1]
        for node in network.graph.node
        if node.op_type == "MatMul" and produced.get(node.input[1]) == "DequantizeLinear"
    )


@pytest.fixture
def build(tmp_path):
    """Place the layers of an int8 plan beside an fp16 one, in an open work folder."""
    tools = context(
        write_tree(tmp_path / "root", model("tiny", "auto")),
        tmp_path / "out",
        store=None,
        runner=StandInRunner(),
    )
    with tools.work:
        yield lambda gpu, precisions=("int8",): place_in(tools, gpu, precisions, tmp_path)


def place_in(tools, gpu, precisions, folder):
    source = float_network()
    layers = quantizable_layers(source)
    rows = Encoder().shaped((), dataclasses.replace(tools.request.opt_shape, batch=64))
    limits = calibrate(source, layers, lambda: iter([rows]), batches=1, method="max")
    onnx.save(source, folder / "float.onnx")
    onnx.save(quantize_layers(source, layers, limits), folder / "int8.onnx")
    facts = {
        "int8_layers": len(layers),
        "float_layers": [f"/layer.{block}/back" for block in range(BLOCKS)],
        "int8_share_of_matmul_macs": 0.7,
    }
    network = Network(
        precision="int8", path=folder / "int8.onnx", inputs=(), outputs=(), facts=facts
    )
    state = BuildState(tools)
    state.encoder = Encoder()
    state.networks["float"] = dataclasses.replace(
        network, precision="float", path=folder / "float.onnx", facts={}
    )
    fp16 = Candidate(precision="fp16", path=Path("fp16.plan"))
    state.candidates = (fp16,)
    for precision in precisions:
        state.networks[precision] = network
        state.candidates += (Candidate(precision=precision, path=network.path),)
    place_layers(tools, state, compile_plan=gpu.compile_plan, load=gpu.load, clock=gpu.clock)
    assert state.candidates[0] == fp16 and all(plan.closed for plan in gpu.loaded)
    return state


@pytest.mark.parametrize(
    ("costs", "refuses", "kept"),
    [
        ((-0.5, -2.0, -3.0), None, {"attention", "inner", "outer"}),
        # Those that gain less than two percent go back to float.
        ((0.1, -0.1, 0.0), None, {"outer"}),
        # Each role alone is worth less than 2 % of 6.8 ms, both together more.
        ((-0.1, -0.1, -3.0), None, {"inner", "outer"}),
        # The last role keeps its eight bits.
        ((1.0, 1.0, 1.0), None, {"outer"}),
        # A placement that TensorRT refuses is left out.
        ((1.0, 1.0, -1.0), "attention", {"attention", "outer"}),
    ],
)
def test_roles_keep_eight_bits_where_they_gain(build, costs, refuses, kept):
    gpu = Gpu(dict(zip(ROLES, costs, strict=True)), refuses)
    state = build(gpu)
    assert quantized_roles(state.networks["int8"].path) == kept
    if len(kept) == len(ROLES):
        assert state.networks["int8"].facts["int8_layers"] == 3 * BLOCKS
        assert state.placement == {"int8": "every role of layers is faster so"}
        assert len(gpu.compiled) == len(ROLES)


def test_the_step_ends_in_time_and_says_what_it_did_not_time(build):
    gpu = Gpu({"attention": 1.0, "inner": 1.0, "outer": -1.0})
    slow = gpu.compile_plan

    def compile_slowly(*arguments):
        gpu.now += LONGEST_SECONDS / 4
        return slow(*arguments)

    gpu.compile_plan = compile_slowly
    state = build(gpu, ("int8", "fp8"))
    assert gpu.now <= LONGEST_SECONDS
    assert state.placement["fp8"].endswith("roles not timed within 15 minutes")


SEARCH = {"dataset": "models/data/search.txt", "samples": 100}


def test_a_search_choice_is_confirmed_on_the_validation_split(wheel, tmp_path):
    spec = model("tiny", "int8")
    spec["engine"]["sensitivity_search"] = SEARCH
    root = write_tree(tmp_path / "root", spec)
    (root / SEARCH["dataset"]).write_text("\n".join(sample_texts(100, seed=3)))
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel), model="tiny")
    with tools.work:
        tools.log.path = tools.work.log_path
        state = run_steps(tools, steps_of(tools, NETWORK_STEPS))
        log = tools.log.path.read_text()
        accuracy = tools.request.model.accuracy.model_copy(update={"metric": "accuracy"})
        by_label = dataclasses.replace(
            tools.request, model=tools.request.model.model_copy(update={"accuracy": accuracy})
        )
        # Labels are needed for the metric accuracy.
        with pytest.raises(InputRefused, match=r"dataset models/data/search.txt has no labels"):
            quantization_of(
                dataclasses.replace(tools, request=by_label),
                state.networks["float"],
                state.encoder,
            )
    facts = state.networks["int8"].facts
    assert (facts["search_samples"], facts["int8_layers"]) == (100, 12)
    assert "INT8 on the validation split" in log and "within the budget" in log
