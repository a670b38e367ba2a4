"""Asking an endpoint: the address, the request, the answer."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys

import numpy as np
import pytest
from botocore.exceptions import NoCredentialsError

from onboarding.manifest import TensorRecord
from roundhouse.cli.app import exit_code
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError, WrongAnswerError
from roundhouse.invocation import (
    ASYNCHRONOUS_ROWS,
    Address,
    address,
    asynchronous_runtime,
    classes,
    cosine,
    find_deployment,
    invoke_arrays,
    invoke_lines,
    invoke_texts,
    most_asynchronous_rows,
    output_name,
)
from tests.synth.deployments import with_server
from tests.unit.onboarding.onnx_bytes import onnx_bytes
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments
from tests.unit.roundhouse.measure.answering import Answer, serve


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
    output = {"name": "embedding", "datatype": "FP32", "shape": shape, "data": data}
    return json.dumps({"outputs": [output]}).encode()


PLAIN = Address(endpoint="e", target_model=None)


def test_a_shared_endpoint_is_addressed_by_target_model(deployments):
    to, target = address(deployments, "local-text-shared", "sentence-embedder-int8")
    assert to.target_model == f"{target.engine_key}/model.tar.gz"


def test_an_answer_becomes_one_vector_per_text_and_the_request_keeps_every_character():
    runtime, to = Runtime(_answer([2, 2], [1, 0, 0, 1])), Address(endpoint="e", target_model="k/m")
    assert invoke_texts(runtime, to, ("a", "ü")) == ((1.0, 0.0), (0.0, 1.0))
    assert runtime.request["TargetModel"] == "k/m" and "ü".encode() in runtime.request["Body"]
    (tensor,) = json.loads(runtime.request["Body"])["inputs"]
    assert tensor == {"name": "text", "datatype": "BYTES", "shape": [2, 1], "data": ["a", "ü"]}


@pytest.mark.parametrize(
    "body", [b"no json", b"{}", b'{"outputs": []}', _answer([1, 2], [1, 0]), _answer([2, 2], [1])]
)
def test_refuses_an_answer_that_is_no_matrix_of_the_right_height(body):
    with pytest.raises(WrongAnswerError, match="Endpoint e"):
        invoke_texts(Runtime(body), PLAIN, ("a", "b"))


def test_prompt_is_named_in_the_request():
    runtime = Runtime(_answer([1, 2], [1, 0]))
    invoke_texts(runtime, PLAIN, ("a",), prompt_name="query")
    assert json.loads(runtime.request["Body"])["parameters"] == {"prompt_name": "query"}


def test_arrays_are_sent_for_arrays():
    runtime = Runtime(_answer([2, 2], [1, 0, 0, 1]))
    arrays = invoke_arrays(runtime, PLAIN, {"x": np.ones((2, 1), np.float32)})
    assert arrays["embedding"].tolist() == [[1, 0], [0, 1]]
    assert "json-header-size" in runtime.request["ContentType"]


class Refusing:
    def __init__(self, fault):
        self.fault = fault

    def invoke_endpoint(self, **request):
        raise self.fault


class Doubling:
    """Answers each request with twice its rows, and keeps their numbers."""

    def __init__(self):
        self.rows = []

    def embed(self, texts, prompt_name=None):
        self.rows.append(len(texts))
        return np.array([[2.0 * float(text)] for text in texts])

    def ask(self, arrays):
        self.rows.append(len(arrays["x"]))
        return {"y": 2 * arrays["x"]}


def test_more_rows_than_a_batch_go_in_several_requests(monkeypatch):
    client, to = Doubling(), PLAIN
    monkeypatch.setattr("container.client.EndpointClient", lambda **_: client)
    assert invoke_texts(None, to, ("1", "2", "3"), 2) == ((2.0,), (4.0,), (6.0,))
    answer = invoke_arrays(None, to, {"x": np.arange(70).reshape(70, 1)}, 32)
    assert answer["y"].tolist() == [[2 * number] for number in range(70)]
    assert client.rows == [2, 1, 32, 32, 6]


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
EMBEDDER, SIGNAL, SHARED = "sentence-embedder", "signal", "text-shared"


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
    np.save(tree / "one.npy", plain)
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
    assert sentence.count("\n") == (4 if sentence.startswith("Usage") else 1)


@pytest.mark.parametrize(
    ("words", "code", "pattern"),
    [
        (("embedder", "a"), 1, "allowed: sentence-embedder, signal, text-shared"),
        (("", "a"), 1, "'': no such endpoint"),
        ((EMBEDDER, "a", "--env", "no"), 1, "unknown environment, given no; allowed: local, ours"),
        ((EMBEDDER, "a", "--env", "local"), 5, "`roundhouse up` starts it"),
        ((EMBEDDER, "a", "--model", "b"), 1, "--model b: .*; allowed: sentence-embedder"),
        ((SHARED, "a"), 1, "name one with --model"),
        ((EMBEDDER,), 2, "takes texts; give them as arguments"),
        ((EMBEDDER, "a", " "), 2, "text 2 is empty; give words"),
        ((EMBEDDER, NO_UNICODE), 1, "is no Unicode .*; send only what UTF-8 can write"),
        ((EMBEDDER, "--input", "one.npy"), 2, "takes texts"),
        ((SIGNAL, "a"), 2, "takes arrays; give --input FILE.npz"),
        ((SIGNAL, "--input", "none.npz"), 1, "No such file or directory; allowed: .npz"),
        ((SIGNAL, "--input", "."), 2, "--input .: .*; name a folder"),
        ((SIGNAL, "--input", "text.csv"), 1, "No such file or directory; allowed: .npz"),
        ((SIGNAL, "--input", "text.txt"), 2, "takes arrays; give --input FILE.npz"),
        ((EMBEDDER, "a", "--input", "text.txt"), 2, "as arguments or in a file, not both"),
        ((EMBEDDER, "--input", "rows.jsonl"), 2, "name a file with --output"),
        ((SIGNAL, "--input", "text.npz"), 1, "write plain arrays with numpy.savez"),
        ((SIGNAL, "--input", "objects.npz"), 1, "'x' of Python objects.*; write plain arrays"),
        ((SIGNAL, "--input", "complex.npz"), 1, "no complex64; allowed: texts and BOOL"),
        ((SIGNAL, "--input", "one.npy"), 1, "names no input.*; give an .npz"),
        ((EMBEDDER, "a", "--output", "o.csv"), 2, "is written as .npz; name it so"),
        ((EMBEDDER, "a", "--format", "yaml"), 2, "is not one of 'text', 'json'"),
        ((EMBEDDER, "a", "--nothing"), 2, "No such option: --nothing"),
        ((EMBEDDER, "a", "--root", "/none"), 2, "does not exist"),
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
    assert invoke((EMBEDDER, "--input", "text.txt"), Answer())[0] == 0


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


def test_the_one_output_is_named_by_the_lock(deployments):
    deployment = deployments[0]
    target = deployment.targets[0]
    outputs = (TensorRecord(name="embedding", datatype="FP32", shape=(-1, 4)),)
    entry = entry_for(deployment, target, outputs=outputs)
    assert output_name(dataclasses.replace(target, lock_entry=entry)) == "embedding"
    assert output_name(dataclasses.replace(target, lock_entry=None)) == "rows"


def test_refuses_to_queue_requests_of_an_endpoint_without_a_queue(deployments):
    deployment = find_deployment(deployments, "sentence-embedder")
    with pytest.raises(
        UsageError, match="is no asynchronous endpoint in local; give another file than"
    ):
        asynchronous_runtime(lambda service: None, deployment, 60, print)


def test_refuses_lines_of_missing_files(tmp_path):
    file, address_ = tmp_path / "rows.jsonl", Address(endpoint="e", target_model=None)
    with pytest.raises(RoundhouseError, match=r"--input .*rows\.jsonl: is no file"):
        invoke_lines(None, address_, file, tmp_path / "answers.jsonl")
    file.write_text("")
    with pytest.raises(RoundhouseError, match=r"--output .*: cannot be written"):
        invoke_lines(None, address_, file, tmp_path / "no" / "answers.jsonl")


def test_queued_request_holds_a_batch_for_triton_and_many_for_the_python_server(deployments):
    deployment = find_deployment(deployments, "sentence-embedder")
    rows = {
        server: most_asynchronous_rows(with_server(deployment, server), 32)
        for server in ("python", "triton")
    }
    assert rows == {"python": ASYNCHRONOUS_ROWS, "triton": 32}
