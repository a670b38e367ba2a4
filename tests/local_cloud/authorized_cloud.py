"""A local cloud that evaluates IAM's policies, and clients of roles."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from local_cloud import lifecycle
from local_cloud.address import CloudAddress
from tests.local_cloud.account import ROOT

REGION = "us-east-1"
CONFIG = Config(retries={"max_attempts": 1}, proxies={}, parameter_validation=False)
Credentials = dict[str, str]


class AuthorizedCloud:
    """Accounts of one cloud; an account's own id is its root's access key."""

    def __init__(self, address: CloudAddress) -> None:
        self.url = address.endpoint_url

    def root(self, service: str, account: str) -> Any:
        """A client of an account's root."""
        keys = {"aws_access_key_id": account, "aws_secret_access_key": "local"}
        return self._client(service, **keys)

    def session(self, service: str, credentials: Credentials) -> Any:
        """A client of a role's session."""
        keys = {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
        }
        return self._client(service, **keys)

    def _client(self, service: str, **keys: str) -> Any:
        return boto3.client(
            service, endpoint_url=self.url, region_name=REGION, config=CONFIG, **keys
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


def refusal_code(call: Any, *arguments: Any, **fields: Any) -> str | None:
    """The error code of a call; None of one that is allowed."""
    try:
        call(*arguments, **fields)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return None
