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
from tokenizers import Encoding, Tokenizer

RUNTIME_NAME = "onnxruntime"
COMPUTE_CAPABILITY = "cpu"
READERS = {
    "input_ids": lambda encoding: encoding.ids,
    "attention_mask": lambda encoding: encoding.attention_mask,
    "token_type_ids": lambda encoding: encoding.type_ids,
}
Array = np.ndarray[Any, Any]
Feed = dict[str, Array]


class Texts:
    """Requests of texts, or of pairs: tokenized in one call, padded to the longest of the batch."""

    def __init__(
        self,
        path: Path,
        inputs: Mapping[str, type],
        texts: Sequence[str],
        outputs: Sequence[str],
        *,
        longest: int | None,
        truncates: bool,
        prompts: Mapping[str, Any] | None = None,
        head: Any = None,
    ) -> None:
        """Load the packaged tokenizer; a text over `longest` tokens is cut or refused.

        `texts` are the request's tensors, one or the two of a pair; `head` answers the logits.
        """
        self._tokenizer = Tokenizer.from_file(str(path))
        padding = self._tokenizer.padding
        self._pad_id = 0 if padding is None else int(padding["pad_id"])
        self._tokenizer.no_padding()
        if not truncates:
            self._tokenizer.no_truncation()
        elif longest is not None:
            self._tokenizer.enable_truncation(max_length=longest)
        self._limit = None if truncates else longest
        self._prompts = prompts
        self._inputs = inputs
        self._texts = tuple(texts)
        self._head = head
        # Only the slower call knows where in the text a token lies.
        self._spans = head is not None and head.is_of_tokens
        tokenizer = self._tokenizer
        self._encode = tokenizer.encode_batch if self._spans else tokenizer.encode_batch_fast
        self.outputs = tuple(outputs)

    def read(self, requests: Sequence[Any]) -> list[list[Encoding] | ValueError]:
        """Return each request's tokenized texts, or the fault that its client gets."""
        inputs = [_rows_of_texts(request, self._texts, self._prompts) for request in requests]
        encodings = iter(
            self._encode([text for texts in inputs if isinstance(texts, list) for text in texts])
        )
        return [
            self._check_lengths([next(encodings) for _ in texts])
            if isinstance(texts, list)
            else texts
            for texts in inputs
        ]

    def rows(self, encodings: Sequence[Encoding]) -> int:
        """Return the rows of a request."""
        return len(encodings)

    def feed(self, requests: Sequence[Sequence[Encoding]]) -> Feed:
        """Return the network's inputs for the texts of all requests."""
        encodings = [encoding for request in requests for encoding in request]
        shape = (len(encodings), max(map(len, encodings), default=1))
        feed: Feed = {}
        for name, dtype in self._inputs.items():
            feed[name] = np.full(shape, self._pad_id if name == "input_ids" else 0, dtype=dtype)
            for place, encoding in enumerate(encodings):
                feed[name][place, : len(encoding)] = READERS[name](encoding)
        return feed

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

    def response(self, encodings: Sequence[Encoding], rows: Sequence[Array]) -> Sequence[Array]:
        """Return the outputs of one request from its rows of the network's answer."""
        if self._head is None:
            return rows
        spans = None
        if self._spans:
            tokens = [heads.token_spans(encoding) for encoding in encodings]
            spans = heads.padded_spans(tokens, rows[0].shape[1])
        answers: list[Array] = self._head.answers(rows[0], spans)
        return answers

    def _check_lengths(self, encodings: list[Encoding]) -> list[Encoding] | ValueError:
        sentence = manifest_check.over_long_texts(list(map(len, encodings)), self._limit)
        return encodings if sentence is None else ValueError(sentence)


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
        return Texts(
            folder / Path(manifest["tokenizer_file"]).name,
            input_types(self._engine, {}),
            [tensor["name"] for tensor in config["input"]],
            outputs,
            longest=manifest_check.longest_sequence(manifest),
            truncates=manifest.get("auto_truncate", True),
            prompts=manifest.get("prompts"),
            head=heads.Head(manifest) if heads.has_head(manifest) else None,
        )

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


def _rows_of_texts(
    request: Any, names: Sequence[str], prompts: Mapping[str, Any] | None
) -> list[Any] | ValueError:
    """Return a request's texts, or its pairs of two tensors; or the fault that its client gets."""
    tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in names}
    try:
        prefix = manifest_check.prompt_prefix(request.parameters(), prompts)
        rows: list[Any] = heads.request_rows(tensors, prefix)
        return rows
    except ValueError as fault:
        return fault


def _error(sentence: str, code: int) -> Any:
    """Return an error response: 400 for INVALID_ARG, 500 for INTERNAL."""
    return pb_utils.InferenceResponse([], pb_utils.TritonError(sentence, code))
