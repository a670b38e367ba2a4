"""What SageMaker's List actions show: records that match a request, in its order, a page at a time.

Pure.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from local_cloud.protocol.errors import AwsError, validation_error

PAGE = 10
"""How many records a page has unless the request says more. Source: ListEndpoints, MaxResults."""
Record = Mapping[str, Any]


def list_page(
    request: Record, field: str, kind: str, records: Iterable[Record], *, descending: bool = True
) -> Record:
    """One page of records, under `field`, and the token of the next page.

    `kind` begins the names of the fields `…Name` and `…Status`. `descending` is the order where the
    request names none.
    """
    found = [record for record in records if _matches(record, kind, request)]
    order = request.get("SortOrder") or ("Descending" if descending else "Ascending")
    ordered = sorted(
        found, key=lambda record: _sorted_by(record, kind, request), reverse=order == "Descending"
    )
    return page(request, field, ordered, int(request.get("MaxResults") or PAGE))


def page(request: Record, field: str, records: list[Record], size: int) -> Record:
    """At most `size` records from the request's token on, and the next token if there are more."""
    begin = _begin(request.get("NextToken"))
    more = {"NextToken": _token(begin + size)} if len(records) > begin + size else {}
    return {field: records[begin : begin + size], **more}


def _matches(record: Record, kind: str, request: Record) -> bool:
    if str(request.get("NameContains") or "") not in record[f"{kind}Name"]:
        return False
    if request.get("StatusEquals") not in (None, record.get(f"{kind}Status")):
        return False
    for moment in ("CreationTime", "LastModifiedTime"):
        before, after = (
            _seconds(request.get(f"{moment}Before")),
            _seconds(request.get(f"{moment}After")),
        )
        if before is not None and record[moment] >= before:
            return False
        if after is not None and record[moment] <= after:
            return False
    return True


def _sorted_by(record: Record, kind: str, request: Record) -> tuple[Any, str]:
    by = request.get("SortBy") or "CreationTime"
    return record[by if by == "CreationTime" else f"{kind}{by}"], record[f"{kind}Name"]


def _seconds(moment: Any) -> float | None:
    """A time of a request: seconds since the epoch, or text that begins with a date."""
    if moment is None or isinstance(moment, int | float):
        return moment
    try:
        return datetime.fromisoformat(str(moment).replace("Z", "+00:00")).timestamp()
    except ValueError as error:
        raise AwsError(
            "SerializationException", f"{moment!r} can not be converted to a Timestamp"
        ) from error


def _token(begin: int) -> str:
    return base64.b64encode(f"from {begin}".encode()).decode()


def _begin(token: str | None) -> int:
    """Where a token's page begins; one that no page came with is refused."""
    if not token:
        return 0
    try:
        text = base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    number = text.removeprefix("from ")
    if number == text or not number.isdigit():
        raise validation_error("Invalid pagination token.")
    return int(number)
