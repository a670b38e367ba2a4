"""Plans the change between what git or the account has and the onboarding files as they are."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from onboarding.promotion import read_promotion
from onboarding.resolve import deployments
from onboarding.tree import Tree, read_tree
from roundhouse import settings
from roundhouse.deploy.cdk import stack_artifacts
from roundhouse.deploy.images import current_image_uris
from roundhouse.deploy.stacks import Template
from roundhouse.gitops.plan import Change, environment_plan
from roundhouse.gitops.plan_document import Plan, Side
from roundhouse.paths import Paths
from roundhouse.processes import Run
from roundhouse.promoted_tree import promoted_folder
from roundhouse.revisions import Git, export_revision, is_data_only
from stacks.images import IMAGE_FOLDERS

DEPLOYED = "deployed"


def plan_against_git(paths: Paths, ref: str | None, environments: Sequence[str], run: Run) -> Plan:
    """Return the plan of the files as they are against a git reference.

    `ref` None: origin/main, or main. `environments` empty: all. Raises FaultsError for an unknown
    environment, UsageError for an unknown reference.
    """
    git = Git(folder=paths.tree, run=run)
    name = git.default_base() if ref is None else ref
    head_commit = git.commit("HEAD")
    base_commit = git.merge_base(git.commit(name), head_commit)
    head = read_tree(paths.tree)
    plan = Plan(
        base=Side(ref=name, commit=base_commit),
        head=Side(ref="HEAD", commit=head_commit, dirty=git.is_dirty()),
        data_only=is_data_only(git, git.changed_files(base_commit)),
        environments=(),
        faults=tuple(map(str, head.faults)),
    )
    if plan.faults:
        return plan
    with tempfile.TemporaryDirectory(prefix="roundhouse-plan-") as folder:
        base = export_revision(git, base_commit, Path(folder))
        plans = []
        for name in chosen_environments(head, environments):
            sides = [
                promoted_tree(tree, root, name, git, paths.build)
                for tree, root in ((base, Path(folder)), (head, paths.tree))
            ]
            change = change_of(paths, sides[1], name, None if sides[0].faults else sides[0])
            if not plan.data_only and change.base is not None and paths.tree == paths.code:
                change = replace(change, base_image_uris=_base_image_uris(git, base_commit, change))
            plans.append(environment_plan(change, partial(other_stacks, paths)))
    return plan.model_copy(update={"environments": tuple(plans)})


def plan_against_deployed(
    paths: Paths, environment: str, deployed: Mapping[str, Template], run: Run
) -> Plan:
    """Return the plan of the files as they are against the templates that an account has."""
    git = Git(folder=paths.tree, run=run)
    head = read_tree(paths.tree)
    plan = Plan(
        base=Side(ref=DEPLOYED),
        head=Side(ref="HEAD", commit=git.head(), dirty=git.head() is None or git.is_dirty()),
        data_only=False,
        environments=(),
        faults=tuple(map(str, head.faults)),
    )
    if plan.faults:
        return plan
    (name,) = chosen_environments(head, [environment])
    own = promoted_tree(head, paths.tree, name, git, paths.build)
    change = change_of(paths, own, name, None, deployed)
    changes = environment_plan(change, partial(other_stacks, paths))
    return plan.model_copy(update={"environments": (changes,)})


def promoted_tree(tree: Tree, root: Path, environment: str, git: Git, build: Path) -> Tree:
    """Return what an environment deploys: the tree, or that of the promotion below its root."""
    promotion = read_promotion(root, environment)
    if promotion is None:
        return tree
    return read_tree(promoted_folder(promotion, git, build))


def chosen_environments(tree: Tree, wanted: Sequence[str]) -> list[str]:
    """Return the environments to plan, all by default. Raises FaultsError for an unknown one."""
    for name in wanted:
        if name not in tree.views:
            deployments(tree, name)
    return list(wanted) or sorted(tree.views)


def change_of(
    paths: Paths,
    head: Tree,
    environment: str,
    base: Tree | None,
    deployed: Mapping[str, Template] | None = None,
) -> Change:
    """Return both sides of a change in one environment."""
    spec = head.environments[environment]
    return Change(
        environment=spec,
        base=base if base is not None and environment in base.views else None,
        head=head,
        image_uris=current_image_uris(paths.code, spec),
        deployed=deployed,
    )


def _base_image_uris(git: Git, commit: str, change: Change) -> dict[str, str]:
    """Return where the images of a commit's code lie, by what its Dockerfiles copied."""
    assert change.base is not None
    spec = change.base.environments[change.environment.name]
    with tempfile.TemporaryDirectory(prefix="roundhouse-images-") as folder:
        git.export(commit, IMAGE_FOLDERS, Path(folder))
        return current_image_uris(Path(folder), spec)


def other_stacks(
    paths: Paths, environment: EnvironmentSpec, environments: Mapping[str, EnvironmentSpec]
) -> dict[str, Template]:
    """Return the templates of an environment's foundation, images, builds and access, by stack.

    `environments` are those of the same tree, by name.
    """
    settings.quieten_cdk()
    from aws_cdk import App

    from stacks.environment_stage import EnvironmentStage, read_sources

    settings_of_cdk = json.loads((paths.repository / "cdk.json").read_text("utf-8"))
    context: dict[str, Any] = settings_of_cdk.get("context", {})
    with tempfile.TemporaryDirectory(prefix="roundhouse-synth-") as folder:
        app = App(
            outdir=folder,
            context=context,
            analytics_reporting=False,
            stack_traces=False,
            tree_metadata=False,
        )
        EnvironmentStage(
            app,
            environment=environment,
            deployments=(),
            sources=read_sources(paths.code),
            environments=environments,
        )
        app.synth()
        return {name: item.template for name, item in stack_artifacts(Path(folder)).items()}
