"""What an account runs of a text generator: instances, components, copies, the last changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal

from rich.table import Table

from onboarding.deployment import VARIANT
from onboarding.names import adapter_component, endpoint_name
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.endpoint_steps import alarms_in_alarm, deployed_model, live_config
from roundhouse.deploy.stacks import endpoint_stack_name
from roundhouse.errors import AwsError
from roundhouse.report import table

IN_SERVICE = "InService"
UNDER_WAY = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
SCALED = {
    "component": ("inference-component/{}", "sagemaker:inference-component:DesiredCopyCount"),
    "variant": ("endpoint/{}/variant/" + VARIANT, "sagemaker:variant:DesiredInstanceCount"),
}
"""Resource and dimension of Application Auto Scaling."""
Result = Literal["under way", "complete", "failed", "unknown"]
RESULTS: Mapping[str, Result] = {
    "Pending": "under way",
    "InProgress": "under way",
    "Successful": "complete",
    "Overridden": "complete",
}
"""Of scaling activities; all others failed."""


@dataclass(frozen=True, kw_only=True)
class LiveChange:
    """The last update of a component, or the last change of its copies by scaling.

    `at`: its end, or its begin where it is under way, in UTC; None: AWS did not say. `reason`: why
    it failed or is unknown, or what asked for it.
    """

    what: str
    result: Result
    at: str | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class LiveComponent:
    """One inference component; `base` None: it has copies of its own, else it is an adapter of it.

    `serves`: the checkpoint's key, or where the adapter's files are.
    """

    name: str
    base: str | None
    status: str
    failure_reason: str | None
    copies: int
    desired_copies: int
    model: str | None
    """SageMaker's; None: an adapter."""
    serves: str | None
    last_update: LiveChange
    last_scaling: LiveChange | None

    @property
    def is_zero(self) -> bool:
        """Return whether it is scaled to zero: the next request finds no copy."""
        counts = (self.copies, self.desired_copies)
        return self.base is None and self.status == IN_SERVICE and counts == (0, 0)


@dataclass(frozen=True, kw_only=True)
class LiveGenerator:
    """One text generator's endpoint as it runs; `drift`: how it differs from the files."""

    name: str
    endpoint: str
    status: str
    failure_reason: str | None
    config: str
    instance_type: str
    instances: int
    desired_instances: int
    serves: str | None
    last_scaling: LiveChange | None
    """Of the instances, where the endpoint has no components."""
    components: tuple[LiveComponent, ...]
    alarms: tuple[str, ...]
    drift: tuple[str, ...]


def live_generator(clients: Clients, deployment: GenerationDeployment) -> LiveGenerator | None:
    """Return a text generator's endpoint as it runs; None: it is not deployed."""
    from botocore.exceptions import ClientError

    sagemaker, name = clients("sagemaker"), endpoint_name(deployment.environment, deployment.name)
    with calling(f"Endpoint {name}"):
        try:
            endpoint = sagemaker.describe_endpoint(EndpointName=name)
        except ClientError as error:
            if "Could not find" in str(error):
                return None
            raise
        config = sagemaker.describe_endpoint_config(
            EndpointConfigName=endpoint["EndpointConfigName"]
        )
        variant, model = config["ProductionVariants"][0], None
        if "ModelName" in variant:
            model = _checkpoint(sagemaker, variant["ModelName"])
        components = tuple(_components(clients, name))
    counts: Mapping[str, Any] = next(iter(endpoint.get("ProductionVariants") or ()), {})
    compared = live_config(clients, deployment)
    drift = [*_drift(deployment, model, components)]
    if not compared.is_as_deployed:
        drift.insert(0, f"serves config {compared.live}, its stack deployed {compared.deployed}")
    deployed = deployed_model(clients, endpoint_stack_name(deployment))
    for component in components:
        if None not in (deployed, component.model) and component.model != deployed:
            went = f"{component.name} runs model {component.model}, its stack deployed {deployed}"
            drift.append(f"{went}: SageMaker went back, or an update is under way")
    return LiveGenerator(
        name=deployment.name,
        endpoint=name,
        status=str(endpoint["EndpointStatus"]),
        failure_reason=endpoint.get("FailureReason"),
        config=str(endpoint["EndpointConfigName"]),
        instance_type=str(variant.get("InstanceType", "")),
        instances=int(counts.get("CurrentInstanceCount", 0)),
        desired_instances=int(counts.get("DesiredInstanceCount", 0)),
        serves=model,
        last_scaling=_last_scaling(clients, "variant", name) if not components else None,
        components=components,
        alarms=alarms_in_alarm(clients, name),
        drift=tuple(drift),
    )


