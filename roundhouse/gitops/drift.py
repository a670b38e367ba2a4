"""Compares an environment as it runs with what was deployed: what a person changed by hand.

Whatever CloudFormation's drift detection reads by itself is left to it: `aws cloudformation
detect-stack-drift`. What scaling and schedules change is no drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from onboarding.names import stack_name
from roundhouse.aws.clients import Client, calling, or_absent, pages
from roundhouse.deploy.stacks import Template
from roundhouse.gitops.endpoint_facts import (
    CONFIG,
    ENDPOINT,
    TARGET,
    count_bounds,
    managed_bounds,
    resources_of,
    variant_name,
)
from roundhouse.gitops.markdown import cut_body, markdown
from roundhouse.session import Session
from roundhouse.table import Table, table
from roundhouse.text import quantity

SERVICES = ("application-autoscaling", "cloudformation", "sagemaker")
SHARED_PARTS = ("foundation", "builds", "observability")
"""Stacks beside the endpoints' that every deployed environment has."""
READERS = 8
"""Stacks that are read at the same time."""
SHOWN = 200
"""Characters of a value in a table."""
COLUMNS = ("endpoint", "what", "deployed", "runs")
PROTECTED = ("foundation", "endpoint-")
"""How the names of stacks with termination protection go on."""
COMPONENT = "AWS::SageMaker::InferenceComponent"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as deployed; None: it is not there."""

    endpoint: str
    """An endpoint, or another part of the environment, such as `foundation`."""
    what: str
    deployed: Any
    live: Any


Compared = Iterator[tuple[str, Any, Any]]
"""What is compared, by name: as deployed, and as it runs."""


def environment_drift(
    session: Session, templates: Mapping[str, Template]
) -> tuple[Difference, ...]:
    """Return every difference of the environment's stacks, and what no file names any more.

    Compared are endpoint configs, weights, counts, bounds of scaling, copies and models of
    components, termination protection, and stacks.

    `templates`: those that are deployed, by stack name.
    """
    # Clients are created by one thread alone.
    clients = {service: session.clients(service) for service in SERVICES}
    own, prefix = (stack_name(session.environment, part) for part in ("", "endpoint-"))
    files = {deployment.name for deployment in session.endpoint_deployments()}

    def part_of(name: str) -> str:
        return name.removeprefix(own).removeprefix("endpoint-")

    def read(name: str) -> list[Difference]:
        is_protected = name.removeprefix(own).startswith(PROTECTED)
        compared = _stack(clients, name, templates[name], is_protected=is_protected)
        return [
            Difference(endpoint=part_of(name), what=what, deployed=deployed, live=live)
            for what, deployed, live in compared
            if deployed != live
        ]

    found = [
        Difference(endpoint=part_of(name), what="stack", deployed=name, live="no file names it")
        for name in sorted(templates)
        if name.startswith(prefix) and part_of(name) not in files
    ]
    if templates:
        expected = {stack_name(session.environment, part) for part in SHARED_PARTS}
        expected |= {f"{prefix}{name}" for name in files}
        gone = (deleted_stacks(clients["cloudformation"]) & expected) - templates.keys()
        found += [
            Difference(endpoint=part_of(name), what="stack", deployed=name, live=None)
            for name in sorted(gone)
        ]
    with ThreadPoolExecutor(READERS) as readers:
        for differences in readers.map(read, sorted(templates)):
            found += differences
    return tuple(found)


def deleted_stacks(cloudformation: Client) -> set[str]:
    """Return the names of stacks that were deleted in the last 90 days, as CloudFormation keeps."""
    with calling("Listing the deleted stacks"):
        chosen = {"StackStatusFilter": ["DELETE_COMPLETE"]}
        found = pages(cloudformation, "list_stacks", "StackSummaries", **chosen)
        return {stack["StackName"] for stack in found}


def _stack(
    clients: Mapping[str, Client], name: str, template: Template, *, is_protected: bool
) -> Compared:
    sagemaker, targets = clients["sagemaker"], list(_properties(template, TARGET))
    for endpoint in _properties(template, ENDPOINT):
        yield from _endpoint(sagemaker, endpoint, template, targets)
    scaled = {variant_name({"Properties": target}) for target in targets}
    for component in _properties(template, COMPONENT):
        yield from _component(sagemaker, component, scaled)
    for target in targets:
        yield from _scalable_target(clients["application-autoscaling"], target)
    if is_protected:
        with calling(f"Stack {name}"):
            (stack,) = clients["cloudformation"].describe_stacks(StackName=name)["Stacks"]
        yield "termination protection", True, bool(stack.get("EnableTerminationProtection"))


def _properties(template: Template, kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the properties of the resources of one type, whose names our templates spell out."""
    return (resource["Properties"] for resource in resources_of(template, kind))


