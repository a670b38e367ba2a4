"""JSON Web Tokens of an OIDC provider: their claims, and whether STS takes them.

Sources: IAM user guide, "Available keys for AWS OIDC federation"; STS API reference,
`AssumeRoleWithWebIdentity`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from local_cloud.protocol.errors import AwsError
from onboarding.aws_limits import GITHUB_ISSUER

Claims = Mapping[str, Any]
GITHUB_CLAIMS = (
    "actor",
    "actor_id",
    "enterprise_id",
    "environment",
    "job_workflow_ref",
    "ref",
    "repository",
    "repository_id",
    "workflow",
)
"""The claims that STS knows as condition keys in trust policies, since 2026-02."""
SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
"""DER of a SHA-256 DigestInfo, before the digest. Source: RFC 8017, section 9.2."""


def claims_of(token: str) -> Claims:
    """Return a token's claims, unverified. Raises AwsError for what is no JSON Web Token."""
    try:
        claims = json.loads(_decode(token.split(".")[1]))
    except (IndexError, ValueError) as error:
        raise invalid_token("The ID Token provided is not a valid JWT") from error
    if not isinstance(claims, dict):
        raise invalid_token("The ID Token provided is not a valid JWT")
    return claims


def github_keys(claims: Claims) -> dict[str, Any]:
    """Return the condition keys of GitHub's own claims; none of another issuer's token."""
    if host(claims) != GITHUB_ISSUER:
        return {}
    return {f"{GITHUB_ISSUER}:{name}": claims[name] for name in GITHUB_CLAIMS if name in claims}


def check_claims(claims: Claims, client_ids: tuple[str, ...], now: float) -> None:
    """Refuse a token for another audience than the provider's, and one that has expired.

    Raises AwsError.
    """
    if claims.get("aud") not in client_ids:
        raise invalid_token("Incorrect token audience")
    expires = claims.get("exp")
    if not isinstance(expires, int | float):
        raise invalid_token("Missing a required claim: exp")
    if expires < now:
        raise AwsError("ExpiredTokenException", f"Token expired: current date/time {now:.0f}")


def check_signature(token: str, keys: Mapping[str, Any]) -> None:
    """Refuse a token that no key of a JSON Web Key Set signed by RS256. Raises AwsError."""
    signed, _, signature = token.rpartition(".")
    try:
        header = json.loads(_decode(signed.split(".")[0]))
        number = int.from_bytes(_decode(signature))
        (key,) = (key for key in keys["keys"] if key["kid"] == header["kid"])
        modulus, exponent = (int.from_bytes(_decode(key[name])) for name in ("n", "e"))
        is_rsa = header["alg"] == "RS256"
    except (KeyError, TypeError, ValueError) as error:
        raise invalid_token(
            "Couldn't retrieve verification key from your identity provider"
        ) from error
    size = (modulus.bit_length() + 7) // 8
    digest = SHA256_PREFIX + hashlib.sha256(signed.encode()).digest()
    padded = b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest
    if not is_rsa or pow(number, exponent, modulus).to_bytes(size) != padded:
        raise invalid_token("Token signature verification failed")


def host(claims: Claims) -> str:
    """Return a token's issuer as IAM names it: without the protocol."""
    return str(claims.get("iss", "")).removeprefix("https://").rstrip("/")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def invalid_token(message: str) -> AwsError:
    """Return the refusal of a token that says nothing trustworthy."""
    return AwsError("InvalidIdentityToken", message)
