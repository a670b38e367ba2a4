"""Networks that an ONNX file gives: what is served, pooled and merged, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from itertools import combinations

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import TensorProto
from sentence_transformers.sentence_transformer.modules import Pooling

from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.embedding import VECTOR
from engine_build.sources.given_network import check_answers, read_network
from engine_build.sources.pooling import POOLERS, TOKENS, PoolingHead
from engine_build.store import sha256_of
from onboarding.manifest import TensorRecord
from tests.fixtures.tiny_embedder.archive import HERE, REPOSITORY, SIZE
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.stand_ins import request_of
from tests.unit.engine_build.tiny import model, word_tokenizer, write_tensors_tree, write_tree

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((5, 4)).astype(np.float32)


def float_network(path, request, tmp_path):
    (tmp_path / "float").mkdir()
    return check_answers(read_network(path, request, tmp_path / "float"), request)


def tensor_network(tmp_path, network, rows=ROWS, **settings):
    """The network of an ONNX file, as a build makes it."""
    root = write_tensors_tree(tmp_path / "root", network, {"validation": {"x": rows}}, **settings)
    return float_network(root / "networks/model.onnx", request_of(root), tmp_path)


def text_network(tmp_path, path, **changes):
    root = tmp_path / "root"
    root.mkdir()
    shutil.copyfile(path, root / "model.onnx")
    source = {"onnx": "model.onnx", "sha256": sha256_of(path), **changes.pop("source", {})}
    spec = model(source=source, **changes)
    return float_network(path, request_of(write_tree(root, spec)), tmp_path)


def test_input_that_is_looked_up_knows_its_tables_rows(tmp_path):
    nodes = [node("Gather", "table x", "rows"), node("ReduceSum", "rows one", "y", keepdims=0)]
    inputs, outputs = [tensor("x", "batch", 4, kind=TensorProto.INT64)], [tensor("y", "batch", 3)]
    weights = {"table": np.ones((7, 3), np.float32), "one": np.array([1])}
    path = write_graph(tmp_path / "model.onnx", nodes, inputs, outputs, **weights)
    network = tensor_network(tmp_path, path, np.full((5, 4), 6))
    assert [record.table_rows for record in network.inputs] == [7]
    # A network of the store is read back as it was recorded.
    assert TensorRecord.model_validate(network.inputs[0].model_dump()) == network.inputs[0]


def test_weights_that_are_listed_as_inputs_are_none(tmp_path):
    path = linear(tmp_path / "model.onnx", inputs=[tensor("x", "batch", 4), tensor("w", 4, 3)])
    model = onnx.load(path)
    model.ir_version = 3
    onnx.save(model, path)
    network = tensor_network(tmp_path, path)
    kept = onnx.load(network.path)
    assert network.input_names == ("x",) and [value.name for value in kept.graph.input] == ["x"]
    assert kept.ir_version == 4


def test_sequence_axis_is_dynamic_where_the_profile_has_one(tmp_path):
    values = [tensor("x", "batch", "time", 2)], [tensor("y", "batch", "time", 2)]
    path = write_graph(tmp_path / "model.onnx", [node("Relu", "x", "y")], *values)
    rows = RANDOM.standard_normal((5, 6, 2)).astype(np.float32)
    profile = {"batch": [1, 2, 4], "sequence": [4, 6, 8]}
    network = tensor_network(tmp_path, path, rows, profile=profile)
    assert network.outputs[0].shape == (-1, -1, 2)


def test_refuses_a_batch_that_the_network_does_not_run_at(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    path = tmp_path / "model.onnx"
    write_graph(path, [node("Reshape", "x s", "y")], *values, s=np.array([1, 4]))
    fault = r"does not run at x \[3, 4\] \(.*; export it for every size of the profiles"
    with pytest.raises(SourceFault, match=fault):
        tensor_network(tmp_path, path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TensorProto.DOUBLE, "FP64"), (TensorProto.INT16, "INT16"), (TensorProto.STRING, "BYTES")],
)
def test_refuses_a_datatype_that_tensorrt_does_not_take(kind, name, tmp_path):
    values = [tensor("x", "batch", 4, kind=kind)], [tensor("y", "batch", 4, kind=kind)]
    path = write_graph(tmp_path / "model.onnx", [node("Identity", "x", "y")], *values)
    # `check` reads no file in a bucket, whose datatypes the build alone sees.
    taken = linear(tmp_path / "taken.onnx")
    root = write_tensors_tree(tmp_path / "root", taken, {"validation": {"x": ROWS}})
    words = rf"'x' has datatype {name}, which TensorRT does not take as it is; allowed: FP32"
    with pytest.raises(SourceFault, match=words):
        float_network(path, request_of(root), tmp_path)


def text_graph(path, output=("y", "batch", 3)):
    """A mean of embeddings; a tokenizer lies beside it."""
    word_tokenizer().save(str(path.with_name("tokenizer.json")))
    table = RANDOM.standard_normal((40, 3)).astype(np.float32)
    inputs = [
        tensor(name, "batch", "sequence", kind=TensorProto.INT64)
        for name in ("input_ids", "attention_mask")
    ]
    nodes = [
        node("Gather", "table input_ids", "hidden"),
        node("ReduceMean", "hidden", "y", axes=[1], keepdims=0),
    ]
    return write_graph(path, nodes, inputs, [tensor(*output)], table=table)


def classifier(tmp_path, *classes):
    path = text_graph(tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(classes))}))
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    return text_network(tmp_path, path, task="text-classification", accuracy=accuracy)


def test_text_network_notes_the_files_beside_it(tmp_path):
    network = classifier(tmp_path, "calm", "glad", "sad")
    assert network.labels == ("calm", "glad", "sad")
    assert {"tokenizer.json sha256", "config.json sha256"} <= set(network.facts)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: text_graph(path), r"model.onnx has no tokenizer.json beside it"),
        (
            lambda path: text_graph(path, ("hidden", "batch", "sequence", 3)),
            r"gives hidden \[-1, -1, 3\]; a text network gives one output, \[batch, values\]",
        ),
        (
            linear,
            r"model.onnx takes x; a text network takes input_ids, attention_mask, token_type_ids",
        ),
    ],
)
def test_refuses_a_network_that_is_none_of_texts(write, words, tmp_path):
    path = write(tmp_path / "model.onnx")
    if "no tokenizer" in words:
        (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(SourceFault, match=words):
        text_network(tmp_path, path)


def test_functions_of_the_file_become_nodes_and_data_one_file(tmp_path):
    path = linear(tmp_path / "plain.onnx", outputs=[tensor("z", "batch", 3)])
    file = onnx.load(path)
    opsets = [onnx.helper.make_opsetid("", 17)]
    twice = [node("Add", "a a", "b")]
    file.functions.append(onnx.helper.make_function("own", "Twice", ["a"], ["b"], twice, opsets))
    file.opset_import.append(onnx.helper.make_opsetid("own", 1))
    file.graph.node.append(node("Twice", "y", "z", domain="own"))
    (tmp_path / "given").mkdir()
    given = tmp_path / "given/model.onnx"
    onnx.save(file, given, save_as_external_data=True, location="w.bin", size_threshold=0)
    request_, folder = (
        request_of(write_tensors_tree(tmp_path / "root", path, {"validation": {"x": ROWS}})),
        tmp_path / "f",
    )
    folder.mkdir()
    network = read_network(given, request_, folder)
    graph = onnx.load(network.path).graph
    assert [item.op_type for item in graph.node] == ["MatMul", "Add"]
    assert [item.name for item in folder.iterdir()] == ["model.onnx"]
    x = np.ones((1, 4), dtype=np.float32)
    expected = 2 * x @ np.arange(12, dtype=np.float32).reshape(4, 3)
    assert np.array_equal(OrtNetwork(network.path).rows({"x": x}), expected)


MERGE = REPOSITORY / "docs" / "examples" / "several_models" / "merge.py"
IDS = np.array([[3, 4, 5, 6]])
FEED = {"input_ids": IDS, "attention_mask": np.ones_like(IDS), "token_type_ids": IDS * 0}


def merge(tmp_path, opset):
    """Merge the tiny embedder and a head of three scores, of which it returns both."""
    weight = np.random.default_rng(1).standard_normal((SIZE, 3)).astype(np.float32)
    head = write_graph(
        tmp_path / "head.onnx",
        [node("MatMul", "x weight", "scores"), node("Tanh", "scores", "y")],
        [tensor("x", "batch", SIZE)],
        [tensor("y", "batch", 3)],
        opset=opset,
        weight=weight,
    )
    out = tmp_path / "merged" / "model.onnx"
    out.parent.mkdir()
    files = (HERE / "model.onnx", head, out)
    subprocess.run((sys.executable, MERGE, *files, "sentence_embedding", "x"), check=True)
    return head, out


@pytest.mark.parametrize("opset", [18, 21])
def test_merged_network_answers_as_the_two_one_after_the_other(opset, tmp_path):
    head, out = merge(tmp_path, opset)
    embedder = OrtNetwork(HERE / "model.onnx")
    vectors = embedder.values(["sentence_embedding"], FEED)["sentence_embedding"]
    expected = OrtNetwork(head).values(["y"], {"x": vectors})["y"]
    answer = OrtNetwork(out).values(["y"], FEED)["y"]
    assert np.abs(expected).max() > 0.01 and np.allclose(answer, expected, atol=1e-6)


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Tokens(torch.nn.Module):
    """A plain export's answer: the vectors of the tokens, and BERT's pooler."""

    def __init__(self, checkpoint):
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(
            str(checkpoint), attn_implementation="eager"
        )

    def forward(self, *tensors):
        answer = self.encoder(**dict(zip(INPUTS, tensors, strict=True)))
        return answer.last_hidden_state, answer.pooler_output


@pytest.fixture(scope="module")
def plain(checkpoint, tmp_path_factory):
    """The tiny checkpoint as transformers' users export it, its tokenizer beside it."""
    path = tmp_path_factory.mktemp("plain") / "model.onnx"
    names = (*INPUTS, TOKENS)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tokens(checkpoint).eval(),
            tuple(torch.ones(2, 3, dtype=torch.int64) for _ in INPUTS),
            str(path),
            input_names=list(INPUTS),
            output_names=[TOKENS, "pooler_output"],
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names}
            | {"pooler_output": {0: "batch"}},
            opset_version=14,
            dynamo=False,
        )
    shutil.copy(checkpoint / "tokenizer.json", path.parent)
    return path


