"""An engine as clients see it: the one place that says what each task takes and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.chain import client_record
from onboarding.manifest import (
    ImageProcessor,
    ProcessingRecord,
    ProfileRecord,
    Prompts,
    TensorRecord,
)
from onboarding.serving_spec import ProcessedTensorSpec, ServingSpec
from onboarding.values import IMAGES, TEXT_TASKS, Activation, Task

TEXT = TensorRecord(name="text", datatype="BYTES", shape=(-1, 1))
IMAGE = TensorRecord(name="image", datatype="BYTES", shape=(-1, 1))
QUERY = TensorRecord(name="query", datatype="BYTES", shape=(-1, 1))
ANSWERS: dict[Task, str] = {"text-embedding": "embedding", "text-classification": "logits"}
"""The output of a text task without a head, as clients name it."""
LOGITS = "logits"
NETWORK_LOGITS = "network_logits"
SPANS = TensorRecord(name="spans", datatype="INT32", shape=(-1, -1, 2))
"""What the members of an ensemble pass to its head: the plan's answer, and where each token lies.

`container/triton` knows both by these names. The first is no output of the ensemble: Triton drops
outputs that no client asks for, and the head would wait for it.
"""


@dataclass(frozen=True, kw_only=True)
class Served:
    """An engine as it is served: `inputs` and `outputs` are the network's own."""

    model: str
    task: Task
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    profiles: tuple[ProfileRecord, ...]
    max_batch_size: int
    serving: ServingSpec
    prompts: Prompts | None = None
    activation: Activation | None = None
    """What makes scores of the logits; None without a head."""
    image_processor: ImageProcessor | None = None

    @property
    def is_text(self) -> bool:
        """True when clients send texts."""
        return self.task in TEXT_TASKS

    @property
    def encoder(self) -> str | None:
        """What stands before the network: a tokenizer, a processor of images, or nothing."""
        if self.task == IMAGES:
            return "processor"
        return "tokenizer" if self.is_text else None

    @property
    def has_head(self) -> bool:
        """True when labels and scores are made of the network's logits."""
        return self.activation is not None

    @property
    def is_processed(self) -> bool:
        """True when a user's code stands before or behind the model."""
        return self.serving.preprocessing is not None or self.serving.postprocessing is not None

    @property
    def client_inputs(self) -> tuple[TensorRecord, ...]:
        """What a client sends."""
        before = self.serving.preprocessing
        if before is None:
            return self.model_inputs
        return declared_or(before.inputs, self._unbounded_inputs)

    @property
    def client_outputs(self) -> tuple[TensorRecord, ...]:
        """What a client gets."""
        after = self.serving.postprocessing
        return (
            self.model_outputs if after is None else declared_or(after.outputs, self.model_outputs)
        )

    @property
    def preprocessing(self) -> ProcessingRecord | None:
        """The user's code before the model."""
        spec = self.serving.preprocessing
        if spec is None:
            return None
        return ProcessingRecord(
            file=processing_file(self.model, "preprocessing"),
            inputs=self.client_inputs,
            outputs=self._unbounded_inputs,
            timeout_ms=spec.timeout_ms,
            example=spec.example,
        )

    @property
    def postprocessing(self) -> ProcessingRecord | None:
        """The user's code behind the model."""
        spec = self.serving.postprocessing
        if spec is None:
            return None
        return ProcessingRecord(
            file=processing_file(self.model, "postprocessing"),
            inputs=self.model_outputs,
            outputs=self.client_outputs,
            timeout_ms=spec.timeout_ms,
        )

    @property
    def model_inputs(self) -> tuple[TensorRecord, ...]:
        """What the model takes, of a client or of the preprocessing."""
        if self.task == IMAGES:
            return (IMAGE,)
        if not self.is_text:
            return tuple(map(client_record, self.inputs))
        return (QUERY, TEXT) if self.task == "text-ranking" else (TEXT,)

    @property
    def _unbounded_inputs(self) -> tuple[TensorRecord, ...]:
        """The model's inputs without their tables: nobody knows what the code makes of values."""
        return tuple(record.model_copy(update={"table_rows": None}) for record in self.model_inputs)

    @property
    def model_outputs(self) -> tuple[TensorRecord, ...]:
        """What the model answers; behind an encoder the network's first output is the answer."""
        if self.encoder is None:
            return tuple(map(client_record, self.outputs))
        if self.has_head:
            return head_outputs(self.task, self.outputs[0])
        return (
            self.outputs[0].model_copy(update={"name": ANSWERS[self.task], "datatype": "FP32"}),
        )


def head_outputs(task: Task, logits: TensorRecord) -> tuple[TensorRecord, ...]:
    """Return what a head answers of a network's logits, [rows, labels] or [rows, tokens, labels].

    A classifier's labels are in the order of its scores, the highest first.
    """
    scores = logits.model_copy(update={"name": "scores", "datatype": "FP32"})
    if task == "text-ranking":
        return (scores,)
    if task == "token-classification":
        return (
            TensorRecord(name="labels", datatype="BYTES", shape=(-1, -1)),
            TensorRecord(name="scores", datatype="FP32", shape=(-1, -1)),
            TensorRecord(name="offsets", datatype="INT64", shape=(-1, -1, 2)),
        )
    labels = logits.model_copy(update={"name": "labels", "datatype": "BYTES"})
    return (logits.model_copy(update={"name": LOGITS, "datatype": "FP32"}), labels, scores)


def declared_or(
    tensors: Sequence[ProcessedTensorSpec], default: tuple[TensorRecord, ...]
) -> tuple[TensorRecord, ...]:
    """Return the tensors that a model file declares, with the batch's axis; or the default."""
    declared = (
        TensorRecord(name=tensor.name, datatype=tensor.datatype, shape=(-1, *tensor.dims))
        for tensor in tensors
    )
    return tuple(declared) or default


def processing_file(model: str, part: str) -> str:
    """The archive path of a user's file."""
    return f"{member(model, part)}/1/user_code.py"


def member(model: str, part: str) -> str:
    """The folder of an ensemble's member; no model's name holds an underscore."""
    return f"{model}_{part}"
