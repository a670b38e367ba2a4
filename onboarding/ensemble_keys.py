"""The key of an ensemble's archive: its steps' engines, how they are put together, its judging."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from onboarding.ensemble_spec import EnsembleSpec
from onboarding.keys import KEY_LENGTH, RECIPE_VERSION

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
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
