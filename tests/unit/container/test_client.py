"""The boto3 caller: what it sends, and what it asks again."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from container.client import EndpointClient, EndpointFault
from container.server.codecs import decoded, encoded
from container.server.types import Signature

SIGNATURE = Signature(model="tiny", input_name="text", output_name="embedding")


class ClientError(Exception):
    """Like botocore's: the response is an attribute."""

    def __init__(self, code: str, original: int | None = None) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}} | ({} if original is None else {"OriginalStatusCode": original})


class Runtime:
    """An endpoint that answers each text with its length, after the faults it was given."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.calls: list[dict] = []

    def invoke_endpoint(self, **arguments):
        self.calls.append(arguments)
        if self.faults:
            raise self.faults.pop(0)
        request = decoded(arguments["Body"], arguments["ContentType"], SIGNATURE)
        rows = np.array([[len(text)] for text in request.texts], np.float32)
        body, content_type = encoded(rows, request, SIGNATURE)
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
    "fault", [ClientError("ThrottlingException"), ClientError("ModelNotReadyException"), ClientError("ModelError", 503)]
)
def test_client_asks_again_when_that_may_help(fault):
    runtime = Runtime(fault, fault)
    assert client(runtime).embed(["a"]).tolist() == [[1]]
    assert len(runtime.calls) == 3


@pytest.mark.parametrize("fault", [ClientError("ModelError", 400), ClientError("ValidationError"), ValueError("no response")])
def test_refuses_to_ask_again_when_it_cannot_help(fault):
    runtime = Runtime(fault)
    with pytest.raises(EndpointFault, match="Endpoint e gave no answer at attempt 1"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 1


def test_refuses_to_ask_forever():
    runtime = Runtime(*[ClientError("ThrottlingException")] * 9)
    with pytest.raises(EndpointFault, match="at attempt 4"):
        client(runtime).embed(["a"])
    assert len(runtime.calls) == 4
