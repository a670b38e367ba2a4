"""The plan of a change as data: what `roundhouse plan --format json` prints and `deploy` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from onboarding.manifest import AccuracyRecord, BenchmarkRecord
from onboarding.text_generation.plan import TextGenerationPlan
from onboarding.values import ServedPrecision, Value
from roundhouse.errors import RoundhouseError

ResourceClass = Literal["added", "removed", "in-place", "new-version", "replaced", "outage"]
"""new-version: a model or endpoint config named after its content, made beside the old one, which
goes once the rollout ends. outage: the endpoint itself is renamed, replaced or removed.
"""
EndpointKind = Literal["new", "changed", "gone"]
MOST_BYTES = 64 * 2**20
"""A plan of 500 changed endpoints has less than 10 MiB."""
DIGITS = 12


class PropertyChange(Value):
    """One property of a resource; None: it is not there."""

    path: str
    before: Any = None
    after: Any = None


class ResourceChange(Value):
    """One resource of a stack that changes."""

    id: str
    type: str
    change: ResourceClass
    properties: tuple[PropertyChange, ...] = ()


class PermissionChange(Value):
    """Grants of a stack's policies, one line each."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class RolloutPlan(Value):
    """How an endpoint takes the change.

    `minutes` are the waits alone: instances come on top. `updates`: how often the stack is updated.
    """

    kind: str
    step_percents: tuple[float, ...]
    minutes: float
    extra_instances: int
    updates: int = 1


class MonthlyCost(Value):
    """USD a month of an endpoint's instances; None where a price is not known."""

    least: float | None
    most: float | None


class CostChange(Value):
    """What an endpoint costs before and after; None: it is not there."""

    before: MonthlyCost | None
    after: MonthlyCost | None
    per_million_before: float | None = None
    per_million_after: float | None = None
    """USD of a million requests at the measured capacity of one instance."""
    unknown: tuple[str, ...] = ()
    """Instance types without a price in the region."""


class EngineEvidence(Value):
    """What a lock says of an engine."""

    key: str
    precision: ServedPrecision
    decision: str
    accuracy: tuple[AccuracyRecord, ...]
    benchmark: tuple[BenchmarkRecord, ...]
    size_bytes: int
    measured_capacity: bool


class EnginePrediction(Value):
    """The time of a batch of an engine that is not built; `by`: the measured engine it follows.

    `usd_a_million_rows`: at the rate of the engine alone, so the least; None: no known price.
    """

    precision: str
    shape: str
    p50_ms: float
    usd_a_million_rows: float | None
    by: str


class EngineChange(Value):
    """One engine that an environment needs after the change and did not need before."""

    model: str
    key: str
    instance_type: str
    compute_capability: str
    gpu: str | None
    state: Literal["locked", "missing"]
    built_in: str | None = None
    """The environment that builds it, where this one receives it by promotion."""
    before: EngineEvidence | None
    after: EngineEvidence | None
    predictions: tuple[EnginePrediction, ...] = ()
    """Of an engine that is missing, where one was measured that is near enough."""


class EndpointChange(Value):
    """One endpoint whose stack changes."""

    name: str
    kind: EndpointKind
    outage: bool
    is_built: bool = True
    """False: an engine is not built yet, so that cost alone is known, by the files."""
    resources: tuple[ResourceChange, ...]
    permissions: PermissionChange
    rollout: RolloutPlan | None
    cost: CostChange
    faults: tuple[str, ...] = ()


class StackChange(Value):
    """One stack of the environment that is no endpoint's."""

    name: str
    resources: tuple[ResourceChange, ...]
    permissions: PermissionChange


class EnvironmentPlan(Value):
    """What the change does in one environment.

    `id` is a digest over content: deployed and wanted templates, and missing engines.
    """

    environment: str
    id: str
    endpoints: tuple[EndpointChange, ...]
    engines: tuple[EngineChange, ...]
    stacks: tuple[StackChange, ...] = ()
    unchanged_endpoints: int
    prices_date: str | None
    digests: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """sha256 of the template before and after, of every stack that changes, by its name."""
    text_generation: tuple[TextGenerationPlan, ...] = ()
    """What would serve each text generator; `deploy` does nothing of it yet."""

    @property
    def missing(self) -> tuple[EngineChange, ...]:
        """Engines that must be built, here or in the environment that this one receives from."""
        return tuple(engine for engine in self.engines if engine.state == "missing")


class Side(Value):
    """One side of the comparison: a git reference with its commit, or what is deployed."""

    ref: str
    commit: str | None = None
    dirty: bool = False


class Plan(Value):
    """A whole plan."""

    version: Literal[1] = 1
    base: Side
    head: Side
    data_only: bool
    """True when only files of models/, endpoints/, environments/, promotions/ and locks differ."""
    environments: tuple[EnvironmentPlan, ...]
    faults: tuple[str, ...] = ()
    """Why the files cannot be deployed; nothing else is computed then."""


def read_plan_file(path: Path) -> Plan:
    """Read a plan. Raises RoundhouseError for a file that is none."""
    write = f"`roundhouse plan --out {path}` writes one"
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RoundhouseError(f"{path}: cannot be read ({error.strerror}); {write}.") from error
    if len(text) > MOST_BYTES:
        raise RoundhouseError(f"{path}: is larger than {MOST_BYTES >> 20} MiB, which no plan is.")
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise RoundhouseError(
            f"{path}: is no plan of this version ({where}: {first['msg']}); {write}."
        ) from error


def plan_id(digests: Mapping[str, tuple[str, str]], missing: Sequence[str] = ()) -> str:
    """Return the id of a plan: twelve hex digits over the content that a deployment depends on.

    `digests` holds the template before and after of every stack that changes.
    """
    stacks = {key: list(pair) for key, pair in digests.items()}
    text = json.dumps({"stacks": stacks, "missing": sorted(missing)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
