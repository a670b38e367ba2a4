"""The account's quotas and the instances in use, compared with what a deployment needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.aws_limits import ENDPOINT_INSTANCES_QUOTA, endpoint_quota, training_quota
from onboarding.deployment import VARIANT, Deployment, Variant
from onboarding.nearest import comma_list
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, calling
from roundhouse.deploy.builds.requests import BuildRequest, EngineRequest
from roundhouse.deploy.images import environment_image_uris
from roundhouse.errors import AwsError, DeployFailedError
from roundhouse.session import Session
from roundhouse.synthesis import endpoint_template
from roundhouse.text import quantity
from stacks.endpoint.change import CONFIG
from stacks.generation import sizes
from stacks.rollout import effective_rollout, step_percent
from stacks.scaling.targets import fewest, most

SAGEMAKER = "sagemaker"
READERS = 16
VARIANTS = ("ProductionVariants", "ShadowProductionVariants")
REQUEST = (
    "`aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code "
    "{code} --desired-value {value} --region {region}`"
)


@dataclass(frozen=True, kw_only=True)
class RunningEndpoint:
    """One endpoint of the account: its endpoint config, and instances by variant and type."""

    config: str
    variants: Mapping[str, Mapping[str, int]]


def require_quotas(session: Session, requests: Sequence[BuildRequest], *, at_once: int) -> None:
    """Refuse a deployment whose first instances, rollouts or builds the quotas cannot hold.

    Prints where the scaling maximum is above a quota, which quotas are not known, and why nothing
    could be compared. `requests`: the engines to build; `at_once`: endpoints updated at the same
    time. Raises DeployFailedError.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    with session.report.step("Comparing with the account's quotas") as step:
        try:
            unknown = _compare(session, requests, at_once, findings)
        except AwsError as error:
            step.finish("not compared")
            notes.append(f"– Quotas are not known, and the deployment goes on: {error}")
        else:
            step.finish(f"{quantity(len(findings), 'quota')} too small" if findings else "enough")
            if unknown:
                rows = comma_list(unknown)
                notes.append(
                    f"– Service Quotas names no quota of these, so none is checked: {rows}"
                )
    notes += [
        f"– {item.text[:1].upper()}{item.text[1:]}." for item in findings if not item.is_refusal
    ]
    for note in notes:
        session.report.print(note)
    refusals = [item.text for item in findings if item.is_refusal]
    if refusals:
        raise DeployFailedError(f"Refused before deploying: {'; '.join(refusals)}.")


def _compare(
    session: Session, requests: Sequence[BuildRequest], at_once: int, findings: list[Finding]
) -> tuple[str, ...]:
    """Add every finding, and return the names of the quotas that Service Quotas does not have."""
    sagemaker, region = session.clients(SAGEMAKER), session.environment.region
    endpoints = running_endpoints(sagemaker)
    uris = environment_image_uris(session)
    fleets = [fleet for item in session.deployments() for fleet in _fleets(item, uris, endpoints)]
    fleets += [_generation_fleet(item, uris, endpoints) for item in session.generators()]
    limits = endpoint_limits(fleets)
    builds = Counter(
        request.target.instance_type.name
        for request in requests
        if isinstance(request, EngineRequest) and request.route == "training-job"
    )
    wanted = {name for limit in limits for name in limit.names} | set(map(training_quota, builds))
    quotas = read_quotas(session.clients("service-quotas"), wanted)
    running: Counter[str] = Counter()
    for endpoint in endpoints.values():
        for counts in endpoint.variants.values():
            running.update(counts)
    for limit in limits:
        own = [quotas[name] for name in limit.names if name in quotas]
        if len(own) == len(limit.names):
            findings += endpoint_findings(
                limit, own, fleets, running, region=region, at_once=at_once
            )
    in_use = running_jobs(sagemaker, builds) if builds else {}
    for instance_type, count in builds.items():
        if (name := training_quota(instance_type)) in quotas:
            findings += training_findings(
                instance_type,
                quotas[name],
                builds=count,
                running=in_use.get(instance_type, 0),
                at_once=session.environment.builds.at_once,
                region=region,
            )
    return tuple(sorted(wanted - quotas.keys()))


def read_quotas(client: Client, wanted: Collection[str]) -> dict[str, Quota]:
    """Return the quotas of SageMaker with these names: the account's own, else AWS's default."""
    found: dict[str, Quota] = {}
    with calling("Reading the quotas of SageMaker (Service Quotas)"):
        applied = client.get_paginator("list_service_quotas")
        defaults = client.get_paginator("list_aws_default_service_quotas")
        for paginator in (applied, defaults):
            for page in paginator.paginate(ServiceCode=SAGEMAKER):
                for item in page["Quotas"]:
                    if item["QuotaName"] in wanted and "Value" in item:
                        quota = Quota(
                            name=item["QuotaName"], code=item["QuotaCode"], value=item["Value"]
                        )
                        found.setdefault(quota.name, quota)
                if len(found) == len(wanted):
                    return found
    return found


