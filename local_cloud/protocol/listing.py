"""Pages of what List and Describe actions show: records that match a request, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from local_cloud.protocol.errors import validation_error

PAGE = 10
"""How many records a page has unless the request says more. Source: ListEndpoints, MaxResults."""
Record = Mapping[str, Any]


def list_page(
    request: Record, field: str, kind: str, records: Iterable[Record], *, descending: bool = True
) -> Record:
    """Return one page of records under `field` by their creation, and the next page's token.

    `kind` begins the names of the fields `…Name` and `…Status`. `descending` is the order where the
    request names none.
    """
    order = request.get("SortOrder") or ("Descending" if descending else "Ascending")
    name, status = request.get("NameContains") or "", request.get("StatusEquals")
    ordered = sorted(
        (
            record
            for record in records
            if name in record[f"{kind}Name"] and status in (None, record[f"{kind}Status"])
        ),
        key=lambda record: (record["CreationTime"], record[f"{kind}Name"]),
        reverse=order == "Descending",
    )
    return page(request, field, ordered, int(request.get("MaxResults") or PAGE))


def page(request: Record, field: str, records: Sequence[Record], size: int) -> Record:
    """Return at most `size` records from the request's token on, and the token of the next page."""
    token = request.get("NextToken") or "0"
    if not token.isdigit():
        raise validation_error("Invalid pagination token.")
    begin, end = int(token), int(token) + size
    return {field: records[begin:end], **({"NextToken": str(end)} if len(records) > end else {})}
