"""Calls of CodeBuild and SageMaker for MiniStack's Step Functions, and the end of child runs."""

from __future__ import annotations

from collections.abc import Callable
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
"""Step Functions names exceptions as the AWS SDK for Java 2 does."""


def install() -> None:
    """Add both services, and wrap what goes on after a stop."""
    stepfunctions._AWS_SDK_SERVICE_MAP.update(SERVICES)
    stepfunctions._AWS_SDK_ERROR_PREFIX.update(PREFIXES)
    stepfunctions._AWS_SDK_ERROR_CODE_OVERRIDES["sagemaker"] = SDK_NAMES
    stepfunctions._execute_task = _unless_stopped(stepfunctions._execute_task)
    stepfunctions._run_distributed_map = _unless_stopped(stepfunctions._run_distributed_map)
    fail = stepfunctions._fail_execution

    def fail_once(execution: dict[str, Any], error: str, cause: str) -> None:
        """An execution that was stopped stays ABORTED."""
        if execution["status"] == "RUNNING":
            fail(execution, error, cause)

    stepfunctions._fail_execution = fail_once


def _unless_stopped(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that takes the context last: it does not run in a stopped execution."""

    def guard(*arguments: Any) -> Any:
        execution = stepfunctions._executions.get(arguments[-1]["Execution"]["Id"])
        if execution is not None and execution["status"] != "RUNNING":
            raise stepfunctions._ExecutionError("States.Aborted", "The execution was stopped")
        return run(*arguments)

    return guard
