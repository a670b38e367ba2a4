"""Errors as AWS words them, and its JSON replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
Request = Mapping[str, Any]
Actions = Mapping[str, Callable[[Request], Request]]


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


def json_reply(content: Mapping[str, object], status: int = 200) -> Reply:
    """A reply of the JSON 1.1 protocol; dates are seconds since the epoch."""
    return status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(content).encode()


def error_reply(error: AwsError, **fields: object) -> Reply:
    """An error of the JSON protocols; `fields` are those that SageMaker Runtime adds."""
    content = {"__type": error.code, "message": error.message, "Message": error.message, **fields}
    status, headers, body = json_reply(content, error.status)
    return status, {**headers, "x-amzn-ErrorType": error.code}, body


def dispatch(service: str, actions: Actions, target: str, body: bytes) -> Reply:
    """Return the reply of the action that `target` names; `service` names it in a refusal."""
    name = target.rpartition(".")[2]
    try:
        if name not in actions:
            message = f"the local cloud has no {service} action {name}"
            raise AwsError("UnknownOperationException", message)
        return json_reply(actions[name](json.loads(body or b"{}")))
    except AwsError as error:
        return error_reply(error)
    except ValueError as error:
        message = f"The request's body is no JSON: {error}"
        return error_reply(AwsError("SerializationException", message))


def present_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
