"""The kinds of workload: what resolves their endpoints, and the locks of what their builds make.

A kind has one row here, one subclass of DeployedEndpoint, of BuiltEntry and of ModelLock; whatever
is the same for all of them (promotion, plans, pruning, drift) reads these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from onboarding.deployment import Deployment
from onboarding.generation_resolve import generation_deployments
from onboarding.lock import Lock, LockError, ModelLock, read_lock_file
from onboarding.resolve import deployments
from onboarding.text_generation.checkpoint_lock import GenerationLock
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import Tree

Endpoint = Deployment | GenerationDeployment
"""An endpoint of any kind."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One kind of workload."""

    lock: type[ModelLock]
    """What its builds made, of one model."""
    resolve: Callable[[Tree, str, Collection[str]], tuple[Endpoint, ...]]
    """Its endpoints in an environment, or some by name; names of other kinds are left out."""


ENGINES = Workload(lock=Lock, resolve=deployments)
CHECKPOINTS = Workload(lock=GenerationLock, resolve=generation_deployments)
WORKLOADS = (ENGINES, CHECKPOINTS)


def endpoint_deployments(
    tree: Tree,
    environment: str,
    only: Collection[str] = (),
    workloads: Collection[Workload] = WORKLOADS,
) -> tuple[Endpoint, ...]:
    """Return every endpoint of an environment, or `only` some by name, whatever their kind.

    Raises FaultsError when the tree has faults, a name is unknown, or a lock cannot be read.
    """
    return tuple(
        item for workload in workloads for item in workload.resolve(tree, environment, only)
    )


def lock_type(path: Path) -> type[ModelLock]:
    """Return the kind of lock that a file is; that of engines where it is none."""
    for workload in WORKLOADS:
        try:
            if read_lock_file(path, workload.lock) is not None:
                return workload.lock
        except LockError:
            continue
    return Lock
