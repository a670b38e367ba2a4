"""Bearer tokens of SageMaker's OpenAI path: a presigned call of CallWithBearerToken in base64.

Source: sagemaker-core 2.27.0, token_generator.py; SageMaker developer guide,
realtime-endpoints-openai-compatible.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ministack import app
from ministack.core import iam_evaluator, responses, sigv4

from local_cloud.protocol.errors import AwsError

PREFIX = "sagemaker-api-key-"
HOST, VERSION = "sagemaker.amazonaws.com", "&Version=1"
ACTION = "CallWithBearerToken"
LONGEST_SECONDS = 43_200
CLOCK_SKEW_SECONDS = 300
INVOKE = "sagemaker:InvokeEndpoint"


@dataclass(frozen=True, kw_only=True)
class BearerToken:
    """Who calls, for which region; `query` is the presigned request."""

    access_key: str
    region: str
    query: Mapping[str, list[str]]


def read_token(authorization: str, now: float) -> BearerToken:
    """Return what a header's token says. Raises AwsError unless it is one for now."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.startswith(PREFIX):
        raise _refusal(f"The Authorization header must be Bearer {PREFIX}...")
    try:
        address = base64.b64decode(token.removeprefix(PREFIX), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _refusal("The bearer token is not valid base64.") from error
    url = urlsplit("https://" + address.removeprefix("https://").removesuffix(VERSION))
    query = parse_qs(url.query, keep_blank_values=True)
    values = {name: items[0] for name, items in query.items()}
    key, *scope = values.get("X-Amz-Credential", "").split("/")
    if (
        url.netloc != HOST
        or values.get("Action") != ACTION
        or len(scope) != 4
        or scope[2:] != ["sagemaker", "aws4_request"]
        or not key
        or not values.get("X-Amz-Signature")
    ):
        raise _refusal(f"The bearer token is no presigned call of {ACTION} on {HOST}.")
    _check_time(values, now)
    return BearerToken(access_key=key, region=scope[1], query=query)


def _check_time(values: Mapping[str, str], now: float) -> None:
    try:
        moment = datetime.strptime(values["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        seconds = int(values["X-Amz-Expires"])
    except (KeyError, ValueError) as error:
        raise _refusal("The bearer token names no time and no expiry.") from error
    if not 0 < seconds <= LONGEST_SECONDS:
        raise _refusal(f"The bearer token lasts {seconds} s; the most is {LONGEST_SECONDS} s.")
    begun = moment.timestamp()
    if begun > now + CLOCK_SKEW_SECONDS:
        raise _refusal("The bearer token is not valid yet.")
    if now > begun + seconds:
        raise _refusal("The bearer token has expired.")


def enter_account(token: BearerToken) -> None:
    """Make the token's account and region those of the present request."""
    key = token.access_key
    responses.set_request_account_id(app._request_account_scope(key) if app.AUTH else key)
    responses.set_request_region(token.region)


def authorize(token: BearerToken, endpoint_arn: str) -> None:
    """Evaluate signature and policies where the local cloud evaluates IAM. Raises AwsError.

    Both actions are needed: to call with a token at all, and to invoke this endpoint.
    """
    if not app.AUTH:
        return
    if not iam_evaluator._is_root_key(token.access_key):
        _check_signature(token)
    for action, resource in ((f"sagemaker:{ACTION}", "*"), (INVOKE, endpoint_arn)):
        denied = iam_evaluator.enforce(
            token.access_key, action, "sagemaker", token.region, resource_arn=resource
        )
        if isinstance(denied, iam_evaluator.AuthError):
            raise AwsError(denied.code, denied.message, 403)
        if denied is not None:
            raise AwsError(
                "AccessDeniedException",
                f"User: {denied.principal_arn} is not authorized to perform: {action} on resource: "
                f"{resource}",
                403,
            )


def _check_signature(token: BearerToken) -> None:
    """Refuse a signature that the key's secret does not give.

    MiniStack's own check also refuses one that is older than five minutes, which a token may be.
    """
    query = dict(token.query)
    session = query.get("X-Amz-Security-Token", [""])[0]
    credential = iam_evaluator.resolve_credential(
        token.access_key, responses.get_account_id(), session
    )
    if isinstance(credential, iam_evaluator.CredentialResolutionError):
        raise AwsError(credential.code, credential.message, 403)
    signature = sigv4.parse_query_signature(query)
    failure: Any = signature
    if not isinstance(signature, tuple):
        secret, headers = credential.secret_access_key, {"host": HOST}
        failure = sigv4.header_signature_failure(
            signature, secret, "POST", "/", query, headers, b"", presigned=True, explain=False
        )
    if failure:
        raise AwsError(failure[0], failure[1], 403)


def _refusal(message: str) -> AwsError:
    return AwsError("AccessDeniedException", message, 403)
