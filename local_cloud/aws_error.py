"""Errors as AWS words them, and its JSON replies."""

from __future__ import annotations

import json
from collections.abc import Mapping

Reply = tuple[int, dict[str, str], bytes]


class AwsError(Exception):
    """A refusal with AWS's error code, message and HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def validation_error(message: str) -> AwsError:
    """SageMaker's usual refusal."""
    return AwsError("ValidationException", message)


def json_reply(
    content: Mapping[str, object],
    status: int = 200,
    content_type: str = "application/x-amz-json-1.1",
) -> Reply:
    """A reply of the JSON 1.1 protocol; dates are seconds since the epoch."""
    return status, {"Content-Type": content_type}, json.dumps(content).encode()


def error_reply(error: AwsError, **fields: object) -> Reply:
    """An error of the JSON protocols, with the further fields that some of SageMaker Runtime's
    errors carry.
    """
    content = {"__type": error.code, "message": error.message, "Message": error.message, **fields}
    status, headers, body = json_reply(content, error.status)
    return status, {**headers, "x-amzn-ErrorType": error.code}, body
