"""Web pages that come where AWS's answer is expected, as a proxy's or a login page.

Refused before they pass for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError

OF_AWS = "x-amz"
"""How the names of headers begin that AWS sends with every answer, and no proxy's page has."""
FAILED = 500
"""A page with such a status may be of a load balancer of AWS's own; botocore asks again."""


class HtmlResponseError(BotoCoreError):  # type: ignore[misc, unused-ignore]
    """A page of HTML came, and nothing of AWS with it."""

    fmt = "a web page came in place of AWS's answer (HTTP {status})"


def refuse_pages(session: Any) -> None:
    """Make every client of a boto3 session raise HtmlResponseError for a page.

    An empty HEAD would say that the object is there.
    """
    session.events.register("before-parse", _require_aws)


def _require_aws(response_dict: Mapping[str, Any], **_: object) -> None:
    headers = {str(name).lower(): str(value) for name, value in response_dict["headers"].items()}
    is_page = headers.get("content-type", "").strip().lower().startswith("text/html")
    if (
        is_page
        and response_dict["status_code"] < FAILED
        and not any(name.startswith(OF_AWS) for name in headers)
    ):
        close = getattr(response_dict["body"], "close", None)
        if close is not None:
            close()
        raise HtmlResponseError(status=response_dict["status_code"])