def pooled(tmp_path, path, **settings):
    source = {"onnx": "model.onnx", "pooling": settings}
    return text_network(tmp_path, path, source=source)


def test_vector_among_several_outputs_is_the_answer(plain, tmp_path):
    model = onnx.load(plain)
    path = tmp_path / "model.onnx"
    for layer in model.graph.node:
        layer.output[:] = [VECTOR if name == "pooler_output" else name for name in layer.output]
    model.graph.output[1].name = VECTOR
    onnx.save(model, path)
    shutil.copy(plain.with_name("tokenizer.json"), tmp_path)
    network = text_network(tmp_path, path, source={"onnx": "model.onnx"})
    assert [record.name for record in network.outputs] == [VECTOR]


def test_refuses_vectors_of_tokens_with_the_lines_to_add(plain, tmp_path):
    words = (
        r"gives last_hidden_state \[-1, -1, 32\], .*: let the build add the pooling, with "
        r"`pooling: \{mode: mean, normalize: true\}` under `source` in the model file"
    )
    with pytest.raises(SourceFault, match=words):
        text_network(tmp_path, plain, source={"onnx": "model.onnx"})


def test_refuses_a_pooling_of_a_network_that_gives_vectors(plain, tmp_path):
    model = onnx.load(plain)
    del model.graph.output[0]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    shutil.copy(plain.with_name("tokenizer.json"), tmp_path)
    words = r"gives pooler_output \[-1, 32\], but `source.pooling` pools one output \[batch, seq"
    with pytest.raises(SourceFault, match=words):
        pooled(tmp_path, path, mode="mean")