def running_endpoints(sagemaker: Client) -> dict[str, RunningEndpoint]:
    """Return every endpoint of the account and region by name, but those that are being deleted."""
    with calling("Listing the endpoints"):
        listed = [
            item["EndpointName"]
            for page in sagemaker.get_paginator("list_endpoints").paginate()
            for item in page["Endpoints"]
            if item["EndpointStatus"] != "Deleting"
        ]
    with ThreadPoolExecutor(READERS) as readers:
        read = readers.map(lambda name: _running_endpoint(sagemaker, name), listed)
        pairs = zip(listed, read, strict=True)
        return {name: endpoint for name, endpoint in pairs if endpoint is not None}


def running_jobs(sagemaker: Client, instance_types: Collection[str]) -> dict[str, int]:
    """Return how many training jobs of these instance types are under way."""
    with calling("Listing the training jobs"):
        pages = sagemaker.get_paginator("list_training_jobs").paginate(StatusEquals="InProgress")
        jobs = [item["TrainingJobName"] for page in pages for item in page["TrainingJobSummaries"]]
        counts: Counter[str] = Counter()
        for job in jobs:
            resources = sagemaker.describe_training_job(TrainingJobName=job)["ResourceConfig"]
            counts[resources.get("InstanceType", "")] += resources.get("InstanceCount", 1)
    return {name: counts[name] for name in instance_types}


def _running_endpoint(sagemaker: Client, name: str) -> RunningEndpoint | None:
    """Return an endpoint; None where it was deleted meanwhile."""
    from botocore.exceptions import ClientError

    with calling(f"Endpoint {name}"):
        try:
            endpoint = sagemaker.describe_endpoint(EndpointName=name)
            config = sagemaker.describe_endpoint_config(
                EndpointConfigName=endpoint["EndpointConfigName"]
            )
        except ClientError as error:
            if "Could not find" in str(error):
                return None
            raise
    types = {
        variant["VariantName"]: variant.get("InstanceType", "")
        for key in VARIANTS
        for variant in config.get(key, ())
    }
    return RunningEndpoint(
        config=endpoint["EndpointConfigName"],
        variants={
            variant["VariantName"]: _instances(variant, types.get(variant["VariantName"], ""))
            for key in VARIANTS
            for variant in endpoint.get(key, ())
        },
    )


def _instances(variant: Mapping[str, Any], instance_type: str) -> dict[str, int]:
    pools = variant.get("InstancePools")
    if pools:
        return {pool["InstanceType"]: int(pool.get("CurrentInstanceCount", 0)) for pool in pools}
    present = (variant.get(key, 0) for key in ("CurrentInstanceCount", "DesiredInstanceCount"))
    return {instance_type: max(map(int, present))}


def _fleets(
    deployment: Deployment,
    image_uris: Mapping[str, str],
    endpoints: Mapping[str, RunningEndpoint],
) -> Iterator[Fleet]:
    """Yield the fleet of each variant of an endpoint."""
    endpoint = endpoints.get(names.endpoint_name(deployment.environment, deployment.name))
    wanted = _named_config(endpoint_template(deployment, image_uris))
    is_same = endpoint is not None and endpoint.config == wanted
    for variant in deployment.variants:
        present = {} if endpoint is None else endpoint.variants.get(variant.name, {})
        first, running = max(1, variant.scaling.min), sum(present.values())
        # An update keeps the counts that scaling moves.
        new = running if running and most(variant) > fewest(variant) else first
        rolls = endpoint is not None and not is_same
        yield Fleet(
            endpoint=deployment.name,
            instance_types=tuple(pool.instance_type.name for pool in variant.pools),
            running=present,
            count=None if is_same else max(first, new),
            beside=_beside(deployment, variant, new) if rolls else 0,
            most=max(first, most(variant)),
        )


def _generation_fleet(
    deployment: GenerationDeployment,
    image_uris: Mapping[str, str],
    endpoints: Mapping[str, RunningEndpoint],
) -> Fleet:
    """Return the fleet of a text generator; an update needs room for a batch of copies."""
    endpoint = endpoints.get(names.endpoint_name(deployment.environment, deployment.name))
    template = endpoint_template(deployment, image_uris)
    is_same = endpoint is not None and endpoint.config == _named_config(template)
    present = {} if endpoint is None else endpoint.variants.get(VARIANT, {})
    first = sizes.instances_for(deployment, sizes.first_copies(deployment))
    most = sizes.most_instances(deployment)
    batch = most - sizes.instances_for(deployment, deployment.spec.endpoint.copies.max)
    running = sum(present.values())
    new = running if running and sizes.scales(deployment) else first
    return Fleet(
        endpoint=deployment.name,
        instance_types=(deployment.candidate.instance_type,),
        running=present,
        count=None if is_same else max(first, new),
        beside=0 if endpoint is None else batch if is_same else new,
        most=most,
    )


def _beside(deployment: Deployment, variant: Variant, count: int) -> int:
    """Return how many new instances run beside the old ones: all, or a batch."""
    if effective_rollout(deployment) != "rolling" or variant.role == "shadow":
        return count
    return max(1, math.floor(count * step_percent(deployment) / 100))


def _named_config(template: Mapping[str, Any]) -> str | None:
    """Return the name of a template's endpoint config; None: its engine is not built."""
    for resource in template["Resources"].values():
        if resource["Type"] == CONFIG:
            return str(resource["Properties"]["EndpointConfigName"])
    return None


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
