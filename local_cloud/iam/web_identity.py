"""AssumeRoleWithWebIdentity as STS checks it: the provider, the token, the session's length.

MiniStack evaluates a role's trust policy by `aud`, `sub` and `amr` alone, and believes any token.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

from ministack.services import iam, sts

from local_cloud.iam.tokens import (
    check_claims,
    check_signature,
    claims_of,
    github_keys,
    host,
    invalid_token,
)
from local_cloud.protocol.errors import AwsError
from onboarding.aws_limits import GITHUB_ISSUER

DEFAULT_DURATION = 3600
KEYS_TIMEOUT_SECONDS = 2.0


def install(keys_url: str | None) -> None:
    """Replace what MiniStack knows of a token.

    `keys_url` is where the JSON Web Key Set of GitHub's issuer is read instead of there; None
    leaves signatures unchecked.
    """
    evaluate_trust, principal = sts._web_identity_trust_denied, sts._web_identity_principal

    def denied(role_arn: str, parameters: Mapping[str, Any], use_json: bool) -> Any:
        token = str(sts._p(parameters, "WebIdentityToken"))
        duration = int(sts._p(parameters, "DurationSeconds") or DEFAULT_DURATION)
        try:
            _check_token(token, role_arn, keys_url)
            refusal = evaluate_trust(role_arn, parameters, use_json)
            if refusal is None:
                _check_duration(role_arn, duration)
        except AwsError as error:
            if use_json:
                return sts.error_response_json(error.code, error.message, error.status)
            return sts._error(error.status, error.code, error.message, ns="sts")
        return refusal

    def principal_with_claims(token: str, provider: str, role_arn: str) -> tuple[str, Any]:
        name, keys = principal(token, provider, role_arn)
        return name, {**keys, **github_keys(claims_of(token))}

    sts._web_identity_trust_denied = denied
    sts._web_identity_principal = principal_with_claims


def _check_token(token: str, role_arn: str, keys_url: str | None) -> None:
    claims, account = claims_of(token), role_arn.split(":")[4]
    issuer = host(claims)
    arn = f"arn:aws:iam::{account}:oidc-provider/{issuer}"
    provider = iam._oidc_providers.get_scoped(account, None, arn)
    if provider is None:
        raise invalid_token(
            f"No OpenIDConnect provider found in your account for {claims.get('iss')}"
        )
    check_claims(claims, tuple(provider["ClientIDList"]), time.time())
    if keys_url is not None and issuer == GITHUB_ISSUER:
        check_signature(token, _read_keys(keys_url))


def _read_keys(url: str) -> Mapping[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=KEYS_TIMEOUT_SECONDS) as reply:
            keys: dict[str, Any] = json.load(reply)
    except (OSError, ValueError) as error:
        raise invalid_token(
            "Couldn't retrieve verification key from your identity provider"
        ) from error
    return keys


def _check_duration(role_arn: str, duration: int) -> None:
    role = iam._roles.get_scoped(role_arn.split(":")[4], None, role_arn.rpartition("/")[2])
    if duration > role.get("MaxSessionDuration", DEFAULT_DURATION):
        raise AwsError(
            "ValidationError",
            "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
        )