LENGTHS = (7, 1, 4, 6)
WIDTH = 5
MODES = [(mode,) for mode in POOLERS] + [*combinations(("cls", "mean", "max"), 2)]


def rows(lengths=LENGTHS, longest=7):
    """Random vectors of tokens, one row all negative, and the mask."""
    random = torch.Generator().manual_seed(0)
    tokens = torch.randn((len(lengths), longest, WIDTH), generator=random)
    tokens[2] = -tokens[2].abs() - 1
    mask = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).long()
    return tokens, mask


@pytest.mark.parametrize("modes", MODES, ids="+".join)
def test_vectors_are_those_of_sentence_transformers(modes):
    tokens, mask = rows()
    features = {"token_embeddings": tokens, "attention_mask": mask}
    expected = Pooling(WIDTH, modes)(features)["sentence_embedding"]
    pooled = PoolingHead(modes)(tokens, mask)
    assert pooled.shape == (len(LENGTHS), len(modes) * WIDTH)
    assert torch.allclose(pooled, expected, atol=1e-6)


@pytest.mark.parametrize("mode", POOLERS)
def test_padding_changes_no_vector(mode):
    tokens, mask = rows()
    alone = PoolingHead((mode,))(tokens[1:2, :1], mask[1:2, :1])
    assert torch.allclose(PoolingHead((mode,))(tokens, mask)[1:2], alone, atol=1e-6)


@pytest.mark.parametrize("mode", POOLERS)
def test_half_precision_overflows_for_no_pooling(mode):
    tokens, mask = rows((2048, 3, 5), longest=2048)
    pooled = PoolingHead((mode,))(tokens.half(), mask)
    assert pooled.dtype == torch.float16 and torch.isfinite(pooled).all()
