"""What an endpoint's stack tells: its name, and where its requests and answers lie."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment


def endpoint_outputs(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The `Outputs` of an endpoint's template."""
    environment = deployment.environment
    values: dict[str, Any] = {"EndpointName": {"Fn::GetAtt": ["Endpoint", "EndpointName"]}}
    if deployment.multi_model:
        ids = target_model_ids([target.model.name for target in deployment.targets])
        values |= {
            ids[target.model.name]: names.target_model(target.engine_key)
            for target in deployment.targets
        }
    if deployment.endpoint.asynchronous is not None:
        values["RequestsPrefix"] = _uri(
            deployment, names.requests_prefix(environment, deployment.name)
        )
        values["AnswersPrefix"] = _uri(
            deployment, names.answers_prefix(environment, deployment.name)
        )
    if deployment.endpoint.data_capture is not None:
        values["CapturesPrefix"] = _uri(
            deployment, names.captures_prefix(environment, deployment.name)
        )
    return {output: {"Value": value} for output, value in values.items()}


def target_model_ids(models: list[str]) -> dict[str, str]:
    """The output of each target model: `TargetModelSentenceEmbedder`.

    Names that PascalCase cannot tell apart (`a-1` and `a1`) get six digits of their digest, each of
    them: whoever read the
    output that stood for one of them must not read the other's.
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
    """The output of a target model whose name is unlike every other's:
    `TargetModelSentenceEmbedder`.
    """
    return "TargetModel" + "".join(part[:1].upper() + part[1:] for part in model.split("-"))


def _uri(deployment: Deployment, prefix: str) -> str:
    return f"s3://{names.artifact_bucket(deployment.environment)}/{prefix}/"