def _components(clients: Clients, endpoint: str) -> Iterator[LiveComponent]:
    """Yield the components of an endpoint, those with copies before their adapters."""
    sagemaker = clients("sagemaker")
    pages = sagemaker.get_paginator("list_inference_components").paginate(
        EndpointNameEquals=endpoint
    )
    names = [
        item["InferenceComponentName"] for page in pages for item in page["InferenceComponents"]
    ]
    found = [sagemaker.describe_inference_component(InferenceComponentName=name) for name in names]
    for component in sorted(found, key=lambda item: (_base(item) or "", _name(item))):
        # An adapter has no copies of its own.
        specification = component.get("Specification", {})
        counts = component.get("RuntimeConfig", {})
        base = _base(component)
        model = specification.get("ModelName")
        yield LiveComponent(
            name=_name(component),
            base=base,
            status=str(component["InferenceComponentStatus"]),
            failure_reason=component.get("FailureReason"),
            copies=int(counts.get("CurrentCopyCount", 0)),
            desired_copies=int(counts.get("DesiredCopyCount", 0)),
            model=model,
            serves=specification.get("Container", {}).get("ArtifactUrl")
            if model is None
            else _checkpoint(sagemaker, model),
            last_update=_last_update(component),
            last_scaling=None
            if base is not None
            else _last_scaling(clients, "component", _name(component)),
        )


def _name(component: Mapping[str, Any]) -> str:
    return str(component["InferenceComponentName"])


def _base(component: Mapping[str, Any]) -> str | None:
    base = component.get("Specification", {}).get("BaseInferenceComponentName")
    return None if base is None else str(base)


def _checkpoint(sagemaker: Client, model: str) -> str | None:
    """Return the key of the checkpoint whose files a model of SageMaker has."""
    container = sagemaker.describe_model(ModelName=model).get("PrimaryContainer", {})
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    folder, _, key = str(source.get("S3Uri", "")).rstrip("/").rpartition("/")
    return key if folder.endswith(checkpoint_prefix("").strip("/")) else None


def _last_update(component: Mapping[str, Any]) -> LiveChange:
    """Return the last change of a component, by its status and its reason.

    SageMaker keeps the policy of the last rolling update, and sets a reason where it went back.
    """
    status, reason = component["InferenceComponentStatus"], component.get("FailureReason")
    policy = component.get("LastDeploymentConfig", {}).get("RollingUpdatePolicy", {})
    size, what = policy.get("MaximumBatchSize"), "last change"
    if size is not None:
        unit = "%" if size["Type"] == "CAPACITY_PERCENT" else " copies"
        what = f"last change (rolling updates by {size['Value']}{unit} at a time)"
    result: Result = "complete"
    if status in UNDER_WAY:
        result = "under way"
    elif status != IN_SERVICE or reason:
        result = "failed"
    return LiveChange(
        what=what, result=result, at=_utc(component["LastModifiedTime"]), reason=reason
    )


