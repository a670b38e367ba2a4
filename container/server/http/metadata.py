"""What KServe v2 clients ask before they ask: the server's and a model's description."""

from __future__ import annotations

from typing import Any

from container.server.codecs.envelope import JSON_TYPE, json_bytes
from container.server.http.message import Response
from container.server.types import Signature, TensorSignature
from onboarding.manifest import TensorRecord

VERSION = "0.1.0"


def server_metadata() -> Response:
    """The server's name, version and extensions of the protocol."""
    return _document(
        {"name": "roundhouse", "version": VERSION, "extensions": ["binary_tensor_data"]}
    )


def model_metadata(signature: Signature | TensorSignature, platform: str) -> Response:
    """A model's inputs and outputs; -1 is any size.

    `platform` is the engine's name in Triton's words.
    """
    if isinstance(signature, TensorSignature):
        inputs, outputs = (
            [_tensor(each) for each in signature.inputs],
            [_tensor(each) for each in signature.outputs],
        )
    else:
        inputs = [{"name": signature.input_name, "datatype": "BYTES", "shape": [-1, 1]}]
        outputs = [{"name": signature.output_name, "datatype": "FP32", "shape": [-1, -1]}]
    return _document(
        {
            "name": signature.model,
            "versions": [signature.version],
            "platform": platform,
            "inputs": inputs,
            "outputs": outputs,
        }
    )


def _tensor(record: TensorRecord) -> dict[str, Any]:
    return {"name": record.name, "datatype": record.datatype, "shape": list(record.shape)}


def _document(document: dict[str, Any]) -> Response:
    return Response(200, json_bytes(document), JSON_TYPE)
