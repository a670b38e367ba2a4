"""A log group that a stack makes itself, so that its log ends some day."""

from __future__ import annotations

from typing import Any

LOG_DAYS = 90
"""As long as a build's source: after that nobody could repeat it."""


def log_group(name: str) -> dict[str, Any]:
    """Properties of an `AWS::Logs::LogGroup`.

    It is encrypted by CloudWatch's own key: a log of a build holds no one's data.
    """
    return {"LogGroupName": name, "RetentionInDays": LOG_DAYS}
