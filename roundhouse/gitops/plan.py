"""Computes a plan: the templates before and after a change, and everything that follows from them.

Nothing here opens a socket: the files of both sides are read, and templates are functions of them,
which the CDK writes in this process with Node beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec, promotion_neighbours
from onboarding.generation_resolve import generation_plans
from onboarding.prices import price, prices_date
from onboarding.tree import Tree
from onboarding.workload import Endpoint
from roundhouse import settings
from roundhouse.deploy.stacks import Template
from roundhouse.gitops.endpoint_facts import (
    VariantFacts,
    declared_variants,
    monthly_cost,
    resources_of,
    rolling_plan,
    rollout_plan,
    variant_facts,
)
from roundhouse.gitops.engine_changes import engine_changes
from roundhouse.gitops.model_commits import tree_endpoints
from roundhouse.gitops.plan_document import (
    CostChange,
    EndpointChange,
    EnvironmentPlan,
    PermissionChange,
    ResourceChange,
    RolloutPlan,
    StackChange,
    plan_id,
)
from roundhouse.gitops.template_changes import (
    permission_changes,
    resource_changes,
    template_digest,
)
from stacks.endpoint.change import COMPONENT, hosting_fault, update_steps
from stacks.endpoint.findings import endpoint_faults
from stacks.engine_capacity import variant_capacity

REQUESTS = 1_000_000
OtherStacks = Callable[[EnvironmentSpec, Mapping[str, EnvironmentSpec]], Mapping[str, Template]]
"""The templates of an environment's foundation, images, builds and access, by stack name.

Of the environment, among all of its tree by name.
"""


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
    old, new = (_by_name(tree, name) for tree in (change.base, change.head))
    deployed = json.dumps(change.deployed or {})
    engines = [
        engine
        for engine in engine_changes(change.head, old.values(), new.values())
        if engine.state == "missing" or engine.key not in deployed
    ]
    endpoints: list[EndpointChange] = []
    digests: dict[str, tuple[str, str]] = {}
    for endpoint in sorted(old.keys() | new.keys() | _deployed_endpoints(change)):
        pair = (old.get(endpoint), new.get(endpoint))
        found = _found_change(change, endpoint, pair)
        if found is None:
            continue
        endpoints.append(found[0])
        if endpoint in new and found[0].is_built:
            digests[names.stack_name(change.environment, f"endpoint-{endpoint}")] = found[1]
    sides = (tuple(old.values()), tuple(new.values()))
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
    change: Change, endpoint: str, pair: tuple[Endpoint | None, Endpoint | None]
) -> tuple[EndpointChange, tuple[str, str]] | None:
    """Return what becomes of an endpoint, with digests of its templates; None: nothing.

    A text generator whose checkpoint is not built has no template yet: its plan says so.
    """
    old, new = pair
    if old is not None and old == new and change.uris_before == change.image_uris:
        return None
    faults: tuple[str, ...] = ()
    if new is not None and new.problem is not None:
        return None
    if new is not None:
        faults = (*(endpoint_faults(new) if new.is_built else ()), *new.signature_faults())
    before, after = templates = _templates(change, endpoint, pair)
    if before and after and (fault := hosting_fault(before, after)):
        faults += (fault,)
    found = endpoint_change(change.environment.region, endpoint, pair, templates)
    if not found.resources and not faults and found.is_built:
        return None
    digests = template_digest(templates[0]), template_digest(templates[1])
    return found.model_copy(update={"faults": faults}), digests


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


def _by_name(tree: Tree | None, environment: str) -> dict[str, Endpoint]:
    """Return the endpoints of an environment; none of a tree that is not there."""
    if tree is None or environment not in tree.views:
        return {}
    return tree_endpoints(tree, environment)


def _deployed_endpoints(change: Change) -> set[str]:
    """Return the endpoints whose stacks are deployed."""
    prefix = names.stack_name(change.environment, "endpoint-")
    return {
        stack.removeprefix(prefix) for stack in change.deployed or () if stack.startswith(prefix)
    }


def endpoint_change(
    region: str,
    endpoint: str,
    deployments: tuple[Endpoint | None, Endpoint | None],
    templates: tuple[Template | None, Template | None],
) -> EndpointChange:
    """Return what becomes of an endpoint, by what deploys it and its templates of both sides."""
    before, after = templates
    new = deployments[1]
    is_built = new is None or new.is_built
    # What an engine that is not built will bring is not known.
    resources = resource_changes(before, after) if is_built else ()
    costs = [
        None if template is None else monthly_cost(_variants(item, template), region)
        for item, template in zip(deployments, templates, strict=True)
    ]
    capacities = [per_million_requests(item) for item in deployments]
    return EndpointChange(
        name=endpoint,
        kind="new" if before is None else "gone" if after is None else "changed",
        outage=any(item.change == "outage" for item in resources),
        is_built=is_built,
        resources=resources,
        permissions=permission_changes(before, after) if is_built else PermissionChange(),
        rollout=_rollout(before, after, resources),
        cost=CostChange(
            before=None if costs[0] is None else costs[0][0],
            after=None if costs[1] is None else costs[1][0],
            per_million_before=capacities[0],
            per_million_after=capacities[1],
            unknown=tuple(sorted({name for cost in costs if cost for name in cost[1]})),
        ),
    )


def _variants(deployment: Endpoint | None, template: Template) -> tuple[VariantFacts, ...]:
    """Return an endpoint's variants by its template, or by the files of one that is not built."""
    if isinstance(deployment, Deployment) and not deployment.is_built:
        return declared_variants(deployment)
    return variant_facts(template)


