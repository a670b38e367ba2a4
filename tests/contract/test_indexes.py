"""What a caller sent wrong and only the network can tell: an index beyond its table."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from container import wire
from engine_build.onnx_graph.lookups import with_table_rows
from onboarding.manifest import ProfileRecord, TensorRecord
from tests.contract.conftest import serving
from tests.contract.replies import KINDS
from tests.fixtures.tiny_embedder.archive import tiny, write_archive
from tests.unit.engine_build.graphs import node, tensor, write_graph

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
CATEGORY = TensorRecord(name="category", datatype="INT64", shape=(-1, 1))
FORMS = {"": True, " of an older archive": False}
"""Whether the manifest knows the table's rows."""


@pytest.fixture(scope="module", params=[(kind, form) for kind in KINDS for form in FORMS], ids=str)
def server(request, tmp_path_factory):
    kind, form = request.param
    folder = tmp_path_factory.mktemp("lookup")
    inputs = [tensor("category", "batch", 1, kind=TensorProto.INT64)]
    nodes = [node("Gather", "table category", "rows"), node("Flatten", "rows", "y")]
    path = write_graph(folder / "x.onnx", nodes, inputs, [tensor("y", "batch", 3)], table=TABLE)
    records = with_table_rows(onnx.load(path), [CATEGORY]) if FORMS[form] else (CATEGORY,)
    lookup = tiny(
        str(path.with_suffix("")),
        "lookup",
        "tensors",
        (TensorRecord(name="y", datatype="FP32", shape=(-1, 3)),),
        inputs=records,
        profiles=(ProfileRecord(batch=(1, 4, 8)),),
        max_batch_size=8,
    )
    write_archive(folder / "model", lookup)
    with serving(kind, folder / "model", folder / "run", model="lookup") as server:
        yield server


def ask(server, values, *, binary):
    return server.ask(*wire.array_request({"category": np.array(values)[:, None]}, binary=binary))


def check_answer(server, values=(0, 3, -1)):
    answer = ask(server, values, binary=True)
    assert answer.status == 200, answer.body
    found = wire.arrays_of(answer.body, answer.headers["content-type"])["y"]
    assert np.array_equal(found, TABLE[list(values)])


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("values", [[99], [0, 4], [-5], [2**63 - 1]], ids=str)
def test_index_beyond_the_table_is_the_callers_fault(server, values, binary):
    answer = ask(server, values, binary=binary)
    # Without the manifest's word only the engine knows, which the Python server calls by a status.
    assert 400 <= answer.status < 500, (answer.status, answer.body)
    assert list(json.loads(answer.body)) == ["error"]
    check_answer(server)


def test_integer_beyond_its_datatype_is_the_callers_fault(server):
    record = {"name": "category", "shape": [1, 1], "datatype": "INT64", "data": [2**63]}
    answer = server.ask(json.dumps({"inputs": [record]}).encode())
    assert answer.status == 400 and b"holds a number that INT64 cannot" in answer.body
    check_answer(server)
