"""What MiniStack's Step Functions lacks.

Calls to CodeBuild and SageMaker, and an end of what a stopped execution has started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ministack.services import stepfunctions

SERVICES = {
    "codebuild": {"target_prefix": "CodeBuild_20161006", "protocol": "json"},
    "sagemaker": {"target_prefix": "SageMaker", "protocol": "json"},
}
PREFIXES = {"codebuild": "CodeBuild", "sagemaker": "SageMaker"}
SDK_NAMES = {
    "ResourceLimitExceeded": "ResourceLimitExceededException",
    "ResourceInUse": "ResourceInUseException",
    "ResourceNotFound": "ResourceNotFoundException",
    "ValidationException": "SageMakerException",
    "ThrottlingException": "SageMakerException",
}
"""Step Functions calls by the AWS SDK for Java 2 and names its exceptions.

Errors outside the API model are the service's own.
"""

Execution = dict[str, Any]
Task = Callable[[Mapping[str, Any], Any, Execution, dict[str, Any]], Any]


def install() -> None:
    """Hangs both services in."""
    stepfunctions._AWS_SDK_SERVICE_MAP.update(SERVICES)
    stepfunctions._AWS_SDK_ERROR_PREFIX.update(PREFIXES)
    stepfunctions._AWS_SDK_ERROR_CODE_OVERRIDES["sagemaker"] = SDK_NAMES
    stepfunctions._execute_task = ending_with_its_run(stepfunctions._execute_task)
    stepfunctions._fail_execution = failing_once(stepfunctions._fail_execution)
    begin = stepfunctions._run_distributed_map

    def run_map(
        state: Mapping[str, Any],
        given: Any,
        effective: Any,
        iterator: Any,
        execution: Execution,
        context: dict[str, Any],
    ) -> Any:
        _refuse_when_stopped(context)
        return begin(state, given, effective, iterator, execution, context)

    stepfunctions._run_distributed_map = run_map


def ending_with_its_run(execute: Task) -> Task:
    """Wraps a Task so that it does not begin once the execution of its Map Run is stopped."""

    def guarded(
        state: Mapping[str, Any], given: Any, execution: Execution, context: dict[str, Any]
    ) -> Any:
        _refuse_when_stopped(context)
        return execute(state, given, execution, context)

    return guarded


def failing_once(
    fail: Callable[[Execution, str, str], None],
) -> Callable[[Execution, str, str], None]:
    """Ends an execution in failure, unless it has ended: one that was stopped stays ABORTED."""

    def guarded(execution: Execution, error: str, cause: str) -> None:
        if execution["status"] == "RUNNING":
            fail(execution, error, cause)

    return guarded


def _refuse_when_stopped(context: Mapping[str, Any]) -> None:
    run = stepfunctions._executions.get(context["Execution"]["Id"])
    if run is not None and run["status"] != "RUNNING":
        raise stepfunctions._ExecutionError("States.Aborted", "The execution was stopped")