def per_million_requests(deployment: Endpoint | None) -> float | None:
    """Return USD of a million requests at the capacity of one instance of the own variant.

    None where its price or its capacity is not known, as that of whatever serves no engine.
    """
    if not isinstance(deployment, Deployment):
        return None
    capacity = variant_capacity(deployment, deployment.own)
    hourly = price(deployment.environment.region, "hosting", deployment.instance_type.name)
    if capacity is None or hourly is None:
        return None
    return round(hourly / 3600 / capacity.requests_per_second * REQUESTS, 4)


def _stack_changes(
    change: Change,
    other_stacks: OtherStacks,
    endpoints: tuple[Sequence[Endpoint], Sequence[Endpoint]],
    digests: dict[str, tuple[str, str]],
) -> tuple[StackChange, ...]:
    """Return the changes of the stacks that are no endpoint's, and note their digests."""
    base = None if change.base is None else change.base.environments.get(change.environment.name)
    before, after = (observability_template(change.environment, side) for side in endpoints)
    if change.deployed is not None:
        prefix = names.stack_name(change.environment, "endpoint-")
        before = {
            name: item for name, item in change.deployed.items() if not name.startswith(prefix)
        }
    if change.deployed is not None or _may_differ(change):
        after |= other_stacks(change.environment, change.head.environments)
        if change.deployed is None and change.base is not None and base is not None:
            before |= other_stacks(base, change.base.environments)
    dashboard = names.stack_name(change.environment, "observability")
    if dashboard in before and any(
        item.problem is None and not item.is_built for item in endpoints[1]
    ):
        # What it shows of an engine is known once that is built.
        after.pop(dashboard, None)
        before.pop(dashboard)
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
    configs = (item["Properties"].get("DeploymentConfig") for item in components)
    rolling = [config for config in configs if config is not None]
    if COMPONENT not in changed or not rolling:
        return None
    # The instance more holds one batch of copies.
    return rolling_plan(rolling[0], "rolling copies")


def endpoint_template(endpoint: Endpoint, image_uris: Mapping[str, str]) -> dict[str, Any]:
    """Return the template of an endpoint's stack; no resource where it cannot be deployed."""
    settings.quieten_cdk()
    from stacks import endpoint_stack

    return endpoint_stack.endpoint_template(endpoint, image_uris)


def observability_template(
    environment: EnvironmentSpec, endpoints: Collection[Endpoint]
) -> dict[str, Mapping[str, Any]]:
    """Return the stack of an environment's dashboard, by its name; none without an endpoint."""
    if not endpoints:
        return {}
    settings.quieten_cdk()
    from stacks.endpoint_stack import synthesize
    from stacks.environment_stage import ObservabilityStack

    template = synthesize(
        lambda app: ObservabilityStack(
            app,
            "Observability",
            environment=environment,
            endpoints=endpoints,
        )
    )
    return {names.stack_name(environment, "observability"): template}
