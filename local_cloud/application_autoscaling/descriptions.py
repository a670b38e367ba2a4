"""Descriptions of targets, policies and activities as Application Auto Scaling's actions reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from local_cloud.application_autoscaling.records import (
    Activity,
    Described,
    Policy,
)
from local_cloud.application_autoscaling.requests import (
    CONFIGURATIONS,
    NAMESPACE,
    constraint,
    refusal,
)
from local_cloud.protocol.errors import Request

PAGE = 50


def matching_records(request: Request, field: str, records: Iterable[Described]) -> Described:
    """The records of a request's namespace, resource, dimension and names.

    One page, and the token of the next.
    """
    namespace = request.get("ServiceNamespace")
    if namespace is None:
        raise constraint(None, "serviceNamespace", "Member must not be null")
    if namespace != NAMESPACE:
        return {field: []}
    found = [record for record in records if _matches(record, request)]
    begin, count = _page(request)
    more = {"NextToken": str(begin + count)} if len(found) > begin + count else {}
    return {field: found[begin : begin + count], **more}


def _matches(record: Described, request: Request) -> bool:
    for requested, field in (
        ("ResourceId", "ResourceId"),
        ("ScalableDimension", "ScalableDimension"),
    ):
        if request.get(requested) is not None and record[field] != request[requested]:
            return False
    several = (
        ("ResourceIds", "ResourceId"),
        ("PolicyNames", "PolicyName"),
        ("ScheduledActionNames", "ScheduledActionName"),
    )
    return all(
        not request.get(requested) or record.get(field) in request[requested]
        for requested, field in several
    )


def _page(request: Request) -> tuple[int, int]:
    token, count = str(request.get("NextToken") or "0"), int(request.get("MaxResults") or PAGE)
    if not token.isdigit():
        raise refusal(f"Invalid token: {token}")
    if not 1 <= count <= PAGE:
        raise constraint(count, "maxResults", f"Member must have value between 1 and {PAGE}")
    return int(token), count


def policy_description(policy: Policy, arns: Sequence[str]) -> Described:
    """A policy as DescribeScalingPolicies shows it, with the ARNs of its alarms."""
    alarms = [
        {"AlarmName": name, "AlarmARN": arn} for name, arn in zip(policy.alarms, arns, strict=True)
    ]
    return {
        "PolicyARN": policy.arn,
        "PolicyName": policy.name,
        **policy.key.as_description(),
        "PolicyType": policy.kind,
        CONFIGURATIONS[policy.kind]: dict(policy.configuration),
        "Alarms": alarms,
        "CreationTime": policy.created,
    }


def activity_descriptions(request: Request, activities: Iterable[Activity]) -> list[Described]:
    """Activities, newest first; those that did not scale only when asked for."""
    everything = str(request.get("IncludeNotScaledActivities", False)).lower() == "true"
    return [
        activity.as_description()
        for activity in activities
        if everything or activity.not_scaled is None
    ]
