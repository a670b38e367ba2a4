"""One environment as a command works with it.

The paths, one environment of the tree, its AWS clients, and the runner of its processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roundhouse import settings
from roundhouse.aws.clients import Clients, aws_clients
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.paths import Paths
from roundhouse.processes import Processes, Run
from roundhouse.promoted_tree import environment_paths
from roundhouse.report import Report

if TYPE_CHECKING:
    from local_cloud.address import CloudAddress
    from onboarding.deployment import DeployedEndpoint, Deployment
    from onboarding.environment_spec import EnvironmentSpec
    from onboarding.text_generation.generation_deployment import GenerationDeployment
    from onboarding.tree import Tree

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Session:
    """One environment, ready to be worked on.

    `variables` is the environment of its child processes.
    """

    paths: Paths
    environment: EnvironmentSpec
    variables: Mapping[str, str]
    clients: Clients
    run: Run
    report: Report
    endpoints: tuple[str, ...] = ()
    """Those that are worked on, by their names in the tree; empty: all."""
    is_promoted: bool = False
    """True when the files are those of the environment's promotion, which pins a commit."""

    @property
    def is_local(self) -> bool:
        """Return whether the account is the local cloud."""
        return self.environment.name == LOCAL

    def deployments(self) -> tuple[Deployment, ...]:
        """What the environment deploys of engines, by the files and locks as they are now."""
        from onboarding.resolve import deployments

        return deployments(valid_tree(self.paths), self.environment.name, self.endpoints)

    def generators(self) -> tuple[GenerationDeployment, ...]:
        """What the environment deploys of text generators, by the files and locks as they are."""
        from onboarding.generation_resolve import generation_deployments

        return generation_deployments(valid_tree(self.paths), self.environment.name, self.endpoints)

    def endpoint_deployments(self) -> tuple[DeployedEndpoint, ...]:
        """Return what the environment deploys of every kind of workload, by files and locks."""
        from onboarding.workload import endpoint_deployments

        return endpoint_deployments(valid_tree(self.paths), self.environment.name, self.endpoints)


def valid_tree(paths: Paths) -> Tree:
    """The onboarding tree. Raises FaultsError with every fault."""
    from onboarding.fault import FaultsError
    from onboarding.tree import read_tree

    tree = read_tree(paths.tree)
    if tree.faults:
        raise FaultsError(tree.faults)
    return tree


def open_session(
    paths: Paths,
    report: Report,
    environment: str,
    run: Run | None = None,
    endpoints: tuple[str, ...] = (),
) -> Session:
    """Read the tree and point this process's AWS clients at the environment.

    Raises FaultsError, NotReadyError.
    """
    from onboarding.resolve import deployments

    run = Processes() if run is None else run
    own = environment_paths(paths, environment, run)
    tree = valid_tree(own)
    deployments(tree, environment, endpoints)
    spec = tree.environments[environment]
    variables = settings.inherited()
    if environment == LOCAL:
        from local_cloud import lifecycle

        variables = lifecycle.client_environment(
            running_local_cloud(paths), variables, account=spec.account, region=spec.region
        )
        settings.adopt_aws(variables)
    return Session(
        paths=own,
        environment=spec,
        variables={**settings.QUIET, **variables},
        clients=aws_clients(spec.region),
        run=run,
        report=report,
        endpoints=endpoints,
        is_promoted=own != paths,
    )


def lock_folder(session: Session) -> Path:
    """Return the folder of the environment's locks, for measurements that are written there.

    The local cloud's must not stand among reviewed ones. Raises RoundhouseError.
    """
    folder = session.paths.tree / session.environment.locks
    scratch = [path.resolve() for path in (session.paths.build, session.paths.tree / "build")]
    if session.is_local and not any(folder.resolve().is_relative_to(path) for path in scratch):
        raise RoundhouseError(
            f"--record: {session.environment.locks}/ holds reviewed locks, and the local cloud's "
            "speed is this machine's; measure an endpoint on AWS, or let "
            f"environments/{session.environment.name}.yaml say `locks: build/local/locks`."
        )
    return folder


def cloud_folder(paths: Paths) -> Path:
    """Where the local cloud keeps what it made."""
    return paths.build / LOCAL


def start_local_cloud(paths: Paths, report: Report, port: int | None = None) -> CloudAddress:
    """Start the local cloud, or find the one that is up; show where it listens and its log."""
    from local_cloud import lifecycle

    with report.step("Local cloud") as step:
        address = lifecycle.start(
            paths.code, cloud_folder(paths), port, environments=paths.environments
        )
        log = cloud_folder(paths) / lifecycle.LOG_FILE
        step.finish(f"{address.endpoint_url} (process {address.pid}, log {log})")
    return address


def running_local_cloud(paths: Paths) -> CloudAddress:
    """The local cloud. Raises NotReadyError when it is not up."""
    from local_cloud import lifecycle

    address = lifecycle.find(cloud_folder(paths))
    if address is None:
        raise NotReadyError(
            "The local cloud is not up: `roundhouse up` starts it, `make demo` runs everything."
        )
    return address


def stop_local_cloud(paths: Paths) -> bool:
    """Stop the local cloud and remove the locks of what it held; False when it was not up."""
    from local_cloud import lifecycle

    was_up = lifecycle.stop(cloud_folder(paths))
    for build in (paths.build, *paths.repository.glob("examples/*/build")):
        folder = build / LOCAL / "locks"
        for kept in folder.glob("*.lock.yaml"):
            kept.unlink(missing_ok=True)
        for empty in (folder, folder.parent):
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
    return was_up
