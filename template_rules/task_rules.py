"""Rules of what is in the states of a Step Functions definition: fields, tasks, times, choices,
paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean, nearest
from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.state_machine import KINDS
from template_rules.template import Template
from template_rules.values import fields, is_known, number, objects, text
from template_rules.workflow_rules import levels_of, path_in

EVERY = ("Type", "Comment", "QueryLanguage")
FLOW = ("Next", "End", "Assign", "Output", "InputPath", "OutputPath")
RESULT = ("ResultPath", "ResultSelector")
TIMES = ("TimeoutSeconds", "TimeoutSecondsPath", "HeartbeatSeconds", "HeartbeatSecondsPath")
CAUGHT = ("Retry", "Catch")
FIELDS: dict[str, tuple[str, ...]] = {
    "Task": (
        *EVERY,
        *FLOW,
        *RESULT,
        *TIMES,
        *CAUGHT,
        "Resource",
        "Parameters",
        "Arguments",
        "Credentials",
    ),
    "Pass": (*EVERY, *FLOW, "Result", "ResultPath", "ResultSelector", "Parameters"),
    "Choice": (*EVERY, "Choices", "Default", "InputPath", "OutputPath", "Output", "Assign"),
    "Wait": (*EVERY, *FLOW, "Seconds", "SecondsPath", "Timestamp", "TimestampPath"),
    "Succeed": (*EVERY, "InputPath", "OutputPath", "Output"),
    "Fail": (*EVERY, "Error", "Cause", "ErrorPath", "CausePath"),
    "Parallel": (*EVERY, *FLOW, *RESULT, *CAUGHT, "Branches", "Parameters", "Arguments"),
    "Map": (
        *(
            *EVERY,
            *FLOW,
            *RESULT,
            *CAUGHT,
            "ItemProcessor",
            "Iterator",
            "Items",
            "ItemsPath",
            "ItemSelector",
            "Parameters",
        ),
        *(
            "ItemReader",
            "ItemBatcher",
            "ResultWriter",
            "MaxConcurrency",
            "MaxConcurrencyPath",
            "Label",
        ),
        *(
            "ToleratedFailureCount",
            "ToleratedFailureCountPath",
            "ToleratedFailurePercentage",
            "ToleratedFailurePercentagePath",
        ),
    ),
}
"""Fields of each state, in JSONPath and JSONata.

Source: Amazon States Language, Step Functions developer guide.
"""
OF_ONE_LANGUAGE: dict[Any, tuple[str, ...]] = {
    "JSONata": ("Arguments", "Output", "Items"),
    "JSONPath": (
        "InputPath",
        "OutputPath",
        "Parameters",
        "ResultPath",
        "ResultSelector",
        "ItemsPath",
        "SecondsPath",
    ),
}
CALLS = {
    "lambda": "invoke",
    "sns": "publish",
    "sqs": "sendMessage",
    "events": "putEvents",
    "dynamodb": "getItem putItem updateItem deleteItem",
    "states": "startExecution",
    "codebuild": "startBuild stopBuild batchDeleteBuilds batchGetReports "
    "startBuildBatch stopBuildBatch retryBuildBatch deleteBuildBatch",
    "sagemaker": "createEndpoint createEndpointConfig createHyperParameterTuningJob createLabelingJob createModel "
    "createProcessingJob createTrainingJob createTransformJob updateEndpoint",
    "ecs": "runTask",
    "batch": "submitJob",
}
"""Optimized integrations of these services.

