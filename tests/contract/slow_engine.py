"""A model whose engine waits until a file `gate` lies beside it, and fails when asked to.

Triton's stub runs it as `model.py`.
"""

import threading
from pathlib import Path

import triton_python_backend_utils as pb_utils

SHORT_OF_MEMORY, FAILS = -507, -500
GATE = Path(__file__).with_name("gate")


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args):
        if GATE.with_name("no-memory").exists():
            raise pb_utils.TritonModelException("CUDA out of memory")

    def execute(self, requests):
        return [
            self._answer(pb_utils.get_input_tensor_by_name(request, "number").as_numpy())
            for request in requests
        ]

    def _answer(self, number):
        if number.flat[0] == SHORT_OF_MEMORY:
            return pb_utils.InferenceResponse([], pb_utils.TritonError("CUDA out of memory"))
        if number.flat[0] == FAILS:
            return pb_utils.InferenceResponse([], pb_utils.TritonError("the kernel failed"))
        print("taken", flush=True)
        while not GATE.exists():
            threading.Event().wait(0.005)
        return pb_utils.InferenceResponse([pb_utils.Tensor("same", number)])