def _last_scaling(clients: Clients, kind: str, name: str) -> LiveChange | None:
    """Return the last activity of Application Auto Scaling; None: there is none.

    One that cannot be read is unknown, and the rest of the endpoint is shown.
    """
    resource, dimension = SCALED[kind]
    try:
        with calling("Application Auto Scaling"):
            answer = clients("application-autoscaling").describe_scaling_activities(
                ServiceNamespace="sagemaker",
                ResourceId=resource.format(name),
                ScalableDimension=dimension,
                MaxResults=1,
            )
            activities = answer["ScalingActivities"]
    except AwsError as error:
        return LiveChange(what="last change", result="unknown", at=None, reason=str(error))
    if not activities:
        return None
    activity = activities[0]
    result = RESULTS.get(str(activity["StatusCode"]), "failed")
    words = activity.get("StatusMessage") if result == "failed" else activity.get("Cause")
    return LiveChange(
        what=str(activity["Description"]).rstrip("."),
        result=result,
        at=_utc(activity.get("EndTime", activity["StartTime"])),
        reason=None if words is None else str(words),
    )


def _utc(moment: Any) -> str:
    """Return a moment as botocore gives it, or as text."""
    return str(moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"))


def _drift(
    deployment: GenerationDeployment, model: str | None, components: Sequence[LiveComponent]
) -> Iterator[str]:
    """Yield how what runs differs from the files: checkpoint, and components that are too many."""
    name = endpoint_name(deployment.environment, deployment.name)
    wanted = None if deployment.entry is None else deployment.entry.checkpoint_key
    has_component = deployment.spec.endpoint.kind == "inference-component"
    names = {
        adapter_component(deployment.environment, deployment.name, adapter.name)
        for adapter in deployment.spec.serving.adapters
    }
    names |= {name} if has_component else set()
    there = {component.name: component for component in components}
    for missing in sorted(names - there.keys()):
        yield f"has no component {missing}, the files give one"
    for extra in sorted(there.keys() - names):
        yield f"has component {extra}, and no file gives it"
    served = there[name].serves if name in there else model
    if wanted is not None and served is not None and served != wanted:
        yield f"serves checkpoint {served}, the files give {wanted}"


def live_generators_table(live: Sequence[LiveGenerator]) -> Table:
    """Return a table with a row for each component, or for an endpoint without one."""
    columns = ("Endpoint", "Instances", "Component", "State", "Copies", "Serves", "In ALARM")
    rows: list[tuple[str, ...]] = []
    for generator in live:
        place = f"{_count(generator.instances, generator.desired_instances)} x "
        head = (f"{generator.endpoint}: {generator.status}", place + generator.instance_type)
        alarms = "\n".join(generator.alarms) or "none"
        if not generator.components:
            rows.append((*head, "none", "", "", generator.serves or "", alarms))
        for number, component in enumerate(generator.components):
            kind = "" if component.base is None else f" (adapter of {component.base})"
            state = "scaled to zero" if component.is_zero else component.status
            copies = _count(component.copies, component.desired_copies)
            own = (component.name + kind, state, copies, component.serves or "")
            rows.append((*(head if number == 0 else ("", "")), *own, alarms if not number else ""))
    return table(columns, rows, title="Text generators as they run")


def live_generator_lines(live: Sequence[LiveGenerator]) -> Iterator[str]:
    """Yield the last changes, why something failed, and how what runs differs from the files."""
    for generator in live:
        if generator.failure_reason:
            yield f"{generator.endpoint}: {generator.failure_reason}"
        for component in generator.components:
            yield f"{component.name}: {_sentence(component.last_update)}"
            if component.last_scaling is not None:
                yield f"{component.name}, scaling: {_sentence(component.last_scaling)}"
            if component.is_zero:
                yield f"{component.name}: no copy runs; the next request fails and asks for one."
        if generator.last_scaling is not None:
            yield f"{generator.endpoint}, scaling: {_sentence(generator.last_scaling)}"
        yield from (f"Drift: {generator.endpoint} {line}." for line in generator.drift)


def _sentence(change: LiveChange) -> str:
    reason = "" if change.reason is None else f": {change.reason.rstrip('.')}"
    at = "" if change.at is None else f", {change.at}"
    return f"{change.what}, {change.result}{at}{reason}."


def _count(current: int, desired: int) -> str:
    return f"{desired}" if current == desired else f"{current} of {desired} wanted"