Source: Step Functions developer guide, "Integrating optimized services".
"""
WAITING = re.compile(r"(?:\.sync(?::2)?|\.waitForTaskToken)$")
LOGIC = ("And", "Or", "Not")
COMPARISONS = (
    *(
        "BooleanEquals",
        "BooleanEqualsPath",
        "IsBoolean",
        "IsNull",
        "IsNumeric",
        "IsPresent",
        "IsString",
        "IsTimestamp",
    ),
    *(
        f"{kind}{how}{path}"
        for kind in ("Numeric", "String", "Timestamp")
        for how in ("Equals", "GreaterThan", "GreaterThanEquals", "LessThan", "LessThanEquals")
        for path in ("", "Path")
    ),
    "StringMatches",
)
LONGEST_SECONDS = 99_999_999


@rule("RH268", "a task calls what Step Functions can call")
def unknown_task(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        for name, state in level.states.items():
            resource = text(fields(state).get("Resource"))
            if (
                resource is None
                or text(fields(state).get("Type")) != "Task"
                or resource.startswith("${")
            ):
                continue
            for what, way_out in _task_faults(resource):
                path = path_in(level, f"States.{name}.Resource")
                yield Problem(
                    resource=machine.logical_id,
                    path=path,
                    what=what,
                    value=resource,
                    way_out=way_out,
                )


@rule("RH269", "a state has the fields of its type, in its own query language")
def unknown_field(template: Template) -> Iterator[Problem]:
    language: Any = "JSONPath"
    for machine, level in levels_of(template):
        language = level.content.get("QueryLanguage", language if level.path else "JSONPath")
        for name, state in level.states.items():
            kind = text(fields(state).get("Type"))
            spoken = fields(state).get("QueryLanguage", language)
            for field in fields(state) if kind in KINDS else ():
                other = "JSONata" if spoken == "JSONPath" else "JSONPath"
                if field in OF_ONE_LANGUAGE[other] and spoken in OF_ONE_LANGUAGE:
                    path, what = (
                        path_in(level, f"States.{name}.{field}"),
                        f"{field} is of {other}, and the state is in {spoken}",
                    )
                    yield Problem(
                        resource=machine.logical_id,
                        path=path,
                        what=what,
                        way_out=f"say QueryLanguage: {other}",
                    )
                elif field not in FIELDS[kind or ""] and is_known(field):
                    what = f"a {kind} state has no field {field}, and CreateStateMachine refuses it"
                    way_out = did_you_mean(str(field), FIELDS[kind or ""], "take it out")
                    path = path_in(level, f"States.{name}.{field}")
                    yield Problem(
                        resource=machine.logical_id, path=path, what=what, way_out=way_out
                    )


@rule(
    "RH276",
    "a state's times are within Step Functions' bounds, and a heartbeat is shorter than its task",
)
def state_out_of_time(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        for name, state in level.states.items():
            for field in ("TimeoutSeconds", "HeartbeatSeconds", "Seconds"):
                value = number(fields(state).get(field))
                least = 0 if field == "Seconds" else 1
                if value is not None and not least <= value <= LONGEST_SECONDS:
                    path, allowed = (
                        path_in(level, f"States.{name}.{field}"),
                        f"{least} to {LONGEST_SECONDS}",
                    )
                    what = f"{field} is out of bounds"
                    yield Problem(
                        resource=machine.logical_id,
                        path=path,
                        what=what,
                        value=f"{value:g}",
                        allowed=allowed,
                        way_out="change it",
                    )
            beat, whole = (
                number(fields(state).get(field)) for field in ("HeartbeatSeconds", "TimeoutSeconds")
            )
            if beat is not None and whole is not None and beat >= whole:
                path, allowed = (
                    path_in(level, f"States.{name}.HeartbeatSeconds"),
                    f"less than {whole:g}",
                )
                what = "the heartbeat is no shorter than the task may take"
                yield Problem(
                    resource=machine.logical_id,
                    path=path,
                    what=what,
                    value=f"{beat:g}",
                    allowed=allowed,
                    way_out="shorten it",
                )


@rule("RH277", "a choice compares a path by a comparison that there is")
def ill_formed_choice(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        language = level.content.get("QueryLanguage")
        for name, state in level.states.items():
            if text(fields(state).get("Type")) != "Choice" or "JSONata" in (
                language,
                fields(state).get("QueryLanguage"),
            ):
                continue
            for index, choice in objects(fields(state).get("Choices")):
                if "Condition" not in choice:
                    for what, value, way_out in _choice_faults(choice):
                        path = path_in(level, f"States.{name}.Choices[{index}]")
                        yield Problem(
                            resource=machine.logical_id,
                            path=path,
                            what=what,
                            value=value,
                            way_out=way_out,
                        )


@rule("RH278", "a value whose key ends in .$ is a path, and a path stands under such a key")
def path_for_a_value(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        for name, state in level.states.items():
            for field in ("Parameters", "ResultSelector", "ItemSelector"):
                for path, what, value in _path_faults(fields(state).get(field), field):
                    severity: Any = "warning" if "as it is" in what else None
                    place, way_out = (
                        path_in(level, f"States.{name}.{path}"),
                        "change the key or the value",
                    )
                    yield Problem(
                        resource=machine.logical_id,
                        path=place,
                        what=what,
                        value=value,
                        way_out=way_out,
                        severity=severity,
                    )


def _task_faults(resource: str) -> Iterator[tuple[str, str]]:
    if not resource.startswith("arn:"):
        yield (
            "the task's resource is no ARN",
            "write arn:aws:states:::service:call, or a function's ARN",
        )
        return
    parts = resource.split(":", 5)
    if len(parts) < 6 or parts[2] != "states" or parts[3] or parts[4]:
        return
    service, _, call = WAITING.sub("", parts[5]).partition(":")
    known = CALLS.get(service, "").split()
    if not call:
        yield "the task names no call", "write arn:aws:states:::service:call"
    elif known and call not in known:
        match = nearest(call, known)
        way_out = (
            f"did you mean {match}?"
            if match
            else f"write one of {', '.join(known)}, or aws-sdk:{service}:{call}"
        )
        yield f"Step Functions has no call {call} of {service}", way_out


def _choice_faults(choice: dict[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    inner = [each for key in LOGIC if key in choice for _, each in objects(choice[key])]
    for each in inner:
        yield from _choice_faults(each)
    if any(key in choice for key in LOGIC):
        return
    variable = choice.get("Variable")
    if isinstance(variable, str) and is_known(variable) and not variable.startswith("$"):
        yield "Variable is no path", variable, f"write $.{variable}"
    elif variable is None:
        yield "the choice looks at no Variable", None, "write Variable, And, Or or Not"
    others = [
        key for key in choice if key not in ("Variable", "Next", "Comment", "Assign", "Output")
    ]
    for key in others:
        if key not in COMPARISONS and is_known(key):
            yield (
                "there is no such comparison",
                str(key),
                did_you_mean(str(key), COMPARISONS, "take one that there is"),
            )
    if not others:
        yield "the choice compares with nothing", None, "write a comparison, such as StringEquals"


def _path_faults(value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    for key, each in fields(value).items():
        here = f"{path}.{key}"
        if not isinstance(each, str):
            yield from _path_faults(each, here)
        elif not is_known(each) or each.startswith("${"):
            continue
        elif key.endswith(".$") and not each.startswith(("$", "States.")):
            yield (
                here,
                "the key ends in .$, and its value is neither a path nor an intrinsic function",
                each,
            )
        elif not key.endswith(".$") and re.match(r"\$\.[A-Za-z_]|\$\$\.", each):
            yield here, "the key does not end in .$, so that this path is passed on as it is", each
