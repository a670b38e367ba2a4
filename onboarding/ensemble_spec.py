"""The spec of an ensemble: a model file that puts several models of the repository in one archive.

Triton passes tensors from one to the next (`steps`), or a user's Python file calls them (`bls`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from onboarding.model_spec import EngineSpec, ModelSpec, OptimizationProfileSpec
from onboarding.processing_spec import ClientTensorSpec, ProcessedTensorSpec, ProcessingSpec
from onboarding.source_spec import SourceSpec
from onboarding.values import Value

TASK: Literal["ensemble"] = "ensemble"
OF_STEPS = frozenset(("source", "engine"))
"""Sections of a model file that an ensemble has not: its steps have them."""
Tensor = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./:-]{1,128}$")]


class StepSpec(Value):
    """One model of an ensemble, and the tensors that pass through it."""

    model: str = Field(description="A model file of this repository, by its name")
    inputs: dict[str, Tensor] = Field(
        default_factory=dict,
        description="The ensemble's tensor for each input of the model; default: of the same name",
    )
    outputs: dict[str, Tensor] = Field(
        default_factory=dict,
        description="The ensemble's tensor for each output of the model; default: of the same name",
    )


class BlsSpec(ProcessingSpec):
    """The file's `execute(inputs, call)` answers; `call(model, inputs)` is a model's answer."""

    models: tuple[str, ...] = Field(
        min_length=1, max_length=16, description="Model files that it may call, by their names"
    )
    inputs: tuple[ClientTensorSpec, ...] = Field(
        min_length=1, max_length=32, description="What clients send"
    )
    outputs: tuple[ProcessedTensorSpec, ...] = Field(
        min_length=1, max_length=32, description="What clients get"
    )


class EnsembleSpec(ModelSpec):
    """One model file with `task: ensemble`; either `steps` with `outputs`, or `bls`."""

    source: SourceSpec = Field(SourceSpec(), description="Of a model that is no ensemble")
    engine: EngineSpec = Field(
        EngineSpec(optimization_profiles=(OptimizationProfileSpec(batch=(1, 1, 1)),)),
        description="Of a model that is no ensemble",
    )
    steps: tuple[StepSpec, ...] = Field(
        (), max_length=16, description="The models, between which Triton passes tensors"
    )
    outputs: tuple[Tensor, ...] = Field(
        (), max_length=32, description="The tensors of `steps` that clients get"
    )
    example: dict[str, JsonValue] | None = Field(
        None,
        description="One row of each input of `steps`, which health requests send; default: zeros, "
        "one word, or an image of one pixel",
    )
    bls: BlsSpec | None = Field(
        None, description="Code of your own that calls the models, in the place of `steps`"
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the archive by name, each once."""
        called = () if self.bls is None else self.bls.models
        return tuple(dict.fromkeys((*(step.model for step in self.steps), *called)))

    @property
    def examples(self) -> dict[str, JsonValue] | None:
        """One row by input; None where some input of `bls` has none, or the file gives none."""
        if self.bls is None:
            return self.example
        row = {tensor.name: tensor.example for tensor in self.bls.inputs}
        return None if None in row.values() else row
