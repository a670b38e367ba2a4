"""PyTorch behind FastAPI, as a team would write it: `python -m benchmarks.gpu.fastapi_server`.

POST /invocations with {"inputs": [text, ...]} answers {"outputs": [vector, ...]}, each request
alone; GET /ping is 200 once the model is there. Needs the packages fastapi and uvicorn.

Variables: TOKENIZER, SAGEMAKER_BIND_TO_PORT, and those of tests/gpu/torch_server.py.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from tests.gpu.torch_server import torch_module


class TextModel:
    """A tokenizer, a module, and the texts that they answer."""

    def __init__(self) -> None:
        self._device = os.environ["TORCH_DEVICE"]
        self._tokenizer = Tokenizer.from_file(os.environ["TOKENIZER"])
        self._tokenizer.enable_padding()
        self._module, _ = torch_module(self._device)

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text."""
        encoded = self._tokenizer.encode_batch(texts)
        arrays = ([item.ids for item in encoded], [item.attention_mask for item in encoded])
        with torch.inference_mode():
            tensors = [torch.from_numpy(np.array(rows)).to(self._device) for rows in arrays]
            answer: list[list[float]] = self._module(*tensors).float().cpu().tolist()
            return answer


def serve_fastapi(port: int) -> None:
    """Serve until the process is ended."""
    import fastapi
    import uvicorn

    app, model = fastapi.FastAPI(), TextModel()

    @app.get("/ping")  # type: ignore[untyped-decorator]
    def ping() -> dict[str, Any]:
        return {}

    @app.post("/invocations")  # type: ignore[untyped-decorator]
    def invoke(body: dict[str, list[str]]) -> dict[str, Any]:
        return {"outputs": model.vectors(body["inputs"])}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    serve_fastapi(int(os.environ["SAGEMAKER_BIND_TO_PORT"]))
