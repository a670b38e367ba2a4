"""Weights beside an ONNX file, with a small threshold in place of 2 GiB."""

from __future__ import annotations

import hashlib
import io
import os

import numpy as np
import onnx
import pytest

from engine_build.errors import SourceFault
from engine_build.log import Log
from engine_build.onnx_graph.external_data import (
    DATA_NAME,
    copy_network,
    data_file,
    external_files,
    external_names,
    load_model,
    load_network,
    network_sha256,
    onnx_sha256,
    pack_network,
    save_model,
    weight_bytes,
)
from engine_build.onnx_graph.network_store import Networks
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.ort import OrtNetwork
from engine_build.store import FolderStore, sha256_of
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs

FEED = {"x": np.ones((2, 64), dtype=np.float32)}
SMALL = 1000
"""Bytes that a network may have in one file."""


@pytest.fixture
def model(tmp_path):
    """Two weights of 16 KiB, and a shape that stays small."""
    rows = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    nodes = [node("MatMul", "x a", "h"), node("MatMul", "h b", "k"), node("Reshape", "k s", "y")]
    inputs, outputs = [tensor("x", "batch", 64)], [tensor("y", "batch", 64)]
    shape = np.array([-1, 64])
    path = write_graph(tmp_path / "one.onnx", nodes, inputs, outputs, a=rows[0], b=rows[1], s=shape)
    return onnx.load(path)


@pytest.fixture
def large(model, tmp_path):
    """That network with its weights beside it."""
    (tmp_path / "large").mkdir()
    save_model(model, tmp_path / "large/model.onnx", largest=SMALL)
    return tmp_path / "large/model.onnx"


def expected(model):
    return OrtNetwork(model.SerializeToString()).rows(FEED)


def test_network_beyond_the_limit_lies_in_two_files_that_answer_alike(model, large):
    before = model.SerializeToString()
    assert external_files(large) == (DATA_NAME,) and large.stat().st_size < 2000
    assert np.array_equal(OrtNetwork(large).rows(FEED), expected(model))
    assert model.SerializeToString() == before  # what is in memory stays whole
    assert read_model(large).graph.initializer[0].raw_data == model.graph.initializer[0].raw_data
    graph = read_model(large, weights=False).graph
    offsets = [entry.value for entry in graph.initializer[1].external_data if entry.key == "offset"]
    assert int(offsets[0]) % 4096 == 0 and not graph.initializer[2].external_data


def test_network_within_the_limit_is_one_file_and_is_loaded_whatever_its_size(model, tmp_path):
    path = tmp_path / "model.onnx"
    path.with_name(DATA_NAME).write_bytes(b"of an earlier network")
    save_model(model, path, largest=weight_bytes(model))
    assert path.read_bytes() == model.SerializeToString() and data_file(path) is None
    assert onnx_sha256(path) == network_sha256(path) == sha256_of(path)
    for largest in (SMALL, 1 << 20):
        assert np.array_equal(load_network(model, largest=largest).rows(FEED), expected(model))


@pytest.mark.parametrize("largest", [SMALL, 1 << 20])
def test_a_file_for_each_weight_becomes_one_for_all_or_none(largest, model, tmp_path):
    answer = expected(model)
    (tmp_path / "traced").mkdir()
    traced, path = tmp_path / "traced/model.onnx", tmp_path / "model.onnx"
    onnx.save(model, traced, save_as_external_data=True, all_tensors_to_one_file=False)
    assert len(external_files(traced)) == 2
    pack_network(traced, path, largest=largest)
    assert external_files(path) == ((DATA_NAME,) if largest == SMALL else ())
    assert not list(traced.parent.iterdir())
    assert np.array_equal(OrtNetwork(path).rows(FEED), answer)


def test_digests_hold_the_data(large):
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in (large, large.with_name(DATA_NAME))
    )
    assert onnx_sha256(large) == hashlib.sha256(lines.encode()).hexdigest()
    assert network_sha256(large) == onnx_sha256(large)
    with large.with_name(DATA_NAME).open("r+b") as file:
        file.write(b"\1")
    assert network_sha256(large) != hashlib.sha256(lines.encode()).hexdigest()


def test_copies_and_the_store_keep_the_data_and_miss_it_when_it_is_gone(model, large, tmp_path):
    (tmp_path / "plan").mkdir()
    copy_network(large, tmp_path / "plan/network.onnx")
    assert np.array_equal(OrtNetwork(tmp_path / "plan/network.onnx").rows(FEED), expected(model))
    store = FolderStore(tmp_path / "store")
    networks = Networks((store,), tmp_path / "copies", Log(io.StringIO()))
    networks.keep("key", graphs.network(large))
    names = networks.names("key")
    assert len(names) == 3 and names[-1].endswith("network.json")
    known = networks.find("float", "key")
    assert np.array_equal(OrtNetwork(known.path).rows(FEED), expected(model))
    store.path(next(name for name in names if name.endswith(DATA_NAME))).unlink()
    assert networks.find("float", "key") is None


@pytest.mark.parametrize("place", ["../../etc/passwd", "/etc/passwd", "a/../../b", ""])
def test_refuses_data_outside_the_folder(place, model):
    weight = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(weight, location=place)
    with pytest.raises(SourceFault, match=r"m.onnx keeps weights in .*, which is no file of its"):
        external_names("m.onnx", model)


def test_data_with_several_hard_links_is_read(model, large, tmp_path):
    os.link(large.with_name(DATA_NAME), tmp_path / "other")
    for read in (load_model, read_model):
        assert read(large).graph.initializer[1].raw_data == model.graph.initializer[1].raw_data


def break_graph(large):
    model = onnx.load(large, load_external_data=False)
    model.graph.node[0].input[0] = "missing"
    onnx.save(model, large)


def cut_short(large):
    with large.with_name(DATA_NAME).open("r+b") as file:
        file.truncate(5000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_graph, r"model.onnx is no valid ONNX file \(.*missing"),
        (cut_short, r"model.onnx.data ends before weight a does"),
        (
            lambda large: large.with_name(DATA_NAME).unlink(),
            r"model.onnx keeps weights in model.onnx.data, which is",
        ),
    ],
)
def test_refuses_a_broken_graph_and_data_that_is_cut_short_or_missing(change, words, large):
    change(large)
    with pytest.raises(SourceFault, match=words):
        read_model(large)