def _endpoint(
    sagemaker: Client,
    endpoint: Mapping[str, Any],
    template: Template,
    targets: Sequence[Mapping[str, Any]],
) -> Compared:
    name = endpoint["EndpointName"]
    live = or_absent(lambda: sagemaker.describe_endpoint(EndpointName=name), name)
    if live is None:
        yield "endpoint", name, None
        return
    yield "endpoint config", endpoint["EndpointConfigName"], live["EndpointConfigName"]
    bounds = {variant_name({"Properties": target}): count_bounds(target) for target in targets}
    running = {item["VariantName"]: item for item in live.get("ProductionVariants", ())}
    for config in _properties(template, CONFIG):
        for variant in config["ProductionVariants"]:
            own = bounds.get(variant["VariantName"], [])
            yield from _variant(variant, running.get(variant["VariantName"]), own)


def _variant(
    variant: Mapping[str, Any], live: Mapping[str, Any] | None, bounds: Sequence[tuple[int, int]]
) -> Compared:
    name = variant["VariantName"]
    if live is None:
        yield f"variant {name}", name, None
        return
    if "InitialVariantWeight" in variant:
        weight = float(variant["InitialVariantWeight"])
        yield f"weight of {name}", weight, float(live["CurrentWeight"])
    count, bounds = int(live["DesiredInstanceCount"]), managed_bounds(variant) or bounds
    if not bounds:
        yield f"instances of {name}", int(variant["InitialInstanceCount"]), count
        return
    least, most = min(low for low, _ in bounds), max(high for _, high in bounds)
    if not least <= count <= most:
        yield f"instances of {name}", f"{least} to {most}", count


def _component(sagemaker: Client, component: Mapping[str, Any], scaled: set[str]) -> Compared:
    """Yield an inference component's model, and its copies where nothing scales them."""
    name, wanted = component["InferenceComponentName"], component["Specification"]
    live = or_absent(
        lambda: sagemaker.describe_inference_component(InferenceComponentName=name), name
    )
    if live is None:
        yield f"inference component {name}", name, None
        return
    if "ModelName" in wanted:
        yield f"ModelName of {name}", wanted["ModelName"], live["Specification"].get("ModelName")
    count = component.get("RuntimeConfig", {}).get("CopyCount")
    if count is not None and name not in scaled:
        desired = live.get("RuntimeConfig", {}).get("DesiredCopyCount")
        yield f"copies of {name}", int(count), desired


def _scalable_target(scaling: Client, target: Mapping[str, Any]) -> Compared:
    resource, variant = target["ResourceId"], variant_name({"Properties": target})
    with calling(f"Scaling of {resource}"):
        found = scaling.describe_scalable_targets(
            ServiceNamespace="sagemaker",
            ScalableDimension=target["ScalableDimension"],
            ResourceIds=[resource],
        )["ScalableTargets"]
    if not found:
        yield f"scaling of {variant}", resource, None
        return
    live, bounds = (found[0]["MinCapacity"], found[0]["MaxCapacity"]), count_bounds(target)
    if live not in bounds:
        yield f"bounds of {variant}", list(bounds[0]), list(live)
    suspended = [key for key, value in found[0].get("SuspendedState", {}).items() if value]
    yield f"suspended scaling of {variant}", [], suspended


def drift_table(found: Sequence[Difference]) -> Table:
    """Return a row for each difference; a long value is cut, and JSON has all of it."""
    rows = (
        (item.endpoint, item.what, *(shorten(str(side), SHOWN, placeholder=" …")
                                     for side in (item.deployed, item.live)))
        for item in found
    )  # fmt: skip
    return table(COLUMNS, rows)


def drift_markdown(environment: str, found: Sequence[Difference]) -> str:
    """Return every difference as the text of one issue."""
    if not found:
        return f"{markdown(environment)} is as deployed."
    return cut_body(
        f"{quantity(len(found), 'thing')} of {markdown(environment)} changed by hand, or no file "
        f"names any more.\n\n{drift_table(found).markdown(markdown)}\n\nPut them back by hand or "
        "change the files: a deploy does not undo what its templates do not see. This issue is "
        "updated by every run of `roundhouse drift`, and closed once nothing differs."
    )
