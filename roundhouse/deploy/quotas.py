"""The account's quotas, compared with the instances that a deployment begins with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from onboarding.aws_limits import ENDPOINT_INSTANCES_QUOTA, endpoint_quota, training_quota
from onboarding.fault import comma_list
from roundhouse.aws.clients import Client, calling, pages
from roundhouse.deploy.builds.requests import BuildRequest, EngineRequest
from roundhouse.errors import AwsError, DeployFailedError
from roundhouse.session import Session
from roundhouse.text import quantity
from stacks import generation_capacity as sizes

SAGEMAKER = "sagemaker"
REQUEST = (
    "`aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code "
    "{code} --desired-value {value} --region {region}`"
)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """One quota of the account, as Service Quotas has it."""

    code: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Need:
    """Instances that a deployment cannot do without, and the names of the quotas that allow them.

    Several quotas are those of a variant with instance pools, which may run on any of their types.
    """

    quotas: tuple[str, ...]
    instances: int
    way_out: str = ""


def require_quotas(session: Session, requests: Sequence[BuildRequest]) -> None:
    """Refuse a deployment whose first instances or builds the quotas cannot hold.

    What runs beside them, as other endpoints or a rollout's second fleet, is SageMaker's to refuse:
    an endpoint stays as it is then. Prints which quotas are not known, or why none is. `requests`:
    what is built. Raises DeployFailedError.
    """
    region, needs = session.environment.region, list(deployment_needs(session, requests))
    wanted = {name for need in needs for name in need.quotas}
    try:
        with session.report.step("Comparing with the account's quotas"):
            quotas = read_quotas(session.clients("service-quotas"), wanted)
    except AwsError as error:
        session.report.print(f"– Quotas are not known, and the deployment goes on: {error}")
        return
    if unknown := sorted(wanted - quotas.keys()):
        listed = comma_list(unknown)
        session.report.print(
            f"– Service Quotas names no quota of these, so none is checked: {listed}"
        )
    faults = [fault for need in needs if (fault := quota_fault(need, quotas, region)) is not None]
    if faults:
        raise DeployFailedError(f"Refused before deploying: {'; '.join(faults)}.")


def deployment_needs(session: Session, requests: Sequence[BuildRequest]) -> Iterator[Need]:
    """Yield what endpoints begin with, by instance types and together, and what builds need."""
    first: Counter[tuple[str, ...]] = Counter()
    for deployment in session.deployments():
        for variant in deployment.variants:
            types = tuple(dict.fromkeys(pool.instance_type.name for pool in variant.pools))
            first[types] += max(1, variant.scaling.min)
    for generator in session.generators():
        copies = sizes.first_copies(generator)
        first[generator.candidate.instance_type,] += sizes.instances_for(generator, copies)
    way_out = ", or lower `scaling.min`"
    for types, count in sorted(first.items()):
        yield Need(quotas=tuple(map(endpoint_quota, types)), instances=count, way_out=way_out)
    if first:
        total = sum(first.values())
        yield Need(quotas=(ENDPOINT_INSTANCES_QUOTA,), instances=total, way_out=way_out)
    jobs = {
        request.instance_type
        for request in requests
        if isinstance(request, EngineRequest) and request.route == "training-job"
    }
    for instance_type in sorted(jobs):
        yield Need(quotas=(training_quota(instance_type),), instances=1)


def quota_fault(need: Need, quotas: Mapping[str, Quota], region: str) -> str | None:
    """Return why quotas are too small, with the way out; None: they hold, or one is not known."""
    own = [quotas[name] for name in need.quotas if name in quotas]
    value = int(sum(quota.value for quota in own))
    if len(own) < len(need.quotas) or value >= need.instances:
        return None
    named = " and ".join(f"'{name}'" for name in need.quotas)
    lacking = int(own[0].value) + need.instances - value
    request = REQUEST.format(code=own[0].code, value=lacking, region=region)
    return (
        f"the quota {named} is {value} in {region}, and this deployment needs "
        f"{quantity(need.instances, 'instance')}: ask for more: {request}{need.way_out}"
    )


def read_quotas(client: Client, wanted: Collection[str]) -> dict[str, Quota]:
    """Return the quotas of SageMaker with these names: the account's own, else AWS's default."""
    found: dict[str, Quota] = {}
    with calling("Reading the quotas of SageMaker (Service Quotas)"):
        applied = pages(client, "list_service_quotas", "Quotas", ServiceCode=SAGEMAKER)
        defaults = pages(client, "list_aws_default_service_quotas", "Quotas", ServiceCode=SAGEMAKER)
        for item in chain(applied, defaults):
            if item["QuotaName"] in wanted and "Value" in item:
                quota = Quota(code=item["QuotaCode"], value=item["Value"])
                found.setdefault(item["QuotaName"], quota)
            if len(found) == len(wanted):
                break
    return found
