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
from urllib.parse import parse_qsl, urlsplit

from ministack import app
from ministack.core import responses

from local_cloud.protocol.errors import AwsError

PREFIX = "sagemaker-api-key-"
HOST, VERSION = "sagemaker.amazonaws.com", "&Version=1"
ACTION = "CallWithBearerToken"
LONGEST_SECONDS = 43_200
CLOCK_SKEW_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class BearerToken:
    """Who calls, for which region."""

    access_key: str
    region: str


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
    values = dict(parse_qsl(url.query, keep_blank_values=True))
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
    return BearerToken(access_key=key, region=scope[1])


def _check_time(values: Mapping[str, str], now: float) -> None:
    try:
        moment = datetime.strptime(values["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        begun, seconds = moment.timestamp(), int(values["X-Amz-Expires"])
    except (KeyError, ValueError) as error:
        raise _refusal("The bearer token names no time and no expiry.") from error
    if not 0 < seconds <= LONGEST_SECONDS:
        raise _refusal(f"The bearer token lasts {seconds} s; the most is {LONGEST_SECONDS} s.")
    if not begun - CLOCK_SKEW_SECONDS <= now <= begun + seconds:
        raise _refusal("The bearer token has expired, or is not valid yet.")


def enter_account(token: BearerToken) -> None:
    """Make the token's account and region those of the present request.

    Raises AwsError where policies are evaluated, which tokens are not held against.
    """
    if app.AUTH:
        raise _refusal("The local cloud evaluates no bearer token where AUTH is true.")
    responses.set_request_account_id(token.access_key)
    responses.set_request_region(token.region)


def _refusal(message: str) -> AwsError:
    return AwsError("AccessDeniedException", message, 403)
