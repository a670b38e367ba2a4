"""Stands for the TensorRT member of an ensemble, which no CPU runs.

The float network in ONNX Runtime, tensors in and out. Triton's stub runs it as `model.py`. It
prints the shape of every batch.
"""

import json
from pathlib import Path

import onnxruntime
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """What Triton's python backend calls."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        # Triton's TensorRT backend picks among several by the GPU; here the first stands for all.
        file = next(iter(config.get("cc_model_filenames", {}).values()), "model.onnx")
        path = Path(args["model_repository"]) / args["model_version"] / file
        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._inputs = [tensor["name"] for tensor in config["input"]]
        self._outputs = [tensor["name"] for tensor in config["output"]]

    def execute(self, requests):
        shapes = set()
        responses = []
        for request in requests:
            feed = {
                name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                for name in self._inputs
            }
            shapes.add(feed[self._inputs[0]].shape)
            answers = self._session.run(self._outputs, feed)
            tensors = [
                pb_utils.Tensor(name, answer)
                for name, answer in zip(self._outputs, answers, strict=True)
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
        lengths = sorted({shape[1] for shape in shapes})
        rows = sum(len(response.output_tensors()[0].as_numpy()) for response in responses)
        print(f"engine batch: requests {len(requests)}, rows {rows}, lengths {lengths}", flush=True)
        return responses
