"""The CPU twin inside Triton: verifies its passport, tokenizes texts and runs the engine in ONNX Runtime.

Self-contained: this file is copied into the engine archive as `<model>/1/model.py` and Triton's stub runs it with no other
code of this repository. The archive's `manifest.json` lies beside the model folder: both of Triton's SageMaker modes
leave it alone there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

MANIFEST_NAME = "manifest.json"
RUNTIME_NAME = "onnxruntime"
COMPUTE_CAPABILITY = "cpu"
WARM_UP_TEXT = "warm up"
FIELDS = ("files", "runtime", "compute_capability", "engine_file", "tokenizer_file", "optimization_profiles", "max_batch_size")


class Refused(Exception):
    """The archive is not this server's to run; the message is the whole sentence."""


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(archive: Path, expected: str | None) -> dict[str, Any]:
    """The passport of the archive; `expected` is the sha256 that the deployment pinned, `None` when it pinned none."""
    path = archive / MANIFEST_NAME
    if not path.is_file():
        raise Refused(f"Refused: {MANIFEST_NAME} is missing beside the model; only archives that roundhouse built are served.")
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        pinned = f"the deployment pins {expected}"
        raise Refused(f"Refused: {MANIFEST_NAME} has sha256 {found}, but {pinned}; deploy the archive the lock names.")
    try:
        manifest = json.loads(data)
        return {field: manifest[field] for field in FIELDS}
    except (ValueError, KeyError, TypeError) as fault:
        raise Refused(f"Refused: {MANIFEST_NAME} cannot be read ({fault!r}); build the engine again.") from fault


def refuse_foreign_runtime(manifest: Mapping[str, Any], version: str) -> None:
    """An engine runs in exactly the runtime and on the kind of device it was made and measured for."""
    made = (manifest["runtime"].get("name"), manifest["runtime"].get("version"))
    if made != (RUNTIME_NAME, version):
        here = f"this server runs {RUNTIME_NAME} {version}"
        raise Refused(f"Refused: the engine was made for {made[0]} {made[1]}, {here}; build it for this platform.")
    capability = manifest["compute_capability"]
    if capability != COMPUTE_CAPABILITY:
        here = f"this server runs {COMPUTE_CAPABILITY}"
        raise Refused(f"Refused: the engine was made for compute capability {capability}, {here}; build it for this target.")


