"""Promotions in which some models have a commit of their own: composed, checked, and recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onboarding.deployment import Deployment
from onboarding.lock import LockEntry
from onboarding.promotion import PromotedCheckpoint, Promotion
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import Tree, read_tree
from onboarding.workload import Endpoint, endpoint_deployments
from roundhouse.errors import RoundhouseError
from roundhouse.promoted_tree import promoted_folder
from roundhouse.revisions import Git
from roundhouse.text import choices

ALL = "leave --model out"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What an environment deploys with some models at another commit."""

    promotion: Promotion
    endpoints: tuple[Endpoint, ...]
    """Those of the models that moved."""
    is_new: bool
    """False: the environment deploys exactly this already."""


def move_models(
    present: Promotion,
    commits: Mapping[str, str],
    wanted: Sequence[Endpoint],
    git: Git,
    build: Path,
    instead: str | None = None,
) -> Moved:
    """Return the present promotion with some models at other commits, `commits` by model.

    `wanted`: what the environment deploys there. The models' endpoints must be exactly those of
    `wanted` afterwards, and every other one as it is now: else RoundhouseError names what must
    move together, or `instead` as the way out.
    """
    models = set(commits)
    known = {model for item in wanted for model in item.models}
    unknown = sorted(models - known)
    if unknown:
        raise RoundhouseError(
            f"--model {unknown[0]}: no such model in environment {present.environment}; "
            f"{choices(unknown[0], sorted(known))}"
        )
    own = {**present.models, **commits}
    own = {name: commit for name, commit in sorted(own.items()) if commit != present.commit}
    served = {name: item for name, item in present.checkpoints.items() if name not in models}
    for name, item in served_checkpoints(wanted).items():
        if name in models:
            served[name] = item
    moved = present.model_copy(update={"models": own, "checkpoints": served})
    before = promoted_endpoints(present, git, build)
    composed = read_tree(promoted_folder(moved, git, build))
    if composed.faults:
        raise RoundhouseError(
            f"{', '.join(sorted(models))} cannot be moved alone: {composed.faults[0]} Way out: "
            f"{instead or ALL}."
        )
    after = tree_endpoints(composed, present.environment)
    chosen = {item.name for item in (*before.values(), *wanted) if models & set(item.models)}
    _require_whole(before, _by_name(wanted), after, chosen, models, instead)
    return Moved(
        promotion=with_artifacts(moved, after.values()),
        endpoints=tuple(item for item in wanted if item.name in chosen),
        is_new=before != after,
    )


def promoted_endpoints(promotion: Promotion, git: Git, build: Path) -> dict[str, Endpoint]:
    """Return what a promotion deploys, by endpoint."""
    tree = read_tree(promoted_folder(promotion, git, build))
    return tree_endpoints(tree, promotion.environment)


def tree_endpoints(tree: Tree, environment: str) -> dict[str, Endpoint]:
    """Return what an environment deploys by the files as they are, by endpoint."""
    return _by_name(endpoint_deployments(tree, environment))


def with_artifacts(promotion: Promotion, endpoints: Collection[Endpoint]) -> Promotion:
    """Return a promotion that names what these endpoints serve, which are all it deploys."""
    entries = [item.entry for endpoint in endpoints for item in endpoint.artifacts]
    archives = {item.key: item.digest for item in entries if isinstance(item, LockEntry)}
    update = {
        "engines": _engine_names([item for item in endpoints if isinstance(item, Deployment)]),
        "archives": dict(sorted(archives.items())),
        "checkpoints": dict(sorted(served_checkpoints(endpoints).items())),
    }
    return promotion.model_copy(update=update)


def served_checkpoints(endpoints: Collection[Endpoint]) -> dict[str, PromotedCheckpoint]:
    """Return the checkpoint that each text generator serves, by model."""
    return {
        item.name: PromotedCheckpoint(
            checkpoint_key=item.entry.checkpoint_key,
            files_sha256=item.entry.files_sha256,
            instance_type=item.candidate.instance_type,
        )
        for item in endpoints
        if isinstance(item, GenerationDeployment) and item.entry is not None
    }


def _by_name(endpoints: Collection[Endpoint]) -> dict[str, Endpoint]:
    return {item.name: item for item in endpoints}


def _require_whole(
    before: Mapping[str, Endpoint],
    wanted: Mapping[str, Endpoint],
    after: Mapping[str, Endpoint],
    chosen: Collection[str],
    models: Collection[str],
    instead: str | None,
) -> None:
    """Raise RoundhouseError for an endpoint that would be of no commit whole."""
    for name in sorted({*before, *after, *chosen}):
        expected, found = (wanted if name in chosen else before).get(name), after.get(name)
        if expected is not None and found is not None:
            expected = replace(expected, environment=found.environment)
        if expected == found:
            continue
        others = {
            model
            for item in (before.get(name), wanted.get(name))
            if item is not None
            for model in item.models
        }
        others = {model for model in others if model not in models}
        options = " ".join(f"--model {model}" for model in sorted(others))
        way_out = instead or (f"add {options}, or {ALL}" if others else ALL)
        raise RoundhouseError(
            f"Endpoint {name} would be neither what it is now nor what it is at that commit, "
            f"because files that {', '.join(sorted(models))} shares with others changed; {way_out}."
        )


def _engine_names(endpoints: Collection[Deployment]) -> dict[str, str]:
    """Return the engine key of each model; of a model with several, by instance type too."""
    keys: dict[str, dict[str, str]] = {}
    for item in endpoints:
        pools = (pool for variant in item.variants for pool in variant.pools)
        for target in (target for pool in pools for target in pool.targets):
            of_model = keys.setdefault(target.model.name, {})
            of_model[target.instance_type.name] = target.engine_key
    return {
        model if len(set(of_model.values())) == 1 else f"{model}/{instance}": key
        for model, of_model in sorted(keys.items())
        for instance, key in sorted(of_model.items())
    }
