"""The scheduled comparison of an endpoint's captures: a CodeBuild project of its own, and when.

The projects that build engines run what branches hold, and read no capture. This one runs the zip
that `roundhouse deploy` puts where only deployments may write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.hosting_spec import CaptureCheckSpec
from stacks.access import arns
from stacks.access.policies import (
    Statement,
    allow,
    bucket_listing,
    exact_role,
    image_pull,
    key_use,
    log_stream_writes,
    network_interfaces,
    object_reads,
    object_writes,
    registry_log_in,
)
from stacks.builds.projects import CPU, BuildRouteProps, log_group_name, project_properties
from stacks.template import Resources, log_group

TIMEOUT_MINUTES = 60
ATTEMPTS, ATTEMPT_SECONDS = 3, 3600
"""How often, and for how long, EventBridge Scheduler tries to start a check."""
BUILDSPEC = """version: 0.2
env:
  shell: bash
phases:
  build:
    commands:
      - >-
        python -m engine_build.captures --root . --environment "$ROUNDHOUSE_ENVIRONMENT"
        --endpoint "$ROUNDHOUSE_ENDPOINT" --store "s3://$ROUNDHOUSE_BUCKET" --out build/captures
        --hours "$ROUNDHOUSE_HOURS" --sample "$ROUNDHOUSE_SAMPLE" --publish
"""


def capture_check(deployment: Deployment) -> CaptureCheckSpec | None:
    """Return what the endpoint's file says of scheduled comparisons; None: there are none."""
    capture = deployment.endpoint.data_capture
    return None if capture is None else capture.check


def capture_check_resources(deployment: Deployment, image_uris: Mapping[str, str]) -> Resources:
    """Return log group, project, schedule, and a role of each; empty without a `check`."""
    check = capture_check(deployment)
    if check is None:
        return {}
    environment, route = deployment.environment, _route(deployment)
    project = _project(deployment, check, image_uris[route.image])
    arn = arns.arn(environment, "codebuild", f"project/{project['Name']}")
    start = allow("StartCheck", ["codebuild:StartBuild"], [arn])
    roles = {
        "CaptureCheckRole": ("codebuild", capture_check_statements(deployment)),
        "CaptureCheckScheduleRole": ("scheduler", (start,)),
    }
    return {
        "CaptureCheckLogs": {
            "Type": "AWS::Logs::LogGroup",
            "Properties": log_group(log_group_name(environment, route)),
        },
        **{
            logical_id: {
                "Type": "AWS::IAM::Role",
                "Properties": exact_role(
                    environment, service=f"{service}.amazonaws.com", statements=statements
                ),
            }
            for logical_id, (service, statements) in roles.items()
        },
        "CaptureCheckProject": {"Type": "AWS::CodeBuild::Project", "Properties": project},
        "CaptureCheckSchedule": {
            "Type": "AWS::Scheduler::Schedule",
            "DependsOn": ["CaptureCheckProject"],
            "Properties": _schedule(deployment, check, arn),
        },
    }


def capture_check_source(deployment: Deployment) -> str:
    """Return the object key of the zip that the endpoint's comparison runs from."""
    keys = (target.engine_key for target in deployment.targets)
    return names.capture_check_source(deployment.environment, deployment.name, keys)


def capture_check_statements(deployment: Deployment) -> tuple[Statement, ...]:
    """The comparison's: this endpoint's captures, networks and zip; its reports and metrics."""
    environment, route = deployment.environment, _route(deployment)
    networks = sorted({target.network_keys["float"] for target in deployment.targets})
    return (
        *image_pull(environment, route.image),
        *registry_log_in(),
        *object_reads(
            environment,
            [
                f"{names.captures_prefix(environment, deployment.name)}/*",
                *(names.network_path(key, "*") for key in networks),
                capture_check_source(deployment),
            ],
        ),
        *bucket_listing(environment),
        *object_writes(
            environment, [f"{names.capture_reports_prefix(environment, deployment.name)}/*"]
        ),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        allow(
            "PublishCaptureMetrics",
            ["cloudwatch:PutMetricData"],
            ["*"],
            {"StringEquals": {"cloudwatch:namespace": names.CAPTURE_NAMESPACE}},
        ),
        *log_stream_writes(environment, log_group_name(environment, route)),
        *network_interfaces(environment),
    )


def _route(deployment: Deployment) -> BuildRouteProps:
    """The machine that exported and quantized the network also has the memory to run it."""
    return replace(CPU, name=names.capture_check_route(deployment.name))


def _project(deployment: Deployment, check: CaptureCheckSpec, image_uri: str) -> dict[str, Any]:
    environment = deployment.environment
    properties = project_properties(
        environment, _route(deployment), image_uri=image_uri, buildspec=BUILDSPEC
    )
    variables = {
        "ROUNDHOUSE_ENDPOINT": deployment.name,
        "ROUNDHOUSE_HOURS": str(check.hours),
        "ROUNDHOUSE_SAMPLE": str(check.sample),
    }
    properties["Environment"]["EnvironmentVariables"] += [
        {"Name": name, "Type": "PLAINTEXT", "Value": value} for name, value in variables.items()
    ]
    source = f"{names.artifact_bucket(environment)}/{capture_check_source(deployment)}"
    return {
        **properties,
        "Description": f"Compares captures of {deployment.name} of {environment.name}",
        "Source": {"Type": "S3", "Location": source, "BuildSpec": BUILDSPEC},
        "TimeoutInMinutes": TIMEOUT_MINUTES,
        "ServiceRole": {"Fn::GetAtt": ["CaptureCheckRole", "Arn"]},
    }


def _schedule(deployment: Deployment, check: CaptureCheckSpec, project_arn: str) -> dict[str, Any]:
    """The schedule starts the project as Scheduler's own target `CodeBuild StartBuild`."""
    return {
        "Description": f"Compares captures of {deployment.name} of {deployment.environment.name}",
        "ScheduleExpression": check.schedule,
        "State": "ENABLED",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": project_arn,
            "RoleArn": {"Fn::GetAtt": ["CaptureCheckScheduleRole", "Arn"]},
            "RetryPolicy": {
                "MaximumEventAgeInSeconds": ATTEMPT_SECONDS,
                "MaximumRetryAttempts": ATTEMPTS,
            },
        },
    }
