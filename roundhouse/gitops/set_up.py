"""The files that a repository's pipeline needs, written all or none; and what a person must set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import replace_text
from onboarding.tree import Tree
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.session import LOCAL

ForgeName = Literal["github", "gitlab"]
GITHUB_FILES = (".github/workflows/roundhouse*.yml", ".github/actions/*/action.yml",
                ".github/zizmor.yml", "renovate.json")  # fmt: skip
GITLAB_EXAMPLE = "docs/examples/gitlab-ci.yml"
CODEOWNERS: Mapping[ForgeName, str] = {
    "github": ".github/CODEOWNERS",
    "gitlab": ".gitlab/CODEOWNERS",
}
NUMBERS = """gh api repos/OWNER/NAME --jq '"\\(.owner.login)@\\(.owner.id)/\\(.name)@\\(.id)"'"""
"""Prints a repository with its number, and its owner's."""
OWNER = re.compile(r"@[\w.-]+(/[\w.-]+)*|[\w.+-]+@[\w-]+(\.[\w-]+)+", re.ASCII)
OWNED = ("*", "/.github/", "/environments/", "/promotions/")
"""What code owners approve; later lines win, so a team can be given models/ below these."""


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """Files by their paths: written, and as they should be already."""

    written: tuple[str, ...]
    present: tuple[str, ...]


def pipeline_files(code: Path, forge: ForgeName, owners: Sequence[str]) -> dict[str, str]:
    """Return the texts of the pipeline's files by their paths.

    Workflows are those of the repository at `code`. Raises UsageError for what is no owner.
    """
    wrong = [owner for owner in owners if OWNER.fullmatch(owner) is None]
    if wrong or not owners:
        raise UsageError(
            f"--owners {wrong[0] if wrong else ''!r}: give @user, @organization/team or an "
            "e-mail address; they approve every change of code, environments and promotions."
        )
    lines = [f"{pattern:<16}{' '.join(owners)}" for pattern in OWNED]
    texts = {CODEOWNERS[forge]: "\n".join(lines) + "\n"}
    if forge == "gitlab":
        texts[".gitlab-ci.yml"] = shipped_text(code / GITLAB_EXAMPLE)
        return texts
    for pattern in GITHUB_FILES:
        for path in sorted(code.glob(pattern)):
            texts[path.relative_to(code).as_posix()] = shipped_text(path)
    return texts


def write_files(root: Path, texts: Mapping[str, str]) -> SetUp:
    """Write files below a folder, all of them or none.

    Raises RoundhouseError where a file is there with another text, naming every one.
    """
    states = {path: _present_text(root / path) for path in texts}
    other = [path for path, text in states.items() if text not in (None, texts[path])]
    if other:
        raise RoundhouseError(
            f"{', '.join(other)}: changed, or not of this command; nothing was written. Move or "
            "delete them (`git diff` shows your changes), then try again."
        )
    missing = [path for path, text in states.items() if text is None]
    for number, path in enumerate(missing):
        try:
            replace_text(root / path, texts[path])
        except OSError as error:
            for written in missing[:number]:
                (root / written).unlink(missing_ok=True)
            raise NotReadyError(
                f"{root / path}: cannot be written ({error.strerror}); nothing was written. Make "
                "the folder writable, then try again."
            ) from error
    return SetUp(written=tuple(missing), present=tuple(set(texts) - set(missing)))


def github_steps(environments: Sequence[PipelineEnvironment]) -> Iterator[str]:
    """Yield what a person sets in GitHub and AWS, one sentence each."""
    yield (
        "Settings, Actions, General: allow GitHub Actions to create pull requests; no secret and "
        "no variable is needed."
    )
    yield (
        "Settings, Rules, main: pull requests only, review from code owners, status check `plan`. "
        "Where environments have no required reviewers (private repositories below Enterprise), "
        "that review is the approval: of a promotion for the environments that receive."
    )
    yield "Labels: `build` (builds a pull request's engines) and `adopt` (takes a fork's over)."
    for item in environments:
        purposes = ["deploy", *(["promote"] if item.promotes_from else ["build"]), "drift"]
        names = [item.name, *([] if item.promotes_from else [f"{item.name}-build"])]
        yield (
            f"{item.name}: GitHub environment {' and '.join(names)}, with reviewers and branch "
            f"main; roles {', '.join(item.roles[purpose] for purpose in purposes)}."
        )


def gitlab_steps(environments: Sequence[PipelineEnvironment]) -> Iterator[str]:
    """Yield what a person sets in GitLab and AWS, one sentence each."""
    yield (
        "Settings, CI/CD, Variables: GITLAB_TOKEN, a project access token (Developer, scope api), "
        "masked."
    )
    yield "Build, Pipeline schedules: one a day on main, for drift."
    yield "Settings, Merge requests: pipelines must succeed, code owners approve."
    for item in environments:
        yield (
            f"{item.name}: a job `plan {item.name}` and `deploy {item.name}` in .gitlab-ci.yml, "
            f"protected environment {item.name}; roles {item.roles['deploy']}, "
            f"{item.roles['drift']}."
        )


def block_steps(environments: Mapping[str, EnvironmentSpec]) -> Iterator[str]:
    """Yield what a person adds to the environment files that lack the block, one line each."""
    lacking = [item for item, spec in environments.items() if spec.github is None]
    for item in lacking:
        yield (
            f"environments/{item}.yaml: add `github: {{repository: OWNER/NAME, repository_id: ID, "
            "owner_id: OWNER_ID}`."
        )
    if lacking:
        yield f"`{NUMBERS}` prints the repository with its two numbers."


def _present_text(path: Path) -> str | None:
    """Return a file's text; None: it is not there. What is no text is another one."""
    if not path.exists() and not path.is_symlink():
        return None
    return "" if not path.is_file() else path.read_text(encoding="utf-8", errors="replace")


def shipped_text(path: Path) -> str:
    """Return the text of a file of the package. Raises NotReadyError where it is missing."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        way_out = f"install the package again; in a checkout, `git checkout -- {path.name}`"
        raise NotReadyError(f"{path}: is missing; {way_out}.") from error


@dataclass(frozen=True, kw_only=True)
class PipelineEnvironment:
    """One environment of the workflows; `roles` holds the ARN of each by its purpose."""

    name: str
    account: str
    region: str
    promotes_from: str | None
    roles: dict[str, str]
    has_roles: bool
    """Whether the file names a repository, for whose workflows the access stack makes the roles."""
    session_seconds: int
    """How long the build and deploy roles' sessions may last."""


def pipeline_environments(tree: Tree) -> list[PipelineEnvironment]:
    """Return all environments but the local cloud; one that receives comes after its source."""
    ordered: dict[str, EnvironmentSpec] = {}
    visited = {LOCAL}

    def visit(name: str) -> None:
        spec = tree.environments.get(name)
        if spec is None or name in visited:
            return
        visited.add(name)
        if spec.promotes_from is not None:
            visit(spec.promotes_from)
        ordered[name] = spec

    for name in sorted(tree.environments):
        visit(name)
    return [
        PipelineEnvironment(
            name=name,
            account=spec.account,
            region=spec.region,
            promotes_from=spec.promotes_from,
            roles={role: arns.pipeline_role(spec, role) for role in names.PIPELINE_ROLES},
            has_roles=spec.github is not None,
            session_seconds=spec.session_seconds,
        )
        for name, spec in ordered.items()
    ]
