"""The instances that a deployment needs, held against the account's quotas. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onboarding.aws_limits import ENDPOINT_INSTANCES_QUOTA, endpoint_quota, training_quota
from roundhouse.text import quantity

REQUEST = (
    "`aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code "
    "{code} --desired-value {value} --region {region}`"
)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One quota of the account, as Service Quotas has it."""

    name: str
    code: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The instances of one variant that is deployed.

    `running`: those that it has now, by instance type. `count`: those that it has once it is
    deployed, None where nothing of it changes. `beside`: those that run beside the present ones
    until a rollout ends. `most`: its scaling maximum.
    """

    endpoint: str
    instance_types: tuple[str, ...]
    running: Mapping[str, int]
    count: int | None
    beside: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A quota that is too small: for the deployment itself, or for what comes later."""

    is_refusal: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What some instance types may run together; no types: every type.

    Several types are those of a variant with instance pools, which may run on any of them.
    """

    instance_types: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its quotas."""
        return tuple(map(endpoint_quota, self.instance_types)) or (ENDPOINT_INSTANCES_QUOTA,)

    def holds(self, fleet: Fleet) -> bool:
        """Return whether every instance of a fleet counts."""
        return not self.instance_types or set(fleet.instance_types) <= set(self.instance_types)

    def total(self, counts: Mapping[str, int]) -> int:
        """Return the instances that count, of some by instance type."""
        return sum(counts[name] for name in counts if name in (self.instance_types or counts))


def endpoint_limits(fleets: Iterable[Fleet]) -> tuple[Limit, ...]:
    """Return every limit on the instances of these fleets."""
    types = dict.fromkeys(fleet.instance_types for fleet in fleets)
    return (*(Limit(instance_types=names) for names in sorted(types)), Limit(instance_types=()))


def endpoint_findings(
    limit: Limit,
    quotas: Sequence[Quota],
    fleets: Sequence[Fleet],
    running: Mapping[str, int],
    *,
    region: str,
    at_once: int,
) -> Iterator[Finding]:
    """Yield why the quotas of a limit are too small, with the way out.

    `running`: every instance of the account's endpoints, by type; `at_once`: endpoints that are
    updated at the same time.
    """
    value = int(sum(quota.value for quota in quotas))
    members = [fleet for fleet in fleets if limit.holds(fleet)]
    use, own = limit.total(running), sum(limit.total(fleet.running) for fleet in members)
    starting = sum(_growth(limit, fleet) for fleet in members)
    beside: Counter[str] = Counter()
    for fleet in members:
        beside[fleet.endpoint] += max(0, fleet.beside - _growth(limit, fleet))
    rolling = sum(count for _, count in beside.most_common(at_once))
    named = " and ".join(f"'{quota.name}'" for quota in quotas)
    is_named = f"the quota {named} is {value} in {region}"
    need = use + starting + rolling
    if need > value and starting + rolling > 0:
        parts = [f"{use} run now"]
        parts += [f"{starting} more start"] if starting else []
        parts += [f"{rolling} more run until the rollout ends"] if rolling else []
        ways = ["lower `scaling.min`"] if starting else []
        ways += ["choose `rollout: rolling`"] if rolling and not starting else []
        yield Finding(
            is_refusal=True,
            text=f"{is_named}, and this deployment needs {quantity(need, 'instance')} "
            f"({', '.join(parts)}): {_request(quotas, need - value, region)}, or "
            f"{' and '.join(ways) or 'delete an endpoint'}",
        )
        return
    most: Counter[str] = Counter()
    for fleet in members:
        most[fleet.endpoint] += fleet.most
    need = use - own + sum(most.values())
    if need > value:
        yield Finding(
            is_refusal=False,
            text=f"{is_named}, and the endpoints need {need} at their scaling maximum: SageMaker "
            f"refuses what is above the quota; {_request(quotas, need - value, region)}",
        )
    elif need + max(most.values(), default=0) > value:
        again = need + max(most.values())
        yield Finding(
            is_refusal=False,
            text=f"{is_named}: enough for the scaling maximum ({need}), and not for a rollout "
            f"then ({again}); {_request(quotas, again - value, region)}",
        )


def training_findings(
    instance_type: str, quota: Quota, *, builds: int, running: int, at_once: int, region: str
) -> Iterator[Finding]:
    """Yield why builds on an instance type cannot start, or not at once."""
    value, together = int(quota.value), min(builds, at_once)
    is_named = f"the quota '{training_quota(instance_type)}' is {value} in {region}"
    if value < 1:
        yield Finding(
            is_refusal=True,
            text=f"{is_named}, and {quantity(builds, 'engine')} must be built there: "
            f"{_request((quota,), together, region)}",
        )
    elif running + together > value:
        yield Finding(
            is_refusal=False,
            text=f"{is_named}, {running} of it in use, and {together} builds start at once: those "
            "that find none free wait and start again (`builds.capacity_retries`)",
        )


def _growth(limit: Limit, fleet: Fleet) -> int:
    """Return how many more instances of a limit a fleet has once it is deployed."""
    return 0 if fleet.count is None else max(0, fleet.count - limit.total(fleet.running))


def _request(quotas: Sequence[Quota], lacking: int, region: str) -> str:
    first = quotas[0]
    value = int(first.value) + lacking
    return "ask for more: " + REQUEST.format(code=first.code, value=value, region=region)
