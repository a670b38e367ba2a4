"""Asking an endpoint: the address, the request, the answer."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from botocore.exceptions import NoCredentialsError

from roundhouse.cli.app import exit_code
from roundhouse.errors import NotReadyError
from roundhouse.invocation import (
    Address,
    address,
    cosine,
    invoke_texts,
)
from tests.unit.onboarding.onnx_bytes import onnx_bytes
from tests.unit.roundhouse.engines import copied_tree, local_deployments
from tests.unit.roundhouse.measure.answering import Answer, serve


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))


PLAIN = Address(endpoint="e", target_model=None)


def test_a_shared_endpoint_is_addressed_by_target_model(deployments):
    to, target = address(deployments, "local-text-shared", "sentence-embedder-int8")
    assert to.target_model == f"{target.engine_key}/model.tar.gz"


class Refusing:
    def __init__(self, fault):
        self.fault = fault

    def invoke_endpoint(self, **request):
        raise self.fault


def test_refuses_without_credentials_as_every_command_does():
    with pytest.raises(NotReadyError, match="no AWS credentials were found; set AWS_PROFILE"):
        invoke_texts(Refusing(NoCredentialsError()), PLAIN, ("a",))


ARRAYS_MODEL = """
name: signal
task: tensors
source:
  onnx: models/data/signal.onnx
  sha256: abababababababababababababababababababababababababababababababab
engine: {precision: fp32, optimization_profiles: [{batch: [1, 8, 32]}]}
accuracy: {dataset: models/data/signal.npz}
endpoint: {instance_type: ml.c7i.large}
"""
NO_UNICODE = "a\udcff"
REFUSED = {
    "OriginalStatusCode": 400,
    "OriginalMessage": json.dumps({"error": "Unknown input 'y'; the model takes 'x'."}),
}
EMBEDDER, SIGNAL = "sentence-embedder", "signal"


def aws(status: int, kind: str, message: str, **more: object) -> Answer:
    """What SageMaker says."""
    body = json.dumps({"message": message, "Message": message} | more).encode()
    return Answer(status=status, body=body, headers=f"x-amzn-errortype: {kind}\r\n")


@pytest.fixture(scope="module")
def arrays_tree(tmp_path_factory):
    """The repository's tree, with a model of arrays, and files that are and are not its inputs."""
    tree = copied_tree(tmp_path_factory.mktemp("arrays"))
    (tree / "environments" / "dev.yaml").unlink()
    local = (tree / "environments" / "local.yaml").read_text()
    (tree / "environments" / "ours.yaml").write_text(
        local.replace("name: local", "name: ours").replace("build/local", "build/ours")
    )
    (tree / "models" / "signal.yaml").write_text(ARRAYS_MODEL)
    network = onnx_bytes({"x": (1, (None, 1))})
    (tree / "models" / "data" / "signal.onnx").write_bytes(network)
    plain = np.ones((2, 1), np.float32)
    np.savez(tree / "models" / "data" / "signal.npz", x=plain)
    np.savez(tree / "objects.npz", x=np.array([{}], object))
    np.savez(tree / "complex.npz", x=plain.astype(np.complex64))
    (tree / "text.npz").write_text("x = 1")
    (tree / "text.txt").write_text("x = 1")
    return tree


@pytest.fixture
def invoke(capsys, monkeypatch, arrays_tree):
    """Run `roundhouse invoke` against such an answer; return exit code and standard error."""

    def invoke(words, answer):
        defaults = {"--env": "ours", "--root": str(arrays_tree)}
        options = [part for item in defaults.items() if item[0] not in words for part in item]
        monkeypatch.chdir(arrays_tree)
        monkeypatch.setattr(sys, "argv", ["roundhouse", "invoke", *words, *options])
        with serve(lambda number: answer) as server:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.url.removesuffix("/invocations"))
            code = exit_code()
        return code, capsys.readouterr().err

    return invoke


def require_one_sentence(result, code, pattern):
    exit_code, sentence = result
    assert exit_code == code and re.search(pattern, sentence), sentence
    assert "Unforeseen" not in sentence and "Traceback" not in sentence
    assert sentence.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "pattern"),
    [
        (("", "a"), 1, "'': no such endpoint"),
        ((EMBEDDER, "a", "--env", "local"), 5, "`roundhouse up` starts it"),
        ((EMBEDDER, "a", "--model", "b"), 1, "--model b: .*; allowed: sentence-embedder"),
        ((EMBEDDER,), 2, "takes texts; give them as arguments"),
        ((EMBEDDER, NO_UNICODE), 1, "is no Unicode .*; send only what UTF-8 can write"),
        ((SIGNAL, "--input", "none.npz"), 1, "No such file or directory; allowed: .npz"),
        ((SIGNAL, "--input", "text.txt"), 2, "is no file of arrays; allowed: .npz"),
        ((SIGNAL, "--input", "text.npz"), 1, "write plain arrays with numpy.savez"),
        ((SIGNAL, "--input", "objects.npz"), 1, "'x' of Python objects.*; write plain arrays"),
        ((SIGNAL, "--input", "complex.npz"), 1, "no complex64; allowed: texts and BOOL"),
    ],
)
def test_refuses_a_wrong_command_line_in_one_sentence(invoke, words, code, pattern):
    require_one_sentence(invoke(words, Answer()), code, pattern)


UNKNOWN = aws(424, "ModelError", "", **REFUSED)
NOT_FOUND = aws(400, "ValidationError", "Endpoint e not found.")
TOO_LARGE = aws(413, "RequestEntityTooLarge", "Request too large")


@pytest.mark.parametrize(
    ("words", "code", "pattern", "answer"),
    [
        ((SIGNAL, "--input", "models/data/signal.npz"), 1, "input 'y'; the model takes", UNKNOWN),
        ((EMBEDDER, "a"), 6, "The answer cannot be read", Answer(body=b"<html>")),
        ((EMBEDDER, "a"), 5, "not found; `roundhouse deploy` deploys", NOT_FOUND),
        ((EMBEDDER, "a"), 1, "too large; send less at once", TOO_LARGE),
        ((EMBEDDER, "a"), 5, "is this machine online, the clou", Answer(silent=True, close=True)),
    ],
    ids=["refused by the server", "no JSON", "not deployed", "too large", "no answer"],
)
def test_refuses_a_failed_request_in_one_sentence(invoke, words, code, pattern, answer):
    require_one_sentence(invoke(words, answer), code, pattern)


def test_right_command_line_is_answered(invoke):
    assert invoke((EMBEDDER, "a"), Answer()) == (0, "")


def test_cosine():
    assert cosine((1, 0), (1, 0)) == 1
    assert cosine((1, 0), (0, 2)) == 0
    assert cosine((0, 0), (1, 0)) == 0
