"""Plans of random edits beside the change sets that CloudFormation makes of the same files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onboarding.names import stack_name
from roundhouse.deploy import deployment
from roundhouse.deploy.stacks import environment_templates
from roundhouse.gitops.template_changes import Template
from roundhouse.paths import Paths
from roundhouse.session import LOCAL, Session
from tests.fixtures.local_deployments import LocalDeployments, archived_entry
from tests.fixtures.many_models import many_models
from tests.fixtures.trees import PYTHON_SERVER
from tests.local_cloud.plan_truth.change_sets import (
    PlannedChanges,
    change_set,
    outages,
    planned_changes,
)
from tests.local_cloud.plan_truth.random_edits import SCHEDULE, RandomEdits, random_edits

COUNT = 3
CHANGES: Mapping[str, Any] = {
    "serving": PYTHON_SERVER,
    "endpoint": {"instance_type": "ml.c7i.large", "scaling": {"max": 2}},
}
OWN: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("model-002", {"scaling": {"min": 1, "max": 4, "schedule": [SCHEDULE]}, "dashboard": True}),
    ("model-003", {"data_capture": {"percent": 20}, "rollout": "linear"}),
)
"""What sets the endpoints apart."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One edit: what the plan and CloudFormation say differently, and outages it did not name."""

    seed: int
    resources: int
    outages: int
    differences: tuple[str, ...]
    missed_outages: tuple[str, ...]


def compare_plans(paths: Paths, folder: Path, seeds: Iterable[int]) -> Iterator[Verdict]:
    """Deploy three endpoints to a local cloud, then yield the verdict of each seed's edit."""
    models = many_models(
        paths.code, folder / "tree", COUNT, environment=LOCAL, changes=CHANGES,
        built=archived_entry,
    )  # fmt: skip
    for name, own in OWN:
        models.change(name, {"endpoint": own})
    local = LocalDeployments(paths=replace(paths, tree=models.root, build=folder / "build"))
    with local.cloud():
        local.publish()
        deployment.deploy(local.session(), deployment.DeployOptions(yes=True, concurrency=4))
        session = local.session()
        deployed = environment_templates(session)
        edits = random_edits(models, folder / "original")
        planned = PlannedChanges(local.paths, LOCAL, deployed)
        for seed in seeds:
            yield _verdict(seed, edits, planned, session, deployed)


def _verdict(
    seed: int,
    edits: RandomEdits,
    planned: PlannedChanges,
    session: Session,
    deployed: Mapping[str, Template],
) -> Verdict:
    tree = edits.apply(seed)
    plan, templates = planned.plan(tree)
    expected = planned_changes(plan, tree)
    found = {
        stack: changes
        for stack, template in templates.items()
        if (changes := change_set(session, stack, deployed.get(stack), template))
    }
    differences = [
        f"seed {seed}: {stack}: {logical_id}: the plan says {ours}, CloudFormation {theirs}"
        for stack in sorted(expected.keys() | found.keys())
        for logical_id in sorted(expected.get(stack, {}).keys() | found.get(stack, {}).keys())
        if (ours := expected.get(stack, {}).get(logical_id))
        != (theirs := found.get(stack, {}).get(logical_id))
    ]
    environment = tree.environments[LOCAL]
    prefix = stack_name(environment, "endpoint-")
    gone = {name for name in deployed if name.startswith(prefix) and name not in templates}
    named = {f"{prefix}{item.name}" for item in plan.endpoints if item.outage}
    real = outages(found, deployed) | gone
    return Verdict(
        seed=seed,
        resources=sum(map(len, found.values())),
        differences=tuple(differences),
        outages=len(real),
        missed_outages=tuple(sorted(real - named)),
    )
