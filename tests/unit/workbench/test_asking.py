"""Asking an endpoint: the address, the request, the answer."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest

from tests.unit.workbench.engines import copied_tree, entry_for, local_deployments
from workbench.asking import Address, address, ask, classes, cosine, request_body, require_texts
from workbench.errors import AnswerWrong, RoundhouseError


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))


class Runtime:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def invoke_endpoint(self, **request):
        self.request = request
        return {"Body": io.BytesIO(self.body)}


def _answer(shape, data):
    return json.dumps({"outputs": [{"name": "embedding", "datatype": "FP32", "shape": shape, "data": data}]}).encode()


def test_a_model_of_its_own_endpoint_needs_no_name(deployments):
    to, target = address(deployments, "sentence-embedder", None)
    assert to == Address(endpoint="local-sentence-embedder", target_model=None)
    assert target.model.name == "sentence-embedder"


def test_a_shared_endpoint_is_addressed_by_target_model(deployments):
    to, target = address(deployments, "local-text-shared", "sentence-embedder-int8")
    assert to.target_model == f"{target.engine_key}/model.tar.gz"


def test_refuses_an_unknown_endpoint(deployments):
    with pytest.raises(RoundhouseError, match="allowed: sentence-embedder, text-shared"):
        address(deployments, "nothing", None)


@pytest.mark.parametrize(("model", "said"), [(None, "name one with --model"), ("other", "does not serve it")])
def test_refuses_a_shared_endpoint_without_a_model_it_serves(deployments, model, said):
    with pytest.raises(RoundhouseError, match=said):
        address(deployments, "text-shared", model)


def test_an_answer_becomes_one_vector_per_text():
    runtime = Runtime(_answer([2, 2], [1, 0, 0, 1]))
    assert ask(runtime, Address(endpoint="e", target_model="k/model.tar.gz"), ("a", "ü")) == ((1.0, 0.0), (0.0, 1.0))
    assert runtime.request["TargetModel"] == "k/model.tar.gz"
    assert json.loads(runtime.request["Body"])["inputs"][0] == {
        "name": "text", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "ü"],
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"no json", b"{}", b'{"outputs": []}', _answer([1, 2], [1, 0]), _answer([2, 2], [1])])
def test_refuses_an_answer_that_is_no_matrix_of_the_right_height(body):
    with pytest.raises(AnswerWrong, match="Endpoint e"):
        ask(Runtime(body), Address(endpoint="e", target_model=None), ("a", "b"))


def test_a_request_keeps_every_character():
    assert "ü".encode() in request_body(["ü"])


def test_cosine():
    assert cosine((1, 0), (1, 0)) == 1
    assert cosine((1, 0), (0, 2)) == 0
    assert cosine((0, 0), (1, 0)) == 0


def with_labels(target, deployment, labels):
    return dataclasses.replace(target, lock_entry=entry_for(deployment, target, labels=labels))


def test_classes_are_named_by_the_lock_and_ordered_by_probability(deployments):
    deployment = deployments[0]
    target = with_labels(deployment.targets[0], deployment, ("bad", "good"))
    ((first, probability), second) = classes(target, [(0.0, 2.0)])[0]
    assert (first, second[0]) == ("good", "bad")
    assert probability == pytest.approx(0.8808, abs=1e-4)


def test_classes_without_names_are_numbered(deployments):
    deployment = deployments[0]
    target = with_labels(deployment.targets[0], deployment, ("only",))
    assert [name for name, _ in classes(target, [(3.0, 1.0)])[0]] == ["0", "1"]


def test_refuses_to_send_texts_to_a_model_of_arrays(deployments):
    target = deployments[0].targets[0]
    arrays = dataclasses.replace(target, model=target.model.model_copy(update={"task": "tensors"}))
    require_texts(target)
    with pytest.raises(RoundhouseError, match="takes arrays"):
        require_texts(arrays)
