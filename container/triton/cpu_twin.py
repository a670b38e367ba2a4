"""The CPU twin inside Triton: verifies its passport and runs the engine in ONNX Runtime, on texts
or on tensors.

Copied into the engine archive as `<model>/1/model.py`, with `passport.py` beside it; Triton's stub
runs them with no other
code of this repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import passport  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

RUNTIME_NAME = "onnxruntime"
COMPUTE_CAPABILITY = "cpu"
Array = np.ndarray[Any, Any]
Feed = dict[str, Array]


class Texts:
    """Requests of texts: tokenized together, padded to the longest of the batch."""

    def __init__(self, tokenizer: Tokenizer, inputs: Mapping[str, type], answer: str) -> None:
        self._tokenizer = tokenizer
        self._inputs = inputs
        self.outputs = (answer,)

    def read(self, request: Any) -> list[str]:
        """The texts of one request, in order.

        Raises ValueError with the sentence for the client.
        """
        tensor = pb_utils.get_input_tensor_by_name(request, "text")
        if tensor is None:
            raise ValueError("Input 'text' is missing.")
        try:
            return [
                item.decode("utf-8") if isinstance(item, bytes) else str(item)
                for item in tensor.as_numpy().reshape(-1)
            ]
        except UnicodeDecodeError as fault:
            raise ValueError(
                f"Input 'text' holds text that is not UTF-8: {fault.reason} at byte {fault.start}."
            ) from fault

    def rows(self, texts: Sequence[str]) -> int:
        """How many rows a request has."""
        return len(texts)

    def feed(self, requests: Sequence[Sequence[str]]) -> Feed:
        """The network's inputs for the texts of all requests."""
        encodings = self._tokenizer.encode_batch_fast(
            [text for texts in requests for text in texts]
        )
        tokens = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        return {name: np.array(tokens[name], dtype=dtype) for name, dtype in self._inputs.items()}

    def blank(self, batch: int, sequence: int | None) -> Feed:
        """A batch of one size: masked in, all of token 0."""
        shape = (batch, 1 if sequence is None else sequence)
        return {
            name: np.full(shape, name == "attention_mask", dtype=dtype)
            for name, dtype in self._inputs.items()
        }

    def answers(self, outputs: Sequence[Array]) -> list[Array]:
        """The first output, float32."""
        return [np.asarray(outputs[0], dtype=np.float32)]


class Tensors:
    """Requests of the network's own inputs; the server batches only those of one shape."""

    def __init__(
        self,
        inputs: Mapping[str, type],
        shapes: Mapping[str, Sequence[Any]],
        outputs: Sequence[str],
    ) -> None:
        """`shapes` are ONNX Runtime's: a dynamic axis is a name or None."""
        self._inputs = inputs
        self._shapes = shapes
        self.outputs = tuple(outputs)

    def read(self, request: Any) -> Feed:
        """The arrays of one request. Raises ValueError with the sentence for the client."""
        found = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self._inputs}
        for name, tensor in found.items():
            if tensor is None:
                raise ValueError(f"Input {name!r} is missing.")
        return {name: tensor.as_numpy() for name, tensor in found.items()}

    def rows(self, feed: Feed) -> int:
        """How many rows a request has."""
        return len(next(iter(feed.values())))

    def feed(self, requests: Sequence[Feed]) -> Feed:
        """The rows of all requests."""
        if len(requests) == 1:
            return requests[0]
        return {
            name: np.concatenate([request[name] for request in requests]) for name in self._inputs
        }

    def blank(self, batch: int, sequence: int | None) -> Feed:
        """A batch of zeros; an axis of unknown size has one place."""
        known = 1 if sequence is None else sequence
        return {
            name: np.zeros((batch, *self._row(name, known)), dtype=dtype)
            for name, dtype in self._inputs.items()
        }

    def answers(self, outputs: Sequence[Array]) -> list[Array]:
        """Every output as it is."""
        return list(outputs)

    def _row(self, name: str, sequence: int) -> tuple[int, ...]:
        return tuple(
            size if isinstance(size, int) else (sequence if axis == 0 else 1)
            for axis, size in enumerate(self._shapes[name][1:])
        )


def batch_tokenizer(path: Path, max_tokens: int | None) -> Tokenizer:
    """The packaged tokenizer, padding to the longest text of a batch instead of to its fixed
    length.
    """
    tokenizer = Tokenizer.from_file(str(path))
    padding = tokenizer.padding
    if padding is None:
        tokenizer.enable_padding()
    else:
        tokenizer.enable_padding(
            pad_id=padding["pad_id"],
            pad_token=padding["pad_token"],
            pad_type_id=padding["pad_type_id"],
        )
    if max_tokens is not None:
        tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer


