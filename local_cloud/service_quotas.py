"""Service Quotas: the local cloud has no quotas, so that it names none."""

from __future__ import annotations

from local_cloud.protocol.errors import Reply, Request, dispatch


def answer(target: str, body: bytes) -> Reply:
    """Answer one request of the JSON 1.1 protocol."""
    names = ("ListServiceQuotas", "ListAWSDefaultServiceQuotas")
    return dispatch("ServiceQuotas", dict.fromkeys(names, _list_none), target, body)


def _list_none(request: Request) -> Request:
    return {"Quotas": []}
