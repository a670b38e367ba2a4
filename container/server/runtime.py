"""Engines behind one small protocol: load, run rows, tell what warms them. ONNX Runtime on the CPU is the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime
from tokenizers import Encoding, Tokenizer

from onboarding.manifest import ProfileRecord, RuntimeIdentity

Rows = np.ndarray[Any, Any]
COMPUTE_CAPABILITY = "cpu"


class Engine(Protocol):
    """What answers rows of tokens; called from one thread only."""

    def run(self, rows: Sequence[Encoding]) -> Rows:
        """One float32 row per row of tokens, in order."""
        ...


def running_runtime() -> RuntimeIdentity:
    """The runtime of this process, as archives name it."""
    return RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__)


class TextEncoder:
    """The packaged tokenizer without its padding, cutting texts at the longest sequence that the engine takes."""

    def __init__(self, path: Path, *, max_tokens: int | None) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        if max_tokens is not None:
            self._tokenizer.enable_truncation(max_length=max_tokens)

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """One row of tokens per text; releases the interpreter while it works."""
        encodings: list[Encoding] = self._tokenizer.encode_batch_fast(list(texts))
        return encodings


def longest_sequence(profiles: Sequence[ProfileRecord]) -> int | None:
    """Most tokens that a row may have; `None` when no profile has a sequence axis."""
    return max((profile.sequence[2] for profile in profiles if profile.sequence is not None), default=None)


class OnnxEngine:
    """An ONNX network in ONNX Runtime on the CPU."""

    def __init__(self, path: Path, *, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = tuple(tensor.name for tensor in self._session.get_inputs())
        self._output = self._session.get_outputs()[0].name

    def run(self, rows: Sequence[Encoding]) -> Rows:
        """Pads the rows to the longest of them and runs them as one batch."""
        feed = padded(rows)
        answer = self._session.run([self._output], {name: feed[name] for name in self._inputs})[0]
        rows_out: Rows = np.ascontiguousarray(answer, dtype=np.float32)
        return rows_out


def padded(rows: Sequence[Encoding]) -> dict[str, Rows]:
    """The network's inputs, int64 [rows, longest]; a masked token's id is 0, which no mask lets through."""
    shape = (len(rows), max([1, *map(len, rows)]))
    feed: dict[str, Rows] = {name: np.zeros(shape, dtype=np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for index, row in enumerate(rows):
        length = len(row)
        feed["input_ids"][index, :length] = row.ids
        feed["attention_mask"][index, :length] = 1
        feed["token_type_ids"][index, :length] = row.type_ids
    return feed
