"""The states that build an engine in a CodeBuild project: on a CPU, on its one GPU, or a fleet."""

from __future__ import annotations

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.builds.job import (
    CANDIDATE,
    EXECUTION_TAG,
    IS_CHECKPOINT,
    ended_state,
    explained,
    first_wait,
    may_pass,
    next_wait,
    overrun,
    refusal,
    wait,
)
from roundhouse_cdk.builds.language import PATIENTLY, State, call, jsonata, literal, with_fields

BUILDSPEC = "engine_build/buildspec.yml"
"""In the source that a build brings."""
CHECKPOINT_BUILDSPEC = "engine_build/checkpoint_buildspec.yml"
VARIABLES = {
    "ROUNDHOUSE_MODEL": "$states.input.engine.model",
    "ROUNDHOUSE_COMPUTE_CAPABILITY": "$states.input.engine.computeCapability",
    "ROUNDHOUSE_SOURCE_COMMIT": "$states.input.commit",
    "ROUNDHOUSE_EXECUTION": EXECUTION_TAG,
    "ROUNDHOUSE_CANDIDATE": CANDIDATE,
    "ROUNDHOUSE_PLAN_FROM": "$states.input.planFrom",
}
"""Variables of one build, beside those of its project."""
CHECKPOINT_VARIABLES = {"ROUNDHOUSE_KEY": "$states.input.engine.engineKey"}
"""And one of a checkpoint's, where there are text generators."""
QUEUED = (
    "the build never began: CodeBuild had no machine for it while it waited in its queue; deploy"
    " again later, or ask for a higher quota in AWS Service Quotas"
)
"""What is said of a build that reached the time limit of CodeBuild's queue."""


def codebuild_states(environment: EnvironmentSpec, *, has_checkpoints: bool) -> dict[str, State]:
    """From StartBuild on; the input's route is one of the environment's projects."""
    started = {"job": "$states.result.Build.Id", "log": '"of build " & $states.result.Build.Id'}
    return {
        "StartBuild": call(
            environment,
            "codebuild:startBuild",
            _start_arguments(environment, has_checkpoints=has_checkpoints),
            Output=with_fields({**started, **first_wait(environment)}),
            Catch=[refusal(environment)],
            Next="WaitForBuild",
        ),
        "WaitForBuild": wait("LookAtBuild"),
        "LookAtBuild": call(
            environment,
            "codebuild:batchGetBuilds",
            {"Ids": [jsonata("$states.input.job")]},
            Output=_progress(environment),
            Retry=PATIENTLY,
            Catch=[refusal(environment, lasts=True)],
            Next="BuildEnded",
        ),
        "BuildEnded": ended_state(
            going=["IN_PROGRESS"], succeeded="SUCCEEDED", wait_in="WaitForBuild"
        ),
    }


def _start_arguments(environment: EnvironmentSpec, *, has_checkpoints: bool) -> State:
    prefix = literal(names.builder_project(environment, ""))
    token = "$states.input.execution & $states.input.engine.engineKey & $states.input.attempt"
    variables = [
        {"Name": name, "Value": jsonata(value), "Type": "PLAINTEXT"}
        for name, value in (VARIABLES | (CHECKPOINT_VARIABLES if has_checkpoints else {})).items()
    ]
    buildspec = BUILDSPEC
    if has_checkpoints:
        both = literal(CHECKPOINT_BUILDSPEC), literal(BUILDSPEC)
        buildspec = jsonata(f"{IS_CHECKPOINT} ? {both[0]} : {both[1]}")
    return {
        "ProjectName": jsonata(f"{prefix} & $states.input.route"),
        "SourceTypeOverride": "S3",
        "SourceLocationOverride": jsonata("$states.input.source"),
        # AWS does not document that the buildspec of a NO_SOURCE project counts for another source.
        "BuildspecOverride": buildspec,
        "EnvironmentVariablesOverride": variables,
        # A start whose answer was lost is not a second build.
        "IdempotencyToken": jsonata(f'$hash({token}, "SHA-256")'),
    }


def _progress(environment: EnvironmentSpec) -> str:
    """Status, reason and log.

    The buildspec exports the build's own reason; CodeBuild's messages only name a command.
    """
    first = f"""
  $build := $states.result.Builds[0];
  $own := $build.ExportedEnvironmentVariables[Name = "ROUNDHOUSE_REASON"].Value;
  $messages := [$build.Phases.Contexts.Message[$ != ""]];
  $status := $exists($build) ? $build.BuildStatus : "GONE";
  $began := "BUILD" in $build.Phases.PhaseType;
  $told := $count($messages) > 0 ? $messages[0] : "the build ended as " & $status;
  $late := $began ? {literal(overrun(environment))} : {literal(QUEUED)};
  $reason := $boolean($own) ? $own
    : $status = "TIMED_OUT" ? $late : {explained(environment, "$told")};
  $place := $build.Logs.DeepLink ? $build.Logs.DeepLink
    : $build.Logs.GroupName & " " & $build.Logs.StreamName;
"""
    fields = {
        "status": "$status",
        "reason": "$reason",
        "final": '$boolean($own) or $status = "STOPPED"',
        "retriable": f'$not($began) and ($status = "FAULT" or {may_pass("$told")})',
        "log": "$place",
        **next_wait(environment),
    }
    return with_fields(fields, first=first)
