"""Computes a plan: the templates before and after a change, and everything that follows from them.

Nothing here opens a socket: the files of both sides are read, and templates are functions of them,
which the CDK writes in this process with Node beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from onboarding import names
from onboarding.deployed_endpoint import DeployedEndpoint
from onboarding.deployment import Deployment, Target, signature_faults
from onboarding.environment_spec import EnvironmentSpec, promotion_neighbours
from onboarding.generation_findings import generation_plans
from onboarding.generation_resolve import generation_deployments
from onboarding.lock import LockEntry
from onboarding.prices import price, prices_date
from onboarding.resolve import deployments, runtime_identity
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import Tree
from roundhouse import synthesis
from roundhouse.gitops.endpoint_facts import (
    declared_template,
    monthly_cost,
    resources_of,
    rollout_plan,
    scaling_changes,
)
from roundhouse.gitops.engine_changes import engine_changes, previous_target
from roundhouse.gitops.plan_document import (
    CostChange,
    EndpointChange,
    EnvironmentPlan,
    ResourceChange,
    RolloutPlan,
    StackChange,
    plan_id,
)
from roundhouse.gitops.template_changes import (
    Template,
    is_outage,
    permission_changes,
    resource_changes,
    template_digest,
)
from roundhouse.synthesis import endpoint_template
from stacks.capacity.variant import variant_capacity
from stacks.endpoint.change import COMPONENT, update_steps
from stacks.endpoint.findings import endpoint_faults
from stacks.generation.faults import generation_faults

REQUESTS = 1_000_000
OtherStacks = Callable[[EnvironmentSpec, Mapping[str, EnvironmentSpec]], Mapping[str, Template]]
"""The templates of an environment's foundation, images, builds and access, by stack name.

Of the environment, among all of its tree by name.
"""
Endpoint = Deployment | GenerationDeployment
Side = tuple[Sequence[Deployment], Sequence[GenerationDeployment]]
"""The endpoints of an environment on one side of a change."""
PERCENT = 100.0
EndpointT = TypeVar("EndpointT", bound=DeployedEndpoint)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Both sides of a change in one environment.

    `base` None: the environment is new, or the side before is what is `deployed` (templates by
    stack name). `image_uris` names every image that endpoints run, `base_image_uris` those before
    the change; None: the code is the same.
    """

    environment: EnvironmentSpec
    base: Tree | None
    head: Tree
    image_uris: Mapping[str, str]
    deployed: Mapping[str, Template] | None = None
    base_image_uris: Mapping[str, str] | None = None

    @property
    def uris_before(self) -> Mapping[str, str]:
        """Return where endpoints found their images before the change."""
        return self.image_uris if self.base_image_uris is None else self.base_image_uris


def environment_plan(change: Change, other_stacks: OtherStacks) -> EnvironmentPlan:
    """Return what the change does in one environment.

    Raises FaultsError where a lock cannot be read.
    """
    name = change.environment.name
    trees = (change.base, change.head)
    before, after = (_by_name(tree, name, deployments) for tree in trees)
    old_generators, generators = (_by_name(tree, name, generation_deployments) for tree in trees)
    estimated = {key: _with_estimates(item, before) for key, item in after.items()}
    deployed = json.dumps(change.deployed or {})
    engines = [
        engine
        for engine in engine_changes(change.head, before, after)
        if engine.state == "missing" or engine.key not in deployed
    ]
    old: dict[str, Endpoint] = {**before, **old_generators}
    new: dict[str, Endpoint] = {**estimated, **generators}
    endpoints: list[EndpointChange] = []
    digests: dict[str, tuple[str, str]] = {}
    for endpoint in sorted(old.keys() | new.keys() | _deployed_endpoints(change)):
        pair = (old.get(endpoint), new.get(endpoint))
        found = _found_change(change, endpoint, pair, after.get(endpoint))
        if found is None:
            continue
        endpoints.append(found[0])
        if endpoint in new:
            digests[names.stack_name(change.environment, f"endpoint-{endpoint}")] = found[1]
    sides = (
        (list(before.values()), list(old_generators.values())),
        (list(estimated.values()), list(generators.values())),
    )
    stacks = _stack_changes(change, other_stacks, sides, digests)
    missing = [engine.key for engine in engines if engine.state == "missing"]
    used = change.head.views[name].instance_types if name in change.head.views else ()
    return EnvironmentPlan(
        environment=name,
        id=plan_id(digests, missing),
        endpoints=tuple(endpoints),
        engines=tuple(engines),
        stacks=stacks,
        unchanged_endpoints=len(new.keys() - {item.name for item in endpoints}),
        prices_date=prices_date(change.environment.region, used),
        digests=dict(sorted(digests.items())),
        text_generation=generation_plans(change.head, name),
    )


