"""Service Quotas: the quotas of SageMaker that the state folder's `capacity.yaml` names.

AWS knows a quota of every instance type; here a type without a row is not limited, and not named.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from local_cloud.containers.quotas import service_quotas
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.constraints import checked_actions
from local_cloud.protocol.errors import AwsError, Reply, Request, dispatch
from local_cloud.protocol.listing import page

MODEL = "service-quotas"
SAGEMAKER = "sagemaker"
PAGE = 100
"""How many quotas a page has at most."""


class ServiceQuotas:
    """Answers what the command asks of Service Quotas; `state` holds the capacity file."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._actions = checked_actions(
            {
                "ListServiceQuotas": self._list,
                "ListAWSDefaultServiceQuotas": self._list_defaults,
            },
            MODEL,
        )

    def answer(self, target: str, body: bytes) -> Reply:
        """Answer one request of the JSON 1.1 protocol."""
        return dispatch("ServiceQuotas", self._actions, target, body)

    def _list(self, request: Request) -> Request:
        _require_sagemaker(request)
        quotas = [_quota(name, value) for name, value in service_quotas(self._state).items()]
        return page(request, "Quotas", quotas, int(request.get("MaxResults") or PAGE))

    @staticmethod
    def _list_defaults(request: Request) -> Request:
        """Return none: the local cloud has no limits of its own."""
        _require_sagemaker(request)
        return {"Quotas": []}


def _require_sagemaker(request: Request) -> None:
    if request["ServiceCode"] != SAGEMAKER:
        raise AwsError(
            "NoSuchResourceException",
            f"The local cloud knows the quotas of {SAGEMAKER} only, not of "
            f"{request['ServiceCode']}.",
        )


def _quota(name: str, value: int) -> Request:
    code = f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"
    return {
        "ServiceCode": SAGEMAKER,
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": f"arn:aws:servicequotas:{region()}:{account_id()}:{SAGEMAKER}/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": float(value),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
