"""What the outputs of an endpoint's stack tell its clients."""

from __future__ import annotations

import hashlib
from collections import Counter

from onboarding import names
from onboarding.deployment import Deployment


def endpoint_outputs(deployment: Deployment) -> dict[str, str]:
    """Outputs of an endpoint's stack beside its name: target models, and where its data lies."""
    environment, endpoint = deployment.environment, deployment.endpoint
    values: dict[str, str] = {}
    if deployment.multi_model:
        ids = target_model_ids([target.model.name for target in deployment.targets])
        for target in deployment.targets:
            values[ids[target.model.name]] = names.target_model(target.engine_key)
    prefixes = []
    if endpoint.asynchronous is not None:
        prefixes += [("Requests", names.requests_prefix), ("Answers", names.answers_prefix)]
    if endpoint.data_capture is not None:
        prefixes.append(("Captures", names.captures_prefix))
    bucket = names.artifact_bucket(environment)
    for noun, prefix in prefixes:
        values[f"{noun}Prefix"] = f"s3://{bucket}/{prefix(environment, deployment.name)}/"
    return values


def target_model_ids(models: list[str]) -> dict[str, str]:
    """The output of each target model: `TargetModelSentenceEmbedder`.

    Names that PascalCase cannot tell apart (`a-1` and `a1`) get six digits of their digest, each of
    them: whoever read the output that stood for one of them must not read the other's.
    """
    plain = {model: output_id(model) for model in models}
    count = Counter(plain.values())
    return {
        model: output
        if count[output] == 1
        else output + hashlib.sha256(model.encode()).hexdigest()[:6]
        for model, output in plain.items()
    }


def output_id(model: str) -> str:
    """Output name of a target model, such as `TargetModelSentenceEmbedder`."""
    return "TargetModel" + "".join(part[:1].upper() + part[1:] for part in model.split("-"))