def refuse_changed_files(archive: Path, model_folder: Path, files: Mapping[str, str]) -> None:
    """Every file of the model folder is in the manifest with its digest, and every file of the manifest is there."""
    found_files = (path for path in model_folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    present = {path.relative_to(archive).as_posix() for path in found_files}
    missing, unknown = sorted(set(files) - present), sorted(present - set(files))
    if missing:
        raise Refused(f"Refused: {missing[0]} is named in {MANIFEST_NAME} but is not in the archive; publish the archive again.")
    if unknown:
        raise Refused(f"Refused: {unknown[0]} is in the archive but not named in {MANIFEST_NAME}; publish the archive again.")
    for name, digest in sorted(files.items()):
        found = sha256(archive / name)
        if found != digest:
            raise Refused(f"Refused: {name} has sha256 {found}, but {MANIFEST_NAME} says {digest}; publish the archive again.")


def longest_sequence(manifest: Mapping[str, Any]) -> int | None:
    """Most tokens a row may have, from the optimization profiles; `None` when none has a sequence axis."""
    maxima = [profile["sequence"][2] for profile in manifest["optimization_profiles"] if profile.get("sequence")]
    return max(maxima, default=None)


def batch_tokenizer(path: Path, max_tokens: int | None) -> Tokenizer:
    """The packaged tokenizer, padding to the longest text of a batch instead of to its fixed length."""
    tokenizer = Tokenizer.from_file(str(path))
    padding = tokenizer.padding
    if padding is None:
        tokenizer.enable_padding()
    else:
        tokenizer.enable_padding(pad_id=padding["pad_id"], pad_token=padding["pad_token"], pad_type_id=padding["pad_type_id"])
    if max_tokens is not None:
        tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer


def threads(model_config: Mapping[str, Any]) -> int:
    """Intra-op threads of one instance: the cores of this process shared among the model's instances."""
    instances = sum(int(group.get("count", 1)) for group in model_config.get("instance_group", [])) or 1
    return max(1, len(os.sched_getaffinity(0)) // instances)


def engine_session(path: Path, intra_op_threads: int) -> onnxruntime.InferenceSession:
    """The engine, loaded on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra_op_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def texts_of(request: Any, input_name: str) -> list[str]:
    """The texts of one request, in order. Raises ValueError with the sentence for the client."""
    tensor = pb_utils.get_input_tensor_by_name(request, input_name)
    if tensor is None:
        raise ValueError(f"Input {input_name!r} is missing.")
    try:
        return [item.decode("utf-8") if isinstance(item, bytes) else str(item) for item in tensor.as_numpy().reshape(-1)]
    except UnicodeDecodeError as fault:
        raise ValueError(f"Input {input_name!r} holds text that is not UTF-8: {fault.reason} at byte {fault.start}.") from fault


class TritonPythonModel:
    """What Triton's python backend calls: one instance of the engine."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Verifies the archive, loads the engine and runs it once; refuses in one sentence."""
        config = json.loads(args["model_config"])
        model_folder = Path(args["model_repository"])
        try:
            manifest = read_manifest(model_folder.parent, os.environ.get("ROUNDHOUSE_MANIFEST_SHA256") or None)
            refuse_foreign_runtime(manifest, onnxruntime.__version__)
            refuse_changed_files(model_folder.parent, model_folder, manifest["files"])
        except Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        version_folder = model_folder / args["model_version"]
        self._input = config["input"][0]["name"]
        self._output = config["output"][0]["name"]
        self._tokenizer = batch_tokenizer(version_folder / Path(manifest["tokenizer_file"]).name, longest_sequence(manifest))
        self._engine = engine_session(version_folder / Path(manifest["engine_file"]).name, threads(config))
        self._engine_inputs = {tensor.name for tensor in self._engine.get_inputs()}
        self._engine_output = self._engine.get_outputs()[0].name
        for batch in (1, manifest["max_batch_size"]):
            self._rows([WARM_UP_TEXT] * batch)

    def _rows(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        feed = {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
            "token_type_ids": np.array([encoding.type_ids for encoding in encodings], dtype=np.int64),
        }
        answer = self._engine.run([self._engine_output], {name: feed[name] for name in self._engine_inputs})[0]
        rows: np.ndarray[Any, Any] = np.asarray(answer, dtype=np.float32)
        return rows

    def _answer(self, texts: Sequence[str]) -> Any:
        """The response of one request alone, an error when the engine refuses it."""
        try:
            return self._response(self._rows(texts))
        except Exception as fault:
            return self._error(f"The engine failed on this request: {fault}")

    def _response(self, rows: np.ndarray[Any, Any]) -> Any:
        return pb_utils.InferenceResponse([pb_utils.Tensor(self._output, np.ascontiguousarray(rows))])

    def _error(self, sentence: str, *, client: bool = False) -> Any:
        """An error response; only a client's fault is told apart from an internal one (400, not 500)."""
        code = pb_utils.TritonError.INVALID_ARG if client else pb_utils.TritonError.INTERNAL
        return pb_utils.InferenceResponse([], pb_utils.TritonError(sentence, code))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order: all good requests share one run, a bad one fails alone."""
        responses: list[Any] = [None] * len(requests)
        good: list[tuple[int, list[str]]] = []
        for index, request in enumerate(requests):
            try:
                good.append((index, texts_of(request, self._input)))
            except ValueError as fault:
                responses[index] = self._error(str(fault), client=True)
        for index, response in self._together(good):
            responses[index] = response
        return responses

    def _together(self, good: Sequence[tuple[int, list[str]]]) -> list[tuple[int, Any]]:
        """One run for all; when it fails, one run each, so that only the guilty request fails."""
        if not good:
            return []
        try:
            rows = self._rows([text for _, texts in good for text in texts])
        except Exception:
            return [(index, self._answer(texts)) for index, texts in good]
        bounds = np.cumsum([0, *(len(texts) for _, texts in good)])
        spans = zip(good, bounds[:-1], bounds[1:], strict=True)
        return [(index, self._response(rows[start:stop])) for (index, _), start, stop in spans]
