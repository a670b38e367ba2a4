"""What a command works with: the places, one environment of the tree, its AWS clients, and the
runner of its processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roundhouse import settings
from roundhouse.aws.clients import Clients, session_clients
from roundhouse.errors import DeskError
from roundhouse.places import Places
from roundhouse.processes import Processes, Run
from roundhouse.report import Report

if TYPE_CHECKING:
    from local_cloud.address import CloudAddress
    from onboarding.deployment import Deployment
    from onboarding.environment_spec import EnvironmentSpec
    from onboarding.tree import Tree

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Road:
    """One environment, ready to be worked on; `variables` is the environment of its child
    processes.
    """

    places: Places
    environment: EnvironmentSpec
    variables: Mapping[str, str]
    clients: Clients
    run: Run
    report: Report
    endpoints: tuple[str, ...] = ()
    """Those that are worked on, by their names in the tree; empty: all."""

    @property
    def is_local(self) -> bool:
        """Whether the account is the local cloud."""
        return self.environment.name == LOCAL

    def deployments(self) -> tuple[Deployment, ...]:
        """What the environment deploys, by the files and locks as they are now."""
        from onboarding.resolve import deployments

        return deployments(sound_tree(self.places), self.environment.name, self.endpoints)


def sound_tree(places: Places) -> Tree:
    """The onboarding tree. Raises FaultsError with every fault."""
    from onboarding.fault import FaultsError
    from onboarding.tree import read_tree

    tree = read_tree(places.tree)
    if tree.faults:
        raise FaultsError(tree.faults)
    return tree


def open_road(
    places: Places,
    report: Report,
    environment: str,
    run: Run | None = None,
    endpoints: tuple[str, ...] = (),
) -> Road:
    """Reads the tree and points this process's AWS clients at the environment.

    Raises FaultsError, DeskError.
    """
    from onboarding.resolve import deployments

    tree = sound_tree(places)
    deployments(tree, environment, endpoints)
    spec = tree.environments[environment]
    variables = settings.inherited()
    if environment == LOCAL:
        variables = _local_variables(running_cloud(places), spec)
        settings.adopt_aws(variables)
    return Road(
        places=places,
        environment=spec,
        variables=settings.child_environment(variables),
        clients=session_clients(spec.region),
        run=Processes() if run is None else run,
        report=report,
        endpoints=endpoints,
    )


def cloud_state(places: Places) -> Path:
    """Where the local cloud keeps what it made."""
    return places.build / LOCAL


def running_cloud(places: Places) -> CloudAddress:
    """The local cloud. Raises DeskError when it is not up."""
    from local_cloud import lifecycle

    address = lifecycle.find(cloud_state(places))
    if address is None:
        raise DeskError(
            "The local cloud is not up: `roundhouse up` starts it, `make demo` walks the whole road."
        )
    return address


def _local_variables(address: CloudAddress, spec: EnvironmentSpec) -> dict[str, str]:
    from local_cloud import lifecycle

    return lifecycle.client_environment(
        address, settings.inherited(), account=spec.account, region=spec.region
    )
