"""The boto3 caller: what it sends, and what it asks again."""

from __future__ import annotations

import ast
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest

from container.client import OUT_OF_TIME, AnswerFault, EndpointClient, EndpointFault
from container.server.codecs.texts import decode_request, encode_response
from container.server.types import Signature
from container.wire import InputFault

SIGNATURE = Signature(model="tiny", input_name="text", output_name="embedding")


class ClientError(Exception):
    """Like botocore's: the response is an attribute."""

    def __init__(self, code: str, original: int | None = None) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}} | (
            {} if original is None else {"OriginalStatusCode": original}
        )


class Runtime:
    """An endpoint that answers each text with its length, after the faults it was given."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.calls: list[dict] = []

    def invoke_endpoint(self, **arguments):
        self.calls.append(arguments)
        if self.faults:
            raise self.faults.pop(0)
        request = decode_request(arguments["Body"], arguments["ContentType"], SIGNATURE)
        rows = np.array([[len(text)] for text in request.texts], np.float32)
        body, content_type = encode_response(rows, request, SIGNATURE)
        return {"Body": io.BytesIO(body), "ContentType": content_type}


def client(runtime, **changes):
    return EndpointClient(runtime=runtime, endpoint="e", pause=lambda seconds: None, **changes)


@pytest.mark.parametrize("binary", [True, False])
def test_client_gives_one_row_per_text(binary):
    runtime = Runtime()
    assert client(runtime, binary=binary).embed(["a", "schön"]).tolist() == [[1], [5]]
    assert "TargetModel" not in runtime.calls[0]
    if not binary:
        assert json.loads(runtime.calls[0]["Body"])["inputs"][0]["data"] == ["a", "schön"]


def test_client_names_its_target_model():
    runtime = Runtime()
    client(runtime, target_model="key/model.tar.gz").embed(["a"])
    assert runtime.calls[0]["TargetModel"] == "key/model.tar.gz"


@pytest.mark.parametrize(
    "fault",
    [
        ClientError("ThrottlingException"),
        ClientError("ModelNotReadyException"),
        ClientError("ModelError", 503),
    ],
)
def test_client_asks_again_when_that_may_help(fault):
    runtime = Runtime(fault, fault)
    assert client(runtime).embed(["a"]).tolist() == [[1]]
    assert len(runtime.calls) == 3


@pytest.mark.parametrize(
    "fault",
    [ClientError("ModelError", 400), ClientError("ValidationError"), ValueError("no response")],
)
def test_refuses_to_ask_again_when_it_cannot_help(fault):
    runtime = Runtime(fault)
    with pytest.raises(EndpointFault, match="Endpoint e gave no answer at attempt 1"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


def test_refuses_one_text_that_is_no_list_before_it_asks():
    runtime = Runtime()
    with pytest.raises(InputFault, match="The texts are one str, 'a cat'; send a list of them"):
        client(runtime).embed("a cat")
    assert not runtime.calls


def test_an_answer_that_breaks_off_is_a_sentence_and_is_not_asked_again():
    class Torn(io.BytesIO):
        def read(self, *_):
            raise TimeoutError("Read timeout on endpoint")

    class Breaking(Runtime):
        def invoke_endpoint(self, **arguments):
            return super().invoke_endpoint(**arguments) | {"Body": Torn()}

    runtime = Breaking()
    with pytest.raises(
        EndpointFault, match=r"^Endpoint e broke off its answer: Read timeout on endpoint$"
    ):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


def test_refuses_to_ask_forever():
    runtime = Runtime(*[ClientError("ThrottlingException")] * 9)
    with pytest.raises(EndpointFault, match="at attempt 4"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 4


def refused(status, reason):
    fault = ClientError("ModelError", status)
    fault.response["OriginalMessage"] = reason
    return fault


def test_tritons_full_queue_is_asked_again_though_it_says_400():
    runtime = Runtime(
        refused(400, '{"error":"[request id: <id_unknown>] Exceeds maximum queue size"}')
    )
    assert client(runtime).embed(["a"]).tolist() == [[1]]
    assert len(runtime.calls) == 2


def sentences_of(kind: str) -> list[str]:
    """What faults of a kind say in the Python server.

    As far as it is written down where they are raised.
    """
    found = []
    for path in (Path(__file__).parents[3] / "container" / "server").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        named = {
            name.id: node.value
            for node in nodes
            if isinstance(node, ast.Assign)
            for name in node.targets
            if is_name(name)
        }
        calls = [
            node
            for node in nodes
            if isinstance(node, ast.Call) and is_name(node.func, kind) and node.args
        ]
        reason = [
            named.get(call.args[0].id) if is_name(call.args[0]) else call.args[0] for call in calls
        ]
        found += [
            "".join(part.value for part in ast.walk(each) if is_text(part))
            for each in reason
            if each is not None
        ]
    return [sentence for sentence in found if sentence]


def is_name(node: ast.AST, name: str | None = None) -> bool:
    return isinstance(node, ast.Name) and name in (None, node.id)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


TOO_LATE = ["Request timeout expired", *sentences_of("DeadlinePassed")]


def test_the_python_servers_words_for_a_passed_deadline_are_known():
    assert len(TOO_LATE) > 4 and all(
        any(words in reason for words in OUT_OF_TIME) for reason in TOO_LATE
    )
    others = [*sentences_of("QueueFull"), *sentences_of("Unavailable")]
    assert len(others) > 8 and not any(
        words in reason for words in OUT_OF_TIME for reason in others
    )


@pytest.mark.parametrize(
    "fault",
    [refused(400, "Request timeout expired"), refused(429, "slow down"), refused(500, "boom")],
)
def test_refuses_to_ask_again_what_was_refused_for_itself(fault):
    runtime = Runtime(fault)
    with pytest.raises(EndpointFault):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


@pytest.mark.parametrize("reason", TOO_LATE)
def test_refuses_to_ask_again_what_has_waited_its_whole_time(reason):
    runtime = Runtime(refused(503, json.dumps({"error": reason})))
    with pytest.raises(EndpointFault, match="at attempt 1"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


def test_a_refusal_says_what_the_server_said():
    with pytest.raises(
        EndpointFault,
        match=r"^Endpoint e gave no answer at attempt 1: the server answered 400: Too long\.$",
    ):
        client(Runtime(refused(400, '{"error": "Too long."}'))).embed(["a"])


def test_a_classifiers_scores_are_probabilities():
    class Logits:
        def invoke_endpoint(self, **arguments):
            document = {
                "outputs": [
                    {"name": "logits", "datatype": "FP32", "shape": [2, 2], "data": [0, 1000, 3, 3]}
                ]
            }
            return {
                "Body": io.BytesIO(json.dumps(document).encode()),
                "ContentType": "application/json",
            }

    assert client(Logits()).scores(["a", "b"]).tolist() == [[0, 1], [0.5, 0.5]]


def test_arrays_go_in_and_come_out():
    class Echo:
        def invoke_endpoint(self, **arguments):
            assert arguments["TargetModel"] == "t"
            document = {
                "outputs": [{"name": "y", "datatype": "INT64", "shape": [2], "data": [1, 2]}]
            }
            return {
                "Body": io.BytesIO(json.dumps(document).encode()),
                "ContentType": "application/json",
            }

    found = client(Echo(), target_model="t").ask({"x": np.ones((2, 3), np.float32)})
    assert {name: array.tolist() for name, array in found.items()} == {"y": [1, 2]}


def test_refuses_an_answer_of_another_height():
    class Short:
        def invoke_endpoint(self, **arguments):
            document = {
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [1]}]
            }
            return {"Body": io.BytesIO(json.dumps(document).encode())}

    with pytest.raises(
        AnswerFault, match=r"Endpoint e: 2 texts went in, an array of \(1, 1\) came out"
    ):
        client(Short()).embed(["a", "b"])


@pytest.mark.parametrize(("limit", "compressed"), [(1, True), (10_000, False)])
def test_large_bodies_are_compressed_when_asked(limit, compressed):
    runtime = Compressing()
    client(runtime, gzip_from_bytes=limit).embed(["a" * 500])
    assert runtime.headers == ({"Content-Encoding": "gzip"} if compressed else {})


class Compressing(Runtime):
    """A client of boto3 as far as its events go.

    What is registered sees each request before it is signed.
    """

    def __init__(self):
        super().__init__()
        self.meta, self.events, self.headers, self.hooks = self, self, {}, {}

    def register(self, event, hook, unique_id):
        assert event == "before-sign.sagemaker-runtime.InvokeEndpoint"
        self.hooks[unique_id] = hook

    def invoke_endpoint(self, **arguments):
        self.data = arguments["Body"]
        for hook in self.hooks.values():
            hook(request=self)
        body = gzip.decompress(self.data) if self.headers else self.data
        return super().invoke_endpoint(**arguments | {"Body": body})
