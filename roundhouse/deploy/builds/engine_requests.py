"""Engines that a build makes, and those that it could not make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from roundhouse.errors import BuildFailedError


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """One engine that must be built, and why."""

    deployment: Deployment
    target: Target
    why: str

    @property
    def engine_key(self) -> str:
        """Return the engine's key."""
        return self.target.engine_key


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One engine that was not built: the reason in a sentence, and where its log lies."""

    model: str
    engine_key: str
    reason: str
    log: str

    def as_dict(self) -> dict[str, str]:
        """Plain JSON, in the build machine's words."""
        return {
            "model": self.model,
            "engineKey": self.engine_key,
            "reason": self.reason,
            "log": self.log,
        }


class EnginesNotBuiltError(BuildFailedError):
    """Some engines were not built. The others are published and in their locks: `built`."""

    def __init__(self, built: Sequence[LockEntry], failures: Sequence[Failure]) -> None:
        super().__init__(_message(built, failures))
        self.built = tuple(built)
        self.failures = tuple(failures)


def outcome(built: Sequence[LockEntry], failures: Sequence[Failure]) -> dict[str, Any]:
    """Return both as plain JSON."""
    return {
        "built": [entry.model_dump(mode="json") for entry in built],
        "failed": [failure.as_dict() for failure in failures],
    }


def _message(built: Sequence[LockEntry], failures: Sequence[Failure]) -> str:
    reasons = [" ".join(failure.reason.split()).rstrip(".") for failure in failures]
    if len(failures) == 1:
        (only,) = failures
        others = f" {len(built)} engines beside it are built and in their locks." if built else ""
        return (
            f"{only.model}: {reasons[0]}. The lock and the endpoints are as they were.{others} "
            f"Log: {only.log}"
        )
    others = f" The other {len(built)} are built and in their locks." if built else ""
    head = (
        f"{len(failures)} of {len(built) + len(failures)} engines were not built; their "
        f"locks and endpoints are as they were.{others}"
    )
    pairs = zip(failures, reasons, strict=True)
    lines = (f"  {failure.model}: {reason}. Log: {failure.log}" for failure, reason in pairs)
    return "\n".join([head, *lines])
