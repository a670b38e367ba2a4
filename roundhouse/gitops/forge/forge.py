"""The forge of this repository, chosen by the variables of a workflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from roundhouse.errors import NotReadyError
from roundhouse.gitops.forge.github import GitHub, github_api
from roundhouse.gitops.forge.gitlab import GitLab, gitlab_api

GITHUB_URL = "https://api.github.com"
GITLAB_URL = "https://gitlab.com/api/v4"


class Forge(Protocol):
    """Where pull requests are. Every method may raise ForgeRefusedError and ForgeNotReadyError.

    A marker is an HTML comment that begins the text; only texts of the token's own user count,
    since anybody may write the marker. What is created or updated is returned by its address.
    """

    def pull_requests(self, head: str) -> list[int]:
        """Return the numbers of the open pull requests whose head is this commit."""

    def upsert_comment(self, pull_request: int, marker: str, body: str) -> str:
        """Create or update the one comment of a pull request with the marker."""

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Create or update the one open issue with the marker."""

    def close_issue(self, marker: str, comment: str) -> str | None:
        """Close the open issue with the marker, with a comment; None: there is none."""

    def open_pull_request(self, branch: str, base: str, title: str, body: str) -> str:
        """Open a pull request, or update the one that is open from the branch."""

    def dispatch_workflow(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> None:
        """Start a workflow on a branch."""


def forge_of(environ: Mapping[str, str]) -> Forge:
    """Return the forge that a workflow's variables name. Raises NotReadyError.

    GitHub: GITHUB_REPOSITORY, GITHUB_TOKEN or GH_TOKEN, GITHUB_API_URL.
    GitLab: CI_PROJECT_ID, GITLAB_TOKEN, CI_API_V4_URL.
    """
    if environ.get("GITHUB_REPOSITORY"):
        repository = environ["GITHUB_REPOSITORY"]
        if re.fullmatch(r"\w[\w-]*/[\w.-]+", repository, re.ASCII) is None:
            raise NotReadyError(f"GITHUB_REPOSITORY {repository!r}: must be owner/name.")
        name, token = _token(environ, "GITHUB_TOKEN", "GH_TOKEN")
        url = environ.get("GITHUB_API_URL") or GITHUB_URL
        return GitHub(api=github_api(url, token, name), repository=repository)
    if environ.get("CI_PROJECT_ID"):
        name, token = _token(environ, "GITLAB_TOKEN")
        url = environ.get("CI_API_V4_URL") or GITLAB_URL
        return GitLab(api=gitlab_api(url, token, name), project=environ["CI_PROJECT_ID"])
    raise NotReadyError(
        "No forge is named: set GITHUB_REPOSITORY (owner/name) and GITHUB_TOKEN, or CI_PROJECT_ID "
        "and GITLAB_TOKEN; workflows and pipelines do."
    )


def _token(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the variable that holds the token, and the token. Raises NotReadyError."""
    for name in names:
        token = environ.get(name, "")
        if token:
            if not (token.isascii() and token.isprintable()) or " " in token:
                raise NotReadyError(f"{name}: holds characters that no token has; set it anew.")
            return name, token
    raise NotReadyError(f"{' or '.join(names)} is not set: the forge needs a token; set it.")
