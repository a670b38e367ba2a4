"""Asks an endpoint for the vectors of some texts, or with arrays, as any client of SageMaker would:
container/client.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onboarding.deployment import Deployment, Target
from onboarding.names import endpoint_name, target_model
from roundhouse.aws.clients import Client
from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.text import choices

if TYPE_CHECKING:
    # The client brings numpy, which commands that ask nothing need not load.
    from container.client import EndpointClient
    from container.wire import Array

Vector = tuple[float, ...]
Scores = tuple[tuple[str, float], ...]
"""Class names with probabilities, the likeliest first."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """What `invoke_endpoint` is told: an endpoint, and behind a multi-model one its target model."""

    endpoint: str
    target_model: str | None


def address(
    deployments: Sequence[Deployment], endpoint: str, model: str | None
) -> tuple[Address, Target]:
    """The address of a model at an endpoint, named as in its file or as in SageMaker.

    Raises RoundhouseError.
    """
    deployment = _deployment(deployments, endpoint)
    name = endpoint_name(deployment.environment, deployment.name)
    target = _target(deployment, model)
    return Address(
        endpoint=name,
        target_model=target_model(target.engine_key) if deployment.multi_model else None,
    ), target


def ask(runtime: Client, to: Address, texts: Sequence[str]) -> tuple[Vector, ...]:
    """One vector per text.

    Raises NotReadyError when SageMaker refuses, WrongAnswerError when the answer is no embedding.
    """
    with _asked(to):
        rows = _client(runtime, to, binary=False).embed(texts)
        return tuple(tuple(row) for row in rows.tolist())


def ask_arrays(runtime: Client, to: Address, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """An array per output for an array per input.

    Raises NotReadyError when SageMaker refuses, WrongAnswerError as `ask` does.
    """
    with _asked(to):
        return _client(runtime, to, binary=True).ask(arrays)


def _client(runtime: Client, to: Address, *, binary: bool) -> EndpointClient:
    from container.client import EndpointClient

    return EndpointClient(
        runtime=runtime, endpoint=to.endpoint, target_model=to.target_model, binary=binary
    )


@contextmanager
def _asked(to: Address) -> Iterator[None]:
    """Turns the client's faults into this command's."""
    from container.client import AnswerFault, EndpointFault
    from container.wire import InputFault
    from roundhouse.aws.clients import calling

    try:
        yield
    except AnswerFault as fault:
        raise WrongAnswerError(str(fault)) from fault
    except InputFault as fault:
        raise RoundhouseError(str(fault)) from fault
    except EndpointFault as fault:
        with calling(f"Endpoint {to.endpoint}"):
            _raise_botocores(fault)
        raise NotReadyError(f"{str(fault).rstrip('.')}{_way_out(fault)}.") from fault


def _raise_botocores(fault: Exception) -> None:
    """botocore's own errors, such as missing credentials, are said as everywhere else; a refusal
    keeps the server's words.
    """
    if fault.__cause__ is not None and not _refusal(fault):
        raise fault.__cause__


def _way_out(fault: Exception) -> str:
    """What to do about AWS's own refusals, which do not say it; the servers' do."""
    refusal = _refusal(fault)
    code, words = refusal.get("Error", {}).get("Code"), str(refusal.get("Error", {}).get("Message"))
    if code == "ValidationError" and "not found" in words:
        return "; `roundhouse deploy` deploys what is not there"
    if refusal.get("ResponseMetadata", {}).get("HTTPStatusCode") == 413:
        return "; send less at once"
    if code == "ThrottlingException":
        return "; try again later"
    return ""


def _refusal(fault: Exception) -> Mapping[str, Any]:
    """What AWS answered, as botocore's ClientError has it; empty where there was no answer."""
    response = getattr(fault.__cause__, "response", None)
    return response if isinstance(response, Mapping) else {}


def require_inputs(target: Target, texts: Sequence[str], file: Path | None) -> None:
    """Refuses texts for a model of arrays, arrays for a model of texts, neither, and texts of
    nothing. Raises RoundhouseError.
    """
    name = target.model.name
    if target.model.task == "tensors":
        if texts or file is None:
            raise RoundhouseError(
                f"{name}: takes arrays; give --input FILE.npz (an array per input, rows on axis 0) and no texts."
            )
    elif file is not None or not texts:
        raise RoundhouseError(f"{name}: takes texts; give them as arguments, and no --input.")
    for place, text in enumerate(texts, 1):
        if not text.strip():
            raise RoundhouseError(f"{name}: text {place} is empty; give words, or leave it out.")


def output_name(target: Target) -> str:
    """The one output of a model of texts, as its manifest names it."""
    outputs = () if target.lock_entry is None else target.lock_entry.manifest.outputs
    return outputs[0].name if outputs else "rows"


def classes(target: Target, logits: Sequence[Vector]) -> tuple[Scores, ...]:
    """The classes of each row of logits; without a lock entry that names them they are numbered."""
    names = None if target.lock_entry is None else target.lock_entry.manifest.labels
    return tuple(_scores(names, row) for row in logits)


def _scores(names: Sequence[str] | None, row: Vector) -> Scores:
    known = tuple(map(str, range(len(row)))) if names is None or len(names) != len(row) else names
    powers = [math.exp(value - max(row)) for value in row]
    pairs = zip(known, (power / sum(powers) for power in powers), strict=True)
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine of the angle between two vectors; 0 when one has no length."""
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths > 0 else 0.0


def _deployment(deployments: Sequence[Deployment], endpoint: str) -> Deployment:
    for deployment in deployments:
        if endpoint in (deployment.name, endpoint_name(deployment.environment, deployment.name)):
            return deployment
    known = [deployment.name for deployment in deployments]
    raise RoundhouseError(
        f"{endpoint!r}: no such endpoint in this environment; {choices(endpoint, known)}"
    )


def _target(deployment: Deployment, model: str | None) -> Target:
    if model is None and len(deployment.targets) == 1:
        return deployment.targets[0]
    for target in deployment.targets:
        if target.model.name == model:
            return target
    known = [target.model.name for target in deployment.targets]
    if model is None:
        raise RoundhouseError(
            f"{deployment.name}: is shared by several models; name one with --model; {choices(None, known)}"
        )
    raise RoundhouseError(
        f"--model {model}: endpoint {deployment.name} does not serve it; {choices(model, known)}"
    )
