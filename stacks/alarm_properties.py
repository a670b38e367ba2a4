"""CloudFormation properties of an endpoint's alarms."""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from stacks import arns
from stacks.scaling_properties import dimensions

MICROSECONDS_A_MILLISECOND = 1000
SERVER_ERROR_SHARE = 0.01
CLIENT_ERROR_SHARE = 0.05


def alarms(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Every `AWS::CloudWatch::Alarm` of an endpoint, by construct id."""
    found = {
        "ServerErrors": _error_alarm(deployment, "server-errors", "Invocation5XXErrors", SERVER_ERROR_SHARE),
        # Behind a multi-model endpoint Triton answers every inference error with a 400, a broken engine's too.
        "ClientErrors": _error_alarm(deployment, "client-errors", "Invocation4XXErrors", CLIENT_ERROR_SHARE),
    }
    if deployment.endpoint.latency_slo_ms is not None:
        found["Latency"] = _latency_alarm(deployment, deployment.endpoint.latency_slo_ms)
    return found


def rollback_alarm_ids(deployment: Deployment) -> tuple[str, ...]:
    """Alarms that take a new version back: clients' mistakes must not, so 4XX counts only where Triton hides faults in it."""
    kept = {"ServerErrors", "Latency", *(("ClientErrors",) if deployment.server == "triton" else ())}
    return tuple(alarm for alarm in alarms(deployment) if alarm in kept)


def _latency_alarm(deployment: Deployment, slo_ms: float) -> dict[str, Any]:
    return {
        **_alarm(deployment, "latency", "ModelLatency", f"p99 model latency is over the SLO of {slo_ms:g} ms"),
        "ExtendedStatistic": "p99",
        "Threshold": slo_ms * MICROSECONDS_A_MILLISECOND,
    }


def _error_alarm(deployment: Deployment, name: str, metric: str, share: float) -> dict[str, Any]:
    return {
        **_alarm(deployment, name, metric, f"{metric} is over {share:.0%} of the invocations"),
        # The metric is 0 or 1 for each invocation, so its average is a share.
        "Statistic": "Average",
        "Threshold": share,
    }


def _alarm(deployment: Deployment, name: str, metric: str, description: str) -> dict[str, Any]:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    topic = arns.alarm_topic(deployment.environment)
    return {
        "AlarmName": f"{endpoint}-{name}",
        "AlarmDescription": f"{endpoint}: {description}",
        "Namespace": "AWS/SageMaker",
        "MetricName": metric,
        "Dimensions": dimensions(deployment),
        "Period": 60,
        "EvaluationPeriods": 5,
        "DatapointsToAlarm": 3,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
        "AlarmActions": [topic],
        "OKActions": [topic],
    }