def threads(model_config: Mapping[str, Any]) -> int:
    """Intra-op threads of one instance: the cores of this process shared among the model's
    instances.
    """
    instances = (
        sum(int(group.get("count", 1)) for group in model_config.get("instance_group", [])) or 1
    )
    return max(1, len(os.sched_getaffinity(0)) // instances)


def engine_session(path: Path, intra_op_threads: int) -> onnxruntime.InferenceSession:
    """The engine, loaded on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra_op_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def input_types(
    session: onnxruntime.InferenceSession, configured: Mapping[str, type]
) -> dict[str, type]:
    """The array type of each input of the engine: the configured one, and for tokens int64 unless
    the engine says int32.
    """
    narrow = {
        tensor.name: np.int32 if tensor.type == "tensor(int32)" else np.int64
        for tensor in session.get_inputs()
    }
    return {name: configured.get(name, tokens) for name, tokens in narrow.items()}


class TritonPythonModel:
    """What Triton's python backend calls: one instance of the engine."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Verifies the archive, loads the engine and runs every profile's sizes once; refuses in
        one sentence.
        """
        config = json.loads(args["model_config"])
        model_folder = Path(args["model_repository"])
        try:
            manifest = passport.read_manifest(
                model_folder.parent, os.environ.get(passport.PIN) or None
            )
            passport.refuse_foreign_runtime(
                manifest, RUNTIME_NAME, onnxruntime.__version__, COMPUTE_CAPABILITY
            )
            passport.refuse_changed_files(model_folder.parent, manifest["files"])
        except passport.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        version_folder = model_folder / args["model_version"]
        self._engine = engine_session(
            version_folder / Path(manifest["engine_file"]).name, threads(config)
        )
        self._requests = self._of(manifest, config, version_folder)
        self._names = [output.name for output in self._engine.get_outputs()]
        for batch, sequence in passport.warm_up_sizes(manifest):
            self._run(self._requests.blank(batch, sequence), batch)

    def _of(
        self, manifest: Mapping[str, Any], config: Mapping[str, Any], folder: Path
    ) -> Texts | Tensors:
        outputs = [output["name"] for output in config["output"]]
        if manifest["tokenizer_file"] is None:
            types = {
                each["name"]: pb_utils.triton_string_to_numpy(each["data_type"])
                for each in config["input"]
            }
            shapes = {tensor.name: tensor.shape for tensor in self._engine.get_inputs()}
            return Tensors(input_types(self._engine, types), shapes, outputs)
        tokenizer = batch_tokenizer(
            folder / Path(manifest["tokenizer_file"]).name, passport.longest_sequence(manifest)
        )
        return Texts(tokenizer, input_types(self._engine, {}), outputs[0])

    def _run(self, feed: Feed, rows: int) -> list[Array]:
        """The answers, rows on axis 0."""
        wanted = (
            self._names[:1] if isinstance(self._requests, Texts) else list(self._requests.outputs)
        )
        answers = self._requests.answers(self._engine.run(wanted, feed))
        for name, answer in zip(self._requests.outputs, answers, strict=True):
            if not answer.ndim or len(answer) != rows:
                raise RuntimeError(
                    f"output {name!r} has shape {list(answer.shape)} for {rows} rows"
                )
        return answers

    def _answer(self, value: Any) -> Any:
        """The response of one request alone, an error when the engine refuses it."""
        try:
            return self._response(
                self._run(self._requests.feed([value]), self._requests.rows(value))
            )
        except Exception as fault:
            return self._error(f"The engine failed on this request: {fault}")

    def _response(self, answers: Sequence[Array]) -> Any:
        pairs = zip(self._requests.outputs, answers, strict=True)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.ascontiguousarray(answer)) for name, answer in pairs]
        )

    def _error(self, sentence: str, *, client: bool = False) -> Any:
        """An error response; only a client's fault is told apart from an internal one (400, not
        500).
        """
        code = pb_utils.TritonError.INVALID_ARG if client else pb_utils.TritonError.INTERNAL
        return pb_utils.InferenceResponse([], pb_utils.TritonError(sentence, code))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order: all good requests share one run, a bad one fails
        alone.
        """
        responses: list[Any] = [None] * len(requests)
        good: list[tuple[int, Any]] = []
        for index, request in enumerate(requests):
            try:
                good.append((index, self._requests.read(request)))
            except ValueError as fault:
                responses[index] = self._error(str(fault), client=True)
        for index, response in self._together(good):
            responses[index] = response
        return responses

    def _together(self, good: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """One run for all; when it fails, one run each, so that only the guilty request fails."""
        if not good:
            return []
        bounds = np.cumsum([0, *(self._requests.rows(value) for _, value in good)])
        try:
            answers = self._run(self._requests.feed([value for _, value in good]), int(bounds[-1]))
        except Exception:
            return [(index, self._answer(value)) for index, value in good]
        spans = zip(good, bounds[:-1], bounds[1:], strict=True)
        return [
            (index, self._response([answer[start:stop] for answer in answers]))
            for (index, _), start, stop in spans
        ]
