"""The JSON 1.1 protocol of AWS's control planes: one action a request, named by its target header."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from local_cloud.aws_error import AwsError, Reply, error_reply, json_reply

Request = Mapping[str, Any]
Actions = Mapping[str, Callable[[Request], Request]]


def dispatched(service: str, actions: Actions, target: str, body: bytes) -> Reply:
    """The reply of the action that `target` names; `service` is the word for it in a refusal."""
    name = target.rpartition(".")[2]
    action = actions.get(name)
    if action is None:
        return error_reply(
            AwsError("UnknownOperationException", f"the local cloud has no {service} action {name}")
        )
    try:
        return json_reply(action(_read(body)))
    except AwsError as error:
        return error_reply(error)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except ValueError as error:
        raise AwsError(
            "SerializationException", f"The request's body is no JSON: {error}"
        ) from error
