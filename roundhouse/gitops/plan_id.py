"""The id of a plan, over what a deployment depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.prices import PriceList, price_list
from onboarding.text_generation.generation_deployment import GenerationDeployment

DIGITS = 12


def plan_id(
    digests: Mapping[str, tuple[str, str]], missing: Sequence[str], inputs: Mapping[str, str]
) -> str:
    """Return the id of a plan: twelve hex digits over the content that a deployment depends on.

    `digests` holds the template before and after of every stack that changes, `inputs` those of
    `plan_inputs`.
    """
    stacks = {key: list(pair) for key, pair in digests.items()}
    return _digest({"stacks": stacks, "missing": sorted(missing), "inputs": dict(inputs)})


def plan_inputs(
    environment: EnvironmentSpec,
    of: Iterable[Deployment],
    generators: Iterable[GenerationDeployment] = (),
    prices: PriceList | None = None,
) -> dict[str, str]:
    """Return the digest of the environment's file, its region's prices and each lock entry.

    `prices`: the shipped ones by default.
    """
    region = (prices or price_list()).regions.get(environment.region)
    inputs = {
        f"environment {environment.name}": _digest(environment.model_dump(mode="json")),
        f"prices of {environment.region}": _digest(
            None if region is None else region.model_dump(mode="json")
        ),
    }
    for deployment in of:
        for target in deployment.targets:
            entry = target.lock_entry
            if entry is not None:
                name = f"lock of {target.model.name}, engine {target.engine_key}"
                inputs[name] = _digest(entry.model_dump(mode="json"))
    for generator in generators:
        for locked in generator.built:
            name = f"lock of {generator.name}, checkpoint {locked.checkpoint_key}"
            inputs[name] = _digest(locked.model_dump(mode="json"))
    return dict(sorted(inputs.items()))


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
