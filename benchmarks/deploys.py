"""Deploying many endpoints to the local cloud, deploying them again unchanged, and changing one.

Their servers really start, each in a container of its own, and the cloud waits until they are
healthy; but they answer nothing else. Measured are synth, verification of every archive,
CloudFormation and endpoints.
"""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.context import Context
from benchmarks.measure import Bar, Measure, with_command
from benchmarks.scale.cloud import LocalDeployments, archived_entry
from benchmarks.scale.many_models import many_models
from benchmarks.trees import PYTHON_SERVER
from roundhouse.deploy import deployment
from roundhouse.session import LOCAL

COUNT = 100
WITH_DASHBOARD = COUNT + 1
CHANGES = {
    "serving": PYTHON_SERVER,
    "endpoint": {"instance_type": "ml.c7i.large", "scaling": {"max": 2}},
}
COMMAND = (
    f"make bench BENCH=deploys: roundhouse deploy --env local, {COUNT} models, servers that "
    "answer /ping alone; a minute that a rollout waits is 1 s"
)


def deploys(context: Context) -> list[Measure]:
    """Measure each deployment once. Raises ValueError when one fails."""
    folder, paths = context.empty_folder("deploys"), context.paths
    tree = many_models(
        paths.code, folder / "tree", COUNT, environment=LOCAL, changes=CHANGES, built=archived_entry
    )
    local = LocalDeployments(paths=replace(paths, tree=tree.root, build=folder / "build"))
    with local.cloud():
        local.publish()
        measures = _deploy(local, f"{COUNT} endpoints, the first time", WITH_DASHBOARD)
        measures += _deploy(local, "again, unchanged", 0)
        for name, endpoints in (("model-050", ()), ("model-051", ("model-051",))):
            tree.change(name, {"accuracy": {"budget": {"worst": 0.94}}})
            local.publish(name)
            option = "".join(f", --endpoint {endpoint}" for endpoint in endpoints)
            measures += _deploy(local, f"one has a new engine{option}", 1, *endpoints)
    return with_command(COMMAND, measures)


def _deploy(
    local: LocalDeployments, name: str, expected_changes: int, *endpoints: str
) -> list[Measure]:
    """Run one `roundhouse deploy`: how many stacks it changed, and how long it took."""
    begin = time.monotonic()
    options = deployment.DeployOptions(yes=True, concurrency=4)
    stacks = deployment.deploy(local.session(*endpoints), options).deployed
    seconds = round(time.monotonic() - begin, 1)
    bar = Bar(kind="exactly", limit=expected_changes)
    return [
        Measure(f"{name}: stacks changed", len(stacks.changed), "stacks", bar),
        Measure(f"{name}: stacks left as they were", len(stacks.unchanged), "stacks"),
        Measure(name, seconds, "s"),
    ]
