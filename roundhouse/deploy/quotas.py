"""The account's quotas and the instances in use, compared with what a deployment needs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.aws_limits import training_quota
from onboarding.deployment import VARIANT, Deployment, Variant
from onboarding.nearest import comma_list
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, calling
from roundhouse.deploy.builds.engine_requests import EngineRequest
from roundhouse.deploy.images import environment_image_uris
from roundhouse.deploy.quota_needs import (
    Finding,
    Fleet,
    Quota,
    endpoint_findings,
    endpoint_limits,
    training_findings,
)
from roundhouse.errors import AwsError, DeployFailedError
from roundhouse.session import Session
from roundhouse.text import quantity
from stacks.endpoint.change import CONFIG
from stacks.endpoint.template import endpoint_template
from stacks.generation import sizes
from stacks.generation.template import generation_template
from stacks.rollout import effective_rollout, step_percent
from stacks.scaling.targets import fewest, most

SAGEMAKER = "sagemaker"
READERS = 16
VARIANTS = ("ProductionVariants", "ShadowProductionVariants")


@dataclass(frozen=True, kw_only=True)
class RunningEndpoint:
    """One endpoint of the account: its endpoint config, and instances by variant and type."""

    config: str
    variants: Mapping[str, Mapping[str, int]]


def require_quotas(session: Session, requests: Sequence[EngineRequest], *, at_once: int) -> None:
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
    session: Session, requests: Sequence[EngineRequest], at_once: int, findings: list[Finding]
) -> tuple[str, ...]:
    """Add every finding, and return the names of the quotas that Service Quotas does not have."""
    sagemaker, region = session.clients(SAGEMAKER), session.environment.region
    endpoints = running_endpoints(sagemaker)
    uris = environment_image_uris(session)
    fleets = [fleet for item in session.deployments() for fleet in _fleets(item, uris, endpoints)]
    fleets += [_generation_fleet(item, uris, endpoints) for item in session.generators()]
    limits = endpoint_limits(fleets)
    builds = Counter(_training_types(requests))
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
    is_same = endpoint is not None and endpoint.config == _config_name(deployment, image_uris)
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
    template = generation_template(deployment, image_uris)
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


def _config_name(deployment: Deployment, image_uris: Mapping[str, str]) -> str | None:
    """Return the name of the endpoint config that is deployed; None: its engine is not built."""
    return _named_config(endpoint_template(deployment, image_uris))


def _named_config(template: Mapping[str, Any]) -> str | None:
    for resource in template["Resources"].values():
        if resource["Type"] == CONFIG:
            return str(resource["Properties"]["EndpointConfigName"])
    return None


def _training_types(requests: Sequence[EngineRequest]) -> Iterator[str]:
    """Yield the instance type of every engine that a training job builds."""
    for request in requests:
        if request.route == "training-job":
            yield request.target.instance_type.name
