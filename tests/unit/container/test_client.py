"""The boto3 caller: its requests, which it sends again, and entities of its answers."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from container.client import AnswerFault, EndpointClient, EndpointFault, entities_of
from container.server.batching.failures import LATE
from container.server.codecs.texts import decode_request, encode_response
from onboarding.manifest import Prompts
from tests.unit.container.signatures import text_signature

PROMPTS = Prompts(texts={"long": "0123456789"})
SIGNATURE = text_signature(prompts=PROMPTS)


class ClientError(Exception):
    """Like botocore's: the response is an attribute."""

    def __init__(self, code: str, status: int | None = None, message: str | None = None) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}
        if status is not None:
            self.response |= {"OriginalStatusCode": status, "OriginalMessage": message}


def model_error(status: int, message: str | None = None) -> ClientError:
    return ClientError("ModelError", status, message)


class Runtime:
    """An endpoint that answers each text with its length, after its faults."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.calls: list[dict] = []

    def invoke_endpoint(self, **arguments):
        self.calls.append(arguments)
        if self.faults:
            raise self.faults.pop(0)
        return self.answer(arguments)

    def answer(self, arguments):
        request = decode_request(arguments["Body"], arguments["ContentType"], SIGNATURE)
        rows = np.array([[len(text)] for text in request.rows], np.float32)
        body, content_type = encode_response((rows,), request, SIGNATURE)
        return {"Body": io.BytesIO(body), "ContentType": content_type}


class ConstantRuntime(Runtime):
    """An endpoint with one answer of one output."""

    def __init__(self, datatype, shape, data) -> None:
        super().__init__()
        self.output = {"name": "y", "datatype": datatype, "shape": shape, "data": data}

    def answer(self, arguments):
        return {"Body": io.BytesIO(json.dumps({"outputs": [self.output]}).encode())}


def client(runtime, **changes):
    return EndpointClient(runtime=runtime, endpoint="e", pause=lambda seconds: None, **changes)


@pytest.mark.parametrize("binary", [True, False])
def test_client_returns_one_row_per_text(binary):
    runtime = Runtime()
    assert client(runtime, binary=binary).embed(["a", "schön"]).tolist() == [[1], [5]]
    assert client(runtime, binary=binary).embed(["a"], "long").tolist() == [[11]]
    assert "TargetModel" not in runtime.calls[0]
    if not binary:
        assert json.loads(runtime.calls[0]["Body"])["inputs"][0]["data"] == ["a", "schön"]


TRITON_FULL = '{"error":"[request id: <id_unknown>] Exceeds maximum queue size"}'


@pytest.mark.parametrize(
    "fault",
    [
        ClientError("ThrottlingException"),
        ClientError("ModelNotReadyException"),
        model_error(503),
        pytest.param(model_error(400, TRITON_FULL), id="Triton's full queue"),
    ],
)
def test_client_sends_a_request_again_when_that_may_help(fault):
    runtime = Runtime(fault, fault)
    assert client(runtime).embed(["a"]).tolist() == [[1]]
    assert len(runtime.calls) == 3


TOO_LATE = ("Request timeout expired", LATE, "Triton did not answer within 60 seconds.")


@pytest.mark.parametrize(
    "fault",
    [
        model_error(400),
        ClientError("ValidationError"),
        ValueError("no response"),
        model_error(400, "Request timeout expired"),
        model_error(429, "slow down"),
        model_error(500, "boom"),
        *(model_error(503, json.dumps({"error": sentence})) for sentence in TOO_LATE),
    ],
)
def test_refuses_to_send_a_request_again_when_it_cannot_help(fault):
    runtime = Runtime(fault)
    with pytest.raises(EndpointFault, match="Endpoint e gave no answer at attempt 1"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


def test_refuses_to_send_a_request_forever():
    runtime = Runtime(*[ClientError("ThrottlingException")] * 9)
    with pytest.raises(EndpointFault, match="at attempt 4"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 4


def test_answer_that_breaks_off_is_a_sentence_and_its_request_is_not_sent_again():
    class Broken(io.BytesIO):
        def read(self, *_):
            raise TimeoutError("Read timeout on endpoint")

    runtime = Runtime()
    runtime.answer = lambda arguments: {"Body": Broken()}
    sentence = r"^Endpoint e broke off its answer: Read timeout on endpoint$"
    with pytest.raises(EndpointFault, match=sentence):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


def test_refusal_has_the_servers_sentence():
    sentence = r"^Endpoint e gave no answer at attempt 1: the server answered 400: Too long\.$"
    with pytest.raises(EndpointFault, match=sentence):
        client(Runtime(model_error(400, '{"error": "Too long."}'))).embed(["a"])


def test_arrays_are_sent_and_returned():
    runtime = ConstantRuntime("INT64", [2], [1, 2])
    arrays = client(runtime, target_model="t").ask({"x": np.ones((2, 3), np.float32)})
    assert {name: array.tolist() for name, array in arrays.items()} == {"y": [1, 2]}
    assert runtime.calls[0]["TargetModel"] == "t"


def test_refuses_an_answer_of_other_rows_than_texts():
    sentence = r"Endpoint e: 2 texts went in, an array of \(1, 1\) came out"
    with pytest.raises(AnswerFault, match=sentence):
        client(ConstantRuntime("FP32", [1, 1], [1])).embed(["a", "b"])


TEXT = "Ada Lovelace in Rome"
ARRAYS = {
    "labels": np.array([["B-PER", "I-PER", "O", "LOC", ""]], object),
    "scores": np.array([[0.5, 1.0, 0.9, 0.75, 0.0]], np.float32),
    "offsets": np.array([[[0, 3], [4, 12], [13, 15], [16, 20], [-1, -1]]]),
}


def test_tokens_of_entities_stand_alone():
    (found,) = entities_of(ARRAYS, [TEXT], grouped=False)
    assert [entity.label for entity in found] == ["B-PER", "I-PER", "LOC"]


def test_neighbours_of_one_label_are_one_entity():
    (found,) = entities_of(ARRAYS, [TEXT], grouped=True)
    assert found[0] == ("PER", 0.75, 0, 12, "Ada Lovelace")
    assert found[1] == ("LOC", 0.75, 16, 20, "Rome")
