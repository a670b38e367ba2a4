"""Runs an engine in ONNX Runtime on the CPU inside Triton, on texts, images or tensors.

Engine archives carry this file as `<model>/1/model.py`, with `manifest_check.py` and `heads.py`
beside it; Triton's python backend runs them with no other code of this repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import heads  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from tokenizers import Tokenizer

RUNTIME_NAME = "onnxruntime"
COMPUTE_CAPABILITY = "cpu"
Array = np.ndarray[Any, Any]
Feed = dict[str, Array]


class Texts:
    """Requests of texts, or of pairs, padded to the longest of the batch."""

    def __init__(
        self, reader: Any, inputs: Mapping[str, type], outputs: Sequence[str], head: Any = None
    ) -> None:
        """`reader` is of `heads`; `inputs` are the network's; `head` answers the logits."""
        self._reader, self._inputs, self._head = reader, inputs, head
        self.outputs = tuple(outputs)

    def read(self, requests: Sequence[Any]) -> list[Any]:
        """Return each request's tokenized texts, or the fault that its client gets."""
        values: list[Any] = self._reader.read(requests, pb_utils.get_input_tensor_by_name)
        return values

    def rows(self, encodings: Sequence[Any]) -> int:
        """Return the rows of a request."""
        return len(encodings)

    def feed(self, requests: Sequence[Sequence[Any]]) -> Feed:
        """Return the network's inputs for the texts of all requests."""
        encodings = [encoding for request in requests for encoding in request]
        length = max(map(len, encodings), default=1)
        return {
            name: self._reader.array(name, encodings, length, dtype)
            for name, dtype in self._inputs.items()
        }

    def blank(self, batch: int, sequence: int | None) -> Feed:
        """Return a batch of one size for warm-up: unmasked, all of token 0."""
        shape = (batch, 1 if sequence is None else sequence)
        return {
            name: np.full(shape, name == "attention_mask", dtype=dtype)
            for name, dtype in self._inputs.items()
        }

    def answers(self, outputs: Sequence[Array]) -> list[Array]:
        """Return the first output as float32."""
        return [np.asarray(outputs[0], dtype=np.float32)]

    def response(self, encodings: Sequence[Any], rows: Sequence[Array]) -> Sequence[Array]:
        """Return the outputs of one request from its rows of the network's answer."""
        if self._head is None:
            return rows
        spans = None
        if self._head.is_of_tokens:
            tokens = [heads.token_spans(encoding) for encoding in encodings]
            spans = heads.padded_spans(tokens, rows[0].shape[1])
        answers: list[Array] = self._head.answers(rows[0], spans)
        return answers


class Tensors:
    """Requests of the network's own inputs; Triton batches only those of one shape."""

    def __init__(
        self,
        inputs: Mapping[str, type],
        shapes: Mapping[str, Sequence[Any]],
        outputs: Sequence[str],
    ) -> None:
        """Take shapes as ONNX Runtime has them: a dynamic axis is a name or None."""
        self._inputs = inputs
        self._shapes = shapes
        self.outputs = tuple(outputs)

    def read(self, requests: Sequence[Any]) -> list[Feed | ValueError]:
        """Return each request's arrays, or the fault that its client gets."""
        return [self._arrays(request) for request in requests]

    def rows(self, feed: Feed) -> int:
        """Return the rows of a request."""
        return len(next(iter(feed.values())))

    def feed(self, requests: Sequence[Feed]) -> Feed:
        """Return the rows of all requests."""
        if len(requests) == 1:
            return requests[0]
        return {
            name: np.concatenate([request[name] for request in requests]) for name in self._inputs
        }

    def blank(self, batch: int, sequence: int | None) -> Feed:
        """Return a batch of zeros for warm-up; an axis of unknown size has length 1."""
        known = 1 if sequence is None else sequence
        feed: Feed = {}
        for name, dtype in self._inputs.items():
            row = [
                size if isinstance(size, int) else (known if axis == 0 else 1)
                for axis, size in enumerate(self._shapes[name][1:])
            ]
            feed[name] = np.zeros((batch, *row), dtype=dtype)
        return feed

    def answers(self, outputs: Sequence[Array]) -> list[Array]:
        """Return every output as it is."""
        return list(outputs)

    def response(self, feed: Feed, rows: Sequence[Array]) -> Sequence[Array]:
        """Return the outputs of one request: its rows of them."""
        return rows

    def _arrays(self, request: Any) -> Feed | ValueError:
        feed: Feed = {}
        for name in self._inputs:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is None:
                return ValueError(f"Input {name!r} is missing.")
            feed[name] = tensor.as_numpy()
        return feed


