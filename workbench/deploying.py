"""The whole road of one environment: foundation, missing engines, verification, endpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket
from workbench import builds, cdk
from workbench.aws import object_sha256
from workbench.errors import DeployFailed
from workbench.report import Step
from workbench.road import Road
from workbench.verification import archive_fault, lock_fault, require

EARLY_STACKS = ("*/Foundation", "*/Builds")


@dataclass(frozen=True, kw_only=True)
class RoadDone:
    """What one walk of the road did."""

    built: tuple[LockEntry, ...]
    verified: int
    deployed: cdk.Deployed


def deploy(road: Road, *, rebuild_gone: bool, before_builds: Callable[[], object] = lambda: None) -> RoadDone:
    """Deploys an environment, building what is missing first.

    `rebuild_gone`: build an engine again whose lock names an archive that is gone; else refuse with the command that does.
    `before_builds` is called once the machine is about to be busy with builds.
    """
    if road.is_local:
        _bootstrap(road)
    orders = builds.wanted(road)
    built: tuple[LockEntry, ...] = ()
    if orders:
        _deploy(road, "Deploying the foundation and the builds", EARLY_STACKS)
        before_builds()
        built = builds.build_all(road, _allowed(orders, rebuild_gone))
    else:
        road.report.say("✓ Nothing to build: every engine is in its lock and in S3")
    verified = verify(road)
    return RoadDone(built=built, verified=verified, deployed=_deploy(road, "Deploying every stack", ()))


def verify(road: Road) -> int:
    """Compares every archive in S3 with its lock and its hardware; how many. Raises DeployFailed with the first fault."""
    with road.report.step("Verifying every archive against its lock") as step:
        count = 0
        for deployment in road.deployments():
            for target in deployment.targets:
                entry = target.lock_entry
                if entry is None:
                    command = f"`roundhouse build --env {road.environment.name} --model {target.model.name}`"
                    raise DeployFailed(f"{target.model.name} has no engine {target.engine_key} in its lock; {command} builds it.")
                require(lock_fault(deployment, target, entry))
                found = object_sha256(road.clients("s3"), artifact_bucket(road.environment), entry.archive.path)
                require(archive_fault(deployment, target, entry, found))
                count += 1
        step.done(f"{count} as their locks say")
    return count


def _allowed(orders: tuple[builds.Wanted, ...], rebuild_gone: bool) -> tuple[builds.Wanted, ...]:
    """The orders without those the verification is to refuse."""
    return tuple(order for order in orders if rebuild_gone or order.target.lock_entry is None)


def _bootstrap(road: Road) -> None:
    with road.report.step("cdk bootstrap") as step:
        step.done("done" if cdk.bootstrap(road) else "is there already")


def _deploy(road: Road, title: str, only: tuple[str, ...]) -> cdk.Deployed:
    with road.report.step(f"{title} (cdk deploy)") as step:
        result = cdk.deploy(road, only=only, on_line=lambda line: _tell(step, line))
        step.done(f"{len(result.changed)} changed, {len(result.unchanged)} with no changes")
    return result


def _tell(step: Step, line: str) -> None:
    # The CLI names the place in jsii's program that a message comes from, on a line of its own.
    if line.strip() and "lib/program.js" not in line:
        step.update(line)
