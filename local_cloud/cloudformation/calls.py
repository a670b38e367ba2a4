"""What CloudFormation's handlers of all our types share: names, calls, and their refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ministack.services.cloudformation import provisioners

from local_cloud.protocol.errors import AwsError

Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]
"""A resource's Ref and its attributes."""
Action = Callable[[Properties], Properties]


def physical_name(properties: Properties, field: str, stack: str, logical_id: str) -> str:
    """Return the name that a template gives, or one made of the stack's and the resource's."""
    name = properties.get(field)
    return str(provisioners._physical_name(stack, logical_id, max_len=63) if name is None else name)


def last(arn: str) -> str:
    """Return the name at an ARN's end."""
    return arn.rpartition("/")[2]


def call(action: Action, request: Properties) -> Properties:
    """Call an action; its refusal becomes the reason that CloudFormation shows."""
    try:
        return action(request)
    except AwsError as error:
        raise ValueError(
            f"Resource handler returned message: {error.message} ({error.code})"
        ) from error


def call_delete(action: Action, request: Properties) -> None:
    """Call a deleting action; a resource that is gone already is no fault."""

    def delete(request: Properties) -> Properties:
        try:
            return action(request)
        except AwsError as error:
            if "Could not find" not in error.message and error.code != "ObjectNotFoundException":
                raise
            return {}

    call(delete, request)