class TritonPythonModel:
    """One instance of the engine, as Triton's python backend calls it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Check the archive, load the engine and run every profile's sizes once.

        A refusal is one sentence.
        """
        config = json.loads(args["model_config"])
        model_folder = Path(args["model_repository"])
        try:
            manifest_check.refuse_misread_tensors(pb_utils.Tensor)
            manifest = manifest_check.read_manifest(
                model_folder.parent, os.environ.get(manifest_check.PIN) or None
            )
            manifest_check.refuse_foreign_runtime(
                manifest, RUNTIME_NAME, onnxruntime.__version__, COMPUTE_CAPABILITY
            )
            manifest_check.refuse_unchecked_files(model_folder.parent, manifest["files"])
        except manifest_check.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        folder = model_folder / args["model_version"]
        self._engine = load_engine(folder / Path(manifest["engine_file"]).name, threads(config))
        self._requests = self._request_kind(manifest, config, folder)
        self._names = list(self._requests.outputs)
        if not isinstance(self._requests, Tensors):
            self._names = [self._engine.get_outputs()[0].name]
        for batch, sequence in manifest_check.warm_up_sizes(manifest):
            self._run(self._requests.blank(batch, sequence), batch)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response per request, in order: all readable requests share one run.

        When that run fails, each request runs alone, so that only the faulty one fails.
        """
        responses: list[Any] = [None] * len(requests)
        readable: list[tuple[int, Any]] = []
        for index, value in enumerate(self._requests.read(requests)):
            if isinstance(value, ValueError):
                responses[index] = _error(str(value), pb_utils.TritonError.INVALID_ARG)
            else:
                readable.append((index, value))
        for index, response in self._run_together(readable):
            responses[index] = response
        return responses

    def _request_kind(
        self, manifest: Mapping[str, Any], config: Mapping[str, Any], folder: Path
    ) -> Any:
        """Return how requests are read: as images or texts when the archive says how."""
        if manifest.get("image_processor") is not None:
            # Other archives do not carry it, and their servers need no Pillow.
            import image_requests  # type: ignore[import-not-found]

            return image_requests.Images(manifest)
        outputs = [output["name"] for output in config["output"]]
        if manifest["tokenizer_file"] is None:
            types = {
                tensor["name"]: pb_utils.triton_string_to_numpy(tensor["data_type"])
                for tensor in config["input"]
            }
            shapes = {tensor.name: tensor.shape for tensor in self._engine.get_inputs()}
            return Tensors(input_types(self._engine, types), shapes, outputs)
        head = heads.Head(manifest) if heads.has_head(manifest) else None
        reader = heads.TextReader(
            Tokenizer.from_file(str(folder / Path(manifest["tokenizer_file"]).name)),
            manifest,
            [tensor["name"] for tensor in config["input"]],
            has_spans=head is not None and head.is_of_tokens,
        )
        return Texts(reader, input_types(self._engine, {}), outputs, head)

    def _run_together(self, readable: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Return the response to each request, from one run of all of them where that succeeds."""
        if not readable:
            return []
        bounds = np.cumsum([0, *(self._requests.rows(value) for _, value in readable)])
        try:
            feed = self._requests.feed([value for _, value in readable])
            answers = self._run(feed, int(bounds[-1]))
        except Exception:
            return [(index, self._run_alone(value)) for index, value in readable]
        return [
            (index, self._response(value, [answer[start:stop] for answer in answers]))
            for (index, value), start, stop in zip(readable, bounds[:-1], bounds[1:], strict=True)
        ]

    def _run_alone(self, value: Any) -> Any:
        """Return the response to one request, an error when the engine fails on it.

        What ONNX Runtime calls an invalid argument, such as an index beyond a table, the caller
        sent.
        """
        try:
            answers = self._run(self._requests.feed([value]), self._requests.rows(value))
        except Exception as fault:
            sentence = f"The engine failed on this request: {fault}"
            is_callers = isinstance(fault, InvalidArgument)
            errors = pb_utils.TritonError
            return _error(sentence, errors.INVALID_ARG if is_callers else errors.INTERNAL)
        return self._response(value, answers)

    def _run(self, feed: Feed, rows: int) -> list[Array]:
        """Return the answers, rows on axis 0."""
        answers: list[Array] = self._requests.answers(self._engine.run(self._names, feed))
        for name, answer in zip(self._names, answers, strict=True):
            if not answer.ndim or len(answer) != rows:
                raise RuntimeError(
                    f"output {name!r} has shape {list(answer.shape)} for {rows} rows"
                )
        return answers

    def _response(self, value: Any, rows: Sequence[Array]) -> Any:
        pairs = zip(self._requests.outputs, self._requests.response(value, rows), strict=True)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.ascontiguousarray(answer)) for name, answer in pairs]
        )


def threads(model_config: Mapping[str, Any]) -> int:
    """Return the intra-op threads of one instance: this process' cores shared by its instances."""
    groups = model_config.get("instance_group", [])
    instances = sum(int(group.get("count", 1)) for group in groups) or 1
    return max(1, len(os.sched_getaffinity(0)) // instances)


def load_engine(path: Path, intra_op_threads: int) -> onnxruntime.InferenceSession:
    """Load the engine on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra_op_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Else sums of INT8 products saturate on x86 without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def input_types(
    session: onnxruntime.InferenceSession, configured: Mapping[str, type]
) -> dict[str, type]:
    """Return the array type of each input: the configured one, or int64 unless it is int32."""
    tokens = {
        tensor.name: np.int32 if tensor.type == "tensor(int32)" else np.int64
        for tensor in session.get_inputs()
    }
    return {name: configured.get(name, dtype) for name, dtype in tokens.items()}


def _error(sentence: str, code: int) -> Any:
    """Return an error response: 400 for INVALID_ARG, 500 for INTERNAL."""
    return pb_utils.InferenceResponse([], pb_utils.TritonError(sentence, code))
