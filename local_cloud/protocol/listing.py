"""Pages of what List and Describe actions show: records that match a request, in its order."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from local_cloud.protocol.errors import validation_error

PAGE = 10
"""How many records a page has unless the request says more. Source: ListEndpoints, MaxResults."""
Record = Mapping[str, Any]


def list_page(
    request: Record, field: str, kind: str, records: Iterable[Record], *, descending: bool = True
) -> Record:
    """Return one page of records under `field`, and the token of the next page.

    `kind` begins the names of the fields `…Name` and `…Status`. `descending` is the order where the
    request names none.
    """
    by = request.get("SortBy") or "CreationTime"
    order = request.get("SortOrder") or ("Descending" if descending else "Ascending")
    ordered = sorted(
        (record for record in records if _matches(record, kind, request)),
        key=lambda record: (
            record[by if by == "CreationTime" else kind + by],
            record[f"{kind}Name"],
        ),
        reverse=order == "Descending",
    )
    return page(request, field, ordered, int(request.get("MaxResults") or PAGE))


def page(request: Record, field: str, records: Sequence[Record], size: int) -> Record:
    """Return at most `size` records from the request's token on, and the token of the next page."""
    begin = _page_begin(request.get("NextToken"))
    end = begin + size
    token = base64.b64encode(f"from {end}".encode()).decode()
    return {field: records[begin:end], **({"NextToken": token} if len(records) > end else {})}


def _matches(record: Record, kind: str, request: Record) -> bool:
    if str(request.get("NameContains") or "") not in record[f"{kind}Name"]:
        return False
    if request.get("StatusEquals") not in (None, record.get(f"{kind}Status")):
        return False
    for field in ("CreationTime", "LastModifiedTime"):
        before, after = request.get(f"{field}Before"), request.get(f"{field}After")
        if before is not None and record[field] >= before:
            return False
        if after is not None and record[field] <= after:
            return False
    return True


def _page_begin(token: str | None) -> int:
    if not token:
        return 0
    try:
        word, _, number = base64.b64decode(token, validate=True).decode().partition(" ")
    except (binascii.Error, UnicodeDecodeError):
        word, number = "", ""
    if word != "from" or not number.isdigit():
        raise validation_error("Invalid pagination token.")
    return int(number)
