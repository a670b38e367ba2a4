"""An engine as clients see it: the one place that says what each task takes and answers."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.manifest import ProfileRecord, Prompts, TensorRecord
from onboarding.model_spec import ServingSpec
from onboarding.values import Task

TEXT = TensorRecord(name="text", datatype="BYTES", shape=(-1, 1))
ANSWERS: dict[Task, str] = {"text-embedding": "embedding", "text-classification": "logits"}
"""The one output of a text task, as clients name it."""


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

    @property
    def is_text(self) -> bool:
        """True when clients send texts."""
        return self.task in ANSWERS

    @property
    def client_inputs(self) -> tuple[TensorRecord, ...]:
        """What a client sends."""
        return (TEXT,) if self.is_text else tuple(map(client_record, self.inputs))

    @property
    def client_outputs(self) -> tuple[TensorRecord, ...]:
        """What a client gets; a text task answers with the network's first output."""
        if self.is_text:
            return (
                self.outputs[0].model_copy(update={"name": ANSWERS[self.task], "datatype": "FP32"}),
            )
        return tuple(map(client_record, self.outputs))


def member(model: str, part: str) -> str:
    """The folder of an ensemble's member; no model's name holds an underscore."""
    return f"{model}_{part}"


def client_record(record: TensorRecord) -> TensorRecord:
    """Triton knows no tensor of the batch axis alone, so one value a row is a second axis of 1."""
    return record if len(record.shape) > 1 else record.model_copy(update={"shape": (-1, 1)})