def _found_change(
    change: Change,
    endpoint: str,
    pair: tuple[Endpoint | None, Endpoint | None],
    files: Deployment | None,
) -> tuple[EndpointChange, tuple[str, str]] | None:
    """Return what becomes of an endpoint, with digests of its templates; None: nothing.

    `files`: what they give where the new one of `pair` has estimates of an engine that is not
    built. A text generator whose checkpoint is not built has no template yet: its plan says so.
    """
    old, new = pair
    if old is not None and old == new and change.uris_before == change.image_uris:
        return None
    faults: tuple[str, ...] = ()
    is_estimated = False
    if isinstance(new, GenerationDeployment):
        if new.problem is not None:
            return None
        faults = generation_faults(new)
    elif new is not None and files is not None:
        faults = () if new.missing else endpoint_faults(new)
        faults += tuple(map(str, signature_faults(files)))
        is_estimated = new != files or bool(new.missing)
    templates = _templates(change, endpoint, pair)
    found = endpoint_change(change.environment.region, endpoint, pair, templates)
    if not (found.resources or faults or is_estimated):
        return None
    found = found.model_copy(update={"faults": faults, "is_estimated": is_estimated})
    return found, (template_digest(templates[0]), template_digest(templates[1]))


def _templates(
    change: Change,
    endpoint: str,
    pair: tuple[Endpoint | None, Endpoint | None],
) -> tuple[Template | None, Template | None]:
    """Return an endpoint's templates before and after; None: its stack is not there."""
    old, new = pair
    before: Template | None
    if change.deployed is None:
        before = None if old is None else endpoint_template(old, change.uris_before)
    else:
        before = change.deployed.get(names.stack_name(change.environment, f"endpoint-{endpoint}"))
    return before, None if new is None else endpoint_template(new, change.image_uris)


def _by_name(
    tree: Tree | None, environment: str, resolve: Callable[[Tree, str], Sequence[EndpointT]]
) -> dict[str, EndpointT]:
    """Return the endpoints of one kind in an environment; none of a tree that is not there."""
    if tree is None or environment not in tree.views:
        return {}
    return {item.name: item for item in resolve(tree, environment)}


def _deployed_endpoints(change: Change) -> set[str]:
    """Return the endpoints whose stacks are deployed."""
    prefix = names.stack_name(change.environment, "endpoint-")
    return {
        stack.removeprefix(prefix) for stack in change.deployed or () if stack.startswith(prefix)
    }


def _with_estimates(deployment: Deployment, before: Mapping[str, Deployment]) -> Deployment:
    """Return the deployment with the lock entry of the engine before in place of a missing one."""
    candidates = [target for item in before.values() for target in item.targets]

    def estimated(target: Target) -> Target:
        previous = previous_target(target, candidates)
        if target.lock_entry is not None or previous is None or previous.lock_entry is None:
            return target
        return replace(target, lock_entry=_stand_in(deployment, target, previous.lock_entry))

    return deployment.with_targets(estimated)


def _stand_in(deployment: Deployment, target: Target, entry: LockEntry) -> LockEntry:
    path = names.engine_archive_path(target.engine_key)
    manifest = entry.manifest.model_copy(
        update={
            "engine_key": target.engine_key,
            "network_keys": target.network_keys,
            "compute_capability": target.instance_type.compute_capability,
            "gpu": target.plan_gpu,
            "runtime": runtime_identity(target.model, deployment.platform, target.instance_type),
        }
    )
    archive = entry.archive.model_copy(update={"path": path})
    return LockEntry(archive=archive, manifest=manifest, capacity=entry.capacity)


def endpoint_change(
    region: str,
    endpoint: str,
    deployments: tuple[Endpoint | None, Endpoint | None],
    templates: tuple[Template | None, Template | None],
) -> EndpointChange:
    """Return what becomes of an endpoint, by what deploys it and its templates of both sides."""
    before, after = templates
    resources = resource_changes(before, after)
    of = [item if isinstance(item, Deployment) else None for item in deployments]
    counted = [
        declared_template(item) if item is not None and item.missing else template
        for item, template in zip(of, templates, strict=True)
    ]
    costs = [None if template is None else monthly_cost(template, region) for template in counted]
    capacities = [None if item is None else per_million_requests(item) for item in of]
    return EndpointChange(
        name=endpoint,
        kind="new" if before is None else "gone" if after is None else "changed",
        outage=is_outage(resources),
        is_estimated=False,
        resources=resources,
        permissions=permission_changes(before, after),
        rollout=_rollout(before, after, resources),
        scaling=scaling_changes(*counted),
        cost=CostChange(
            before=None if costs[0] is None else costs[0][0],
            after=None if costs[1] is None else costs[1][0],
            per_million_before=capacities[0],
            per_million_after=capacities[1],
            unknown=tuple(sorted({name for cost in costs if cost for name in cost[1]})),
        ),
    )


