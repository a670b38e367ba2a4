"""Calls that CloudFormation makes for a resource: a refusal becomes the reason that it shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_cloud.aws_error import AwsError

Properties = Mapping[str, Any]
Created = tuple[str, dict[str, Any]]
"""A resource's Ref and its attributes."""


def said(action: Any, request: Properties) -> Mapping[str, Any]:
    """Calls an action; its refusal becomes the reason that CloudFormation shows."""
    try:
        result: Mapping[str, Any] = action(request)
    except AwsError as error:
        raise ValueError(
            f"Resource handler returned message: {error.message} ({error.code})"
        ) from error
    return result


def gone(action: Any, request: Properties) -> None:
    """Calls a deleting action; what is gone already is no fault."""
    try:
        action(request)
    except AwsError as error:
        if "Could not find" not in error.message and error.code != "ObjectNotFoundException":
            raise ValueError(
                f"Resource handler returned message: {error.message} ({error.code})"
            ) from error
