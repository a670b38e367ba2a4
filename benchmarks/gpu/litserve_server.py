"""PyTorch behind LitServe, with its batching: `python -m benchmarks.gpu.litserve_server`.

Requests, answers and variables are those of `benchmarks.gpu.fastapi_server`; batches of at most
MOST_ROWS requests wait for BATCH_SECONDS. Needs the package litserve.
"""

from __future__ import annotations

import os
from typing import Any

import litserve

from benchmarks.gpu.fastapi_server import TextModel

MOST_ROWS, BATCH_SECONDS = 32, 0.005


class EmbeddingApi(litserve.LitAPI):  # type: ignore[misc]
    """The texts of all requests of a batch, encoded together."""

    def setup(self, device: str) -> None:
        """Load the model in the worker's process."""
        self.model = TextModel()

    def decode_request(self, request: dict[str, list[str]]) -> list[str]:
        """Return a request's texts."""
        return request["inputs"]

    def batch(self, inputs: list[list[str]]) -> list[list[str]]:
        """Keep requests apart, whose counts of texts differ."""
        return inputs

    def predict(self, requests: list[list[str]]) -> list[list[list[float]]]:
        """Return the vectors of each request."""
        vectors = iter(self.model.vectors([text for texts in requests for text in texts]))
        return [[next(vectors) for _ in texts] for texts in requests]

    def unbatch(self, output: list[list[list[float]]]) -> list[list[list[float]]]:
        """Return an answer a request."""
        return output

    def encode_response(self, output: list[list[float]]) -> dict[str, Any]:
        """Return an answer's JSON."""
        return {"outputs": output}


def main(port: int) -> None:
    """Serve until the process is ended."""
    api = EmbeddingApi(
        max_batch_size=MOST_ROWS, batch_timeout=BATCH_SECONDS, api_path="/invocations"
    )
    accelerator = "cuda" if os.environ["TORCH_DEVICE"] == "cuda" else "cpu"
    server = litserve.LitServer(api, accelerator=accelerator, devices=1, healthcheck_path="/ping")
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main(int(os.environ["SAGEMAKER_BIND_TO_PORT"]))
