"""Changes of a deployed endpoint that AWS takes only in two updates, and the first of them.

Sources: SageMaker developer guide, "Update endpoints that use auto scaling" and "Deployment
guardrails: exclusions".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onboarding.names import CONTENT_DIGITS
from onboarding.text_generation.arguments import VLLM_PREFIX

Template = Mapping[str, Any]
ENDPOINT, CONFIG = "AWS::SageMaker::Endpoint", "AWS::SageMaker::EndpointConfig"
COMPONENT, MODEL = "AWS::SageMaker::InferenceComponent", "AWS::SageMaker::Model"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
ROLLOUT = "DeploymentConfig"
RANK = f"{VLLM_PREFIX}MAX_LORA_RANK"
HELD = "RoundhouseHeld"
"""Template metadata.

The resources that a first update took away, as JSON text, in which CloudFormation sees no
reference.
"""


@dataclass(frozen=True, kw_only=True)
class UpdateStep:
    """One update of a stack: its template, and why it comes before the one that is wanted.

    None for that one.
    """

    template: Template
    reason: str | None = None


def update_steps(before: Template, after: Template) -> tuple[UpdateStep, ...]:
    """The updates that bring an endpoint's stack from one template to another, in order.

    The last one is `after`. An instance type changes only while nothing scales the variant, so its
    scaling goes first, and `after` brings it back. The names of the variants change only all at
    once, so the first update has no rollout of its own; it has no rollback either. Adapters that
    new copies could not load go before their base changes.
    """
    if not _updates_one_endpoint(before, after):
        return (UpdateStep(template=after),)
    steps: list[UpdateStep] = []
    without = _without_old_adapters(before, after)
    if without is not None:
        reason = "adapters go or get a lower rank, and new copies of their base could not load them"
        steps.append(UpdateStep(template=without, reason=f"{reason} as they are"))
        before = without
    held = _held_variants(before, after)
    if held:
        reason = (
            f"the instance type of {_join_names(held)} changes, which SageMaker refuses while auto"
            " scaling holds the count"
        )
        steps.append(UpdateStep(template=_without_scaling(before, held), reason=reason))
    changed = sorted(_variants(before).keys() ^ _variants(after).keys())
    if changed and any(ROLLOUT in item["Properties"] for item in _of(after, ENDPOINT).values()):
        verb = "come or go" if len(changed) > 1 else "comes or goes"
        reason = (
            f"{_join_names(changed)} {verb}, and SageMaker shifts traffic in steps between the same"
            " variants only"
        )
        steps.append(UpdateStep(template=_all_at_once(after), reason=reason))
    return (*steps, UpdateStep(template=after))


def hosting_fault(before: Template, after: Template) -> str | None:
    """Return why a deployed endpoint cannot become what its files say; None: it can.

    AWS documents no update between a variant with a model and one with inference components.
    """
    had, has = (bool(_of(template, COMPONENT)) for template in (before, after))
    if had == has or not _updates_one_endpoint(before, after):
        return None
    (endpoint,) = _of(after, ENDPOINT).values()
    kinds = ("a model of its variant", "an inference component")
    return (
        f"Endpoint {endpoint['Properties']['EndpointName']} answers from {kinds[had]}, and its "
        f"files ask for {kinds[has]} (a scaling.min of 0 without a queue does): AWS documents no "
        "update between them; delete it with `roundhouse destroy` and deploy it again, or deploy "
        "it beside under another name."
    )


def with_held_resources(template: Template) -> Template | None:
    """A deployed template with the scaling and the adapters that a first update took away.

    None where it took none, or all came back.
    """
    held = _held_resources(template)
    if not held:
        return None
    metadata = {key: value for key, value in template["Metadata"].items() if key != HELD}
    whole = {**template, "Resources": {**template["Resources"], **held}, "Metadata": metadata}
    return whole if metadata else {key: whole[key] for key in whole if key != "Metadata"}


def updates_component(before: Template, after: Template) -> bool:
    """Return whether an update changes an inference component that is there already."""
    old, new = _of(before, COMPONENT), _of(after, COMPONENT)
    return any(
        old[name]["Properties"] != new[name]["Properties"] for name in old.keys() & new.keys()
    )


def _without_old_adapters(before: Template, after: Template) -> Template | None:
    """Return the deployed template without the adapters that the new copies could not load.

    A copy loads the adapters of its component before it answers, and CloudFormation updates the
    base first, and deletes last. `HELD` keeps them, for an update of the base that is taken back.
    None where each of them can be loaded, or the base stays.
    """
    old, new = _adapters(before), _adapters(after)
    gone, lower = old.keys() - new.keys(), _adapter_rank(after) < _adapter_rank(before)
    changed = {name for name in old.keys() & new.keys() if lower and old[name] != new[name]}
    if not updates_component(before, after) or not (gone or changed):
        return None
    return _without(before, gone | changed)


def _adapters(template: Template) -> dict[str, Any]:
    return {
        name: resource
        for name, resource in _of(template, COMPONENT).items()
        if "BaseInferenceComponentName" in resource["Properties"]["Specification"]
    }


def _adapter_rank(template: Template) -> int:
    """Return the largest rank of an adapter that the container takes; 0 where it takes none."""
    containers = [
        item["Properties"].get("PrimaryContainer", {}) for item in _of(template, MODEL).values()
    ]
    return max((int(item.get("Environment", {}).get(RANK, 0)) for item in containers), default=0)


def _updates_one_endpoint(before: Template, after: Template) -> bool:
    old, new = (
        [item["Properties"]["EndpointName"] for item in _of(template, ENDPOINT).values()]
        for template in (before, after)
    )
    return old == new and len(new) == 1


def _held_variants(before: Template, after: Template) -> list[str]:
    """Variants that are scaled now, and change their instance types."""
    scaled = {
        item["Properties"]["ResourceId"].rsplit("/", 1)[-1] for item in _of(before, TARGET).values()
    }
    old, new = _variants(before), _variants(after)
    return sorted(
        name for name in scaled & old.keys() & new.keys() if _types(old[name]) != _types(new[name])
    )


def _without_scaling(template: Template, variants: list[str]) -> Template:
    """The template without the scaling of these variants, and without whatever refers to it.

    `HELD` keeps both.
    """
    left = dict(template["Resources"])
    gone = {
        logical_id
        for logical_id, each in left.items()
        if each["Type"] in (TARGET, POLICY)
        and each["Properties"].get("ResourceId", "").rsplit("/", 1)[-1] in variants
    }
    while gone:
        left = {name: each for name, each in left.items() if name not in gone}
        gone = {name for name, each in left.items() if not set(_references(each)) <= left.keys()}
    return _without(template, template["Resources"].keys() - left.keys())


def _without(template: Template, gone: Collection[str]) -> Template:
    """Return the template without these resources, which it has in `HELD`."""
    resources = dict(template["Resources"])
    held = {name: resources.pop(name) for name in gone}
    text = json.dumps({**_held_resources(template), **held}, sort_keys=True)
    metadata = {**template.get("Metadata", {}), HELD: text}
    return {**template, "Metadata": metadata, "Resources": resources}


def _held_resources(template: Template) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(template.get("Metadata", {}).get(HELD, "{}"))
    return held


def _all_at_once(template: Template) -> Template:
    """Return the template without a rollout, and with an endpoint config of another name.

    SageMaker takes the rollout of the last update with another endpoint config only.
    """
    resources = dict(template["Resources"])
    for logical_id, resource in {**_of(template, CONFIG), **_of(template, ENDPOINT)}.items():
        own = {key: item for key, item in resource["Properties"].items() if key != ROLLOUT}
        name = own["EndpointConfigName"]
        digest = hashlib.sha256(name.encode()).hexdigest()[:CONTENT_DIGITS]
        own["EndpointConfigName"] = name[:-CONTENT_DIGITS] + digest
        resources[logical_id] = {**resource, "Properties": own}
    return {**template, "Resources": resources}


def _variants(template: Template) -> dict[str, Mapping[str, Any]]:
    return {
        variant["VariantName"]: variant
        for config in _of(template, CONFIG).values()
        for variant in config["Properties"].get("ProductionVariants", ())
    }


def _types(variant: Mapping[str, Any]) -> set[str]:
    pools = variant.get("InstancePools", [{"InstanceType": variant.get("InstanceType")}])
    return {pool["InstanceType"] for pool in pools}


def _of(template: Template, resource_type: str) -> dict[str, Any]:
    resources = template["Resources"].items()
    return {key: resource for key, resource in resources if resource["Type"] == resource_type}


def _references(value: Any) -> Iterator[str]:
    """Every resource of the template that this one depends on or refers to."""
    if isinstance(value, Mapping):
        depends = value.get("DependsOn", ())
        yield from (depends,) if isinstance(depends, str) else depends
        if isinstance(value.get("Ref"), str) and not value["Ref"].startswith("AWS::"):
            yield value["Ref"]
        if isinstance(value.get("Fn::GetAtt"), list):
            yield value["Fn::GetAtt"][0]
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _references(inner)


def _join_names(names: list[str]) -> str:
    return f"variant {names[0]}" if len(names) == 1 else f"variants {', '.join(names)}"
