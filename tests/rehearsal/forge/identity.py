"""The forge's OpenID Connect issuer: RS256 tokens with GitHub's claims, and their public key.

Sources: GitHub's OpenID Connect reference; RFC 7515, RFC 7518 section 3.3.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.rehearsal.forge.records import WRITE, Job, Run

ISSUER = "https://token.actions.githubusercontent.com"
KEY_ID = "forge"
LIFETIME_SECONDS = 300
PRIME_BITS = 512
EXPONENT = 65537
PRIMALITY_ROUNDS = 20
SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
"""DER of a SHA-256 DigestInfo, before the digest. Source: RFC 8017, section 9.2."""


class TokenRefusedError(Exception):
    """A job may have no token; the message says why."""


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """An RSA key of 1024 bits: enough for a token that only a local cloud trusts."""

    modulus: int
    private: int

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new key."""
        while True:
            one, other = _prime(), _prime()
            totient = (one - 1) * (other - 1)
            if one != other and math.gcd(EXPONENT, totient) == 1:
                return cls(modulus=one * other, private=pow(EXPONENT, -1, totient))

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a JSON Web Token."""
        header = {"alg": "RS256", "kid": KEY_ID, "typ": "JWT"}
        signed = ".".join(encode(json.dumps(part).encode()) for part in (header, claims))
        digest = SHA256_PREFIX + hashlib.sha256(signed.encode()).digest()
        size = (self.modulus.bit_length() + 7) // 8
        padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
        signature = pow(int.from_bytes(padded), self.private, self.modulus)
        return f"{signed}.{encode(signature.to_bytes(size))}"

    def key_set(self) -> dict[str, Any]:
        """Return the JSON Web Key Set by which tokens are verified."""
        numbers = {"n": self.modulus, "e": EXPONENT}
        parts = {k: encode(v.to_bytes((v.bit_length() + 7) // 8)) for k, v in numbers.items()}
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID, **parts}]}


def encode(content: bytes) -> str:
    """Return bytes as base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def job_claims(run: Run, audience: str, *, is_immutable: bool) -> dict[str, Any]:
    """Return the claims of the present job's token. Raises TokenRefusedError.

    `is_immutable`: the subject names owner and repository by their ids too, as for repositories
    made, renamed or transferred after 2026-07-15.
    """
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
        "sub": _subject(run, job, is_immutable=is_immutable),
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


def _subject(run: Run, job: Job, *, is_immutable: bool) -> str:
    repository, owner = run.repository, run.repository.owner
    name = repository.full_name
    if is_immutable:
        name = f"{owner.login}@{owner.id}/{repository.name}@{repository.id}"
    if job.environment is not None:
        return f"repo:{name}:environment:{job.environment}"
    if run.event == "pull_request":
        return f"repo:{name}:pull_request"
    return f"repo:{name}:ref:{run.ref}"


def _prime() -> int:
    """Return a prime of PRIME_BITS bits, by the test of Miller and Rabin."""
    while True:
        number = secrets.randbits(PRIME_BITS) | 3 << (PRIME_BITS - 2) | 1
        if all(number % small for small in (3, 5, 7, 11, 13, 17, 19, 23)) and _is_prime(number):
            return number


def _is_prime(number: int) -> bool:
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    odd = (number - 1) >> twos
    for _ in range(PRIMALITY_ROUNDS):
        power = pow(secrets.randbelow(number - 3) + 2, odd, number)
        if power in (1, number - 1):
            continue
        if not any((power := pow(power, 2, number)) == number - 1 for _ in range(twos - 1)):
            return False
    return True
