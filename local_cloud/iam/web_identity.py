"""AssumeRoleWithWebIdentity by the claims of GitHub's tokens and the session's length.

MiniStack evaluates a role's trust policy by `aud`, `sub` and `amr` alone. Tokens are believed as
they are: neither their signature nor their expiry is checked.
Source: IAM user guide, "Available keys for AWS OIDC federation".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ministack.services import iam, sts

from local_cloud.account import account_id
from onboarding.aws_limits import GITHUB_ISSUER

DEFAULT_DURATION = 3600
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
TOO_LONG = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."


def install() -> None:
    """Add GitHub's claims to a token's condition keys, and refuse sessions that are too long."""
    evaluate_trust, principal = sts._web_identity_trust_denied, sts._web_identity_principal

    def denied(role_arn: str, parameters: Mapping[str, Any], use_json: bool) -> Any:
        refusal = evaluate_trust(role_arn, parameters, use_json)
        if refusal is not None:
            return refusal
        account, name = role_arn.split(":")[4], role_arn.rpartition("/")[2]
        longest = iam._roles.get_scoped(account, None, name).get("MaxSessionDuration")
        seconds = int(sts._p(parameters, "DurationSeconds") or DEFAULT_DURATION)
        if seconds <= (longest or DEFAULT_DURATION):
            return None
        if use_json:
            return sts.error_response_json("ValidationError", TOO_LONG, 400)
        return sts._error(400, "ValidationError", TOO_LONG, ns="sts")

    def principal_with_claims(token: str, provider: str, role_arn: str) -> tuple[str, Any]:
        name, keys = principal(token, provider, role_arn)
        if not name.endswith(f"/{GITHUB_ISSUER}"):
            return name, keys
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        known = {f"{GITHUB_ISSUER}:{key}": claims[key] for key in GITHUB_CLAIMS if key in claims}
        return name, {**keys, **known}

    sts._web_identity_trust_denied = denied
    sts._web_identity_principal = principal_with_claims


def put_provider(
    properties: Mapping[str, Any], arn: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Create an AWS::IAM::OIDCProvider, or change the one of an ARN; Ref and attributes: its ARN.

    Raises ValueError where the account has a provider of this URL already.
    """
    url = str(properties["Url"])
    own = f"arn:aws:iam::{account_id()}:oidc-provider/{url.removeprefix('https://').rstrip('/')}"
    if arn is None and own in iam._oidc_providers:
        raise ValueError(
            f"Resource handler returned message: Provider with url {url} already exists."
        )
    iam._oidc_providers[own] = {
        "Url": url,
        "ClientIDList": list(properties.get("ClientIdList", ())),
        "ThumbprintList": list(properties.get("ThumbprintList", ())),
        "Arn": own,
        "CreateDate": iam._now(),
        "Tags": list(properties.get("Tags", ())),
    }
    return own, {"Arn": own}


def delete_provider(arn: str) -> None:
    """Delete a provider; one that is gone already is no fault."""
    iam._oidc_providers.pop(arn, None)
