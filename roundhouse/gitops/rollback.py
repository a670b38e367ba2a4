"""Returns what an environment, or one endpoint of it, deployed before, as a promotion again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from onboarding.lock import LockError
from onboarding.promotion import (
    Promotion,
    parse_promotion,
    promotion_path,
    read_promotion,
)
from onboarding.resolve import deployments
from roundhouse.errors import RoundhouseError
from roundhouse.gitops.model_commits import (
    move_models,
    promoted_endpoints,
)
from roundhouse.paths import Paths
from roundhouse.processes import Run
from roundhouse.revisions import Git
from roundhouse.session import valid_tree
from roundhouse.text import choices

WHOLE = "roll the whole environment back, without ENDPOINT"


def earlier_promotion(
    paths: Paths,
    environment: str,
    run: Run,
    commit: str | None = None,
    endpoint: str | None = None,
) -> Promotion:
    """Return the promotion before the present one, or the latest one of a commit.

    `commit`: what is to be deployed, or how that begins. `endpoint`: roll back this one alone, the
    others stay. Raises FaultsError for an unknown environment, RoundhouseError where git has no
    such promotion.
    """
    name = environment
    deployments(valid_tree(paths), name)
    present = read_promotion(paths.tree, name)
    if present is None:
        raise RoundhouseError(
            f"{name} has no promotion: it deploys the files as they are. Revert the commit "
            "that changed them, then deploy."
        )
    past = past_promotions(paths, name, run)
    if endpoint is None:
        found = next((item for item in past if _is_other(item, present, commit)), None)
    else:
        found = _endpoint_rollback(paths, present, past, endpoint, commit, run)
    if found is None:
        subject = name if endpoint is None else f"endpoint {endpoint} in {name}"
        wanted = "earlier promotion" if commit is None else f"promotion of commit {commit}"
        raise RoundhouseError(
            f"git has no {wanted} of {subject} here; "
            f"`git log -- {promotion_path(paths.tree, name)}` lists what there is."
        )
    return found


def past_promotions(paths: Paths, environment: str, run: Run) -> Iterator[Promotion]:
    """Yield an environment's promotions that git has, the latest first; others are left out."""
    git, path = Git(folder=paths.tree, run=run), promotion_path(paths.tree, environment)
    for text in git.versions(path.relative_to(paths.tree).as_posix()):
        try:
            yield parse_promotion(path, text, environment)
        except LockError:
            continue


def _is_other(promotion: Promotion, present: Promotion, commit: str | None) -> bool:
    is_same = (promotion.commit, promotion.models) == (present.commit, present.models)
    return not is_same and (commit is None or promotion.commit.startswith(commit))


def _endpoint_rollback(
    paths: Paths,
    present: Promotion,
    past: Iterator[Promotion],
    endpoint: str,
    commit: str | None,
    run: Run,
) -> Promotion | None:
    """Return the present promotion with an endpoint's models at the commit they had before."""
    git = Git(folder=paths.tree, run=run)
    now = promoted_endpoints(present, git, paths.build)
    if endpoint not in now:
        raise RoundhouseError(
            f"{endpoint}: no such endpoint in environment {present.environment}; "
            f"{choices(endpoint, sorted(now))}"
        )
    models = now[endpoint].models
    for promotion in past:
        commits = {model: promotion.models.get(model, promotion.commit) for model in models}
        if commit is not None and not all(item.startswith(commit) for item in commits.values()):
            continue
        before = promoted_endpoints(promotion, git, paths.build)
        earlier, present_one = before.get(endpoint), now[endpoint]
        if earlier is None or replace(earlier, environment=present_one.environment) == present_one:
            continue
        wanted = tuple(before.values())
        moved = move_models(present, commits, wanted, git, paths.build, instead=WHOLE).promotion
        return moved.model_copy(update={"date": datetime.now(UTC).date().isoformat()})
    return None
