"""Asking an endpoint: the address, the request, the answer."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
from pathlib import Path

import boto3
import numpy as np
import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from container.client import EndpointClient
from onboarding.manifest import TensorRecord
from tests.unit.workbench.engines import copied_tree, entry_for, local_deployments
from tests.unit.workbench.load.answering import Answer, served
from workbench.asking import Address, address, ask, ask_arrays, classes, cosine, output_name, require_inputs
from workbench.errors import AnswerWrong, DeskError, RoundhouseError


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
    runtime = Runtime(_answer([1, 1], [1]))
    ask(runtime, Address(endpoint="e", target_model=None), ("ü",))
    assert "ü".encode() in runtime.request["Body"]


def test_arrays_are_asked_for_arrays():
    runtime = Runtime(_answer([2, 2], [1, 0, 0, 1]))
    found = ask_arrays(runtime, Address(endpoint="e", target_model=None), {"x": np.ones((2, 1), np.float32)})
    assert found["embedding"].tolist() == [[1, 0], [0, 1]]
    assert "json-header-size" in runtime.request["ContentType"]


class Refusing:
    def __init__(self, fault):
        self.fault = fault

    def invoke_endpoint(self, **request):
        raise self.fault


def test_refuses_in_the_servers_own_words():
    response = {"Error": {"Code": "ModelError"}, "OriginalStatusCode": 400, "OriginalMessage": '{"error": "Too long."}'}
    fault = ClientError(response, "InvokeEndpoint")
    with pytest.raises(DeskError, match=r"^Endpoint e gave no answer at attempt 1: the server answered 400: Too long\.$"):
        ask(Refusing(fault), Address(endpoint="e", target_model=None), ("a",))


def test_refuses_without_credentials_as_every_command_does():
    with pytest.raises(DeskError, match="are the cloud and its credentials there"):
        ask(Refusing(NoCredentialsError()), Address(endpoint="e", target_model=None), ("a",))


@pytest.mark.parametrize("limit", [None, 1])
def test_compressed_bodies_say_so_through_boto3(limit):
    """A real boto3 client, to a server on loopback: the header is there, and signed."""
    with served(lambda number: Answer()) as server:
        runtime = boto3.client(
            "sagemaker-runtime", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b",
            endpoint_url=f"http://127.0.0.1:{server.port}",
        )  # fmt: skip
        found = EndpointClient(runtime=runtime, endpoint="e", binary=False, gzip_from_bytes=limit).embed(["a" * 500])
    headers, body = server.requests[0]
    assert found.tolist() == [[1, 0]]
    assert headers.get("content-encoding") == (None if limit is None else "gzip")
    assert ("content-encoding" in headers["authorization"]) == (limit is not None)
    assert b"a" * 500 in (body if limit is None else gzip.decompress(body))


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


FILE = Path("a.npz")


@pytest.mark.parametrize(("texts", "file", "said"), [((), None, "takes arrays"), (("a",), FILE, "takes arrays")])
def test_refuses_to_ask_a_model_of_arrays_without_arrays(deployments, texts, file, said):
    target = deployments[0].targets[0]
    arrays = dataclasses.replace(target, model=target.model.model_copy(update={"task": "tensors"}))
    require_inputs(arrays, (), FILE)
    with pytest.raises(RoundhouseError, match=said):
        require_inputs(arrays, texts, file)


@pytest.mark.parametrize(("texts", "file"), [((), None), (("a",), FILE), ((), FILE)])
def test_refuses_to_ask_a_model_of_texts_without_texts(deployments, texts, file):
    target = deployments[0].targets[0]
    require_inputs(target, ("a",), None)
    with pytest.raises(RoundhouseError, match="takes texts"):
        require_inputs(target, texts, file)


def test_the_one_output_is_named_by_the_lock(deployments):
    deployment = deployments[0]
    target = deployment.targets[0]
    outputs = (TensorRecord(name="embedding", datatype="FP32", shape=(-1, 4)),)
    entry = entry_for(deployment, target, outputs=outputs)
    assert output_name(dataclasses.replace(target, lock_entry=entry)) == "embedding"
    assert output_name(dataclasses.replace(target, lock_entry=None)) == "rows"
