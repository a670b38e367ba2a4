"""The CloudFormation type AWS::IAM::OIDCProvider, which MiniStack lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ministack.services import iam

from local_cloud.ministack.account import account_id


def put_provider(
    properties: Mapping[str, Any], arn: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Create a provider, or change the one of an ARN; Ref and attributes are its ARN.

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
