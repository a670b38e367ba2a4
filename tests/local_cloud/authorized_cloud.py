"""A local cloud that evaluates IAM's policies, and clients of roles taken with GitHub's tokens."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from local_cloud import lifecycle
from local_cloud.address import CloudAddress
from onboarding.aws_limits import GITHUB_ISSUER
from tests.local_cloud.account import ROOT

REGION = "us-east-1"
CONFIG = Config(retries={"max_attempts": 1}, proxies={}, parameter_validation=False)
Credentials = dict[str, str]


class AuthorizedCloud:
    """Accounts of one cloud; an account's own id is its root's access key."""

    def __init__(self, address: CloudAddress) -> None:
        self.url = address.endpoint_url
        self._sts = self._client("sts", Config(signature_version=UNSIGNED, proxies={}))

    def root(self, service: str, account: str) -> Any:
        """A client of an account's root."""
        keys = {"aws_access_key_id": account, "aws_secret_access_key": "local"}
        return self._client(service, CONFIG, **keys)

    def session(self, service: str, credentials: Credentials) -> Any:
        """A client of a role's session."""
        keys = {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
        }
        return self._client(service, CONFIG, **keys)

    def assume(self, role_arn: str, token: str, **options: Any) -> Credentials:
        """Credentials of a role for a token. Raises ClientError."""
        reply = self._sts.assume_role_with_web_identity(
            RoleArn=role_arn, RoleSessionName="test", WebIdentityToken=token, **options
        )
        credentials: Credentials = reply["Credentials"]
        return credentials

    def _client(self, service: str, config: Config, **keys: str) -> Any:
        return boto3.client(
            service, endpoint_url=self.url, region_name=REGION, config=config, **keys
        )


@contextlib.contextmanager
def authorized_cloud(state: Path) -> Iterator[AuthorizedCloud]:
    """Start a cloud that evaluates policies."""
    kept = dict(os.environ)
    os.environ["AUTH"] = "true"
    try:
        yield AuthorizedCloud(lifecycle.start(ROOT, state))
    finally:
        os.environ.clear()
        os.environ.update(kept)
        lifecycle.stop(state)


def github_token(**claims: Any) -> str:
    """A token of GitHub's with these claims, whose signature nobody checks."""
    body = {"iss": f"https://{GITHUB_ISSUER}", "aud": "sts.amazonaws.com", **claims}
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, body))
    return ".".join([*(base64.urlsafe_b64encode(part).decode() for part in parts), "none"])


def refusal_code(call: Any, *arguments: Any, **fields: Any) -> str | None:
    """The error code of a call; None of one that is allowed."""
    try:
        call(*arguments, **fields)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return None
