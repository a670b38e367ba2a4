"""Opens the pull request that changes an environment's promotion: its plan and its evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from onboarding.lock import LockError
from onboarding.promotion import (
    Promotion,
    parse_promotion,
    promotion_path,
    promotion_text,
    read_promotion,
)
from onboarding.tree import read_tree
from roundhouse.gitops.branch import Branch
from roundhouse.gitops.compare import change_of, other_stacks
from roundhouse.gitops.forge.forge import Forge
from roundhouse.gitops.markdown import markdown
from roundhouse.gitops.plan import environment_plan
from roundhouse.gitops.plan_comment import COMMENT_MARKER, comment
from roundhouse.gitops.plan_document import Plan, Side
from roundhouse.gitops.promote import deploys_same
from roundhouse.paths import Paths
from roundhouse.processes import Run
from roundhouse.promoted_tree import promoted_folder
from roundhouse.report import Report
from roundhouse.revisions import Git

BRANCH = "roundhouse/promote-{environment}"


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """The pull request of a promotion; `is_new` False: its branch was there already."""

    address: str
    branch: str
    is_new: bool


def open_promotion_request(
    paths: Paths, report: Report, promotion: Promotion, title: str, forge: Forge, run: Run
) -> PullRequest:
    """Push a promotion to a branch of its own, and open or update that branch's pull request.

    The working tree, the index and the local branches stay as they are. A branch that holds this
    promotion is left as it is; where the forge refuses, the remote's branch is again what it was.
    """
    git = Git(folder=paths.tree, run=run)
    parent, base = git.commit("HEAD"), git.default_base().removeprefix("origin/")
    name = BRANCH.format(environment=promotion.environment)
    branch = Branch(name=name, folder=paths.tree, run=run)
    path = promotion_path(paths.tree, promotion.environment)
    file = path.relative_to(paths.tree).as_posix()
    with report.step(f"Planning {promotion.environment}") as step:
        body = promotion_body(paths, promotion, git)
        step.finish(f"commit {promotion.commit[:12]}")
    with report.step(f"Opening a pull request from {name}") as step:
        before = branch.remote_commit()
        text = None if before is None else branch.read(before, file)
        is_new = text is None or not _is_pending(text, promotion, paths, git)
        after = before
        if is_new:
            files = {file: promotion_text(promotion)}
            after = branch.commit(files, title, parent=parent)
            branch.replace(before, after)
        try:
            address = forge.open_pull_request(name, base, title, body)
        except BaseException:
            if after != before:
                branch.replace(after, before)
            raise
        step.finish(address)
    return PullRequest(address=address, branch=name, is_new=is_new)


def promotion_body(paths: Paths, promotion: Promotion, git: Git) -> str:
    """Return what a promotion changes, and what was measured before it, as Markdown."""
    name = promotion.environment
    present = read_promotion(paths.tree, name)
    head = read_tree(promoted_folder(promotion, git, paths.build))
    base = None if present is None else read_tree(promoted_folder(present, git, paths.build))
    changes = environment_plan(change_of(paths, head, name, base), partial(other_stacks, paths))
    plan = Plan(
        base=Side(ref=f"{name} now", commit=None if present is None else present.commit),
        head=Side(ref=name, commit=promotion.commit),
        data_only=True,
        environments=(changes,),
    )
    text = comment(plan).removeprefix(COMMENT_MARKER).strip()
    return "\n".join((*_summary(promotion), text))


def _summary(promotion: Promotion) -> Iterator[str]:
    yield (
        f"`{promotion.environment}` deploys commit {promotion.commit[:12]}, engines by digest from "
        f"`{promotion.source}`; nothing is built. Reverting this pull request rolls it back."
    )
    for model, commit in promotion.models.items():
        yield f"- {markdown(model)}: commit {commit[:12]}"
    yield ""
    if promotion.evidence:
        yield "| endpoint | measured as | on | requests/s | SLO, ms | load test | quiet, minutes |"
        yield "|---|---|---|---|---|---|---|"
    for name, item in promotion.evidence.items():
        cells = (
            name,
            item.endpoint,
            item.instance_type,
            f"{item.requests_per_second:,.0f}",
            f"{item.slo_ms:g}",
            item.measured,
            str(item.quiet_minutes),
        )
        yield f"| {' | '.join(map(markdown, cells))} |"
    yield ""


def _is_pending(text: str, promotion: Promotion, paths: Paths, git: Git) -> bool:
    """True when the branch's file deploys what the promotion does."""
    path = promotion_path(paths.tree, promotion.environment)
    try:
        pending = parse_promotion(path, text, promotion.environment)
    except LockError:
        return False
    return git.has(pending.commit) and deploys_same(git, read_tree(paths.tree), pending, promotion)
