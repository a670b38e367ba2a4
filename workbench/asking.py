"""Asks an endpoint for the vectors of some texts, as any client of SageMaker would: boto3 and the KServe v2 protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.names import endpoint_name, target_model
from workbench.aws import Client, calling
from workbench.errors import AnswerWrong, RoundhouseError

Vector = tuple[float, ...]
Scores = tuple[tuple[str, float], ...]
"""Class names with probabilities, the likeliest first."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """What `invoke_endpoint` is told: an endpoint, and behind a multi-model one its target model."""

    endpoint: str
    target_model: str | None


def address(deployments: Sequence[Deployment], endpoint: str, model: str | None) -> tuple[Address, Target]:
    """The address of a model at an endpoint, named as in its file or as in SageMaker. Raises RoundhouseError."""
    deployment = _deployment(deployments, endpoint)
    name = endpoint_name(deployment.environment, deployment.name)
    target = _target(deployment, model)
    return Address(endpoint=name, target_model=target_model(target.engine_key) if deployment.multi_model else None), target


def ask(runtime: Client, to: Address, texts: Sequence[str]) -> tuple[Vector, ...]:
    """One vector per text. Raises DeskError when SageMaker refuses, AnswerWrong when the answer is no embedding."""
    extra = {} if to.target_model is None else {"TargetModel": to.target_model}
    with calling(f"Endpoint {to.endpoint}"):
        answer = runtime.invoke_endpoint(
            EndpointName=to.endpoint, ContentType="application/json", Body=request_body(texts), **extra
        )
        body = answer["Body"].read()
    return vectors(body, len(texts), to.endpoint)


def require_texts(target: Target) -> None:
    """Refuses a model that takes no texts. Raises RoundhouseError."""
    if target.model.task == "tensors":
        raise RoundhouseError(
            f"{target.model.name}: takes arrays, which a command line cannot give; ask it with boto3, in the KServe v2 protocol."
        )


def classes(target: Target, logits: Sequence[Vector]) -> tuple[Scores, ...]:
    """The classes of each row of logits; without a lock entry that names them they are numbered."""
    names = None if target.lock_entry is None else target.lock_entry.manifest.labels
    return tuple(_scores(names, row) for row in logits)


def _scores(names: Sequence[str] | None, row: Vector) -> Scores:
    known = tuple(map(str, range(len(row)))) if names is None or len(names) != len(row) else names
    powers = [math.exp(value - max(row)) for value in row]
    pairs = zip(known, (power / sum(powers) for power in powers), strict=True)
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def request_body(texts: Sequence[str]) -> bytes:
    """A KServe v2 request with one BYTES tensor, a row per text."""
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts), 1], "data": list(texts)}
    return json.dumps({"inputs": [tensor]}, ensure_ascii=False).encode()


def vectors(body: bytes, rows: int, endpoint: str) -> tuple[Vector, ...]:
    """Reads a KServe v2 answer with one FP32 matrix."""
    try:
        output: dict[str, Any] = json.loads(body)["outputs"][0]
        height, width = (int(size) for size in output["shape"])
        data = [float(number) for number in output["data"]]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise AnswerWrong(f"Endpoint {endpoint}: its answer is no KServe v2 matrix: {body[:120]!r}.") from error
    if height != rows or len(data) != height * width:
        raise AnswerWrong(f"Endpoint {endpoint}: {rows} texts went in, {height} x {width} of {len(data)} numbers came out.")
    return tuple(tuple(data[row * width : (row + 1) * width]) for row in range(height))


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine of the angle between two vectors; 0 when one has no length."""
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths > 0 else 0.0


def _deployment(deployments: Sequence[Deployment], endpoint: str) -> Deployment:
    for deployment in deployments:
        if endpoint in (deployment.name, endpoint_name(deployment.environment, deployment.name)):
            return deployment
    known = ", ".join(deployment.name for deployment in deployments)
    raise RoundhouseError(f"{endpoint}: no such endpoint in this environment; allowed: {known}.")


def _target(deployment: Deployment, model: str | None) -> Target:
    if model is None and len(deployment.targets) == 1:
        return deployment.targets[0]
    for target in deployment.targets:
        if target.model.name == model:
            return target
    known = ", ".join(target.model.name for target in deployment.targets)
    if model is None:
        raise RoundhouseError(f"{deployment.name}: is shared by several models; name one with --model: {known}.")
    raise RoundhouseError(f"--model {model}: endpoint {deployment.name} does not serve it; allowed: {known}.")
