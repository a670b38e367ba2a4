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
from roundhouse.deploy import cdk, images
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.outcome import EnginesNotBuiltError
from roundhouse.deploy.builds.wish import Wanted
from roundhouse.deploy.endpoint_steps import construct_path, give_scaling_back, take_first_steps
from roundhouse.deploy.pruning import tags
from roundhouse.deploy.verification import archive_fault, lock_fault, require
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.session import Session

EARLY_STACKS = ("*/Foundation", "*/Images", "*/Builds")


@dataclass(frozen=True, kw_only=True)
class DeployResult:
    """What one walk of the road did."""

    built: tuple[LockEntry, ...]
    verified: int
    deployed: cdk.Deployed
    images: tuple[str, ...] = ()
    """Those that were built and pushed."""


def deploy(
    session: Session, *, rebuild_gone: bool, before_builds: Callable[[], object] = lambda: None
) -> DeployResult:
    """Deploys what the road is of, building what is missing first. What an interrupted walk left
    done is found done.

    An endpoint whose engine cannot be built stays as it is; those that lack none are deployed
    before EnginesNotBuiltError is raised.

    `rebuild_gone`: build an engine again whose lock names an archive that is gone; else refuse with
    the command that does.
    `before_builds` is called once the machine is about to be busy with builds.
    """
    if session.is_local:
        _bootstrap(session)
        session.report.print(
            "– No image is built in the local cloud: environments of this machine stand for them"
        )
    orders, image_orders = engines.wanted(session), images.missing(session)
    if orders or image_orders:
        _deploy(session, "Deploying the foundation and the builds", EARLY_STACKS)
    images.build_images(session, image_orders)
    built: tuple[LockEntry, ...] = ()
    if orders:
        before_builds()
        try:
            built = engines.build_all(session, _allowed(orders, rebuild_gone))
        except EnginesNotBuiltError:
            _deploy_what_is_whole(session)
            raise
    else:
        session.report.print("✓ Nothing to build: every engine is in its lock and in S3")
    deployments = session.deployments()
    verified = verify(session, deployments)
    title = (
        f"Deploying {', '.join(session.endpoints)}"
        if session.endpoints
        else "Deploying every stack"
    )
    deployed = _deploy_endpoints(session, title, deployments, ())
    return DeployResult(
        built=built,
        verified=verified,
        deployed=deployed,
        images=tuple(order.image for order in image_orders),
    )


def verify(session: Session, deployments: Sequence[Deployment]) -> int:
    """Compares every archive of these endpoints with its lock and its hardware; how many. Raises
    DeployFailedError: the first fault.

    Whatever `roundhouse prune` has marked of them since, on another branch, is needed again: the
    mark is taken off.
    """
    with session.report.step("Verifying every archive against its lock") as step:
        count = 0
        needed: dict[str, None] = {}
        for deployment in deployments:
            for target in deployment.targets:
                entry = target.lock_entry
                if entry is None:
                    command = f"`roundhouse build --env {session.environment.name} --model {target.model.name}`"
                    raise DeployFailedError(
                        f"{target.model.name} has no engine {target.engine_key} in its lock; {command} builds it."
                    )
                require(lock_fault(deployment, target, entry))
                found = object_sha256(
                    session.clients("s3"), artifact_bucket(session.environment), entry.archive.path
                )
                require(archive_fault(deployment, target, entry, found))
                needed |= dict.fromkeys(_prefixes(entry))
                count += 1
        freed = tags.keep(session.clients("s3"), artifact_bucket(session.environment), needed)
        step.done(
            f"{count} as their locks say"
            + (f", the mark of `roundhouse prune` taken off {freed} objects" if freed else "")
        )
    return count


def _prefixes(entry: LockEntry) -> tuple[str, ...]:
    """Where the objects of an engine and of its networks lie."""
    networks = (f"{NETWORKS_PREFIX}/{key}/" for key in entry.manifest.network_keys.values())
    return (f"{ENGINES_PREFIX}/{entry.manifest.engine_key}/", *networks)


def _deploy_what_is_whole(session: Session) -> None:
    """Deploys the endpoints that lack no engine; what goes wrong with them is said beside the
    builds' own failure.
    """
    whole = [deployment for deployment in session.deployments() if not deployment.missing]
    if not whole:
        return
    try:
        verify(session, whole)
        _deploy_endpoints(
            session,
            "Deploying the endpoints that lack no engine",
            whole,
            tuple(map(construct_path, whole)),
        )
    except RoundhouseError as error:
        session.report.print(str(error))


def _allowed(orders: tuple[Wanted, ...], rebuild_gone: bool) -> tuple[Wanted, ...]:
    """The orders without those the verification is to refuse."""
    return tuple(order for order in orders if rebuild_gone or order.target.lock_entry is None)


def _bootstrap(session: Session) -> None:
    with session.report.step("cdk bootstrap") as step:
        step.done("done" if cdk.bootstrap(session) else "is there already")


def _deploy_endpoints(
    session: Session, title: str, deployments: Sequence[Deployment], only: tuple[str, ...]
) -> cdk.Deployed:
    """Deploys endpoints, each by as many updates as its change takes; a failure on the way leaves
    none without its scaling.

    Whatever else goes wrong on the way, the first failure is the one that is raised.
    """
    try:
        take_first_steps(session, deployments)
        return _deploy(session, title, only)
    except RoundhouseError:
        try:
            give_scaling_back(session, deployments)
        except RoundhouseError as error:
            session.report.print(
                f"An endpoint may be without its scaling until the next deploy: {error}"
            )
        raise


def _deploy(session: Session, title: str, only: tuple[str, ...]) -> cdk.Deployed:
    with session.report.step(f"{title} (cdk deploy)") as step:
        result = cdk.deploy(session, only=only, on_line=lambda line: cdk.tell(step, line))
        step.done(f"{len(result.changed)} changed, {len(result.unchanged)} with no changes")
    return result
