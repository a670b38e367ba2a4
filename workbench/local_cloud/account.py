"""The emulator's account: who asks, and what its S3 and CloudWatch hold; import it only after MiniStack is configured."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ministack.core import responses
from ministack.services import cloudwatch, s3

Scoped = responses.AccountRegionScopedDict


def account_id() -> str:
    """The account of the request in hand."""
    return str(responses.get_account_id())


def region() -> str:
    """The region of the request in hand."""
    return str(responses.get_region())


def sagemaker_arn(kind: str, name: str) -> str:
    """ARN of a SageMaker resource: model, endpoint-config, endpoint."""
    return f"arn:aws:sagemaker:{region()}:{account_id()}:{kind}/{name}"


def read_object(bucket: str, key: str) -> bytes | None:
    """An S3 object's bytes; None when the object or its bucket is not there."""
    content = s3._get_object_data(bucket, key)
    return None if content is None else bytes(content)


def record_metric(namespace: str, name: str, value: float, unit: str, dimensions: dict[str, str]) -> None:
    """Adds one data point to CloudWatch."""
    cloudwatch.record_metric(namespace, name, value, unit, dimensions)


def in_background(function: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """Runs a function in a thread of its own, on behalf of the account and region of the request in hand."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(function, *arguments), daemon=True)
    thread.start()
    return thread
