"""The forge's OpenID Connect issuer: tokens with GitHub's claims, which the local cloud believes.

Source: GitHub's OpenID Connect reference.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from tests.rehearsal.forge.records import WRITE, Job, Run

ISSUER = "https://token.actions.githubusercontent.com"
LIFETIME_SECONDS = 300


class TokenRefusedError(Exception):
    """A job may have no token; the message says why."""


def unsigned_token(claims: Mapping[str, Any]) -> str:
    """Return a JSON Web Token whose signature nobody checks."""
    parts = ({"alg": "RS256", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    return ".".join([*(part.decode() for part in encoded), "none"])


def job_claims(run: Run, audience: str) -> dict[str, Any]:
    """Return the claims of the present job's token. Raises TokenRefusedError."""
    job = run.job
    if job is None or run.is_fork or run.level("id-token") != WRITE:
        raise TokenRefusedError("the job has no `id-token: write`, or the run is a fork's")
    _require_approval(run, job)
    repository, now = run.repository, int(time.time())
    owner = repository.owner
    reference = f"{repository.full_name}/{run.workflow}@{run.ref}"
    claims = {
        "iss": ISSUER,
        "aud": audience,
        "sub": _subject(run, job),
        "jti": secrets.token_hex(8),
        "iat": now,
        "nbf": now,
        "exp": now + LIFETIME_SECONDS,
        "repository": repository.full_name,
        "repository_id": str(repository.id),
        "repository_owner": owner.login,
        "repository_owner_id": str(owner.id),
        "repository_visibility": "private",
        "ref": run.ref,
        "sha": run.sha,
        "head_ref": run.head_branch if run.pull_request else "",
        "base_ref": run.base_branch,
        "event_name": run.event,
        "actor": run.actor.login,
        "actor_id": str(run.actor.id),
        "run_id": str(run.id),
        "workflow": run.name,
        "workflow_ref": reference,
        "job_workflow_ref": f"{repository.full_name}/{job.workflow}@{job.workflow_ref}",
        "runner_environment": "github-hosted",
    }
    return claims if job.environment is None else {**claims, "environment": job.environment}


def _require_approval(run: Run, job: Job) -> None:
    environment = run.repository.environments.get(job.environment or "")
    verdict = run.approvals.get(job.environment or "")
    if environment is not None and environment.reviewers and verdict != "approved":
        raise TokenRefusedError(f"environment {environment.name} is {verdict or 'not approved'}")


def _subject(run: Run, job: Job) -> str:
    name = run.repository.full_name
    if job.environment is not None:
        return f"repo:{name}:environment:{job.environment}"
    if run.event == "pull_request":
        return f"repo:{name}:pull_request"
    return f"repo:{name}:ref:{run.ref}"
