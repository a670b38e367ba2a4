"""Deploying many endpoints to the local cloud, deploying them again unchanged, and changing one.

Their servers really start, each in a container of its own, and the cloud waits until they are
healthy; but they are stand-ins
that answer nothing else. What is measured is deploying: synth, verification of every archive,
CloudFormation, endpoints.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from benchmarks.measure import Bar, Measure
from benchmarks.scale.cloud import LocalDeployments, archived_entry
from benchmarks.scale.many_models import many_models
from roundhouse.deploy import deployment
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.session import LOCAL

COUNT = 100
WITH_THE_DASHBOARD = COUNT + 1
FIRST, SECOND = "model-050", "model-051"
CHANGES = {
    "serving": {"server": "python"},
    "endpoint": {"instance_type": "ml.c7i.large", "scaling": {"max": 2}},
}
COMMAND = (
    f"make bench BENCH=deploys: roundhouse deploy --env local, {COUNT} models, servers that "
    f"answer /ping alone; "
    "a minute that a rollout waits is 1 s"
)


def deploys(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Every measure, of one run each. Raises ValueError when a run does not do what it should."""
    place = at.build / "bench" / "deploys"
    shutil.rmtree(place, ignore_errors=True)
    tree = many_models(
        at.code, place / "tree", COUNT, environment=LOCAL, changes=CHANGES, built=archived_entry
    )
    local = LocalDeployments(paths=replace(at, tree=tree.root, build=place / "build"))
    with local.cloud():
        local.publish()
        measures = [
            *_scaling_run(local, f"{COUNT} endpoints, the first time", exactly=WITH_THE_DASHBOARD)
        ]
        measures += _scaling_run(local, "again, unchanged", exactly=0)
        for name, only in ((FIRST, ()), (SECOND, (SECOND,))):
            tree.change(name, {"accuracy": {"budget": {"worst": 0.94}}})
            local.publish(name)
            text = f", --endpoint {name}" if only else ""
            measures += _scaling_run(local, f"one has a new engine{text}", exactly=1, only=only)
    return measures


def _scaling_run(
    local: LocalDeployments, name: str, *, exactly: int, only: tuple[str, ...] = ()
) -> Iterator[Measure]:
    """One `roundhouse deploy`: how many stacks it changed, and how long it took."""
    begin = time.monotonic()
    done = deployment.deploy(
        local.session(*only), deployment.DeployOptions(yes=True, concurrency=4)
    )
    seconds = time.monotonic() - begin
    changed = len(done.deployed.changed)
    bars = (Bar(kind="at most", limit=exactly), Bar(kind="at least", limit=exactly))
    missed = next((bar for bar in bars if not bar.holds(changed)), bars[0])
    yield Measure(
        name=f"{name}: stacks changed", value=changed, unit="stacks", command=COMMAND, bar=missed
    )
    yield Measure(
        name=f"{name}: stacks left as they were",
        value=len(done.deployed.unchanged),
        unit="stacks",
        command=COMMAND,
    )
    yield Measure(name=name, value=round(seconds, 1), unit="s", command=COMMAND)
