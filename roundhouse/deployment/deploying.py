"""The whole road of one environment: foundation, missing images and engines, verification,
endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onboarding.deployment import Deployment
from onboarding.lock import LockEntry
from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX, artifact_bucket
from roundhouse.aws.clients import object_sha256
from roundhouse.builds import engines
from roundhouse.builds.outcome import EnginesNotBuilt
from roundhouse.builds.wish import Wanted
from roundhouse.deployment import cdk
from roundhouse.deployment.endpoint_steps import construct_path, give_scaling_back, take_first_steps
from roundhouse.deployment.verification import archive_fault, lock_fault, require
from roundhouse.errors import DeployFailed, RoundhouseError
from roundhouse.images import images
from roundhouse.pruning import marks
from roundhouse.road import Road

EARLY_STACKS = ("*/Foundation", "*/Images", "*/Builds")


@dataclass(frozen=True, kw_only=True)
class RoadDone:
    """What one walk of the road did."""

    built: tuple[LockEntry, ...]
    verified: int
    deployed: cdk.Deployed
    images: tuple[str, ...] = ()
    """Those that were built and pushed."""


def deploy(
    road: Road, *, rebuild_gone: bool, before_builds: Callable[[], object] = lambda: None
) -> RoadDone:
    """Deploys what the road is of, building what is missing first. What an interrupted walk left
    done is found done.

    An endpoint whose engine cannot be built stays as it is; those that lack none are deployed
    before EnginesNotBuilt is raised.

    `rebuild_gone`: build an engine again whose lock names an archive that is gone; else refuse with
    the command that does.
    `before_builds` is called once the machine is about to be busy with builds.
    """
    if road.is_local:
        _bootstrap(road)
        road.report.say(
            "– No image is built in the local cloud: environments of this machine stand for them"
        )
    orders, image_orders = engines.wanted(road), images.missing(road)
    if orders or image_orders:
        _deploy(road, "Deploying the foundation and the builds", EARLY_STACKS)
    images.build_images(road, image_orders)
    built: tuple[LockEntry, ...] = ()
    if orders:
        before_builds()
        try:
            built = engines.build_all(road, _allowed(orders, rebuild_gone))
        except EnginesNotBuilt:
            _deploy_what_is_whole(road)
            raise
    else:
        road.report.say("✓ Nothing to build: every engine is in its lock and in S3")
    deployments = road.deployments()
    verified = verify(road, deployments)
    title = f"Deploying {', '.join(road.endpoints)}" if road.endpoints else "Deploying every stack"
    deployed = _deploy_endpoints(road, title, deployments, ())
    return RoadDone(
        built=built,
        verified=verified,
        deployed=deployed,
        images=tuple(order.image for order in image_orders),
    )


def verify(road: Road, deployments: Sequence[Deployment]) -> int:
    """Compares every archive of these endpoints with its lock and its hardware; how many. Raises
    DeployFailed: the first fault.

    Whatever `roundhouse prune` has marked of them since, on another branch, is needed again: the
    mark is taken off.
    """
    with road.report.step("Verifying every archive against its lock") as step:
        count = 0
        needed: dict[str, None] = {}
        for deployment in deployments:
            for target in deployment.targets:
                entry = target.lock_entry
                if entry is None:
                    command = f"`roundhouse build --env {road.environment.name} --model {target.model.name}`"
                    raise DeployFailed(
                        f"{target.model.name} has no engine {target.engine_key} in its lock; {command} builds it."
                    )
                require(lock_fault(deployment, target, entry))
                found = object_sha256(
                    road.clients("s3"), artifact_bucket(road.environment), entry.archive.path
                )
                require(archive_fault(deployment, target, entry, found))
                needed |= dict.fromkeys(_prefixes(entry))
                count += 1
        freed = marks.keep(road.clients("s3"), artifact_bucket(road.environment), needed)
        step.done(
            f"{count} as their locks say"
            + (f", the mark of `roundhouse prune` taken off {freed} objects" if freed else "")
        )
    return count


def _prefixes(entry: LockEntry) -> tuple[str, ...]:
    """Where the objects of an engine and of its networks lie."""
    networks = (f"{NETWORKS_PREFIX}/{key}/" for key in entry.manifest.network_keys.values())
    return (f"{ENGINES_PREFIX}/{entry.manifest.engine_key}/", *networks)


def _deploy_what_is_whole(road: Road) -> None:
    """Deploys the endpoints that lack no engine; what goes wrong with them is said beside the
    builds' own failure.
    """
    whole = [deployment for deployment in road.deployments() if not deployment.missing]
    if not whole:
        return
    try:
        verify(road, whole)
        _deploy_endpoints(
            road,
            "Deploying the endpoints that lack no engine",
            whole,
            tuple(map(construct_path, whole)),
        )
    except RoundhouseError as error:
        road.report.say(str(error))


def _allowed(orders: tuple[Wanted, ...], rebuild_gone: bool) -> tuple[Wanted, ...]:
    """The orders without those the verification is to refuse."""
    return tuple(order for order in orders if rebuild_gone or order.target.lock_entry is None)


def _bootstrap(road: Road) -> None:
    with road.report.step("cdk bootstrap") as step:
        step.done("done" if cdk.bootstrap(road) else "is there already")


def _deploy_endpoints(
    road: Road, title: str, deployments: Sequence[Deployment], only: tuple[str, ...]
) -> cdk.Deployed:
    """Deploys endpoints, each by as many updates as its change takes; a failure on the way leaves
    none without its scaling.

    Whatever else goes wrong on the way, the first failure is the one that is raised.
    """
    try:
        take_first_steps(road, deployments)
        return _deploy(road, title, only)
    except RoundhouseError:
        try:
            give_scaling_back(road, deployments)
        except RoundhouseError as error:
            road.report.say(
                f"An endpoint may be without its scaling until the next deploy: {error}"
            )
        raise


def _deploy(road: Road, title: str, only: tuple[str, ...]) -> cdk.Deployed:
    with road.report.step(f"{title} (cdk deploy)") as step:
        result = cdk.deploy(road, only=only, on_line=lambda line: cdk.tell(step, line))
        step.done(f"{len(result.changed)} changed, {len(result.unchanged)} with no changes")
    return result
