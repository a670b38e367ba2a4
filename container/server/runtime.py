"""Engines behind one small protocol: load, run rows, warm up. ONNX Runtime on the CPU runs both kinds: of tokens, of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime
from tokenizers import Encoding, Tokenizer

from container.server.tensors import DATATYPES, TensorRow
from onboarding.manifest import Manifest, ProfileRecord, RuntimeIdentity, TensorRecord

Rows = np.ndarray[Any, Any]
COMPUTE_CAPABILITY = "cpu"


class Engine(Protocol):
    """What answers rows; called from one thread only."""

    def run(self, rows: Sequence[Any]) -> Any:
        """A sequence of one answer per row, in order."""
        ...

    def warm(self, batch: int, sequence: int | None) -> None:
        """Runs a batch of one size, of nothing in particular."""
        ...


def running_runtime() -> RuntimeIdentity:
    """The runtime of this process, as archives name it."""
    return RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__)


def longest_sequence(profiles: Sequence[ProfileRecord]) -> int | None:
    """Most tokens that a row may have; `None` when no profile has a sequence axis."""
    return max((profile.sequence[2] for profile in profiles if profile.sequence is not None), default=None)


def warm_up_sizes(manifest: Manifest) -> tuple[tuple[int, int | None], ...]:
    """(batch, sequence) of every profile's smallest, likeliest and largest sizes, each once; none when the spec wants none."""
    if not manifest.warm_up:
        return ()
    sizes: dict[tuple[int, int | None], None] = {}
    for profile in manifest.optimization_profiles:
        for place in range(3):
            batch = min(profile.batch[place], manifest.max_batch_size)
            sizes[(batch, None if profile.sequence is None else profile.sequence[place])] = None
    return tuple(sizes)


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

    def probe(self) -> list[Encoding]:
        """A row that every sound engine answers."""
        return self.encode(["warm up"])

    def cost(self, texts: Sequence[str]) -> int:
        """Characters to tokenize."""
        return sum(map(len, texts))


class TensorEncoder:
    """Rows of tensors as they came."""

    def __init__(self, records: Sequence[TensorRecord]) -> None:
        self._records = tuple(records)

    def encode(self, rows: Sequence[TensorRow]) -> Sequence[TensorRow]:
        """The rows themselves."""
        return rows

    def probe(self) -> list[TensorRow]:
        """A row of zeros, of the smallest shape."""
        return [tuple(array[0] for array in zeros(self._records, 1, None))]

    def cost(self, rows: Sequence[TensorRow]) -> int:
        """Nothing is left to do."""
        return 0


class OnnxEngine:
    """An ONNX network of tokens in ONNX Runtime on the CPU; answers float32 rows."""

    def __init__(self, path: Path, *, threads: int) -> None:
        self._session = session(path, threads)
        self._types = {
            tensor.name: np.int32 if tensor.type == "tensor(int32)" else np.int64 for tensor in self._session.get_inputs()
        }
        self._output = self._session.get_outputs()[0].name

    def run(self, rows: Sequence[Encoding]) -> Rows:
        """Pads the rows to the longest of them and runs them as one batch."""
        return self._answers(padded(rows))

    def warm(self, batch: int, sequence: int | None) -> None:
        """Unmasked tokens 0."""
        ones: Rows = np.ones((batch, 1 if sequence is None else sequence), dtype=np.int64)
        self._answers({"input_ids": ones * 0, "attention_mask": ones, "token_type_ids": ones * 0})

    def _answers(self, feed: dict[str, Rows]) -> Rows:
        given: dict[str, Rows] = {name: feed[name].astype(dtype, copy=False) for name, dtype in self._types.items()}
        answer: Rows = np.ascontiguousarray(self._session.run([self._output], given)[0], dtype=np.float32)
        return answer


class TensorEngine:
    """An ONNX network of tensors in ONNX Runtime on the CPU; answers each row with one array per output."""

    def __init__(self, path: Path, *, threads: int, inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord]) -> None:
        self._session = session(path, threads)
        self._records = tuple(inputs)
        self._ranks = {tensor.name: len(tensor.shape) for tensor in self._session.get_inputs()}
        self._outputs = [record.name for record in outputs]
        self._answer_ranks = [len(record.shape) for record in outputs]

    def run(self, rows: Sequence[TensorRow]) -> list[TensorRow]:
        """Rows of one shape as one batch."""
        return self._answers([np.stack(column) for column in zip(*rows, strict=True)])

    def warm(self, batch: int, sequence: int | None) -> None:
        """Zeros; an axis of unknown size has one place."""
        self._answers(zeros(self._records, batch, sequence))

    def _answers(self, arrays: Sequence[Rows]) -> list[TensorRow]:
        count = len(arrays[0])
        feed = {record.name: self._fitted(record.name, array) for record, array in zip(self._records, arrays, strict=True)}
        answers = self._session.run(self._outputs, feed)
        for name, answer in zip(self._outputs, answers, strict=True):
            if not answer.ndim or len(answer) != count:
                raise RuntimeError(f"output {name!r} has shape {list(answer.shape)} for {count} rows")
        ranked = zip(answers, self._answer_ranks, strict=True)
        return list(zip(*(answer[:, None] if answer.ndim < rank else answer for answer, rank in ranked), strict=True))

    def _fitted(self, name: str, array: Rows) -> Rows:
        """One value a row comes as [rows, 1], for servers know no tensor of the batch axis alone."""
        return array.reshape(-1) if self._ranks[name] == 1 else array


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """A network, loaded on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def zeros(records: Sequence[TensorRecord], batch: int, sequence: int | None) -> list[Rows]:
    """A batch of zeros per input: a dynamic second axis has the sequence's size, any other one place."""
    known = 1 if sequence is None else sequence
    shapes = [
        tuple(size if size != -1 else (known if axis == 0 else 1) for axis, size in enumerate(record.shape[1:]))
        for record in records
    ]
    return [np.zeros((batch, *shape), DATATYPES[record.datatype]) for record, shape in zip(records, shapes, strict=True)]


def joined(answers: Sequence[TensorRow]) -> tuple[Rows, ...]:
    """One array per output, rows on axis 0. Raises ValueError when the rows' shapes differ."""
    return tuple(np.stack(column) for column in zip(*answers, strict=True))


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
