"""The manifest of a Triton repository of the user's own."""

from __future__ import annotations

from typing import Any

from onboarding.triton_repository import CONFIGURATION, RepositoryModel
from onboarding.values import NOT_MEASURED


def repository_fields(model: RepositoryModel) -> dict[str, Any]:
    """Return the fields of a manifest that follow from the model that clients ask.

    Nothing was compiled, compared or timed.
    """
    return {
        "model": model.name,
        "task": "tensors",
        "inputs": model.tensors("input"),
        "outputs": model.tensors("output"),
        "optimization_profiles": (),
        "max_batch_size": max(1, model.max_batch_size),
        "warm_up": False,
        "network_keys": {},
        "requested_precision": "auto",
        "precision": "as given",
        "decision": "a Triton repository of the user's own, served as it is; accuracy: "
        f"{NOT_MEASURED}",
        "engine_file": f"{model.name}/{CONFIGURATION}",
        "accuracy": NOT_MEASURED,
        "compile_checks": (),
        "benchmark": (),
        "load_seconds": 0.0,
        "host_memory_mib": 0.0,
    }
