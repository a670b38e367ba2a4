"""The spec of an ensemble: a model file that puts several models of the repository in one archive.

Triton passes the tensors of one (`steps`) to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from onboarding.keys import RECIPE_VERSION, digest
from onboarding.model_spec import EngineSpec, ModelSpec, OptimizationProfileSpec
from onboarding.source_spec import SourceSpec
from onboarding.values import Value

TASK: Literal["ensemble"] = "ensemble"
OF_STEPS = frozenset(("source", "engine"))
"""Sections of a model file that an ensemble has not: its steps have them."""
Tensor = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./:-]{1,128}$")]


class StepSpec(Value):
    """One model of an ensemble."""

    model: str = Field(description="A model file of this repository, by its name")


class EnsembleSpec(ModelSpec):
    """One model file with `task: ensemble`."""

    source: SourceSpec = Field(SourceSpec(), description="Of a model that is no ensemble")
    engine: EngineSpec = Field(
        EngineSpec(optimization_profiles=(OptimizationProfileSpec(batch=(1, 1, 1)),)),
        description="Of a model that is no ensemble",
    )
    steps: tuple[StepSpec, ...] = Field(
        (),
        max_length=16,
        description="The models in order; each takes what the one before answers, by name, or else "
        "in order",
    )
    outputs: tuple[Tensor, ...] = Field(
        (), max_length=32, description="The tensors of the last model that clients get"
    )
    example: dict[str, JsonValue] | None = Field(
        None,
        description="One row of each input of the first model, which health requests send; "
        "default: zeros, one word, or an image of one pixel",
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the archive by name, each once."""
        return tuple(dict.fromkeys(step.model for step in self.steps))


_UNMAPPED: dict[str, dict[str, str]] = {"inputs": {}, "outputs": {}}
"""Stands in every key of a chain, as the absent code does: keys of before stay as they are."""


def ensemble_key(
    spec: EnsembleSpec, step_keys: Mapping[str, str], dataset_digests: Mapping[str, str]
) -> str:
    """Return the key of an ensemble whose steps have these engine keys in an environment.

    Those hold runtime, compute capability and GPU. Endpoint, scaling and rollout change nothing.
    """
    inputs = {
        "recipe": RECIPE_VERSION,
        "name": spec.name,
        "engines": dict(step_keys),
        "steps": [{"model": step.model, **_UNMAPPED} for step in spec.steps],
        "outputs": list(spec.outputs),
        "example": spec.example,
        "bls": None,
        "accuracy": {
            **spec.accuracy.model_dump(mode="json", exclude={"dataset"}),
            "dataset": dataset_digests[spec.accuracy.dataset],
        },
        "max_batch_size": spec.serving.dynamic_batching.max_batch_size,
        "instances": spec.serving.instances_per_gpu,
    }
    return digest(inputs)