def per_million_requests(deployment: Deployment) -> float | None:
    """Return USD of a million requests at the capacity of one instance of the own variant.

    None where its price or its capacity is not known.
    """
    capacity = variant_capacity(deployment, deployment.own)
    hourly = price(deployment.environment.region, "hosting", deployment.instance_type.name)
    if capacity is None or hourly is None:
        return None
    return round(hourly / 3600 / capacity.requests_per_second * REQUESTS, 4)


def _stack_changes(
    change: Change,
    other_stacks: OtherStacks,
    deployments_of: tuple[Side, Side],
    digests: dict[str, tuple[str, str]],
) -> tuple[StackChange, ...]:
    """Return the changes of the stacks that are no endpoint's, and note their digests."""
    base = None if change.base is None else change.base.environments.get(change.environment.name)
    before, after = (
        dict(observability_template(change.environment, *items)) for items in deployments_of
    )
    if change.deployed is not None:
        prefix = names.stack_name(change.environment, "endpoint-")
        before = {
            name: item for name, item in change.deployed.items() if not name.startswith(prefix)
        }
    if change.deployed is not None or _may_differ(change):
        after |= other_stacks(change.environment, change.head.environments)
        if change.deployed is None and change.base is not None and base is not None:
            before |= other_stacks(base, change.base.environments)
    found = []
    for stack in sorted(before.keys() | after.keys()):
        pair = (before.get(stack), after.get(stack))
        resources = resource_changes(*pair)
        if resources:
            digests[stack] = (template_digest(pair[0]), template_digest(pair[1]))
            found.append(
                StackChange(name=stack, resources=resources, permissions=permission_changes(*pair))
            )
    return tuple(found)


def observability_template(
    environment: EnvironmentSpec,
    of: Sequence[Deployment],
    generators: Sequence[GenerationDeployment] = (),
) -> dict[str, Template]:
    """Return the stack of the environment's dashboard, by its name; none without an endpoint."""
    if not of and not generators:
        return {}
    stack = names.stack_name(environment, "observability")
    return {stack: synthesis.observability_template(environment, of, generators)}


def _may_differ(change: Change) -> bool:
    """True when the stacks beside the endpoints may differ: they follow the environment's facts.

    And those of the environments that it promotes from and to.
    """
    sides = [
        _facts(change.environment.name, {} if tree is None else tree.environments)
        for tree in (change.base, change.head)
    ]
    return sides[0] != sides[1]


def _facts(name: str, environments: Mapping[str, EnvironmentSpec]) -> list[dict[str, object]]:
    """Return what the stacks beside an environment's endpoints are made of."""
    own = environments.get(name)
    if own is None:
        return []
    source, receivers = promotion_neighbours(own, environments)
    found = (own, *receivers, *(() if source is None else (source,)))
    return [spec.model_dump(exclude={"models", "endpoints"}) for spec in found]


def _rollout(
    before: Template | None, after: Template | None, resources: tuple[ResourceChange, ...]
) -> RolloutPlan | None:
    """Return how copies are replaced, or where the endpoint config changes its instances."""
    if not (before and after and before["Resources"] and after["Resources"]):
        return None
    changed = {item.type for item in resources if item.change in ("new-version", "in-place")}
    components = list(resources_of(after, COMPONENT))
    if "AWS::SageMaker::EndpointConfig" in changed or not components:
        is_new = any(item.change == "new-version" for item in resources)
        return rollout_plan(after, len(update_steps(before, after))) if is_new else None
    rolling = [item for item in components if "DeploymentConfig" in item["Properties"]]
    return (
        _component_rollout(rolling[0]["Properties"]) if COMPONENT in changed and rolling else None
    )


def _component_rollout(component: Mapping[str, Any]) -> RolloutPlan:
    """Return the batches of an inference component; extra instances hold one batch."""
    policy = component["DeploymentConfig"]["RollingUpdatePolicy"]
    percent = float(policy["MaximumBatchSize"]["Value"])
    steps = math.ceil(PERCENT / percent)
    return RolloutPlan(
        kind="rolling copies",
        step_percents=tuple(min(PERCENT, percent * number) for number in range(1, steps + 1)),
        minutes=steps * policy["WaitIntervalInSeconds"] / 60,
        extra_instances=1,
    )
