"""Writes an environment's earlier promotion again, as a revert of the promotion would."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import ValidationError

from onboarding.promotion import Promotion, promotion_path, read_promotion, write_promotion
from onboarding.resolve import deployments
from onboarding.yaml_text import load_yaml
from roundhouse.errors import RoundhouseError
from roundhouse.paths import Paths
from roundhouse.processes import Run
from roundhouse.revisions import Git
from roundhouse.session import valid_tree


def roll_back(paths: Paths, environment: str, run: Run, commit: str | None = None) -> Promotion:
    """Write the promotion before the present one, or the latest one of a commit; return it.

    `commit`: what the environment is to deploy, or how that begins. Raises FaultsError for an
    unknown environment, RoundhouseError where git has no such promotion.
    """
    deployments(valid_tree(paths), environment)
    present = read_promotion(paths.tree, environment)
    if present is None:
        raise RoundhouseError(
            f"{environment} has no promotion: it deploys the files as they are. Revert the commit "
            "that changed them, then deploy."
        )
    earlier = [
        item
        for item in past_promotions(paths, environment, run)
        if item.commit != present.commit and (commit is None or item.commit.startswith(commit))
    ]
    if not earlier:
        wanted = "an earlier promotion" if commit is None else f"a promotion of commit {commit}"
        raise RoundhouseError(
            f"git has no {wanted.removeprefix('a ').removeprefix('an ')} of {environment} here; "
            f"`git log -- {promotion_path(paths.tree, environment)}` lists what there is."
        )
    write_promotion(paths.tree, earlier[0])
    return earlier[0]


def past_promotions(paths: Paths, environment: str, run: Run) -> Iterator[Promotion]:
    """Yield an environment's promotions that git has, the latest first; others are left out."""
    git = Git(folder=paths.tree, run=run)
    file = promotion_path(paths.tree, environment).relative_to(paths.tree)
    for text in git.versions(file.as_posix()):
        try:
            yield Promotion.model_validate_json(json.dumps(load_yaml(text)))
        except (ValidationError, ValueError, TypeError):
            continue
